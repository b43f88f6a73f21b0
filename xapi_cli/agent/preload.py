"""What a worker has done before a command arrives: imports, and a rehearsal of the usual path."""

import gc
import os
import pkgutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

import xapi_cli
from xapi_cli.cli import main
from xapi_cli.runtime import Runtime
from xapi_cli.store import registry

_NOT_LOADED = ("xapi_cli.sandbox", "xapi_cli.__main__", "xapi_cli.agent.__main__")
_STREAMS = range(3)
_NOWHERE = "/nonexistent"
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def load() -> None:
    """Import the package with its libraries, and rehearse; spares the objects from garbage collection in workers."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as `cli.main` does it
    for module in pkgutil.walk_packages(xapi_cli.__path__, "xapi_cli."):
        if not module.name.startswith(_NOT_LOADED):
            _load(module.name)
    for name, subcommands in main.COMMANDS.items():
        main.command(name, subcommands)
    streams = [os.dup(number) for number in _STREAMS]
    rehearse()
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


def rehearse() -> None:
    """Run a request to a server in this process, and other commands; without output, files and effects on others.

    The pages of memory that a command changes are copied then, rather than while a client waits.
    """
    before = set(os.listdir("/proc/self/fd"))
    with _no_streams(), suppress(OSError), _server() as base_url:
        environ = {
            "HOME": _NOWHERE,
            "XAPI_BASE_URL": base_url,
            "XAPI_CONFIG_DIR": _NOWHERE,
            "XAPI_STATE_DIR": _NOWHERE,
            "XAPI_TOKEN": "rehearsal",
            "XAPI_STORAGE": "file",
        }
        main.run(["token", "show"], Runtime(environ))
        main.run(["request", "/rehearsal"], Runtime(environ))
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
def _no_streams() -> Iterator[None]:
    """Redirect the standard streams to /dev/null, for the rest of this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in _STREAMS:
        os.dup2(null, number)
    os.close(null)
    yield


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
