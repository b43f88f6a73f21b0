"""A relay in its own process, as the agent starts it, and clients that borrow from it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.threads import wait_until
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http import tls
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.relay import loans
from xapi_cli.http.relay.loans import RelayLender
from xapi_cli.http.transport import Transport
from xapi_cli.system import agent_socket

HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"  # a truncated response
LONG_REPLY_TIMEOUT = 20.0  # seconds; on a busy machine, a relay that does respond must not be given up
_PROGRAM = """
import socket, sys
from xapi_cli.agent.relay import server as relay
if sys.argv[3] == "all":
    relay.must_relay = lambda route: True
relay.serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
"""


class Relay:
    """A running relay that listens at *path*."""

    def __init__(self, path: Path, process: "subprocess.Popen[bytes]", lifeline: int) -> None:
        self.path = path
        self.process = process
        self._lifeline: int | None = lifeline

    def connect(self) -> "socket.socket | None":
        return agent_socket.connect(str(self.path))  # type: ignore[return-value]  # the base class has all that is used

    def status(self) -> dict[str, int]:
        status = loans.relay_status(self.connect)
        assert status is not None
        return status

    def stop(self) -> None:
        """Stop the process, and return when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        while re.search(r"\) (\w)", Path(f"/proc/{self.process.pid}/stat").read_text())[1] != "T":  # type: ignore[index]  # it is there
            time.sleep(0.001)

    def end(self) -> None:
        """Close the lifeline, as the end of the master does."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


@contextmanager
def running(directory: Path, *, relays: str = "https") -> Iterator[Relay]:
    """Run a relay with its socket in *directory*; with *relays* "all", it passes on bytes for plain http too."""
    path = directory / "relay"
    inner, outer = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(128)
        arguments = [sys.executable, "-c", _PROGRAM, str(listener.fileno()), str(inner), relays]
        process = subprocess.Popen(arguments, pass_fds=[listener.fileno(), inner])
    os.close(inner)
    relay = Relay(path, process, outer)
    try:
        wait_until(lambda: loans.relay_status(relay.connect) is not None, "the relay responds")
        yield relay
        relay.end()
        assert process.wait(20) in {0, -9}, "the relay failed"
    finally:
        relay.end()
        process.kill()
        process.wait(30)


def borrower(
    relay: Relay,
    bundle: Path | None,
    *,
    trace: Callable[[str], None] = lambda line: None,
    timeout: float = 20,
    proxy: Proxy | None = None,
    reply_timeout: float = LONG_REPLY_TIMEOUT,
) -> httpx.Client:
    """Return a client that borrows from *relay*, as another process would; it trusts *bundle*."""
    sources = (("the CA bundle", str(bundle)),) if bundle else ()
    lender = RelayLender(relay.connect, sources, loopback=True, reply_timeout=reply_timeout)
    context = str(bundle) if bundle else None
    transport = Transport(
        lambda: tls.create_context(context, {}), lambda scheme, host, port: proxy, trace=trace, lender=lender
    )
    return httpx.Client(transport=HttpxTransport(transport), timeout=timeout, trust_env=False)


def get(relay: Relay, bundle: Path | None, url: str, authorization: str = "Bearer one") -> bytes:
    """Send a request as a separate process would."""
    with borrower(relay, bundle) as http:
        return http.get(url, headers={"Authorization": authorization}).content


def warm_error(relay: Relay, bundle: Path | None, url: str, timeout: float = 20) -> str:
    """Send a request as a separate process would, and return the message of its failure."""
    with (
        borrower(relay, bundle, timeout=timeout) as http,
        pytest.raises((NetworkError, TimeoutExpired)) as caught,
    ):
        http.get(url)
    return str(caught.value)
