"""What a worker has done before a command arrives: imports, and a rehearsal of the usual path."""

import gc
import os
import pkgutil
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import xapi_cli
from xapi_cli.cli import main
from xapi_cli.errors import XapiError
from xapi_cli.runtime import Runtime
from xapi_cli.store import registry
from xapi_cli.system import private_files

REHEARSAL = "rehearsal"  # the directory of the account, beside the sockets of the agent
_NOT_LOADED = ("xapi_cli.sandbox", "xapi_cli.__main__", "xapi_cli.agent.__main__")
_STREAMS = range(3)
_REHEARSALS = 12  # Python optimizes a function at its eighth call, and its instructions when they run afterwards
_NOWHERE = "/nonexistent"
_NAME = "rehearsal"  # of the user, as the password, and as the token
_BODY = b'{"access_token":"rehearsal","token_type":"bearer","expires_in":3600000}'
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


def load(directory: str) -> None:
    """Import the package with its libraries, and rehearse; spares the objects from garbage collection in workers.

    *directory* is that of the agent's sockets; REHEARSAL there gets a config file and a token for rehearsals.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as `cli.main` does it
    for module in pkgutil.walk_packages(xapi_cli.__path__, "xapi_cli."):
        if not module.name.startswith(_NOT_LOADED):
            _load(module.name)
    for name, subcommands in main.COMMANDS.items():
        main.command(name, subcommands)
    gc.collect()
    gc.freeze()  # the rehearsals collect only what they leave
    streams = [os.dup(number) for number in _STREAMS]
    _prepare(Path(directory, REHEARSAL))
    for _ in range(_REHEARSALS):
        rehearse(directory)
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    gc.collect()
    gc.freeze()


def _load(name: str) -> None:
    """Import the module *name*, unless it belongs to a storage with an extra that is not installed."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        if not name.startswith(registry.optional_packages()):
            raise


def rehearse(directory: str) -> None:
    """Run the usual commands with the account that `load` stored in *directory*, without output and effects on others.

    The pages of memory that a command changes are copied then, rather than while a client waits.
    """
    with _isolated(), suppress(OSError), _server() as base_url:
        _run(Path(directory, REHEARSAL), ["token", "show"])
        _run(Path(directory, REHEARSAL), ["request", "/rehearsal"], XAPI_BASE_URL=base_url, XAPI_TOKEN=_NAME)


def _prepare(directory: Path) -> None:
    """Store a config file and a token in *directory*, in place of those of an agent that was killed."""
    shutil.rmtree(directory, ignore_errors=True)
    with _isolated(), suppress(OSError, XapiError), _server() as base_url:
        private_files.make_directory(directory)
        _run(directory, ["login"], XAPI_BASE_URL=base_url, XAPI_PASSWORD=_NAME)


def _run(directory: Path, command: Sequence[str], **variables: str) -> None:
    environ = {
        "HOME": _NOWHERE,
        "XAPI_CONFIG_DIR": str(directory),
        "XAPI_STATE_DIR": str(directory),
        "XAPI_STORAGE": "file",
        "XAPI_USERNAME": _NAME,
    }
    main.run(command, Runtime({**environ, **variables}))


@contextmanager
def _isolated() -> Iterator[None]:
    """Redirect the standard streams to /dev/null for the rest of this process; close what is opened within."""
    before = set(os.listdir("/proc/self/fd"))
    null = os.open(os.devnull, os.O_RDWR)
    for number in _STREAMS:
        os.dup2(null, number)
    os.close(null)
    yield
    gc.collect()  # closes what the commands left open
    _close({int(name) for name in set(os.listdir("/proc/self/fd")) - before})


def _close(descriptors: set[int]) -> None:
    """Close *descriptors*, with the sockets that own them: later, they would close others with the same numbers."""
    for each in gc.get_objects():
        if type(each) is socket.socket and each.fileno() in descriptors:
            each.close()
    for number in descriptors:
        with suppress(OSError):
            os.close(number)


@contextmanager
def _server() -> Iterator[str]:
    """Serve one request on loopback, from a thread that has ended when this returns."""
    from threading import Thread

    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        listener.settimeout(1)

        def respond() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(1)
                    connection.recv(65536)
                    connection.sendall(_RESPONSE)

        thread = Thread(target=respond)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
