"""A real Redis server on a Unix socket."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    import redis

ENVIRON = {"PATH": os.environ.get("PATH", os.defpath)}


class RedisServer:
    """A server that listens on a Unix socket."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="xapi-redis-"))  # short, because the length of socket names is limited
        self.socket = self.home / "socket"
        self._command = [
            *("redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.home)),
            *("--save", "", "--daemonize", "no", "--logfile", str(self.home / "log")),
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

    def stop(self) -> None:
        """Kill the server, and close the connection of the oracle."""
        if self._oracle is not None:
            self._oracle.close()
            self._oracle = None
        if self._process is not None:
            self._process.kill()
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
        """A client of the server."""
        if self._oracle is None:
            import redis

            self._oracle = redis.Redis(unix_socket_path=str(self.socket))
        return self._oracle

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Execute a command that the oracle has no method for."""
        execute: Any = self.oracle.execute_command
        return execute(*arguments)

    def names(self) -> list[str]:
        """Return the names of all keys."""
        found: Any = self.oracle.keys("*")
        return sorted(name.decode() for name in found)


def required() -> None:
    """Skip the test if a Redis server, or the package for it, is not installed."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server (Debian package redis-server)")
    if not find_spec("redis"):
        pytest.skip("needs redis (requirements-dev.txt)")


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
