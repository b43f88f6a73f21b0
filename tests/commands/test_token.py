"""`xapi token show` and `xapi token status`."""

import json
import subprocess
from datetime import UTC, datetime

import pytest

from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.features.sandbox import MASTER, MONTH, Sandbox

SUPPLIED = {"XAPI_TOKEN": "abc~/+"}
NONE = ("--base-url", "api.test", "-u", "me")


@pytest.fixture
def token(xapi: Xapi, sandbox: Sandbox) -> str:
    """A stored token."""
    assert xapi("login", env=sandbox.settings).code == 0
    return xapi("token", "show").out.removesuffix("\n")


def state(outcome: Outcome) -> tuple[int, str]:
    return outcome.code, json.loads(outcome.out)["state"]


def test_each_format_shows_the_same_token(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    assert sandbox.user_of(token) == MASTER
    header = f"Authorization: Bearer {token}\n"
    assert xapi("token", "show") == Outcome(0, f"{token}\n")
    for args in (("--format", "header"), ("--header",), ("--header", "--format", "header")):
        assert xapi("token", "show", *args) == Outcome(0, header), args
    exports = f"export XAPI_TOKEN='{token}'\nexport XAPI_BASE_URL='{sandbox.base_url}'\n"
    assert xapi("token", "show", "--format", "env") == Outcome(0, exports)
    shown, status = (json.loads(xapi("token", command, "--json").out) for command in ("show", "status"))
    assert abs(shown["expires_at_epoch"] - datetime.now(UTC).timestamp() - MONTH) < 60
    assert MONTH - 60 < shown.pop("expires_in") <= MONTH
    assert MONTH - 60 < status.pop("expires_in") <= MONTH
    described = {
        "token_type": "bearer",
        "expires_at": datetime.fromtimestamp(shown["expires_at_epoch"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expires_at_epoch": shown["expires_at_epoch"],
        "base_url": sandbox.base_url,
        "username": MASTER.email,
        "profile": "default",
        "storage": "file",
        "source": "store",
    }
    assert shown == {"access_token": token, **described}
    assert status == {**described, "state": "valid"}
    assert (sandbox.requests, sandbox.logins) == (0, 1)


def test_a_supplied_token_needs_no_other_setting_and_has_no_expiry(xapi: Xapi) -> None:
    nothing = dict.fromkeys(("expires_at", "expires_at_epoch", "expires_in", "base_url", "username"))
    described = {"token_type": "bearer", **nothing, "profile": "default", "storage": "none", "source": "env"}

    shown = xapi("token", "show", "--json", "--min-ttl", "1000d", env=SUPPLIED)
    status = xapi("token", "status", env=SUPPLIED)

    assert (shown.code, json.loads(shown.out), shown.err) == (0, {"access_token": "abc~/+", **described}, "")
    assert (status.code, json.loads(status.out)) == (0, {**described, "state": "valid"})
    assert status.err.startswith("xapi: warning: XAPI_TOKEN is set and overrides the stored token")
    assert xapi("token", "show", "--format", "env", env=SUPPLIED).out == "export XAPI_TOKEN='abc~/+'\n"
    mask = {"XAPI_TOKEN": "ab%0Ac", "GITHUB_ACTIONS": "true"}
    assert xapi("token", "show", env=mask) == Outcome(0, "ab%0Ac\n", "::add-mask::ab%250Ac\n")
    for form in ("header", "json", "env"):
        assert xapi("token", "show", "--format", form, env=mask).err == "::add-mask::ab%250Ac\n"


def test_a_shell_that_evaluates_the_env_format_calls_the_api_without_a_profile(xapi: Xapi, token: str) -> None:
    script = """
        eval "$(xapi token show --format env)"
        export XAPI_CONFIG_DIR=/nonexistent
        xapi request /x-api/me
        xapi request /x-api/me --base-url http://127.0.0.1:9
    """
    out, err = xapi.start(script, argv=("sh", "-c")).communicate()

    assert b"master@example.com" in out
    assert (err.startswith(b"xapi: error: XAPI_TOKEN is for http://127.0.0.1:"), err.count(b"\n")) == (True, 1), err
    assert token.encode() not in out + err
    strange = "a'b\"c$d`e\\f!g*h;i"
    printed = xapi("token", "show", "--format", "env", env={"XAPI_TOKEN": strange}).out
    shell = ["sh", "-c", 'eval "$1"; printf %s "$XAPI_TOKEN"', "sh", printed]
    assert subprocess.run(shell, capture_output=True, check=True).stdout.decode() == strange


@pytest.mark.parametrize(
    ("args", "reason", "more"),
    [
        ((), "no stored token", ""),
        (("--fresh",), "a new token was requested", ""),
        (
            ("--min-ttl", "31d"),
            "the stored token has too little time left",
            "xapi: warning: the new token also has less time left than --min-ttl requires\n",
        ),
    ],
)
def test_it_logs_in_if_necessary_and_reports_the_reason(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...], reason: str, more: str
) -> None:
    old = xapi("token", "show", env=sandbox.settings).out if args else ""
    assert xapi("token", "show", "--min-ttl", "29d", "--no-login", env=sandbox.settings).out == old

    outcome = xapi("token", "show", *args, env=sandbox.settings)

    assert outcome.err == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: {reason}\n{more}"
    assert (outcome.out != old, xapi("token", "show", env=sandbox.settings).out) == (True, outcome.out)
    assert not xapi.config.exists()  # only an explicit login writes a profile
    in_memory = {**sandbox.settings, "XAPI_STORAGE": "none"}
    shown = json.loads(xapi("token", "show", "--json", env=in_memory).out)
    assert (shown["source"], shown["storage"]) == ("login", "none")


def test_without_a_token_it_exits_with_10(xapi: Xapi, sandbox: Sandbox) -> None:
    status = xapi("token", "status", *NONE)
    assert state(status) == (10, "none")
    assert status.err == "xapi: error: no stored token; run `xapi login --username me --base-url api.test`\n"
    assert state(xapi("token", "status", "--check", "/x-api/me", env=sandbox.settings)) == (10, "none")
    show = xapi("token", "show", "--no-login", env=sandbox.settings)
    assert (show.code, show.out) == (10, "")
    assert show.err.endswith(": no stored token, and --no-login was given; run `xapi login`\n")
    assert (sandbox.login_attempts, sandbox.requests) == (0, 0)


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("show", "--fresh"), SUPPLIED),
        (("show", "--header", "--json"), {}),
        (("show", "--format", "env", "--json"), {}),
        (("show", "CANARY"), {}),
        (("show",), {"XAPI_TOKEN": "CANARY\n"}),
        (("status", "--check", "https://elsewhere.test/"), {}),
        (("status", "--check", "//elsewhere.test/"), {}),
        (("status", "--check", ""), {}),
    ],
)
def test_invalid_usage_is_reported_in_one_line(xapi: Xapi, args: tuple[str, ...], env: Environ) -> None:
    outcome = xapi("token", *args, *NONE, env={"XAPI_PASSWORD": "p", **env})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "CANARY" not in outcome.err


