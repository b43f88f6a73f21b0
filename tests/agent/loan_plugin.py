"""A plugin for pytest: each Transport borrows its connections from a relay.

    XAPI_TEST_RELAYS=all pytest -p tests.agent.loan_plugin tests/http

With "all", the relay passes on the bytes of plain http too, as it does for https.
"""

import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent import relays
from xapi_cli.http import tls, transport
from xapi_cli.http.relay.loans import RelayLender

if TYPE_CHECKING:
    from xapi_cli.http.connection import Connection, Route
    from xapi_cli.http.timeouts import Wait

_RELAYS = os.environ["XAPI_TEST_RELAYS"]  # the tests do not see it
_sources: dict[int, tuple[tuple[str, str], ...]] = {}  # by the id of the context
_create_server = socket.create_server
_ports: set[int] = set()
_contexts: list[ssl.SSLContext] = []  # so that no id is used twice


def _on_unused_port(address: tuple[str, int], **options: Any) -> socket.socket:
    """Listen at a port that no server had before: the relay remembers which of them sent surplus bytes."""
    while True:
        listener = _create_server(address, **options)
        port: int = listener.getsockname()[1]
        if address[1] or port not in _ports:
            _ports.add(port)
            return listener
        listener.close()


class _Lender:
    """Borrow with the trusted certificates of the context of a transport."""

    def __init__(self, relay: relays.Relay, context: "Callable[[], ssl.SSLContext]") -> None:
        self._relay = relay
        self._context = context
        self._lenders: dict[Any, RelayLender] = {}

    def borrow(
        self, route: "Route", authorization: str, wait: "Wait", trace: Callable[[str], None] | None, *, new: bool
    ) -> "Connection | None":
        sources = _sources.get(id(self._context())) if route.scheme == "https" else ()
        if sources is None:
            return None
        lender = self._lenders.setdefault(sources, self._new(sources))
        return lender.borrow(route, authorization, wait, trace, new=new)

    def _new(self, sources: tuple[tuple[str, str], ...]) -> RelayLender:
        return RelayLender(self._relay.connect, sources, loopback=True, reply_timeout=relays.LONG_REPLY_TIMEOUT)

    def close(self) -> None:
        for lender in self._lenders.values():
            lender.close()


@pytest.fixture(scope="session")
def lending_relay() -> Iterator[relays.Relay]:
    with (
        tempfile.TemporaryDirectory() as directory,
        relays.running(Path(directory), relays=_RELAYS) as relay,
    ):
        yield relay
        loans = relay.status()["loans"]
        assert loans > 50, f"only {loans} loans"


@pytest.fixture(autouse=True, scope="session")
def _every_transport_borrows(lending_relay: relays.Relay) -> Iterator[None]:
    create_context, start = tls.create_context, transport.Transport.__init__

    def create(ca_bundle: str | None, environ: Mapping[str, str]) -> ssl.SSLContext:
        context = create_context(ca_bundle, environ)
        paths = tls.configured_paths(ca_bundle, environ)
        _sources[id(context)] = tuple((name, os.path.abspath(path)) for name, path in paths)
        _contexts.append(context)
        return context

    def begin(self: transport.Transport, tls: Any, *arguments: Any, **options: Any) -> None:
        start(self, tls, *arguments, **options)
        self._lender = _Lender(lending_relay, self._dialer._tls)  # noqa: SLF001  # the cached context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_server", _on_unused_port)
        patch.setattr(tls, "create_context", create)
        patch.setattr(transport.Transport, "__init__", begin)
        yield
