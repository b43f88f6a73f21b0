"""The command that --curl prints runs, and does what xapi would have done."""

import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.commands.api import TOKEN, answer, bearing
from tests.program import Outcome, Xapi
from tests.servers import OK, Server, hang, request, send, serve
from xapi_cli.sandbox import Sandbox

ECHO = "/x-api/echo"
FILE = bytes(range(256)) * 100


def _printed(xapi: Xapi, *words: str, env: dict[str, str], cwd: Path | None = None) -> str:
    outcome = xapi("request", *words, "--curl", env=env, cwd=cwd)
    assert outcome.code == 0
    assert all(line.startswith("xapi: ") and "curl" in line for line in outcome.err.splitlines())
    return outcome.out


def _run(xapi: Xapi, command: str, env: dict[str, str], cwd: Path, given: bytes = b"") -> Outcome:
    reader, writer = os.pipe()
    os.write(writer, given)
    os.close(writer)
    process = xapi.start("-c", command, stdin=reader, env=env, cwd=cwd, argv=(shutil.which("dash") or "sh",))
    os.close(reader)
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([ECHO], b""),
        (["DELETE", ECHO, "a==1 2&", "b==é"], b""),
        (["POST", ECHO], b""),
        (["PUT", ECHO, "X-Empty;"], b""),
        ([ECHO, 'name=it\'s "quoted" $HOME `x` \\ é', "n:=1.10"], b""),
        (["GET", ECHO, "a=1"], b""),
        ([ECHO, "--form", "a=x y&", "b=@text"], b""),
        ([ECHO, "a=@text", "b:=@json"], b""),
        ([ECHO, "-d", "{}\n'x'"], b""),
        ([ECHO, "-d", "", "Content-Type:text/plain"], b""),
        ([ECHO, "-d", "@file"], b""),
        (["PATCH", ECHO, "-d", "@~/home-file", "Content-Type:"], b""),
        ([ECHO, "-d", "@-"], FILE[:60_000]),
        ([ECHO, "X-One:1", "-H", "X-Two: a b", "Accept:", "User-Agent:me"], b""),
        ([ECHO, "-d", "@we ird 'name'\".txt"], b""),
    ],
)
def test_the_same_request_arrives(xapi: Xapi, sandbox: Sandbox, tmp_path: Path, words: list[str], given: bytes) -> None:
    if "X-Empty;" in words:
        words = [word if word != "X-Empty;" else "-HX-Empty;" for word in words]
    (tmp_path / "text").write_text("zwei\nZeilen", "utf-8")
    (tmp_path / "json").write_text("[1.0]\n")
    (tmp_path / "file").write_bytes(FILE)
    (tmp_path / "we ird 'name'\".txt").write_bytes(b"x")
    (xapi.home / "home-file").write_bytes(b"from home")
    env = sandbox.settings
    assert xapi("login", env=env).code == 0

    command = _printed(xapi, *words, env=env, cwd=tmp_path)
    there = _run(xapi, command, env, tmp_path, given)
    here = xapi("request", *words, env=env, input=given, cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _essence(there) == _essence(here)
    assert "uthorization: Bearer" not in command


def _essence(outcome: Outcome) -> dict[str, Any]:
    """Return what the echo saw, but for the headers in which curl and xapi differ by nature."""
    seen: dict[str, Any] = json.loads(outcome.out)
    headers = seen.pop("headers")
    agent = headers.pop("user-agent")
    return seen | {
        "headers": {name: value for name, value in headers.items() if name not in {"accept-encoding", "expect"}},
        "agent": agent if agent == "me" else "default",
    }


def test_a_terminal_obeys_nothing_in_the_command_which_stays_the_same(xapi: Xapi, tmp_path: Path) -> None:
    text = "it's\x1b[2J \x9b\u202e a\r\nb\t\udcff\\"
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"}
    words = ("request", "/a", "Authorization:", "-d", text.encode("utf-8", "surrogateescape"), "--curl")

    with xapi.on_terminal(*words, env=env, stderr=subprocess.DEVNULL) as terminal:
        assert terminal.wait() == 0
    shown = terminal.seen.decode().removesuffix("\r\n").replace("\r\n", "\n")

    assert shown.replace("\n", "").replace("\t", "").isprintable()
    assert _words_of(xapi, shown, tmp_path) == _words_of(xapi, xapi(*words, env=env).out.rstrip("\n"), tmp_path)


def _words_of(xapi: Xapi, command: str, cwd: Path) -> bytes:
    """Return the words that a shell makes of *command*."""
    process = xapi.start("-c", f"printf '<%s>' {command}", cwd=cwd, argv=(shutil.which("dash") or "sh",))
    out: bytes = process.communicate(timeout=30)[0]
    return out


def test_uploads_arrive_alike(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture\r\n" * 2000)
    (tmp_path / "text").write_text("note")
    env = bearing(sandbox)
    words = [ECHO, "title=x;type=y", "note=@text", "file@a.png", "odd@text;type=text/csv", "pipe@-"]

    there = _run(xapi, _printed(xapi, *words, env=env, cwd=tmp_path), env, tmp_path, b"from a pipe")
    here = xapi("request", *words, env=env, input=b"from a pipe", cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _parts(there) == _parts(here)
    assert len(_parts(here)) == 5


def _parts(outcome: Outcome) -> list[tuple[list[str], str]]:
    """Return the headers of each part, in any order, and its content."""
    seen = json.loads(outcome.out)
    if "text" not in seen:
        raise AssertionError(seen)
    boundary = seen["headers"]["content-type"].partition("boundary=")[2]
    parts = [part.partition("\r\n\r\n") for part in seen["text"].split(f"--{boundary}")][1:-1]
    return [(sorted(headers.strip("\r\n").split("\r\n")), content) for headers, _, content in parts]


# how an ITEM writes it in a name, and what it is
SPECIAL = {"\\=": "=", "\\@": "@", "\\\\": "\\"} | {text: text for text in ";\"<,\n\r$' é%`"}


@pytest.mark.parametrize("flags", [["--form"], []], ids=["form", "json"])
def test_special_characters_in_names_and_values_arrive_alike(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, flags: list[str]
) -> None:
    env = bearing(sandbox)
    fields = [f"{name}b=x{text}b" for name, text in SPECIAL.items()]
    words = [ECHO, *flags, *fields, *(f"{name}q=={text}" for name, text in SPECIAL.items())]

    there = _run(xapi, _printed(xapi, *words, env=env), env, tmp_path)
    here = xapi("request", *words, env=env)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _essence(there) == _essence(here)


def test_special_characters_in_the_names_of_parts_and_files_arrive_alike(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    env = bearing(sandbox)
    words = [ECHO, "pipe\\=@-", "typed\\=@=b;type=text/csv", "name=;type=x/y", "name\\=;headers\\==;type=x/y"]
    for name, text in SPECIAL.items():
        (tmp_path / f"{text}b").write_text("content")
        words += [f"{name}b=x{text};b", f"{name}b=", f"{name}b=<@{text}", f"{name}c=@{text}b", f"{name}d@{text}b"]
        words += [f"e@{text}b"]

    there = _run(xapi, _printed(xapi, *words, env=env, cwd=tmp_path), env, tmp_path, b"from a pipe")
    here = xapi("request", *words, env=env, input=b"from a pipe", cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _parts(there) == _parts(here)
    assert len(_parts(here)) == len(words) - 1


@pytest.mark.parametrize(
    ("words", "out"), [([], ""), (["-i"], None), (["-o", "out"], ""), (["-i", "--no-check-status"], None)]
)
def test_head(xapi: Xapi, sandbox: Sandbox, tmp_path: Path, words: list[str], out: str | None) -> None:
    env = bearing(sandbox)

    outcome = _run(xapi, _printed(xapi, "HEAD", "/x-api/me", *words, env=env), env, tmp_path)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("HTTP/1.1 200 OK\r\n") if out is None else outcome.out == out
    assert list(tmp_path.glob("out")) == []


@pytest.mark.parametrize(("words", "code", "kept"), [([], 22, "old"), (["--no-check-status"], 0, "no")])
def test_a_file_is_kept_when_the_answer_is_an_error(
    xapi: Xapi, tmp_path: Path, words: list[str], code: int, kept: str
) -> None:
    (tmp_path / "out").write_text("old")
    with Server([serve(answer("404 No", b"no"))]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", "-o", "out", *words, env=env), env, tmp_path)

    assert outcome.code == code
    assert (tmp_path / "out").read_text() == kept


def test_an_error_body_is_shown_and_the_exit_code_is_not_0(xapi: Xapi, tmp_path: Path) -> None:
    with Server([serve(answer("404 No", b"no"))]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", env=env), env, tmp_path)

    assert (outcome.code, outcome.out) == (22, "no")


def test_an_authorization_of_the_users_own_asks_xapi_for_no_token(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(OK)]) as server:
        command = _printed(xapi, "/", "Authorization:Basic abc", "-d", "@-", env=bearing(server))
        outcome = _run(xapi, command, bearing(server), tmp_path, b"body")

    assert not command.startswith(("xapi", "{"))
    assert outcome == Outcome(0, "ok")
    assert b"\r\nAuthorization: Basic abc\r\n" in server.received[0]
    assert server.received[0].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize("words", [["a=1"], ["X-Mine:canary"], ["--no-follow"], []])
def test_a_redirect_is_followed_only_where_nothing_can_leak(xapi: Xapi, tmp_path: Path, words: list[str]) -> None:
    with Server([serve(OK)]) as other, Server([serve(answer("307 See", b"", f"Location: {other.url}/x"))]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", *words, env=env), env, tmp_path)

    assert outcome.code == 0
    assert (outcome.out, len(other.received)) == (("", 0) if words else ("ok", 1))
    assert TOKEN.encode() not in b"".join(other.received)


def test_it_trusts_whom_xapi_would_trust(xapi: Xapi, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca file.pem"))
    with Server([request(), send(OK)], tls=context) as server:
        env = bearing(server)
        command = _printed(xapi, "/", "--ca-bundle", "ca file.pem", "--max-time", "9", env=env, cwd=tmp_path)
        assert _run(xapi, command, env, tmp_path) == Outcome(0, "ok")

    assert "--max-time 9" in command


def test_the_settings_that_say_whose_token_it_is_are_passed_on(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": "https://api.test"}
    command = _printed(xapi, "/a", "-u", "me@x.test", "--storage", "file", "--no-login", "--no-input", env=env)

    assert command == (
        "xapi token show --header --no-input --no-login --username 'me@x.test' --storage 'file' | "
        "curl --silent --show-error --globoff --path-as-is --compressed --fail-with-body --location "
        "--max-redirs 10 --proto-redir =https --header @- 'https://api.test/a'\n"
    )


def test_nothing_is_sent_and_no_token_asked_for(xapi: Xapi, sandbox: Sandbox) -> None:
    _printed(xapi, ECHO, "a=1", env=sandbox.settings)

    assert (sandbox.requests, sandbox.login_attempts) == (0, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/a", "b=@-"], "--curl cannot show a field that comes from stdin"),
        (["HEAD", "/a", "b=1"], "curl sends no HEAD with a body"),
    ],
)
def test_what_curl_cannot_do_is_refused(xapi: Xapi, words: list[str], message: str) -> None:
    outcome = xapi("request", *words, "--curl", env={"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"})

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


PARTIAL = "curl writes FILE as the body arrives, not whole or not at all"
MISSING = "left out, because curl has nothing like it"
NO_REDIRECT = "curl follows no redirect here: it would carry the body and your headers to any host"


@pytest.mark.parametrize(
    ("words", "switches", "notes"),
    [
        (["/a"], "", []),
        (["/a", "--timeout", "30"], "", []),
        (
            ["/a", "--timeout", "1.5"],
            "--connect-timeout 1.5 --speed-limit 1 --speed-time 2",
            ["curl has no limit for each wait: --speed-time ends a transfer that stands still for so long"],
        ),
        (
            ["/a", "--retry", "3"],
            "--retry 3 --retry-connrefused",
            ["curl's --retry also tries again after 408, 500 and a timeout, and prints the body of each failure"],
        ),
        (["POST", "/a", "--retry", "3", "--no-follow"], "", []),
        (["/a", "-o", "it's"], "--output 'it'\\''s'", [PARTIAL]),
        (["/a", "-i"], "--include", []),
        (["/a", "--error-body", "none"], "--fail", []),
        (["/a", "--error-body", "stderr"], "", [f"{MISSING}: --error-body"]),
        (["/a", "--meta", "m", "-v"], "", [f"{MISSING}: --meta, --verbose"]),
        (["/a", "--error-body", "none", "--no-check-status"], "", [f"{MISSING}: --error-body"]),
        (["/a", "--ca-bundle", "~/ca.pem"], "--cacert '{home}/ca.pem'", []),
        (["/a", "X-A:1"], "", [NO_REDIRECT]),
        (["/a", "b=1"], "", [NO_REDIRECT]),
        (["/a", "b=1", "--no-follow"], "", []),
    ],
)  # fmt: skip
def test_what_curl_can_express_it_does_and_the_rest_is_said(
    xapi: Xapi, words: list[str], switches: str, notes: list[str]
) -> None:
    outcome = xapi("request", *words, "--curl", env={"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "canary"})

    assert f" {switches.format(home=xapi.home)} " in outcome.out if switches else outcome.code == 0
    assert outcome.err.splitlines() == [f"xapi: {note}" for note in notes]
    assert "canary" not in outcome.out + outcome.err


def test_the_head_goes_to_stdout_and_the_body_to_the_file(xapi: Xapi, tmp_path: Path) -> None:
    with Server([serve(OK)]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", "-i", "-o", "out", env=env), env, tmp_path)

    assert outcome == Outcome(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    assert (tmp_path / "out").read_bytes() == b"ok"


def test_an_error_body_that_nobody_wants_is_not_shown(xapi: Xapi, tmp_path: Path) -> None:
    with Server([serve(answer("404 No", b"no"))]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", "--error-body", "none", env=env), env, tmp_path)

    assert (outcome.code, outcome.out) == (22, "")


def test_a_passing_failure_is_tried_again_and_a_silent_server_given_up(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(answer("503 Busy", b"", "Retry-After: 0"))], [serve(OK)]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", "--retry", "2", env=env), env, tmp_path)
    assert (outcome.code, outcome.out, len(server.received)) == (0, "ok", 2)

    with Server([request(), hang()]) as server:
        env = bearing(server)
        outcome = _run(xapi, _printed(xapi, "/", "--timeout", "1", env=env), env, tmp_path)
    assert (outcome.code, outcome.out) == (28, "")