def test_a_damaged_record_is_no_token_and_accounts_are_compared_by_normalized_url(
    xapi: Xapi, token: str, sandbox: Sandbox
) -> None:
    def code(base_url: str, username: str = MASTER.email) -> int:
        return xapi("token", "show", "--no-login", "--base-url", base_url, "-u", username).code

    url = sandbox.base_url
    assert [code(url), code(url.replace("http", "HTTP")), code(f"{url}/")] == [0, 0, 0]
    assert [code(f"{url}/v2"), code(url.replace("127.0.0.1", "localhost")), code(url, MASTER.email.upper())] == [10] * 3
    (path,) = (xapi.state / "tokens").iterdir()
    good = path.read_text()
    for bad in ("", good[:-9], good.replace('"version": 1', '"version": 2'), "[" * 9999, good.replace(token, "a b")):
        path.write_text(bad)
        assert code(url) == 10, bad
    path.write_text(json.dumps(json.loads(good) | {"expires_at": "2020-01-01T00:00:00Z"}))
    expired = xapi("token", "status")
    assert (*state(expired), json.loads(expired.out)["expires_in"]) == (10, "expired", 0)
    assert "warn  token     expired, in storage file, " in xapi("doctor").out


def test_the_status_is_that_of_the_expiry_and_of_the_last_response(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    check = ("--check", "/x-api/me")
    assert state(xapi("token", "status", "--min-ttl", "29d")) == (0, "valid")
    assert state(xapi("token", "status", "--min-ttl", "31d")) == (10, "short")
    assert state(xapi("token", "status", *check)) == (0, "valid")
    sandbox.revoke_tokens()
    assert state(xapi("token", "status")) == (0, "valid")
    assert state(xapi("token", "status", *check)) == (10, "rejected")
    assert state(xapi("token", "status")) == (10, "rejected")
    assert (sandbox.requests, sandbox.logins) == (2, 1)


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("200 OK\r\n", 0),
        ("304 Not Modified\r\n", 0),
        ("403 Forbidden\r\n", 0),
        ("404 Not Found\r\n", 0),
        ("302 Found\r\nLocation: http://[\r\n", 3),
        ("302 Found\r\nLocation: {other}/sign-in\r\n", 3),
        ("401 Unauthorized\r\n", 10),
        ("500 Oops\r\n", 5),
        (None, 11),
    ],
)
def test_a_response_shows_whether_the_api_accepts_the_token(xapi: Xapi, response: str | None, code: int) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    with Server([request(), send(page)]) as other:
        text = "" if response is None else f"HTTP/1.1 {response.format(other=other.url)}Content-Length: 0\r\n\r\n"
        with Server([request(), send(text.encode())]) as server:
            env = {"XAPI_TOKEN": "abc", "XAPI_BASE_URL": server.url}
            outcome = xapi("token", "status", "--check", "/x?token=CANARY", "--error-format", "json", env=env)

    assert (outcome.code, "CANARY" in outcome.err) == (code, False), outcome.err
    error = json.loads(outcome.err.splitlines()[-1])
    about = "GET" if code and "{other}" not in str(response) else None
    assert (error.get("method"), "status" in error) == (about, bool(about and response))
    assert server.received[0].startswith(b"GET /x?token=CANARY HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer abc\r\n" in server.received[0]
    assert not any(b"Authorization" in each for each in other.received)


def test_a_terminal_gets_a_small_table(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    def shown(*args: str) -> tuple[int, list[str]]:
        with xapi.on_terminal("token", "status", *args) as terminal:
            return terminal.wait(), terminal.text.splitlines()

    code, lines = shown()
    assert (code, lines[0]) == (0, "state     valid")
    assert [line.split()[0] for line in lines] == ["state", "username", "base", "profile", "expires", "storage"]
    assert lines[4].endswith(" UTC (in 30 days)")
    sandbox.revoke_tokens()
    code, lines = shown("--check", "/x-api/me")
    assert (code, lines[0]) == (10, "state     rejected")
