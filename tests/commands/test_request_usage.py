"""Invalid usage: one line that names it, exit code 2, nothing sent, and no value of an unexpected argument."""

import os
from pathlib import Path

import pytest

from tests.commands.api import bearing
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, free_port, serve

INVALID = {
    "no PATH": ([], "missing argument; usage: `xapi request [METHOD] PATH [ITEM]...`"),
    "an unexpected argument": (["/a", "CANARY"], "argument 2 is not an ITEM (not shown: it may be a secret)"),
    "an unknown option": (["/a", "--pasword=CANARY"], "unknown option --pasword; "),
    "two methods": (["GET", "/a", "-X", "POST"], "METHOD is GET, but -X is POST"),
    "a value for a switch": (["/a", "--form=CANARY"], "option '--form' does not take a value"),
    "an option without its value": (["/a", "-d"], "option '-d' requires an argument"),
    "a header from a missing file": (["/a", "X:@missing"], "cannot read missing: No such file or directory"),
    "-d twice": (["/a", "-d", "CANARY", "-d", "CANARY"], "-d is given twice; give the whole body once"),
    "-d and fields": (["/a", "-d", "CANARY", "b=1"], "-d cannot be combined"),
    "an upload with a Content-Type": (
        ["/a", "b@file", "Content-Type:text/plain"],
        "an upload sets its own Content-Type",
    ),
    "a header without a colon": (["/a", "-H", "CANARY"], "-H has a header without a colon"),
    "a line break in a header": (["/a", "X-A:b\r\nX-CANARY: c"], "the header X-A has a control character (U+000D)"),
    "--retry": (["/a", "--retry", "x"], "--retry: 'x' is not valid; use a number from 0 to 100"),
    "--error-body": (
        ["/a", "--error-body", "file"],
        "invalid value for '--error-body': 'file' is not one of 'stdout', 'stderr', 'none'; see `xapi request --help`",
    ),
    "the same file twice": (["/a", "-o", "x", "--meta", "x"], "-o and --meta are the same file"),
    "an oversized URL": (["/a", "b==" + "x" * 70_000], "the URL has 70,"),
}


@pytest.mark.parametrize("kind", INVALID)
def test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    args, message = INVALID[kind]
    (tmp_path / "file").write_text("text")
    with Server([serve(OK)]) as server:
        outcome = xapi("request", *args, env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out, server.received) == (2, "", [])
    assert outcome.err.startswith("xapi: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.err.rstrip("\n").isprintable()
    assert "CANARY" not in outcome.err
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"file"}


@pytest.mark.parametrize(("missing", "message"), [("XAPI_BASE_URL", "no base URL"), ("XAPI_USERNAME", "no username")])
def test_missing_settings_are_named(xapi: Xapi, missing: str, message: str) -> None:
    with Server([serve(OK)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY", missing: None}
        outcome = xapi("request", "/a", env=env)

    assert (outcome.code, outcome.out, server.received) == (2, "", [])
    assert outcome.err.startswith(f"xapi: error: {message}; ")


@pytest.mark.parametrize("args", [("-d", "@-"), ("a=@-",), ("a@-",), ("a==@-",), ("A:@-",)])
def test_a_request_without_a_password_source_fails_before_stdin_is_read(xapi: Xapi, args: tuple[str, ...]) -> None:
    reading, writing = os.pipe()  # never closed
    os.write(writing, b"unread")
    with Server([serve(OK)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me"}
        process = xapi.start("request", "/a", *args, stdin=reading, env=env)
        out, err = process.communicate()

    assert (process.returncode, out, err.count(b"\n"), server.received) == (10, b"", 1, [])
    assert err.startswith(b"xapi: error: not logged in as me at ")
    assert os.read(reading, 100) == b"unread"
    os.close(reading)
    os.close(writing)


def test_arguments_that_look_like_options_can_follow_two_hyphens(xapi: Xapi) -> None:
    with Server([serve(OK)]) as server:
        outcome = xapi("request", "--", "/a", "-b==1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert server.received[0].startswith(b"GET /a?-b=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("setting", "flaw"), [("--ca-bundle", "missing"), ("SSL_CERT_FILE", "empty"), ("SSL_CERT_DIR", "missing")]
)
def test_unusable_certificates_are_reported_before_anything_is_sent(xapi: Xapi, setting: str, flaw: str) -> None:
    path = xapi.home / "ca.pem"
    if flaw == "empty":
        path.touch()
    args, env = (["--ca-bundle", str(path)], {}) if setting == "--ca-bundle" else ([], {setting: str(path)})
    port = free_port()

    outcome = xapi("request", "/", *args, env={"XAPI_BASE_URL": f"https://127.0.0.1:{port}", "XAPI_TOKEN": "t"} | env)
    assert (outcome.code, outcome.out) == (2, "")
    assert str(path) in outcome.err
    assert outcome.err.count("\n") == 1

    with Server([serve(OK)]) as server:  # not used for plain http
        assert xapi("request", "/", *args, env=bearing(server) | env) == Outcome(0, "ok")
