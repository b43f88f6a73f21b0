"""What a worker has done before a command arrives: imports, and warm-up requests that take the usual path."""

import gc
import os
import pkgutil
import select
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Thread

import xapi_cli
from xapi_cli.cli import main
from xapi_cli.errors import XapiError
from xapi_cli.http.pool import OpenLender
from xapi_cli.http.relay import loans
from xapi_cli.http.relay.messages import Loan, MessageSocket, ProtocolError
from xapi_cli.runtime import Runtime
from xapi_cli.store import registry
from xapi_cli.system import signals
from xapi_cli.system.private_files import StateDirectory

_NOT_LOADED = (
    "xapi_cli.sandbox",
    "xapi_cli.openapi.yaml_documents",  # requires an extra
    "xapi_cli.library",
    "xapi_cli.__main__",
    "xapi_cli.agent.__main__",
)
_STREAMS = range(3)
_ROUNDS = 12  # Python optimizes a function at its eighth call, and its instructions when they run afterwards
_NOWHERE = "/nonexistent"
_BASE_URL = "https://warm-up.invalid"
_TIMEOUT = 1.0  # seconds
_NAME = "warm-up"  # used as the username, the password and the token
_BODY = b'{"access_token":"warm-up","token_type":"bearer","expires_in":3600000}'
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_account: dict[str, bytes] = {}  # the files of the account of the warm-up requests, by their relative paths
_LOAN = Loan("TLSv1.3", ("GET", 200), is_relayed=True, peer=_NAME, trace="")


def load(directory: str) -> None:
    """Import the package with its libraries, and warm up; spares the objects from garbage collection in workers.

    *directory* is that of the agent's sockets.
    """
    for module in pkgutil.walk_packages(xapi_cli.__path__, "xapi_cli."):
        if not module.name.startswith(_NOT_LOADED):
            _load(module.name)
    for name in main.COMMANDS:
        main.command(name)
    gc.collect()
    gc.freeze()  # the warm-up requests collect only what they leave
    streams = [os.dup(number) for number in _STREAMS]
    _create_account(directory)
    for _ in range(_ROUNDS):
        warm_up(directory)
        with _isolated(), suppress(OSError), _server() as base_url, _account_files(directory) as place:
            _run(place, ["token", "show"])
            _run(place, ["request", "/warm-up"], XAPI_BASE_URL=base_url, XAPI_TOKEN=_NAME)
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


def warm_up(directory: str) -> None:
    """Send a request over https with the account that `load` created, without effects on others.

    The pages of memory that a command changes are copied then, rather than while a client waits. A second request, over
    http, would copy few more, and take a quarter of the time of a new worker, which delays calls in quick succession.
    """
    with _isolated(), suppress(OSError), _lenders() as lenders, _account_files(directory) as place:
        _run(place, ["request", "/warm-up"], lenders)


def _create_account(directory: str) -> None:
    """Log in to the account of the warm-up requests, and read its files."""
    with _isolated(), suppress(OSError, XapiError), _lenders() as lenders, _account_files(directory) as place:
        _run(place, ["login"], lenders, XAPI_BASE_URL=_BASE_URL, XAPI_PASSWORD=_NAME)
        files = filter(Path.is_file, place.rglob("*"))
        _account.update({str(each.relative_to(place)): content for each in files if (content := each.read_bytes())})


@contextmanager
def _account_files(directory: str) -> Iterator[Path]:
    """Yield a directory in *directory* with the files of the account, which exists only during warm-up requests.

    If this process is killed meanwhile, the master removes it. If that is killed, `xapi agent start` does.
    """
    place = _account_directory(directory, os.getpid())
    try:
        StateDirectory(place).open(make=True)
        for name, content in _account.items():
            own = StateDirectory((place / name).parent)
            own.file((place / name).name).replace(content, sync=False)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove_account_files(directory: str, process: int) -> None:
    """Remove what a worker with the ID *process*, which was killed, may have left."""
    shutil.rmtree(_account_directory(directory, process), ignore_errors=True)


def _account_directory(directory: str, process: int) -> Path:
    """Return a path whose name is one of those that `listener.Listeners` removes."""
    return Path(directory, f".warm-up.{process:016x}.new")


def _run(directory: Path, command: Sequence[str], lenders: OpenLender | None = None, **variables: str) -> None:
    environ = {
        "HOME": _NOWHERE,
        "XAPI_CONFIG_DIR": str(directory),
        "XAPI_STATE_DIR": str(directory),
        "XAPI_STORAGE": "file",
        "XAPI_USERNAME": _NAME,
    }
    runtime = Runtime({**environ, **variables}, open_lender=lenders)
    main.run(command, lambda: runtime)
    runtime.close()
    signals.terminate_if_received()  # the signal has ended only the command


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
def _lenders() -> Iterator[OpenLender]:
    """Lend connections as the relay does; the threads that do so have ended when this returns."""
    threads: list[Thread] = []

    def connect() -> socket.socket:
        borrower, lender = socket.socketpair()
        threads.append(Thread(target=_lend, args=(MessageSocket(lender),)))
        threads[-1].start()
        return borrower

    yield loans.lenders(connect)
    for thread in threads:
        thread.join()


def _lend(control: MessageSocket) -> None:
    """Lend a connection over which one request is served."""
    local, lent = socket.socketpair()
    with suppress(OSError, ProtocolError), local, lent:
        _receive(control)
        control.send(_LOAN.message(), lent.fileno())
        lent.close()
        _respond(local)
        _receive(control)  # the end of the loan
    control.close()


def _receive(control: MessageSocket) -> None:
    if select.select([control], [], [], _TIMEOUT)[0]:
        control.receive()


def _respond(connection: socket.socket) -> None:
    connection.settimeout(_TIMEOUT)
    connection.recv(65536)
    connection.sendall(_RESPONSE)


@contextmanager
def _server() -> Iterator[str]:
    """Serve one request on loopback, from a thread that has ended when this returns."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        listener.settimeout(_TIMEOUT)

        def respond() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    _respond(connection)

        thread = Thread(target=respond)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
