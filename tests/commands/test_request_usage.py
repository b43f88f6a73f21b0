"""Wrong usage of every kind: one line that names it, exit 2, nothing sent, no value of a stray argument shown."""

import os
from pathlib import Path

import pytest

from tests.commands.api import bearing
from tests.program import Outcome, Xapi
from tests.servers import OK, Server, free_port, serve

WRONG = {
    "no PATH": ([], "PATH is missing; write `xapi request [METHOD] PATH [ITEM]...`"),
    "METHOD alone": (["GET"], "missing PATH after GET"),
    "CONNECT": (["connect", "/a"], "xapi sends no CONNECT request"),
    "TRACE": (["TRACE", "/a"], "xapi sends no TRACE request"),
    "a stray word": (["/a", "CANARY"], "argument 2 is no ITEM (not shown: it may be a secret)"),
    "a stray word after METHOD": (["GET", "/a", "b=1", "CANARY"], "argument 4 is no ITEM"),
    "a URL as an ITEM": (["/a", "https://CANARY.test/"], "argument 2 is no ITEM"),
    "an unknown flag": (["/a", "--pasword=CANARY"], "there is no option --pasword; "),
    "an unknown letter": (
        ["/a", "-XCANARY"],
        "there is no option -X; METHOD stands before PATH: `xapi request POST /path`",
    ),
    "a value for a switch": (["/a", "--form=CANARY"], "--form takes no value"),
    "a flag without its value": (["/a", "-d"], "-d needs a value"),
    "JSON that is none": (["/a", "b:={CANARY"], "argument 2 (b) has a value that is no JSON"),
    "NaN": (["/a", "b:=NaN"], "argument 2 (b) has a value that is no JSON"),
    "a field twice": (["/a", "b=CANARY", "b=2"], "the field b is given twice"),
    "JSON in a form": (["/a", "--form", "b:=1"], "a form has no JSON fields"),
    "JSON with an upload": (["/a", "b:=1", "c@file"], "a request with uploads has no JSON fields"),
    "-d and fields": (["/a", "-d", "CANARY", "b=1"], "-d is the whole body"),
    "-d and an upload": (["/a", "-d", "CANARY", "b@file"], "-d is the whole body"),
    "-d and --form": (["/a", "-d", "CANARY", "--form"], "--form is about fields, and -d has none"),
    "-d without a file": (["/a", "-d", "@"], "-d names no file after its @"),
    "a missing file": (["/a", "-d", "@missing"], "cannot read missing: No such file or directory"),
    "a folder as a body": (["/a", "-d", "@."], "cannot read .: Is a directory"),
    "a missing upload": (["/a", "b@missing"], "cannot read missing: No such file or directory"),
    "a missing field": (["/a", "b=@missing"], "cannot read missing: No such file or directory"),
    "a field that is no text": (["/a", "b=@binary"], "binary is no UTF-8 text"),
    "a file that is no JSON": (["/a", "b:=@file"], "the field b has a value that is no JSON"),
    "stdin twice": (["/a", "b=@-", "c=@-"], "stdin is asked for more than once"),
    "an upload with a Content-Type": (
        ["/a", "b@file", "Content-Type:text/plain"],
        "an upload makes its own Content-Type",
    ),
    "a query without a value": (["/a", "-q", "CANARY"], "-q has a query parameter that is not name=value"),
    "a header without a colon": (["/a", "-H", "CANARY"], "-H has a header without a colon"),
    "a header name with a blank": (["/a", "-H", "X Y: CANARY"], "-H is a header with a name that HTTP does not allow"),
    "a line break in a header": (["/a", "X-A:b\r\nX-CANARY: c"], "the header X-A has a control character (U+000D)"),
    "an escape in a header": (["/a", "-H", "X-A: \x1bCANARY"], "the header X-A has a control character (U+001B)"),
    "Content-Length": (["/a", "Content-Length:5"], "the header Content-Length is set by xapi itself"),
    "Transfer-Encoding": (["/a", "transfer-encoding:chunked"], "the header transfer-encoding is set by xapi itself"),
    "Connection": (["/a", "-H", "Connection: close"], "the header Connection is set by xapi itself"),
    "Proxy-Authorization": (
        ["/a", "Proxy-Authorization:CANARY"],
        "the header Proxy-Authorization is set by xapi itself",
    ),
    "no Host": (["/a", "Host:"], "the header Host cannot be removed"),
    "--retry": (["/a", "--retry", "x"], "--retry: 'x' is no whole number; give a whole number from 0 to 100"),
    "--retry below 0": (["/a", "--retry", "-1"], "--retry: -1 is out of range; give a whole number from 0 to 100"),
    "--error-body": (
        ["/a", "--error-body", "file"],
        "--error-body: 'file' is none of its values; use stdout, stderr or none",
    ),
    "--timeout": (["/a", "--timeout", "0"], "--timeout: '0' is no number of seconds above 0"),
    "--max-time": (["/a", "--max-time", "nan"], "--max-time: 'nan' is no number of seconds above 0"),
    "--storage": (["/a", "--storage", "disk"], "--storage: 'disk' is no storage"),
    "a base URL with user info": (["/a", "--base-url", "http://u:CANARY@h"], "base URL has user info before its host"),
    "a profile that is not there": (["/a", "-p", "nope"], "nope"),
    "two files of one name": (["/a", "-o", "x", "--meta", "x"], "-o and --meta name the same file"),
    "a URL that is too long": (["/a", "b==" + "x" * 70_000], "the URL has 70,"),
}


