"""`headers` in a profile: sent with each request to the API of the profile, and nowhere else."""

import json
from pathlib import Path

import pytest

from tests.commands.api import TOKEN
from tests.commands.profiles import write_config
from tests.features.batch.server import Api, batch, jsonl
from tests.features.proxy.running import proxy
from tests.support.library_program import Program
from tests.support.program import Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli.features.sandbox import Sandbox

SECRET = "canary-of-the-gateway"
INVALID_NAME = (
    "a line is a header with an invalid name;"
    " write Name: value, one header per line, with only letters, digits and dashes in the name"
)
HEADERS = f'headers = {{X-Team = "blue", X-Api-Key = "{SECRET}", accept = "text/x"}}\n'


def sent(received: bytes) -> list[str]:
    """Return the header lines that a server received."""
    return received.decode().partition("\r\n\r\n")[0].split("\r\n")[1:]


def configured(xapi: Xapi, url: str, more: str = HEADERS) -> dict[str, str | None]:
    write_config(xapi, f'[profiles.default]\nbase_url = "{url}"\n{more}')
    return {"XAPI_TOKEN": "abc"}


def test_a_request_has_the_headers_unless_it_sets_or_removes_them(xapi: Xapi) -> None:
    with Server(*[[request(), send(OK)]] * 5) as server:
        env = configured(xapi, server.url)
        assert xapi("request", "/a", env=env).code == 0
        assert xapi("request", "/a", "x-team:red", "X-Api-Key:", "Accept:a/b", env=env).code == 0
        assert xapi("token", "status", "--check", "/a", env=env).code == 0
        assert xapi("each", "--list", "/a", "/{}", env=env).code == 6
        assert Program(xapi)("xapi_cli.open_client().get('/a')", env).code == 0

    first, second, *others = (sent(received) for received in server.received)
    for each in (first, *others):
        assert {"X-Team: blue", f"X-Api-Key: {SECRET}", "accept: text/x"} <= set(each)
        assert sum(line.lower().startswith("accept:") for line in each) == 1
    assert "x-team: red" in second
    assert not any("blue" in line or SECRET in line or "text/x" in line for line in second)


def test_each_line_of_a_batch_has_them_unless_it_sets_or_removes_them(xapi: Xapi) -> None:
    lines = jsonl({"path": "/a"}, {"path": "/b", "json": 1, "headers": {"x-team": "red", "X-Api-Key": None}})
    with Api() as api:
        write_config(xapi, f"[profiles.default]\n{HEADERS}")
        assert batch(xapi, api, input=lines)[0] == 0

    found = {each.path: each.headers for each in api.requests}
    assert (found["/a"]["x-team"], found["/a"]["x-api-key"], found["/a"]["accept"]) == ("blue", SECRET, "text/x")
    assert (found["/b"]["x-team"], found["/b"].get("x-api-key")) == ("red", None)


def test_the_login_does_not_have_them(xapi: Xapi) -> None:
    grant = b'{"access_token": "t", "token_type": "bearer"}'
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(grant), grant)
    with Server([request(), send(reply), request(), send(OK)]) as server:
        configured(xapi, server.url, f'username = "me@example.com"\n{HEADERS}')
        assert xapi("request", "/a", env={"XAPI_PASSWORD": "canary-password"}).code == 0

    login, _, call = b"".join(server.received).partition(b"GET /a")
    assert SECRET.encode() not in login
    assert SECRET.encode() in call


@pytest.mark.parametrize("how", ["flag", "variable", "username"])
def test_they_are_not_sent_to_another_account(xapi: Xapi, how: str) -> None:
    with Server([request(), send(OK)]) as server:
        env = configured(xapi, server.url if how == "username" else "https://api.test", f'username = "me"\n{HEADERS}')
        args = {"flag": ["--base-url", server.url], "username": ["-u", "other"]}.get(how, [])
        outcome = xapi("request", "/a", *args, env=env | ({"XAPI_BASE_URL": server.url} if how == "variable" else {}))

    assert outcome.code == 0
    assert SECRET.encode() not in server.received[0]
    assert b"X-Team" not in server.received[0]


def test_a_login_that_changes_the_base_url_removes_them(xapi: Xapi, sandbox: Sandbox) -> None:
    configured(xapi, "https://api.test", f'password_command = ["cat", "pw"]\n{HEADERS}')

    login = xapi("login", env=sandbox.settings)

    assert login.code == 0
    removed = "xapi: warning: the setting {} of profile default was removed: it belongs to https://api.test, not to {};"
    again = " to use it there too, set it again with `xapi profile set {}`"
    assert login.err.splitlines()[:2] == [
        removed.format(key, sandbox.base_url) + again.format(key) for key in ("password_command", "headers")
    ]
    assert "headers" not in json.loads(xapi("profile", "show", "--json").out)
    later = xapi("request", "/x-api/echo", "a=1")
    assert (later.err, "x-api-key" in json.loads(later.out)["headers"]) == ("", False)


