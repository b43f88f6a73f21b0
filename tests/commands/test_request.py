"""Each row of the table of ITEMs and flags, through the real program."""

import gzip
import hashlib
import json
import os
import re
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.commands.api import ME, TOKEN, answer, bearing, echoed, heads
from tests.program import Outcome, Xapi
from tests.servers import OK, Server, free_port, hang, request, send, serve
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox

ECHO = "/x-api/echo"


def _parts(seen: dict[str, Any]) -> dict[str, Any]:
    return {"method": seen["method"], "query": seen["query"], "text": seen["text"]}


# METHOD and PATH


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ([ECHO], "GET"),
        (["get", ECHO], "GET"),
        (["GeT", ECHO], "GET"),
        ([ECHO, "a=1"], "POST"),
        ([ECHO, "-d", ""], "POST"),
        ([ECHO, "a==1", "X-A:1"], "GET"),
        (["put", ECHO, "a=1"], "PUT"),
        (["GET", ECHO, "a=1"], "GET"),
        (["delete", ECHO], "DELETE"),
        (["PATCH", ECHO, "-d", "x"], "PATCH"),
        (["options", ECHO], "OPTIONS"),
    ],
)
def test_the_method_is_the_one_given_else_get_or_post(
    xapi: Xapi, sandbox: Sandbox, words: list[str], method: str
) -> None:
    assert echoed(xapi("request", *words, env=bearing(sandbox)))["method"] == method


@pytest.mark.parametrize("path", ["/x-api/me", "x-api/me", "{base}/x-api/me", "/x-api/m%65"])
def test_a_path_is_one_below_the_base_url_or_a_whole_url(xapi: Xapi, sandbox: Sandbox, path: str) -> None:
    outcome = xapi("request", path.format(base=sandbox.base_url), env=bearing(sandbox))

    assert outcome == (Outcome(0, ME) if "%" not in path else Outcome(4, outcome.out, outcome.err))


def test_a_prefix_of_the_base_url_stays(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        env = bearing(server) | {"XAPI_BASE_URL": f"{server.url}/v1/"}

        assert xapi("request", "/a", "b==c d", env=env) == Outcome(0, "ok")

    assert heads(server.received[0])[0] == "GET /v1/a?b=c%20d HTTP/1.1"


def test_head_prints_no_body_and_shows_its_headers_when_asked(xapi: Xapi, sandbox: Sandbox) -> None:
    env = bearing(sandbox)

    assert xapi("request", "HEAD", "/x-api/me", env=env) == Outcome(0)
    shown = xapi("request", "HEAD", "/x-api/me", "-i", env=env).out.split("\r\n")
    assert shown[0] == "HTTP/1.1 200 OK"
    assert f"Content-Length: {len(ME)}" in shown
    assert shown[-2:] == ["", ""]


# ITEMs


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["a==1", "b==x y&=/é", "a==2"], {"query": [["a", "1"], ["b", "x y&=/é"], ["a", "2"]]}),
        (["-q", "a=1", "--query", "b==2"], {"query": [["a", "1"], ["b", "=2"]]}),
        (["?a=0", "b==1"], {"query": [["a", "0"], ["b", "1"]]}),
        (["a=1", "b=é \"x\""], {"text": '{"a": "1", "b": "é \\"x\\""}'}),
        (["a:=1.10", "b:=[1e400,null]", "c:=true"], {"text": '{"a": 1.10, "b": [1e400,null], "c": true}'}),
        (["a:=123456789012345678901234567890"], {"text": '{"a": 123456789012345678901234567890}'}),
        (["a=@text"], {"text": '{"a": "zwei\\nZeilen: é\\n"}'}),
        (["a:=@json"], {"text": '{"a": {"b": 1.0}\n}'}),
        (["--form", "a=x y&z", "b=é"], {"text": "a=x%20y%26z&b=%C3%A9"}),
        (["--form", "a=@text"], {"text": "a=zwei%0AZeilen%3A%20%C3%A9%0A"}),
        (["-d", '{"a" : 1.10}'], {"text": '{"a" : 1.10}'}),
        (["--data", "@json"], {"text": '{"b": 1.0}\n'}),
        (["-d", ""], {"text": ""}),
        ([r"a\=b=1", r"c\:d=2", r"e\@f=3"], {"text": '{"a=b": "1", "c:d": "2", "e@f": "3"}'}),
        (["a=b:c", "d=e@f", "g=h==i"], {"text": '{"a": "b:c", "d": "e@f", "g": "h==i"}'}),
        (["callback=https://x.test/?a=b"], {"text": '{"callback": "https://x.test/?a=b"}'}),
        (["a="], {"text": '{"a": ""}'}),
    ],
)  # fmt: skip
def test_what_items_send(xapi: Xapi, sandbox: Sandbox, tmp_path: Path, words: list[str], parts: dict[str, Any]) -> None:
    (tmp_path / "text").write_text("zwei\nZeilen: é\n", "utf-8")
    (tmp_path / "json").write_text('{"b": 1.0}\n', "utf-8")
    path = ECHO + words.pop(0) if words[0].startswith("?") else ECHO

    seen = echoed(xapi("request", path, *words, env=bearing(sandbox), cwd=tmp_path))

    method = "POST" if "text" in parts else "GET"
    assert _parts(seen) == {"method": method, "query": [], "text": ""} | parts


