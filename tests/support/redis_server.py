"""A real Redis server on a Unix socket, or on a port of loopback, of the test's own."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    import redis

ENVIRON = {"PATH": os.environ.get("PATH", os.defpath)}


def free_port() -> int:
    """Return a port of loopback that is not in use.

    Linux gives it to no other program as long as the tests run, so a server can be stopped and started again: a socket
    that is bound to it does not prevent the server from listening, because both set SO_REUSEADDR.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port: int = sock.getsockname()[1]
    if sys.platform == "linux":
        atexit.register(sock.close)
    else:
        sock.close()
    return port


class RedisServer:
    """A server with *options*, as on its command line; it listens on a Unix socket, or on *port* if that is not 0."""

    def __init__(self, *options: str, port: int = 0, tls: bool = False) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="xapi-redis-"))  # short, because the length of socket names is limited
        self.socket, self.port = self.home / "socket", port
        listen = ["--port", "0", "--tls-port", str(port)] if tls else ["--port", str(port)]
        self._command = [
            *("redis-server", *listen, "--unixsocket", str(self.socket), "--dir", str(self.home)),
            *("--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--logfile", str(self.home / "log"), *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._oracle: redis.Redis | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._process = subprocess.Popen(self._command, env=ENVIRON, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.socket))
                    return
            except OSError:
                assert time.monotonic() < end, (self.home / "log").read_text()
                assert self._process.poll() is None, (self.home / "log").read_text()
                time.sleep(0.01)

    def stop(self, number: int = 9) -> None:
        """End the server with the signal *number*, SIGKILL by default, and close the connection of the oracle."""
        if self._oracle is not None:
            self._oracle.close()
            self._oracle = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
                self._process.send_signal(signal.SIGCONT)
            self._process.wait(30)
            self._process = None

    def freeze(self) -> None:
        """Stop the server until `thaw`; it still accepts connections, in the kernel."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def url(self) -> str:
        """The URL of the Unix socket."""
        return f"unix://{self.socket}"

    @property
    def environ(self) -> dict[str, str | None]:
        """The environment that selects this server as the storage."""
        return {"XAPI_STORAGE": "redis", "XAPI_REDIS_URL": self.url}

    @property
    def oracle(self) -> "redis.Redis":
        """A client of another make."""
        if self._oracle is None:
            import redis

            self._oracle = redis.Redis(unix_socket_path=str(self.socket))
        return self._oracle

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Execute a command that the oracle has no method for."""
        execute: Any = self.oracle.execute_command
        return execute(*arguments)

    def keys(self) -> list[str]:
        """Return the names of all keys, without the part that identifies the account, and the fields of hashes."""
        names: list[bytes] = []
        found: Any = self.oracle.keys("*")
        for key in found:
            names += self._asking("HKEYS", key) if self._asking("TYPE", key) == b"hash" else [key]
        return sorted(name.decode().partition("}:")[2] or name.decode() for name in names)

    def field(self, key: str | bytes, name: str) -> Any:
        """Return the field *name* of the hash *key*, or None."""
        return self.execute("HGET", key, name)

    def _asking(self, *arguments: str | bytes) -> Any:
        """Execute a command, including one for a key that this server imports from another node of a cluster."""
        import redis

        with suppress(redis.exceptions.ResponseError):  # it is not in a cluster
            self.execute("ASKING")
        return self.execute(*arguments)

    def give_lock(self, key: str | bytes, owner: str) -> None:
        """Let *owner* have the login lock of the account in *key* for a minute."""
        self.execute("HSET", key, "owner", owner, "expires", int(time.time() * 1000) + 60_000)

    def lock_milliseconds(self, key: str | bytes) -> int:
        """Return how long the login lock of the account in *key* lasts."""
        return int(self.field(key, "expires")) - int(time.time() * 1000)


def required() -> None:
    """Skip the test if a Redis server, or a package for it, is not installed."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server (Debian package redis-server)")
    if not (find_spec("hiredis") and find_spec("redis")):
        pytest.skip("needs hiredis and redis (requirements-dev.txt)")


@pytest.fixture(scope="session")
def _shared_server() -> Iterator[RedisServer]:
    required()
    with RedisServer() as server:
        yield server


@pytest.fixture
def shared_redis(_shared_server: RedisServer) -> RedisServer:
    """A server without keys, which tests share that do not harm it."""
    _shared_server.oracle.flushall()
    return _shared_server


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A server of the test's own."""
    required()
    with RedisServer() as server:
        yield server
