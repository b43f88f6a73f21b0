"""Automatic login: when a request triggers one, with which password, and what it reports."""

import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.program import Outcome, Xapi
from tests.support.redis_server import RedisServer
from tests.support.servers import Server, request, send, serve
from xapi_cli.features.sandbox import MASTER, Sandbox

if TYPE_CHECKING:
    from tests.support.stores import Env

ME = ("request", "/x-api/me")


def _refuse_all() -> bytes:
    return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nno!\n"


def _api(token: bytes = b"abc") -> bytes:
    """Return a token response."""
    body = b'{"access_token": "%b"}' % token
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def test_a_request_without_a_token_logs_in_first(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi(*ME, "--meta", "meta.json", env=sandbox.settings)

    assert json.loads(outcome.out)["email"] == MASTER.email
    assert (outcome.code, outcome.err) == (
        0,
        f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: no stored token\n",
    )
    meta = json.loads((xapi.home / "meta.json").read_text())
    assert (meta["login"], meta["attempts"], sandbox.unauthorized) == ("missing", 1, 0)
    assert xapi(*ME, env={**sandbox.settings, "XAPI_PASSWORD": None}) == Outcome(0, outcome.out, "")


@pytest.mark.parametrize("size", [0, 70_000])
def test_after_a_401_the_request_is_replayed_with_the_same_body_from_stdin(
    xapi: Xapi, sandbox: Sandbox, size: int
) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    args = ("request", "PUT", "/x-api/echo", "a==b", "X-Mine:1", "-d", "@-", "--meta", "meta.json")
    outcome = xapi(*args, input=body, env=sandbox.settings)

    assert (outcome.code, outcome.err) == (
        0,
        f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: the API rejected the stored token (401)\n",
    )
    response = json.loads(outcome.out)
    assert (response["method"], response["query"], response["headers"]["x-mine"]) == ("PUT", [["a", "b"]], "1")
    assert (response["length"], response["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    meta = json.loads((xapi.home / "meta.json").read_text())
    assert (meta["login"], meta["attempts"], meta["status"]) == ("rejected", 2, 200)
    assert (sandbox.requests, sandbox.unauthorized, sandbox.logins) == (2, 1, 2)


def test_no_process_logs_in_if_another_process_has_stored_a_newer_token(xapi: Xapi) -> None:
    responses = [_refuse_all(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]
    new = json.dumps({"expires_at": None, "access_token": "newer"})

    def store_newer(peer: object) -> None:
        (path,) = (xapi.state / "tokens").iterdir()
        path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(new)))

    script = [request(), send(_api(b"old")), request(), store_newer, send(responses[0]), request(), send(responses[1])]
    with Server(script[:2], [*script[2:]]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        assert xapi("login", env=env).code == 0
        outcome = xapi(*ME, env=env)

    assert outcome == Outcome(0, "ok", "")
    assert b"Bearer old" in server.received[1]
    assert b"Bearer newer" in b"".join(server.received[1:])


def test_a_second_401_exits_with_10_and_stops_logins_for_a_minute(xapi: Xapi) -> None:
    login, refusal = [request(), send(_api())], [serve(_refuse_all())]
    with Server(login, refusal) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        first = xapi(*ME, env=env)
        second = xapi(*ME, env=env)
        third = xapi("token", "show", "--no-login", env=env)

    assert (first.code, first.out, first.err.count("\n")) == (10, "no!\n", 2)
    assert (second.code, second.out, second.err.count("\n")) == (10, "", 1)
    assert "less than a minute ago" in second.err
    assert (third.code, third.out) == (0, "abc\n")
    assert sum(data.count(b"POST /x-api/token") for data in server.received) == 1


def test_a_supplied_token_is_never_renewed(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi(*ME, env={**sandbox.settings, "XAPI_TOKEN": "abc"})

    assert (outcome.code, sandbox.login_attempts, sandbox.requests) == (10, 0, 1)
    assert "XAPI_TOKEN was rejected" in outcome.err
    assert not (xapi.state / "tokens").exists()


def test_a_failed_login_sets_the_exit_code_and_prints_nothing_on_stdout(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()

    outcome = xapi(*ME, env={**sandbox.settings, "XAPI_PASSWORD": "wrong"})
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (10, "", 1)
    without = xapi(*ME, env={"XAPI_NO_INPUT": "1"})
    assert (without.code, without.out, sandbox.login_attempts) == (10, "", 2)
    assert "no password source is available; run `xapi login`" in without.err


def test_a_rejected_password_is_not_sent_again_with_another_storage(
    xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer
) -> None:
    kinds: list[Env] = [shared_redis.environ, {"XAPI_STORAGE": "file"}, {"XAPI_STORAGE": "none"}]
    for number, first in enumerate(kinds, start=1):
        env: Env = {**sandbox.settings, "XAPI_USERNAME": f"{number}@example.com", "XAPI_PASSWORD": "wrong"}
        codes = [xapi("token", "show", env={**env, **storage}).code for storage in (first, *kinds)]
        assert codes == [10] * 4, first
        assert sandbox.login_attempts <= 2 * number  # once for this machine, once for those that share Redis


def test_a_body_on_stdin_is_never_read_as_the_password(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": None}

    outcome = xapi("request", "/x-api/echo", "-d", "@-", input=f"{MASTER.password}\n", env=env)

    assert (outcome.code, outcome.out, sandbox.login_attempts) == (10, "", 0)


def test_the_terminal_prompts_while_the_body_comes_from_a_pipe(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()
    reading, writing = os.pipe()
    os.write(writing, b"the body\n")
    os.close(writing)
    with xapi.on_terminal(
        "request", "/x-api/echo", "-d", "@-", "-o", "answer.json", stdin=reading, columns=200
    ) as terminal:
        os.close(reading)
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}")
        assert not terminal.echoes
        terminal.type(f"{MASTER.password}\n")
        assert terminal.wait() == 0
    assert json.loads((xapi.home / "answer.json").read_text())["text"] == "the body\n"
    assert MASTER.password.encode() not in terminal.seen


def test_after_a_rejected_password_xapi_prompts_again_and_no_process_waits_for_the_input(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    with xapi.on_terminal(*ME, env={**sandbox.settings, "XAPI_PASSWORD": None}, columns=300) as terminal:
        for password in ("wrong", "wrong", "wrong too"):
            terminal.expect("Password for ")
            terminal.type(f"{password}\n")
        assert terminal.wait() == 10
        assert sandbox.login_attempts == 2
    with xapi.on_terminal(*ME, env={**sandbox.settings, "XAPI_PASSWORD": None}, columns=300) as terminal:
        terminal.expect("Password for ")
        terminal.type("\n")
        terminal.expect("the password is empty; try again")
        terminal.expect("Password for ")
        terminal.type("wrong three\n")
        terminal.expect(" was rejected (400 invalid_grant: username and password do not match); try again")
        terminal.expect("Password for ")
        assert xapi("login", env=sandbox.settings).code == 0  # the lock is free
        terminal.type("whatever\n")
        assert terminal.wait() == 0  # with the token that was stored in the meantime
    assert sandbox.login_attempts == 4


def test_the_password_is_sent_only_in_the_token_request(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi(*ME, "-v", env=sandbox.settings)
    token = xapi("token", "show", "--no-login", env=sandbox.settings).out.strip()

    written = b"".join(path.read_bytes() for path in xapi.home.rglob("*") if path.is_file())
    assert outcome.code == 0
    assert MASTER.password not in outcome.err + outcome.out
    assert MASTER.password.encode() not in written
    assert token.encode() in written  # in its file and nowhere else
    assert token not in outcome.err + outcome.out