@pytest.mark.parametrize(
    ("words", "content_type"),
    [
        (["a=1"], "application/json"),
        (["--form", "a=1"], "application/x-www-form-urlencoded"),
        (["-d", "x"], "application/json"),
        (["-d", "x", "Content-Type:text/plain"], "text/plain"),
        (["-d", "x", "-H", "content-type: text/plain; charset=utf-8"], "text/plain; charset=utf-8"),
        (["-d", "x", "Content-Type:"], None),
        ([], None),
    ],
)
def test_the_content_type_is_that_of_the_body_unless_a_header_says_otherwise(
    xapi: Xapi, sandbox: Sandbox, words: list[str], content_type: str | None
) -> None:
    assert echoed(xapi("request", ECHO, *words, env=bearing(sandbox)))["headers"].get("content-type") == content_type


@pytest.mark.parametrize(
    "words",
    [
        ["X-One:1", "X-Two: two words ", "Accept:", "User-Agent:me", "X-Empty:"],
        ["-H", "X-One: 1", "-H", "X-Two:two words", "-H", "Accept:", "--header", "User-Agent: me"],
    ],
)
def test_headers_are_set_replaced_and_removed(xapi: Xapi, sandbox: Sandbox, words: list[str]) -> None:
    headers = echoed(xapi("request", ECHO, *words, env=bearing(sandbox)))["headers"]

    del headers["host"]
    assert headers == {
        "x-one": "1", "x-two": "two words", "user-agent": "me", "accept-encoding": "gzip, deflate",
    }  # fmt: skip


