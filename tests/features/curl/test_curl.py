"""The command that --curl prints can be run, and sends the request that xapi would send."""

import json
import os
import re
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.commands.api import TOKEN, bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send, serve
from xapi_cli.features.sandbox import Sandbox

ECHO = "/x-api/echo"
FILE = bytes(range(256)) * 100


def _command(xapi: Xapi, *args: str, env: dict[str, str], cwd: Path | None = None) -> str:
    outcome = xapi("request", *args, "--curl", env=env, cwd=cwd)
    assert outcome.code == 0
    assert all(line.startswith("xapi: ") and "curl" in line for line in outcome.err.splitlines())
    return outcome.out


def _run(xapi: Xapi, command: str, env: dict[str, str], cwd: Path, given: bytes = b"") -> Outcome:
    reader, writer = os.pipe()
    os.write(writer, given)
    os.close(writer)
    process = xapi.start("-c", command, stdin=reader, env=env, cwd=cwd, argv=(shutil.which("dash") or "sh",))
    os.close(reader)
    out, err = process.communicate()
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["DELETE", ECHO, "a==1 2&", "b==é"], b""),
        ([ECHO, 'name=it\'s "quoted" $HOME `x` \\ é', "n:=1.10"], b""),
        ([ECHO, "--form", "a=x y&", "b=@text"], b""),
        ([ECHO, "-d", "", "Content-Type:text/plain"], b""),
        (["PATCH", ECHO, "-d", "@~/home-file", "Content-Type:"], b""),
        ([ECHO, "-d", "@-"], FILE[:60_000]),
        (["PUT", ECHO], b""),
        (
            [
                ECHO,
                "X-One:@we ird 'name'\".txt",
                "X$HOME:@empty",
                "X-Four:@lines",
                "q==@lines",
                "X-Two:@~/home-file",
                "X-Five:1",
                "-H",
                "X-Six: a b",
                "Accept:",
                "User-Agent:me",
            ],
            b"",
        ),
    ],
)
def test_curl_sends_the_same_request(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, args: list[str], given: bytes
) -> None:
    (tmp_path / "text").write_text("zwei\nZeilen", "utf-8")
    (tmp_path / "lines").write_bytes("it's $HOME `x` é\r\n\n".encode())
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "we ird 'name'\".txt").write_bytes(b"x")
    (xapi.home / "home-file").write_bytes(b"from home")
    env = sandbox.settings
    assert xapi("login", env=env).code == 0

    command = _command(xapi, *args, env=env, cwd=tmp_path)
    there = _run(xapi, command, env, tmp_path, given)
    here = xapi("request", *args, env=env, input=given, cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _comparable(there) == _comparable(here)
    assert "uthorization: Bearer" not in command


def _comparable(outcome: Outcome) -> dict[str, Any]:
    """Return the request that the echo resource received, without the headers in which curl and xapi always differ."""
    seen: dict[str, Any] = json.loads(outcome.out)
    headers = seen.pop("headers")
    agent = headers.pop("user-agent")
    return seen | {
        "headers": {name: value for name, value in headers.items() if name not in {"accept-encoding", "expect"}},
        "agent": agent if agent == "me" else "default",
    }


def test_curl_sends_the_same_uploads(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture\r\n" * 2000)
    (tmp_path / "text").write_text("note")
    env = bearing(sandbox)
    args = [ECHO, "title=x;type=y", "note=@text", "file@a.png", "odd@text;type=text/csv", "pipe@-"]

    there = _run(xapi, _command(xapi, *args, env=env, cwd=tmp_path), env, tmp_path, b"from a pipe")
    here = xapi("request", *args, env=env, input=b"from a pipe", cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _parts(there) == _parts(here)
    assert len(_parts(here)) == 5


def test_curl_sends_the_same_nested_fields_and_values_from_files(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(" it's é \r\n\n".encode())
    (tmp_path / "json").write_text("[1.10, 1e400]")
    env = bearing(sandbox)
    args = [ECHO, "a[b][]=x", "a[b][]:=1.10", "a[c]:=@json", "d[]=@text"]
    args += ["X-One:@text", "q==@text", "X-Two:1", "x-two:", "X-Three:1", "X-Three:", "X-Three:3"]

    there = _run(xapi, _command(xapi, *args, env=env, cwd=tmp_path), env, tmp_path)
    here = xapi("request", *args, env=env, cwd=tmp_path)

    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    assert _comparable(there) == _comparable(here)


def _parts(outcome: Outcome) -> list[tuple[list[str], str]]:
    """Return the headers (unordered) and the content of each part."""
    seen = json.loads(outcome.out)
    if "text" not in seen:
        raise AssertionError(seen)
    boundary = seen["headers"]["content-type"].partition("boundary=")[2]
    parts = [part.partition("\r\n\r\n") for part in seen["text"].split(f"--{boundary}")][1:-1]
    return [(sorted(headers.strip("\r\n").split("\r\n")), content) for headers, _, content in parts]


@pytest.mark.parametrize("args", [["-o", "out"], ["-i"]])
def test_head_prints_the_headers(xapi: Xapi, sandbox: Sandbox, tmp_path: Path, args: list[str]) -> None:
    env = bearing(sandbox)

    outcome = _run(xapi, _command(xapi, "HEAD", "/x-api/me", *args, env=env), env, tmp_path)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("HTTP/1.1 200 OK\r\n")
    assert list(tmp_path.glob("out")) == []


def test_a_command_with_a_user_supplied_authorization_header_requests_no_token(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(OK)]) as server:
        command = _command(xapi, "/", "Authorization:Basic abc", "-d", "@-", "--retry", "2", env=bearing(server))
        outcome = _run(xapi, command, bearing(server), tmp_path, b"body")

    assert not command.startswith(("xapi", "{"))
    assert "--retry" not in command  # of a POST
    assert outcome == Outcome(0, "ok")
    assert b"\r\nAuthorization: Basic abc\r\n" in server.received[0]
    assert server.received[0].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize("args", [["a=1"], ["X-Mine:canary"], ["--no-follow"], []])
def test_curl_follows_a_redirect_only_if_no_secret_can_leak(xapi: Xapi, tmp_path: Path, args: list[str]) -> None:
    with Server([serve(OK)]) as other, Server([serve(response("307 See", b"", f"Location: {other.url}/x"))]) as server:
        env = bearing(server)
        outcome = _run(xapi, _command(xapi, "/", *args, env=env), env, tmp_path)

    assert outcome.code == 0
    assert (outcome.out, len(other.received)) == (("", 0) if args else ("ok", 1))
    assert TOKEN.encode() not in b"".join(other.received)


def test_curl_trusts_the_certificates_that_xapi_trusts(xapi: Xapi, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca file.pem"))
    with Server([request(), send(OK)], tls=context) as server:
        env = bearing(server)
        command = _command(xapi, "/", "--ca-bundle", "ca file.pem", "--max-time", "9", env=env, cwd=tmp_path)
        assert _run(xapi, command, env, tmp_path) == Outcome(0, "ok")

    assert "--max-time 9" in command
    other = _command(xapi, "/", "--ca-bundle", str(tmp_path), "--timeout", "7", "--no-check-status", env=env)
    assert re.search(r" --connect-timeout 7 .*--speed-time 7 --capath ", other)
    assert "--fail" not in other
    assert command.startswith("xapi token show --header --max-time '9' --ca-bundle 'ca file.pem' | ")


def test_the_settings_that_select_the_account_are_passed_on_and_what_curl_cannot_do_is_noted(xapi: Xapi) -> None:
    args = ("-u", "me@x.test", "--storage", "file", "--no-login", "--no-input", "--csv", "--paginate")
    outcome = xapi("request", "/a", *args, "--curl", env={"XAPI_BASE_URL": "https://api.test"})

    assert outcome.err == "xapi: omitted from the command, because curl has no equivalent: --paginate, --csv\n"
    assert outcome.out == (
        "xapi token show --header --no-login --username 'me@x.test' --storage 'file' --no-input | "
        "curl -q --silent --show-error --globoff --path-as-is --compressed --fail-with-body --location "
        "--max-redirs 10 --proto-redir =https --header @- 'https://api.test/a'\n"
    )


def test_the_response_headers_go_to_stdout_and_the_body_to_the_file(xapi: Xapi, tmp_path: Path) -> None:
    with Server([serve(OK)]) as server:
        env = bearing(server)
        outcome = _run(xapi, _command(xapi, "/", "-i", "-o", "out", env=env), env, tmp_path)

    assert outcome == Outcome(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    assert (tmp_path / "out").read_bytes() == b"ok"