@pytest.mark.parametrize("flags", [[], ["--curl"]])
@pytest.mark.parametrize("kind", WRONG)
def test_it_is_named_in_one_line_and_nothing_is_sent(xapi: Xapi, tmp_path: Path, kind: str, flags: list[str]) -> None:
    words, message = WRONG[kind]
    if (flags and "missing file" in message) or (flags and (kind in CURL_READS)):
        return  # it is curl that will complain
    (tmp_path / "file").write_text("text")
    (tmp_path / "binary").write_bytes(b"\xff")
    with Server([serve(OK)]) as server:
        outcome = xapi("request", *words, *flags, env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out, server.received) == (2, "", [])
    assert outcome.err.startswith("xapi: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.err.rstrip("\n").isprintable()
    assert "CANARY" not in outcome.err
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"file", "binary"}


# what curl reads when the printed command runs, and not xapi
CURL_READS = {
    "a flag without its value",
    "-d without a file",
    "a missing file",
    "a folder as a body",
    "a missing upload",
}


@pytest.mark.parametrize(
    ("missing", "message"), [("XAPI_BASE_URL", "there is no base URL"), ("XAPI_USERNAME", "there is no username")]
)
def test_what_has_to_be_set_is_named(xapi: Xapi, missing: str, message: str) -> None:
    with Server([serve(OK)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY", missing: None}
        outcome = xapi("request", "/a", env=env)

    assert (outcome.code, outcome.out, server.received) == (2, "", [])
    assert outcome.err.startswith(f"xapi: error: {message}; ")


@pytest.mark.parametrize("words", [("-d", "@-"), ("a=@-",), ("a@-",)], ids=["data", "field", "upload"])
def test_without_a_token_and_a_way_to_log_in_it_fails_before_stdin_is_read(xapi: Xapi, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()  # which never ends
    os.write(writing, b"unread")
    with Server([serve(OK)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me"}
        process = xapi.start("request", "/a", *words, stdin=reading, env=env)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err.count(b"\n"), server.received) == (10, b"", 1, [])
    assert err.startswith(b"xapi: error: no token was stored for me at ")
    assert os.read(reading, 100) == b"unread"
    os.close(reading)
    os.close(writing)


def test_an_argument_that_is_no_utf_8_is_taken_or_refused_in_one_line(xapi: Xapi) -> None:
    with Server([serve(OK)]) as server:
        taken = xapi("request", b"/a", b"b==\xff", b"X-A:\xff", env=bearing(server))
        refused = xapi("request", b"/a", b"b=\xff", env=bearing(server))

    assert (taken.code, taken.out) == (0, "ok")
    assert server.received[0].startswith(b"GET /a?b=%FF HTTP/1.1\r\n")
    assert b"X-A: \xff\r\n" in server.received[0]
    assert (refused.code, refused.err) == (
        2,
        "xapi: error: the field b is no UTF-8 text; upload a file with name@file\n",
    )


def test_words_that_look_like_flags_can_be_given_after_two_dashes(xapi: Xapi) -> None:
    with Server([serve(OK)]) as server:
        outcome = xapi("request", "--", "/a", "-b==1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert server.received[0].startswith(b"GET /a?-b=1 HTTP/1.1\r\n")


@pytest.mark.parametrize("setting", ["--ca-bundle", "SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("flaw", ["missing", "empty"])
def test_certificates_that_cannot_be_used_are_named_before_anything_is_tried(
    xapi: Xapi, setting: str, flaw: str
) -> None:
    path = xapi.home / "ca.pem"
    if flaw == "empty":
        path.touch()
    words, env = (["--ca-bundle", str(path)], {}) if setting == "--ca-bundle" else ([], {setting: str(path)})
    port = free_port()

    outcome = xapi("request", "/", *words, env={"XAPI_BASE_URL": f"https://127.0.0.1:{port}", "XAPI_TOKEN": "t"} | env)
    assert (outcome.code, outcome.out) == (2, "")
    assert str(path) in outcome.err
    assert outcome.err.count("\n") == 1

    with Server([serve(OK)]) as server:  # plain http does not even look at them
        assert xapi("request", "/", *words, env=bearing(server) | env) == Outcome(0, "ok")
