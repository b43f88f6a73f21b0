"""Each row of the table in the README that compares xapi with a script is true."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.commands.api import bearing
from tests.support.pages import README
from tests.support.program import Xapi
from tests.support.servers import Server, request, send
from xapi_cli.sandbox import Sandbox

Check = Callable[[Xapi, Sandbox], None]


def _logs_in_and_resends_the_body(xapi: Xapi, sandbox: Sandbox) -> None:
    _invalidate_tokens(sandbox)

    sent = xapi("request", "/x-api/echo", "-d", "@-", input="[1]", env=sandbox.settings)
    assert (sent.code, "[1]" in sent.out, sandbox.login_attempts) == (0, True, 2)


def _jobs_log_in_once(xapi: Xapi, sandbox: Sandbox) -> None:
    _invalidate_tokens(sandbox)

    with ThreadPoolExecutor(20) as threads:
        codes = list(threads.map(lambda _: xapi("request", "/x-api/me", env=sandbox.settings).code, range(20)))
    assert (codes, sandbox.login_attempts) == ([0] * 20, 2)


def _secrets_are_shown_nowhere(xapi: Xapi, sandbox: Sandbox) -> None:
    token = xapi("token", "show", env=sandbox.settings).out.strip()
    shown = xapi("request", "/x-api/nope", "-v", env=sandbox.settings)

    assert (shown.code, "Authorization" in shown.err, token in shown.err) == (4, True, False)
    assert "no option takes a password" in xapi("login", "--password", "x", env=sandbox.settings).err


def _truncated_download_is_an_error(xapi: Xapi, sandbox: Sandbox) -> None:
    del sandbox
    truncated = gzip.compress(os.urandom(2000))[:-600]
    reply = [request(), send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + truncated)]
    file = xapi.home / "file"
    file.write_text("old")
    with Server(reply, reply) as server:
        assert xapi("request", "/", "-o", str(file), env=bearing(server)).code == 11
        assert file.read_text() == "old"
        if curl := shutil.which("curl"):
            command = [curl, "-sS", "--compressed", "-o", str(file), "--noproxy", "*", server.url]
            assert subprocess.run(command, check=False, timeout=60).returncode == 0


def _batch_can_be_resumed(xapi: Xapi, sandbox: Sandbox) -> None:
    args = ("batch", "-j", "5", "--rate", "1000", "--journal", str(xapi.home / "journal"))
    for _ in range(2):
        ran = xapi(*args, env=sandbox.settings, input='{"path": "/x-api/me"}\n' * 30)
        assert (ran.code, len(ran.out.splitlines())) == (0, 30)
    assert sandbox.requests == 30


CHECKS: dict[str, Check] = {
    "the token is revoked at 3 a.m.": _logs_in_and_resends_the_body,
    "20 jobs get a 401 at the same time": _jobs_log_in_once,
    "where the secrets are": _secrets_are_shown_nowhere,
    "a response with `Content-Encoding: gzip` is truncated": _truncated_download_is_an_error,
    "10,000 calls to make": _batch_can_be_resumed,
}


def _invalidate_tokens(sandbox: Sandbox) -> None:
    httpx.post(f"{sandbox.base_url}/sandbox/kill-tokens", trust_env=False).raise_for_status()


def test_each_row_of_the_table_has_a_check() -> None:
    assert re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", README.read_text(), re.MULTILINE)[1:] == list(CHECKS)


@pytest.mark.parametrize("row", CHECKS)
def test_a_row_of_the_table_is_true(row: str, xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    CHECKS[row](xapi, sandbox)


def test_the_first_thirty_lines_have_the_pitch_the_picture_and_the_requirement() -> None:
    start = "\n".join(README.read_text().splitlines()[:30])

    titles = ("## Why not curl and a script?", "## Install and try it")
    for part in ("docs/pictures/token-renewal.svg", "/x-api/token", *titles):
        assert part in start