def test_a_header_may_hold_any_text_and_repeat(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", "/", "X-A:é漢", "X-A:2", "-H", "X-Empty;", env=bearing(server))

    assert outcome.code == 0
    assert [line for line in heads(server.received[0]) if line.startswith("X-")] == ["X-Empty: ", "X-A: é漢", "X-A: 2"]


def test_an_upload_is_multipart(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "text").write_text("from a file")

    words = ["title=x y", "note=@text", "file@a.png", "other@text;type=text/csv"]
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", "/", *words, env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0, "ok")
    head, _, body = server.received[0].partition(b"\r\n\r\n")
    boundary = head.partition(b"boundary=")[2].partition(b"\r\n")[0]
    assert body == b"\r\n".join([
        b"--" + boundary, b'Content-Disposition: form-data; name="title"', b"", b"x y",
        b"--" + boundary, b'Content-Disposition: form-data; name="note"', b"", b"from a file",
        b"--" + boundary, b'Content-Disposition: form-data; name="file"; filename="a.png"',
        b"Content-Type: image/png", b"", b"\x89PNG",
        b"--" + boundary, b'Content-Disposition: form-data; name="other"; filename="text"',
        b"Content-Type: text/csv", b"", b"from a file",
        b"--" + boundary + b"--", b"",
    ])  # fmt: skip
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"


@pytest.mark.parametrize("words", [["Authorization:Basic abc"], ["-H", "authorization: Basic abc"], ["Authorization:"]])
def test_an_authorization_of_the_users_own_switches_token_and_login_off(
    xapi: Xapi, sandbox: Sandbox, words: list[str]
) -> None:
    outcome = xapi("request", "/x-api/me", *words, env=sandbox.settings)

    assert (outcome.code, sandbox.requests, sandbox.login_attempts) == (10, 1, 0)
    assert outcome.err == (
        f"xapi: error: GET {sandbox.base_url}/x-api/me answered 401 Unauthorized; "
        "the Authorization header was given or removed by hand, so xapi did not log in\n"
    )


def test_an_authorization_of_the_users_own_is_the_one_that_is_sent(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        xapi("request", "/", "Authorization:Basic abc", env=bearing(server))

    sent = [line for line in heads(server.received[0]) if line.lower().startswith("authorization")]
    assert sent == ["Authorization: Basic abc"]


# stdin


def test_a_body_from_stdin_is_sent_verbatim(xapi: Xapi, sandbox: Sandbox) -> None:
    body = bytes(range(256)) * 12_000

    seen = echoed(xapi("request", "PUT", ECHO, "-d", "@-", input=body, env=bearing(sandbox)))

    assert (seen["length"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize(
    ("words", "text"),
    [(["a=@-"], '{"a": "é\\n"}'), (["a:=@-", "b=1"], None), (["--form", "a=@-"], "a=%C3%A9%0A")],
)
def test_a_field_may_come_from_stdin(xapi: Xapi, sandbox: Sandbox, words: list[str], text: str | None) -> None:
    outcome = xapi("request", ECHO, *words, input="é\n" if text else "[1.0]", env=bearing(sandbox))

    assert echoed(outcome)["text"] == (text or '{"a": [1.0], "b": "1"}')


def test_stdin_is_not_read_and_not_waited_for_unless_it_is_asked_for(xapi: Xapi, sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"untouched")

    process = xapi.start("request", "/x-api/me", stdin=reader, env=bearing(sandbox))
    out, err = process.communicate(timeout=30)  # the pipe is still open

    assert (process.returncode, out.decode(), err) == (0, ME, b"")
    assert os.read(reader, 100) == b"untouched"
    os.close(reader)
    os.close(writer)


# flags


def test_include_prints_the_head_before_the_body(xapi: Xapi) -> None:
    sent = answer("200 Alles gut", b"body", "X-Two: 1", "X-Two: \u00e9", "Content-Type: text/plain")
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/", "-i", env=bearing(server))

    assert outcome == Outcome(0, sent.decode())


def test_include_prints_the_head_on_stdout_also_when_the_body_goes_to_a_file(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", "/", "-i", "-o", "out", env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    assert (tmp_path / "out").read_bytes() == b"ok"


def test_only_the_head_of_the_final_answer_is_printed(xapi: Xapi) -> None:
    with Server([request(), send(answer("302 Found", b"", "Location: /b")), request(), send(OK)]) as server:
        outcome = xapi("request", "/", "-i", env=bearing(server))

    assert outcome == Outcome(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_verbose_shows_the_heads_on_stderr_without_the_token(xapi: Xapi) -> None:
    sent = answer("200 OK", b"ok", f"X-Echo: {TOKEN}", "Set-Cookie: sid=canary-cookie", "X-Odd: \x1b[31m")
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/a?api_key=canary-key", "X-Api-Key:canary-own", "-v", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert "canary" not in outcome.err
    lines = outcome.err.splitlines()
    assert [line for line in lines if not line.startswith("*")] == [
        "> GET /a?api_key=*** HTTP/1.1", f"> Host: {server.name}", "> X-Api-Key: ***", "> Accept: */*",
        "> Accept-Encoding: gzip, deflate", "> User-Agent: xapi/0.1.0", "> Authorization: Bearer ***", ">",
        "< HTTP/1.1 200 OK", "< X-Echo: ***", "< Set-Cookie: ***", "< X-Odd: \\x1b[31m", "< Content-Length: 2", "<",
    ]  # fmt: skip
    assert f"* connected to {server.name} (127.0.0.1)" in lines


def test_verbose_tells_of_tls_and_of_the_time_it_took(xapi: Xapi) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(xapi.home / "ca.pem"))
    with Server([request(), send(OK)], tls=context) as server:
        outcome = xapi("request", "/", "-v", "--ca-bundle", str(xapi.home / "ca.pem"), env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    lines = outcome.err.splitlines()
    assert f"* connected to {server.name} (127.0.0.1, TLSv1.3)" in lines
    assert any(re.fullmatch(r"\* answered after \d+ ms", line) for line in lines)


def test_verbose_shows_a_login_and_not_the_password(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--verbose", env=sandbox.settings)

    assert (outcome.code, outcome.out) == (0, ME)
    assert "> POST /x-api/token HTTP/1.1" in outcome.err
    for piece in ("correct", "horse", "ttery"):
        assert piece not in outcome.err


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ([], "oops", ""),
        (["--error-body", "stdout"], "oops", ""),
        (["--error-body", "stderr"], "", "oops\n"),
        (["--error-body", "none"], "", ""),
        (["--error-body", "stderr", "-o", "out"], "", "oops\n"),
        (["-o", "out"], "oops", ""),
    ],
)
@pytest.mark.parametrize(("status", "code"), [("404 Not Found", 4), ("500 Oh", 5)])
def test_the_body_of_an_error_goes_where_it_is_wanted(
    xapi: Xapi, tmp_path: Path, words: list[str], out: str, err: str, status: str, code: int
) -> None:
    (tmp_path / "out").write_text("old")
    with Server([request(), send(answer(status, b"oops"))]) as server:
        outcome = xapi("request", "/", *words, env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out) == (code, out)
    body, _, line = outcome.err.rpartition("xapi: error: ")
    assert body == err
    assert line.startswith(f"GET {server.url}/ answered {status}; ")
    assert line.count("\n") == 1
    assert (tmp_path / "out").read_text() == "old"


def test_an_error_body_on_a_piped_stderr_is_the_bytes_that_came(xapi: Xapi) -> None:
    body = b'{"a":1}\xff\x1b[31m' + b"x" * 100_000
    with Server([request(), send(answer("400 Bad", body))]) as server:
        outcome = xapi("request", "/", "--error-body", "stderr", env=bearing(server))

    assert outcome.err.encode("utf-8", "surrogateescape").startswith(body + b"\nxapi: error: GET ")


def test_403_speaks_of_master_rights(xapi: Xapi, sandbox: Sandbox) -> None:
    member = {"XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}

    outcome = xapi("request", "/x-api/me", env=sandbox.settings | member)

    assert outcome.code == 4
    assert json.loads(outcome.out)["error"] == "insufficient_scope"
    assert outcome.err.splitlines()[-1] == (
        f"xapi: error: GET {sandbox.base_url}/x-api/me answered 403 Forbidden; "
        "the API serves only users with master rights"
    )


WHY_POST = "a body makes it a POST: for a query parameter write name==value; another METHOD goes before PATH"


@pytest.mark.parametrize(
    ("words", "status", "hint"),
    [
        (["/a", "b=1"], "405 No", WHY_POST),
        (["/a", "-d", ""], "501 No", WHY_POST),
        (["POST", "/a", "b=1"], "405 No", "there it takes GET, \\x1bHEAD"),
        (["/a"], "405 No", "there it takes GET, \\x1bHEAD"),
        (["PUT", "/a"], "501 No", "the service does not know such requests; check METHOD"),
        (["/a"], "500 No", "the service is in trouble; try again later"),
        (["/a"], "404 No", "check the path and the base URL"),
        (["/a"], "429 No", "too many requests: wait, or use --retry"),
    ],
)  # fmt: skip
def test_a_refused_request_says_what_to_do(xapi: Xapi, words: list[str], status: str, hint: str) -> None:
    with Server([request(), send(answer(status, b"", "Allow: GET, \x1bHEAD"))]) as server:
        outcome = xapi("request", *words, env=bearing(server))

    assert outcome.code == (4 if status < "5" else 5)
    assert outcome.err.endswith(f" {server.url}/a answered {status}; {hint}\n")


def test_a_port_where_nobody_listens_is_named_with_what_to_check(xapi: Xapi) -> None:
    port = free_port()

    outcome = xapi("request", "/", env={"XAPI_BASE_URL": f"http://127.0.0.1:{port}", "XAPI_TOKEN": "t"})

    assert outcome == Outcome(
        11,
        "",
        f"xapi: error: no connection to 127.0.0.1:{port}: connection refused; "
        "nothing listens there: check host and port of the base URL, and whether the server runs\n",
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("200 OK", 0), ("201 Created", 0), ("204 No Content", 0), ("304 Not Modified", 0), ("300 Choices", 3),
        ("302 Found", 3), ("400 No", 4), ("402 Pay", 4), ("403 No", 4), ("404 No", 4), ("418 Tea", 4), ("429 Slow", 4),
        ("500 No", 5), ("503 No", 5), ("599 No", 5), ("401 No", 10),
    ],
)  # fmt: skip
def test_the_exit_code_follows_the_final_status(xapi: Xapi, status: str, code: int) -> None:
    body = b"" if status[:3] in {"204", "304"} else b"body"
    with Server([serve(answer(status, body))]) as server:
        outcome = xapi("request", "/", env=bearing(server))
        unchecked = xapi("request", "/", "--no-check-status", env=bearing(server))

    assert (outcome.code, outcome.out) == (code, body.decode())
    assert outcome.err.count("\n") == (0 if code == 0 else 1)
    assert (unchecked.code, unchecked.out) == (10 if code == 10 else 0, body.decode())
    assert unchecked.err == (outcome.err if code == 10 else "")


def test_no_login_never_logs_in(xapi: Xapi, sandbox: Sandbox) -> None:
    missing = xapi("request", "/x-api/me", "--no-login", env=sandbox.settings)
    assert (missing.code, missing.out) == (10, "")
    assert "no token was stored" in missing.err
    assert "--no-login was given" in missing.err

    assert xapi("request", "/x-api/me", env=sandbox.settings).code == 0
    sandbox.kill_tokens()
    rejected = xapi("request", "/x-api/me", "--no-login", env=sandbox.settings)
    assert rejected.code == 10
    assert json.loads(rejected.out)["error"] == "invalid_token"
    assert "leave --no-login out" in rejected.err
    assert sandbox.login_attempts == 1


# --meta


def _meta(path: Path) -> dict[str, Any]:
    (line,) = path.read_text().splitlines()
    facts: dict[str, Any] = json.loads(line)
    assert facts.pop("elapsed_ms") >= 0
    return facts


def test_meta_writes_the_facts_of_an_answer(xapi: Xapi, tmp_path: Path) -> None:
    packed = gzip.compress(b"hello " * 1000)
    sent = answer("200 OK", packed, "Content-Encoding: gzip", "X-Two: 1", "x-two: é")
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0, "hello " * 1000)
    assert _meta(tmp_path / "meta") == {
        "status": 200,
        "headers": {"content-encoding": "gzip", "x-two": "1, é", "content-length": str(len(packed))},
        "http_version": "HTTP/1.1",
        "attempts": 1,
        "login": None,
        "bytes": 6000,
    }


def test_meta_on_stderr_is_one_line_of_json(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--meta", "-", env=bearing(sandbox))

    assert (outcome.code, outcome.out) == (0, ME)
    facts = json.loads(outcome.err)
    assert list(facts) == ["status", "headers", "http_version", "elapsed_ms", "attempts", "login", "bytes"]
    assert (facts["status"], facts["bytes"]) == (200, len(ME))


def test_meta_without_an_answer_has_no_status(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request()]) as server:
        outcome = xapi("request", "/", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert outcome.code == 11
    assert _meta(tmp_path / "meta") == {
        "status": None, "headers": {}, "http_version": None, "attempts": 1, "login": None, "bytes": 0,
    }  # fmt: skip


def test_meta_tells_of_logins_replays_and_errors(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    def told(*words: str) -> tuple[Any, ...]:
        xapi("request", *words, "--meta", "meta", env=sandbox.settings, cwd=tmp_path)
        facts = _meta(tmp_path / "meta")
        return tuple(facts[name] for name in ("status", "attempts", "login", "bytes"))

    assert told("/x-api/me") == (200, 1, "missing", len(ME))
    assert told("/x-api/me") == (200, 1, None, len(ME))
    sandbox.kill_tokens()
    assert told("/x-api/me", "-o", "out") == (200, 2, "rejected", len(ME))
    status, attempts, login, size = told("/x-api/nothing")
    assert (status, attempts, login) == (404, 1, None)
    assert size > 0
    assert told("/x-api/nothing", "--error-body", "none") == (404, 1, None, 0)
    assert told("HEAD", "/x-api/me") == (200, 1, None, 0)
    sandbox.expires_in = 1
    sandbox.kill_tokens()
    assert told("/x-api/me")[2] == "rejected"
    time.sleep(1.1)
    sandbox.expires_in = 3600
    assert told("/x-api/me") == (200, 1, "expired", len(ME))


def test_meta_counts_retries(xapi: Xapi, tmp_path: Path) -> None:
    busy = answer("503 Busy", b"busy", "Retry-After: 0")
    with Server([request(), send(busy), request(), send(busy), request(), send(OK)]) as server:
        outcome = xapi("request", "/", "--retry", "3", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out) == (0, "ok")
    assert [line.partition(";")[2] for line in outcome.err.splitlines()] == [
        " trying again in 0.0 s (1 of 3)",
        " trying again in 0.0 s (2 of 3)",
    ]
    assert _meta(tmp_path / "meta")["attempts"] == 3


# --retry over real connections


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_a_connection_that_broke_before_the_head_is_tried_again(xapi: Xapi, method: str) -> None:
    reply = answer("200 OK", b"", "Content-Length: 0")
    with Server([request()], [request(), send(reply)]) as server:
        outcome = xapi("request", method, "/", "--retry", "1", env=bearing(server))

    assert outcome.code == 0
    assert outcome.err.count("trying again in") == 1
    assert len(server.received) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("after", ["0", "Sun, 06 Nov 1994 08:49:37 GMT", "nonsense", None])
def test_a_passing_failure_is_tried_again(xapi: Xapi, status: int, after: str | None) -> None:
    asked = [] if after is None else [f"Retry-After: {after}"]
    busy = answer(f"{status} Busy", b"busy", *asked)
    with Server([request(), send(busy), request(), send(OK)]) as server:
        outcome = xapi("request", "/a?key=canary", "--retry", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert outcome.err.startswith(f"xapi: {server.url}/a?key=*** answered {status}; trying again in 0.")
    assert outcome.err.endswith(" s (1 of 1)\n")


@pytest.mark.parametrize("status", ["429 Slow", "500 No", "501 No", "404 No"])
def test_what_does_not_pass_soon_is_not_tried_again(xapi: Xapi, status: str) -> None:
    with Server([serve(answer(status, b"no", "Retry-After: 301"))]) as server:
        outcome = xapi("request", "/", "--retry", "3", env=bearing(server))

    assert (outcome.code, outcome.out) == (4 if status < "5" else 5, "no")
    assert "trying again" not in outcome.err
    assert b"".join(server.received).count(b"GET ") == 1


def test_a_timeout_is_not_tried_again(xapi: Xapi) -> None:
    with Server([request(), hang()]) as server:
        outcome = xapi("request", "/", "--retry", "3", "--timeout", "1", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.received)) == (12, "", 1)
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_post_that_was_lost_is_not_sent_again_and_says_what_that_means(xapi: Xapi, method: str) -> None:
    with Server([request()]) as server:
        outcome = xapi("request", method, "/", "a=1", "--retry", "5", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.received)) == (11, "", 1)
    assert outcome.err == (
        f"xapi: error: {server.name} closed the connection without an answer; "
        f"the {method} may have been processed: check before you send it again\n"
    )


def test_nobody_listening_is_exit_11_and_names_the_address(xapi: Xapi) -> None:
    from tests.servers import free_port

    port = free_port()
    outcome = xapi("request", "/", "--retry", "1", env={"XAPI_BASE_URL": f"http://127.0.0.1:{port}", "XAPI_TOKEN": "x"})

    assert (outcome.code, outcome.out) == (11, "")
    first, second = outcome.err.splitlines()
    assert f"127.0.0.1:{port}" in first
    assert "trying again" in first
    assert f"127.0.0.1:{port}" in second
    assert second.startswith("xapi: error: ")


def test_the_login_is_not_repeated_by_retry(xapi: Xapi) -> None:
    with Server([serve(answer("200 OK", b"<html>a portal</html>", "Content-Type: text/html"))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": "canary-password"}
        outcome = xapi("request", "/", "--retry", "5", env=env)

    assert (outcome.code, outcome.out) == (11, "")
    assert b"".join(server.received).count(b"POST /x-api/token") == 1
    assert "canary" not in outcome.err
