import re
from typing import Any

from tests.support.routed_transport import Body
from xapi_cli.http.messages import Request, Response, build_request
from xapi_cli.request.verbose import VerboseLog
from xapi_cli.system.redact import Redactor
from xapi_cli.system.style import Style

PLAIN = Style(enabled=False)


def _get(url: str, *headers: tuple[bytes, bytes]) -> Request:
    return build_request("GET", url, headers)


def _response(status: int, *headers: tuple[bytes, bytes], **more: Any) -> Response:
    return Response(_get("https://api.test/"), status, headers, Body(b""), **more)


def _logged(request: Request, response: Response | None = None) -> str:
    lines: list[str] = []
    log = VerboseLog(lines.append, Redactor(), PLAIN)
    log.log_request(request)
    if response is not None:
        log.log_response(response)
    return re.sub(r"after \d+ ms", "after N ms", "\n".join(lines))


def test_the_request_and_response_headers_and_the_elapsed_time_are_logged() -> None:
    request = _get("https://api.test/a?b=c", (b"Accept", b"*/*"))
    headers = [(b"Content-Type", b"text/plain"), (b"X-Two", b"1"), (b"X-Two", b"2")]
    response = _response(200, *headers, reason=b"Fine")

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
    request = _get("https://api.test/", (b"Authorization", b"Bearer canary-token"))
    response = _response(302, (b"Location", b"/x?y=canary-token"), (b"X-Echo", b"you sent canary-token!"))

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
    log.log_request(_get("https://api.test/canary-password"))

    assert lines == ["* connected to ***\\x1b[2J", "> GET /*** HTTP/1.1", "> Host: api.test", ">"]


def test_control_sequences_are_neutralized() -> None:
    response = _response(200, (b"X-Odd", b"\x1b]0;title\x07\xff\xc2\x9b"), reason=b"\x9b1m")

    logged = _logged(_get("https://api.test/"), response)

    assert logged.isprintable() or logged.replace("\n", "").isprintable()
    assert "< X-Odd: \\x1b]0;title\\x07\\xff\\x9b" in logged
    assert "200 \\x9b1m" in logged
