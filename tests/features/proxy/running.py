"""Runs `xapi proxy` for tests."""

import shlex
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.commands.api import TOKEN
from tests.support.program import Process, Xapi


class Proxy(NamedTuple):
    """A running proxy, as its settings describe it."""

    process: Process
    settings: Mapping[str, str]

    @property
    def url(self) -> str:
        return self.settings["XAPI_BASE_URL"]

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        return url.host, url.port or 0

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.settings['XAPI_TOKEN']}"}

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, trust_env=False, timeout=60)

    def memory(self) -> int:
        """Return the largest memory that the process has used, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def exchange(self, data: bytes) -> bytes:
        """Return what the proxy sends in reply to *data*, until it closes the connection."""
        with socket.create_connection(self.address, timeout=30) as connection:
            connection.sendall(data)
            received = b""
            while block := connection.recv(65_536):
                received += block
        return received


@contextmanager
def proxy(xapi: Xapi, env: Mapping[str, str], *args: str, argv: Sequence[str] = ()) -> Iterator[Proxy]:
    """Run `xapi proxy` with *args* for a `with` block, by *argv* if it is given, and stop it with SIGTERM."""
    process, settings = start(xapi, env, *(args or ("--port", "0")), argv=argv)
    yield Proxy(process, settings)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, out, TOKEN.encode() in err) == (0, b"", False), err


def start(xapi: Xapi, env: Mapping[str, str], *args: str, argv: Sequence[str] = ()) -> tuple[Process, dict[str, str]]:
    """Start `xapi proxy` with *args*; return the process and the settings that it prints."""
    process = xapi.start("proxy", *args, env=env, argv=argv)
    assert process.stdout
    settings = {}
    for _ in range(2 if "--port" in args else 1):
        name, _, value = shlex.split(process.stdout.readline().decode())[1].partition("=")
        settings[name] = value
    return process, settings
