"""The faults and attacks of a server or a network, by name, with the allowed outcomes."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.commands.api import response
from tests.support.servers import OK, Peer, Server, Step, close, drip, forever, hang, head, request, reset, send

TOKEN = "canary-of-a-good-token"
START = b"HTTP/1.1 200 OK\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
ESCAPES = "\x1b]52;c;eHh4\x07\x1b[31m\x9b2J\u202e\x7f"  # clipboard, colors, C1, bidi, DEL
MEBIBYTE = 1024 * 1024

Codes = frozenset[int]


@dataclass(frozen=True)
class Fault:
    """One fault: the behavior of each connection, and the allowed exit codes of a command that encounters it.

    *api* is for a request of the API, *token* for the token endpoint, *check*
    for `token status --check`, where complete response headers with any status
    other than 401 and 5xx mean that the token was accepted. *base_url* is the
    base URL, *env* is added to the environment.
    """

    group: str
    script: Sequence[Step]
    api: Codes
    token: Codes
    check: Codes
    base_url: str = "{url}"
    env: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False
    flood: bool = False  # too much output to store

    @property
    def batch(self) -> Codes:
        """For `batch`: a status under 400 is not a failure, but a body over 10 MiB is."""
        return codes(11, 12) if self.flood else codes(*(0 if code == 3 else code for code in self.api))


class HostileServer(Server):
    """A server with a fault; *elsewhere* is the host and port of its redirects."""

    elsewhere = ""


def codes(*numbers: int) -> Codes:
    return frozenset(numbers)


def token(**changed: object) -> bytes:
    """Return a token response with *changed* members."""
    body = {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600, **changed}
    return json.dumps({name: value for name, value in body.items() if value is not None}).encode()


def whole(data: bytes) -> list[Step]:
    """Read a request, send *data*, close."""
    return [request(), send(data)]


def bomb(mebibytes: int) -> Step:
    """Send a number of MiB of zeros, compressed a thousandfold, in identical gzip members."""

    def step(peer: Peer) -> None:
        member = _member()
        peer.sock.sendall(START + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (len(member) * mebibytes))
        for _ in range(mebibytes):
            peer.sock.sendall(member)

    return step


@cache
def _member() -> bytes:
    return gzip.compress(bytes(MEBIBYTE))


def _by_text(text: str) -> dict[str, Fault]:
    """Return responses with *text*, which a terminal or a CI system would interpret."""
    body = json.dumps({"error": text, "error_description": text}).encode()
    refused = codes(10)
    return {
        "an error code that speaks to the terminal": _whole("text", response("400 Bad", body), 4, refused, 0),
        "a reason that speaks to the terminal": _whole("text", response(f"418 {text}"), 4, codes(4), 0),
        "a target that speaks to the terminal": _whole(
            "text", response("302 Found", b"", f"Location: /{text}"), 3, codes(3), 0
        ),
        "a length that speaks to the terminal": _whole(
            "text", response("200 OK", b"", f"Content-Length: {text}"), 11, codes(11), 11
        ),
        "a coding that speaks to the terminal": _whole(
            "text", response("200 OK", b"x", f"Content-Encoding: {text}"), 0, codes(11), 0
        ),
        "a chunk that speaks to the terminal": _whole("text", CHUNKED + text.encode() + b"\r\n", 11, codes(11), 0),
    }


def _whole(group: str, data: bytes, api: int, token: Codes, check: int | None = None) -> Fault:
    return Fault(group, whole(data), codes(api), token, codes(api if check is None else check))


def _broken(group: str, *script: Step, check: Codes | None = None, **more: object) -> Fault:
    """Return a fault that leaves no usable response."""
    return Fault(group, script, codes(11), codes(11), check or codes(11), **more)  # type: ignore[arg-type]  # as they are


def _silent(group: str, *script: Step, check: Codes | None = None, **more: object) -> Fault:
    """Return a fault that only a timeout detects."""
    return Fault(group, script, codes(12), codes(12), check or codes(12), **more)  # type: ignore[arg-type]  # as they are


def _status(status: str, api: int, token: int, check: int = 0, *headers: str) -> Fault:
    return Fault("status", [request(), send(response(status, b"no", *headers))], codes(api), codes(token), codes(check))


def _responded(body: bytes, *headers: str) -> Fault:
    """Return a 200 that is valid for a request and not a token response."""
    return Fault("token", whole(response("200 OK", body, *headers)), codes(0), codes(11), codes(0))


def _redirect(status: int, target: str) -> Fault:
    def step(peer: Peer) -> None:
        elsewhere = peer.server.elsewhere if isinstance(peer.server, HostileServer) else ""
        location = target.format(elsewhere=elsewhere)
        peer.sock.sendall(response(f"{status} Elsewhere", b"there", f"Location: {location}"))

    return Fault("redirect", [request(), step], codes(0, 3), codes(3), codes(0, 3))


FAULTS: dict[str, Fault] = {
    # no connection, or one to another server
    "refused": _broken("connect", base_url="http://127.0.0.1:{closed}"),
    "an unknown host name": Fault("connect", [], codes(11, 12), codes(11, 12), codes(11, 12), base_url="http://nowhere.invalid"),
    "a full backlog": _silent("connect", base_url="http://127.0.0.1:{full}"),
    "closes immediately": _broken("connect", close()),
    "resets immediately": _broken("connect", reset()),
    "TLS where plain http is expected": _broken("connect", tls=True, base_url="http://{name}"),
    "plain http where TLS is expected": _broken("connect", send(OK), base_url="https://{name}"),
    "a self-signed certificate": _broken("connect", request(), send(OK), tls=True),
    "no TLS handshake": _silent("connect", hang(), base_url="https://{name}"),
    "an unreachable proxy": _broken("connect", env={"ALL_PROXY": "http://me:canary-of-a-proxy@127.0.0.1:{closed}"}),
    "a proxy that requires a password": _broken(
        "connect", request(), send(response("407 Who")), base_url="https://api.test", env={"HTTPS_PROXY": "{url}"}
    ),
    # no response, or a slow one
    "no response": _silent("time", hang()),
    "no response after the request": _silent("time", request(), hang()),
    "no response after the request headers": _silent("time", head(), hang()),
    "slow headers": _silent("time", request(), drip(START + b"X: y\r\n" * 9999, 0.05)),
    "slow 103 responses": _silent("time", request(), drip(b"HTTP/1.1 103 Hint\r\n\r\n" * 9999, 0.05, 21)),
    "stalls in the body": _silent(
        "time", request(), send(START + b"Content-Length: 5\r\n\r\nab"), hang(), check=codes(0, 12)
    ),
    "a slow chunk extension": _silent(
        "time", request(), send(CHUNKED), drip(b"5;" + b"x" * 9999, 0.05), check=codes(0, 12)
    ),
    # truncated
    "closes after the request": _broken("cut", request()),
    "resets after the request": _broken("cut", request(), reset()),
    "closes within the headers": _broken("cut", request(), send(START + b"X: ")),
    "closes in the body": _broken("cut", *whole(START + b"Content-Length: 5\r\n\r\nabc"), check=codes(0, 11)),
    "chunks without an end": _broken("cut", *whole(CHUNKED + b"3\r\nabc\r\n"), check=codes(0, 11)),
    "an invalid chunk": _broken("cut", *whole(CHUNKED + b"3\r\nabcXY"), check=codes(0, 11)),
    "truncated gzip without a length": _broken(
        "cut", *whole(START + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"abc" * 999)[:-9]), check=codes(0, 11)
    ),
    # not HTTP
    "rubbish": _broken("lie", *whole(b"rubbish\x1b]52;c;eHh4\x07\r\n\r\n")),
    "an SSH server": _broken("lie", send(b"SSH-2.0-OpenSSH_9.2\r\n"), request(), send(b"\r\n")),
    "status 1000": _broken("lie", *whole(b"HTTP/1.1 1000 OK\r\n\r\n")),
    "status 101": _broken("lie", *whole(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n")),
    "a header without a colon": _broken("lie", *whole(START + b"canary\r\n\r\n")),
    "two lengths": _broken("lie", *whole(START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
    "a length of 50 digits": _broken("lie", *whole(START + b"Content-Length: " + b"9" * 50 + b"\r\n\r\n")),
    "an unknown transfer coding": _broken("lie", *whole(START + b"Transfer-Encoding: gzip, chunked\r\n\r\n")),
    "an unknown content coding": _broken(
        "lie", *whole(response("200 OK", b"x", "Content-Encoding: zstd")), check=codes(0, 11)
    ),
    "invalid gzip": _broken("lie", *whole(response("200 OK", b"x", "Content-Encoding: gzip")), check=codes(0, 11)),
    "8-bit headers": _responded(b"hi", "X-Name: caf\udce9"),
    # endless, or much larger than declared
    "endless headers": _broken("endless", request(), send(START), forever(b"X: y\r\n" * 1000)),
    "an endless line": _broken("endless", request(), forever(b"H" * 65536)),
    "endless 103 status": _broken("endless", request(), forever(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 100)),
    "an endless chunk header": _broken(
        "endless", request(), send(CHUNKED + b"3;"), forever(b"x" * 65536), check=codes(0, 11)
    ),
    "endless trailers": _broken(
        "endless", request(), send(CHUNKED + b"0\r\n"), forever(b"X: y\r\n" * 1000), check=codes(0, 11)
    ),
    "an endless body": Fault(
        "endless",
        [request(), send(CHUNKED), forever(b"10000\r\n" + b"x" * 65536 + b"\r\n")],
        codes(12),
        codes(11, 12),
        codes(0, 12),
        env={"XAPI_MAX_TIME": "2"},
        flood=True,
    ),
    "a decompression bomb": Fault("endless", [request(), bomb(200)], codes(0), codes(11), codes(0), flood=True),
    "a nested decompression bomb": Fault(
        "endless", whole(response("200 OK", b"x", "Content-Encoding: gzip, gzip")), codes(11), codes(11), codes(0, 11)
    ),
    # error statuses
    "status 300": _status("300 Choose", 3, 3),
    "status 400": _status("400 Bad Request", 4, 10),
    "status 401": _status("401 Unauthorized", 10, 10, 10),
    "status 403": _status("403 Forbidden", 4, 10),
    "status 404": _status("404 Not Found", 4, 4),
    "status 422": _status("422 Unprocessable", 4, 10),
    "status 429 with a week of Retry-After": _status("429 Too Many", 4, 4, 0, "Retry-After: 604800"),
    "status 500": _status("500 Oops", 5, 5, 5),
    "status 503 with decades of Retry-After": _status("503 Busy", 5, 5, 5, "Retry-After: 1000000000"),
    # redirects, which must not receive a secret
    "redirect 301 elsewhere": _redirect(301, "http://{elsewhere}/x-api/token"),
    "redirect 303 elsewhere": _redirect(303, "http://user:pass@{elsewhere}/x-api/token"),
    "redirect 307 elsewhere": _redirect(307, "//{elsewhere}/x-api/token"),
    "a redirect to itself": _redirect(302, "/x-api/token"),
    "a redirect to a file": _redirect(302, "file:///etc/passwd"),
    "a redirect to an invalid URL": _redirect(307, "http://[::zz"),
    "a redirect with an empty Location": _redirect(302, ""),
    # 2xx that is not a token response
    "a sign-in page": _responded(b"<html>Sign in</html>", "Content-Type: text/html; charset=idna"),
    "nothing": _responded(b""),
    "204": Fault("token", whole(response("204 No Content")), codes(0), codes(11), codes(0)),
    "a lone surrogate": _responded(rb'{"access_token": "\ud800"}'),
    "no token": _responded(token(access_token=None)),
    "a token with a line break": _responded(token(access_token=f"{TOKEN}\r\nX: y")),
    "a token with control sequences": _responded(token(access_token=f"{TOKEN}{ESCAPES}")),
    "a token of another type": _responded(token(token_type="mac")),
    "a token that is a number": _responded(token(access_token=10**40)),
    "deeply nested JSON": _responded(b"[" * 100_000),
    "a token response of 2 MiB": _responded(token(access_token="x" * 2 * MEBIBYTE)),
    **_by_text(f"{ESCAPES}[/red][link=file:///]:smile:"),
    "an error with CI workflow commands": _whole(
        "text", response("400 Bad", b'{"error": "x\\n::set-output name=a::b"}', "X: y"), 4, codes(10), 0
    ),
}  # fmt: skip
GROUPS = list(dict.fromkeys(fault.group for fault in FAULTS.values()))
