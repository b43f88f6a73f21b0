import re

import httpx

from xapi_cli.request.verbose import VerboseLog
from xapi_cli.system.redact import Redactor
from xapi_cli.system.style import Style

PLAIN = Style(enabled=False)


def _logged(request: httpx.Request, response: httpx.Response | None = None) -> str:
    lines: list[str] = []
    log = VerboseLog(lines.append, Redactor(), PLAIN)
    (before,), (after,) = log.hooks["request"], log.hooks["response"]
    before(request)
    if response is not None:
        after(response)
    return re.sub(r"after \d+ ms", "after N ms", "\n".join(lines))


def test_the_request_and_response_headers_and_the_elapsed_time_are_logged() -> None:
    request = httpx.Request("GET", "https://api.test/a?b=c", headers={"Accept": "*/*"})
    response = httpx.Response(
        200,
        headers=[("Content-Type", "text/plain"), ("X-Two", "1"), ("X-Two", "2")],
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": b"Fine"},
    )

    assert _logged(request, response).splitlines() == [
        "> GET /a?b=c HTTP/1.1",
        "> Host: api.test",
        "> Accept: */*",
        ">",
        "* response after N ms",
        "< HTTP/1.1 200 Fine",
        "< Content-Type: text/plain",
        "< X-Two: 1",
        "< X-Two: 2",
        "<",
    ]


def test_the_token_is_redacted_where_the_server_echoes_it() -> None:
    request = httpx.Request("GET", "https://api.test/", headers={"Authorization": "Bearer canary-token"})
    response = httpx.Response(302, headers={"Location": "/x?y=canary-token", "X-Echo": "you sent canary-token!"})

    logged = _logged(request, response)

    assert "canary" not in logged
    assert "> Authorization: Bearer ***" in logged
    assert "< X-Echo: you sent ***!" in logged


def test_known_secrets_are_redacted_in_headers_and_connection_traces() -> None:
    lines: list[str] = []
    redactor = Redactor()
    redactor.add("canary-password")
    log = VerboseLog(lines.append, redactor, PLAIN)

    log.trace("* connected to canary-password\x1b[2J")
    log.hooks["request"][0](httpx.Request("GET", "https://api.test/canary-password"))

    assert lines == ["* connected to ***\\x1b[2J", "> GET /*** HTTP/1.1", "> Host: api.test", ">"]


def test_control_sequences_are_neutralized() -> None:
    response = httpx.Response(
        200, headers=[(b"X-Odd", b"\x1b]0;title\x07\xff\xc2\x9b")], extensions={"reason_phrase": b"\x9b1m"}
    )

    logged = _logged(httpx.Request("GET", "https://api.test/"), response)

    assert logged.isprintable() or logged.replace("\n", "").isprintable()
    assert "< X-Odd: \\x1b]0;title\\x07\\xff\\x9b" in logged
    assert "200 \\x9b1m" in logged
