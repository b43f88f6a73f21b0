"""Requests through a proxy."""

import ssl
from collections.abc import Callable

import pytest

from tests.http.clients import CANARY, SOON, START, TOO_LONG, client, no_tls
from tests.support.servers import (
    Server,
    Step,
    Stopwatch,
    forever,
    forward,
    free_port,
    hang,
    request,
    reset,
    send,
    serve,
)
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.transport import Transport


def through(proxy: Server, authorization: bytes | None = None) -> Callable[[str, str, int], Proxy]:
    return lambda scheme, host, port: Proxy(proxy.host, proxy.port, authorization)


def test_plain_http_sends_the_absolute_url_to_the_proxy() -> None:
    with Server([serve()]) as proxy, client(Transport(no_tls, through(proxy, b"Basic cHJveHk="))) as http:
        response = http.get("http://api.test:8080/a?b=c", headers={"Authorization": "Bearer x"})
        assert response.content == b"ok"
        assert proxy.received[0].startswith(b"GET http://api.test:8080/a?b=c HTTP/1.1\r\nHost: api.test:8080\r\n")
        assert b"\r\nProxy-Authorization: Basic cHJveHk=\r\n" in proxy.received[0]


def test_https_uses_a_tunnel_without_the_token(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server, Server([forward()]) as proxy:
        lines: list[str] = []
        transport = Transport(lambda: client_tls, through(proxy, b"Basic cHJveHk="), lines.append)
        with client(transport, headers={"Authorization": f"Bearer {CANARY}"}) as http:
            assert [http.get(server.url).content for _ in range(2)] == [b"ok", b"ok"]
        tunnel = f"CONNECT {server.name} HTTP/1.1\r\nHost: {server.name}\r\nProxy-Authorization: Basic cHJveHk=\r\n\r\n"
        assert proxy.received == [tunnel.encode()]
        assert CANARY.encode() in server.received[0]
        assert b"cHJveHk" not in server.received[0]
        assert lines[0] == f"* connected to {server.name} through the proxy {proxy.name} (TLSv1.3)"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([request(), send(b"HTTP/1.1 407 No\r\n\r\n")], "the proxy {} requires a username and password (status 407)"),
        ([request(), send(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"NTLM, x\"\r\n\r\n")],
         "the proxy {} requires a username and password (status 407)"),
        ([request(), send(b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\n\r\n")],
         "the proxy {} offers only NTLM and Negotiate authentication, and xapi supports only Basic (status 407)"),
        ([request(), send(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Digest realm=\"basic\", qop=\"auth\"\r\n\r\n")],
         "the proxy {} offers only Digest authentication, and xapi supports only Basic (status 407)"),
        ([request(), send(b"HTTP/1.1 502 Bad\r\n\r\n")], "the proxy {} refused to connect to the server (status 502)"),
        ([request(), send(b"HTTP/1.1 302 Away\r\n\r\n")], "the proxy {} refused to connect to the server (status 302)"),
        ([request()], "the proxy {} closed the connection without a response"),
        ([request(), reset()], "no connection to the proxy {}: connection reset by peer"),
        (
            [request(), send(b"nonsense\r\n\r\n")],
            "the response from the proxy {} is not valid HTTP (illegal status line)",
        ),
        ([request(), send(START), forever(b"x" * 9999)], TOO_LONG.replace("{}", "the proxy {}")),
        ([request(), send(b"HTTP/1.1 200 OK\r\n\r\nhello")], "the proxy {} sent data before the TLS handshake"),
    ],
)  # fmt: skip
def test_a_failing_proxy_is_reported_by_name(client_tls: ssl.SSLContext, script: list[Step], message: str) -> None:
    with (
        Server(script) as proxy,
        client(Transport(lambda: client_tls, through(proxy))) as http,
        pytest.raises(NetworkError) as caught,
    ):
        http.post("https://api.test/", content=b"x")
    assert caught.value.message == message.format(proxy.name)
    assert "HTTPS_PROXY" in (caught.value.hint or "")
    assert not caught.value.sent

    if "407" in message:  # of a request that is not encrypted
        assert caught.value.headers_received  # it is not retried, because that can lock an account
        with (
            Server(script) as proxy,
            client(Transport(no_tls, through(proxy, b"Basic eA=="))) as http,
            pytest.raises(NetworkError) as caught,
        ):
            http.get("http://api.test/")
        assert caught.value.message == message.format(proxy.name).replace("requires a user", "requires another user")


def test_an_unreachable_proxy_is_reported_by_name() -> None:
    down = Proxy("127.0.0.1", free_port(), b"Basic c2VjcmV0", "http_proxy")
    with client(Transport(no_tls, lambda *_: down)) as http, pytest.raises(NetworkError) as caught:
        http.get("http://api.test/")
    assert str(caught.value) == (
        f"no connection to the proxy {down}: connection refused; check http_proxy, or add the server to NO_PROXY"
    )


def test_an_unresponsive_proxy_causes_a_timeout(client_tls: ssl.SSLContext) -> None:
    with (
        Server([hang()]) as proxy,
        client(Transport(lambda: client_tls, through(proxy)), timeout=1) as http,
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired) as caught,
    ):
        http.get("https://api.test/")
    assert caught.value.message == f"no connection to api.test:443 through the proxy {proxy.name} within 1 s (proxy)"
    assert watch.seconds < SOON