def test_the_proxy_adds_them_unless_the_client_sends_others(xapi: Xapi) -> None:
    with Server([request(), send(OK), request(), send(OK)]) as server:
        configured(xapi, server.url, 'headers = {X-Team = "blue", X-Name = "ü", Cookie = "gate=1"}\n')
        with proxy(xapi, {"XAPI_TOKEN": TOKEN}) as running, running.client() as client:
            client.get("/a", headers={"Cookie": "of=client"})
            client.get("/b", headers={b"x-team": "röd".encode("latin-1")})

    first, _, second = b"".join(server.received).partition(b"GET /b")
    assert {b"X-Team: blue", "X-Name: ü".encode(), b"Cookie: gate=1"} <= set(first.splitlines())
    assert b"of=client" not in first
    assert {"x-team: röd".encode("latin-1"), "X-Name: ü".encode()} <= set(second.splitlines())
    assert b"blue" not in second


def test_they_are_not_sent_to_another_origin(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as other:
        away = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s/b\r\n\r\n" % other.url.encode()
        with Server([request(), send(away)]) as server:
            assert xapi("request", "/a", env=configured(xapi, server.url)).code == 0

    assert SECRET.encode() in server.received[0]
    assert SECRET.encode() not in other.received[0]
    assert b"X-Team" not in other.received[0]


def test_a_secret_is_shown_nowhere(xapi: Xapi, tmp_path: Path) -> None:
    log = tmp_path / "log"
    echo = b"HTTP/1.1 404 %s\r\nX-Echo: %s\r\nContent-Length: 0\r\n\r\n" % (SECRET.encode(), SECRET.encode())
    with Server([request(), send(echo)]) as server:
        env = configured(xapi, server.url)
        verbose = xapi("request", "/a", "-v", "--log", str(log), env=env)
        curl = xapi("request", "/a", "--curl", env=env)
        shown = [xapi("profile", *args, env=env) for args in (["show"], ["show", "--json"], ["list", "--json"])]

    assert SECRET.encode() in server.received[0]
    assert SECRET not in verbose.err + curl.out + curl.err + log.read_text() + "".join(map(str, shown))
    assert "> X-Api-Key: ***" in verbose.err
    assert "> X-Team: blue" in verbose.err
    assert "--header 'X-Team: blue'" in curl.out
    assert "xapi: omitted from the command, because their values are secrets: X-Api-Key\n" in curl.err
    assert json.loads(shown[1].out)["headers"] == {"X-Team": "blue", "X-Api-Key": "***", "accept": "text/x"}
    assert json.loads(shown[2].out)[0]["headers"] == {"X-Team": "blue", "X-Api-Key": "***", "accept": "text/x"}


def test_profile_set_and_unset_change_them(xapi: Xapi) -> None:
    assert xapi("profile", "set", "headers", "X-Team:blue\nX-Api-Key: a b").code == 0
    assert 'headers = {X-Team = "blue", X-Api-Key = "a b"}' in (xapi.config / "config.toml").read_text()
    assert xapi("profile", "set", "headers", "X-Team: red").code == 0
    assert 'headers = {X-Team = "red"}' in (xapi.config / "config.toml").read_text()
    assert xapi("profile", "unset", "headers").code == 0
    assert "headers" not in (xapi.config / "config.toml").read_text()


@pytest.mark.parametrize(
    "value, message",
    [
        ("canary", "a header is not a name and a value; write Name: value, one header per line"),
        ("a b: canary", INVALID_NAME),
        ('["X-A: canary","X-B: 2"]', INVALID_NAME),
        ("Authorization: canary", "the header Authorization cannot be a default; pass it with -H, for one request"),
        ("content-type: canary", "the header content-type cannot be a default; pass it with -H, for one request"),
        ("Idempotency-Key: canary", "the header Idempotency-Key cannot be a default; pass it with -H, for one request"),
        ("Content-Length: canary", "the header Content-Length is set by xapi; omit it"),
        ("X-A: canary\x01", "the header X-A has a control character (U+0001) in its value; remove it"),
    ],
)
def test_a_header_that_is_not_valid_exits_with_2_and_is_not_shown(xapi: Xapi, value: str, message: str) -> None:
    set_ = xapi("profile", "set", "headers", value)
    name, _, text = value.partition(":")
    write_config(xapi, f"[profiles.default]\nheaders = {{{json.dumps(name)} = {json.dumps(text)}}}\n")
    sent_ = xapi("request", "/a", env={"XAPI_TOKEN": "abc", "XAPI_BASE_URL": "http://127.0.0.1:9"})

    assert (set_.code, set_.err) == (2, f"xapi: error: headers: {message}\n")
    assert (sent_.code, sent_.err) == (2, f"xapi: error: profile default, headers: {message}\n")


@pytest.mark.parametrize("command", [("request", "/a"), ("batch",)])
def test_in_read_only_mode_they_cannot_select_another_method(xapi: Xapi, command: tuple[str, ...]) -> None:
    write_config(xapi, '[profiles.default]\nread_only = true\nheaders = {X-HTTP-Method-Override = "DELETE"}\n')
    outcome = xapi(*command, env={"XAPI_TOKEN": "abc", "XAPI_BASE_URL": "http://127.0.0.1:9"})

    assert (outcome.code, "X-HTTP-Method-Override" in outcome.err) == (2, True)
