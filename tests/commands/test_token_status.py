"""`xapi token status`: the status of the token, without the token."""

import json

import pytest

from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, hang, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox


def _state(outcome: Outcome) -> tuple[int, str]:
    return outcome.code, json.loads(outcome.out)["state"]


def test_a_valid_token_is_described_without_the_secret_and_without_a_request(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    token = xapi("token", "show").out.strip()
    shown = json.loads(xapi("token", "show", "--json").out)

    outcome = xapi("token", "status")

    status = json.loads(outcome.out)
    del shown["access_token"], shown["expires_in"]
    assert status.pop("expires_in") > 0
    assert status == shown | {"state": "valid"}
    assert (outcome.code, outcome.err, sandbox.requests) == (0, "", 0)
    assert token not in outcome.out


def test_without_a_token_it_exits_with_10(xapi: Xapi) -> None:
    outcome = xapi("token", "status", "--base-url", "api.test", "-u", "me")

    assert outcome.err == "xapi: error: no stored token; run `xapi login --username me --base-url api.test`\n"
    assert (outcome.code, json.loads(outcome.out)) == (
        10,
        {
            "token_type": None,
            "expires_at": None,
            "expires_at_epoch": None,
            "expires_in": None,
            "base_url": "https://api.test",
            "username": "me",
            "profile": "default",
            "storage": "file",
            "source": None,
            "state": "none",
        },
    )


def test_it_never_logs_in(xapi: Xapi, sandbox: Sandbox) -> None:
    assert _state(xapi("token", "status", "--check", "/x-api/me", env=sandbox.settings)) == (10, "none")
    assert (sandbox.login_attempts, sandbox.requests) == (0, 0)


def test_less_time_than_min_ttl_is_short_and_none_is_expired(xapi: Xapi) -> None:
    with Sandbox(expires_in=3600) as sandbox:
        xapi("login", env=sandbox.settings)
        assert _state(xapi("token", "status", "--min-ttl", "50m")) == (0, "valid")
        assert _state(xapi("token", "status", "--min-ttl", "2h")) == (10, "short")

    (path,) = (xapi.state / "tokens").iterdir()
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"expires_at": "2020-01-01T00:00:00Z"}))
    outcome = xapi("token", "status")
    assert _state(outcome) == (10, "expired")
    assert (json.loads(outcome.out)["expires_in"], json.loads(outcome.out)["expires_at"]) == (0, "2020-01-01T00:00:00Z")


def test_the_check_of_an_expired_token_reports_rejected_only_after_a_401(xapi: Xapi) -> None:
    with Sandbox(expires_in=3600) as sandbox:
        xapi("login", env=sandbox.settings)
        (path,) = (xapi.state / "tokens").iterdir()
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"expires_at": "2020-01-01T00:00:00Z"}))
        assert _state(xapi("token", "status", "--check", "/x-api/me")) == (10, "expired")

        sandbox.revoke_tokens()
        assert _state(xapi("token", "status", "--check", "/x-api/me")) == (10, "rejected")
        assert sandbox.requests == 2


def test_check_sends_one_request(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    assert _state(xapi("token", "status", "--check", "/x-api/me")) == (0, "valid")
    assert _state(xapi("token", "status", "--check", "x-api/nowhere")) == (0, "valid")
    sandbox.revoke_tokens()
    assert _state(xapi("token", "status", "--check", "/x-api/me")) == (10, "rejected")
    assert _state(xapi("token", "status")) == (10, "rejected")
    assert (sandbox.requests, sandbox.logins) == (3, 1)


@pytest.mark.parametrize(
    "head, code",
    [
        ("200 OK", 0),
        ("204 No Content", 0),
        ("302 Found\r\nLocation: http://elsewhere.test/", 0),
        ("302 Found\r\nLocation: http://[", 0),
        ("304 Not Modified", 0),
        ("401 Unauthorized", 10),
        ("403 Forbidden", 0),
        ("404 Not Found", 0),
        ("407 Proxy", 0),
        ("429 Too Many", 0),
        ("500 Oops", 5),
        ("503 Busy", 5),
    ],
)
def test_any_response_other_than_401_and_5xx_means_accepted(xapi: Xapi, head: str, code: int) -> None:
    with Server([request(), send(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n".encode())]) as server:
        outcome = xapi("token", "status", "--check", "/x", "--base-url", server.url, env={"XAPI_TOKEN": "abc"})

    assert outcome.code == code, outcome.err
    assert server.received[0].startswith(b"GET /x HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer abc\r\n" in server.received[0]
    assert len(server.received) == 1


def test_without_a_response_the_exit_code_is_that_of_the_failure(xapi: Xapi) -> None:
    with Server([hang()]) as server:
        args = ("--check", "/x", "--base-url", server.url, "--timeout", "0.5")
        assert xapi("token", "status", *args, env={"XAPI_TOKEN": "abc"}).code == 12
    assert xapi("token", "status", *args, env={"XAPI_TOKEN": "abc"}).code == 11


@pytest.mark.parametrize(
    "args",
    [
        ("--check", "https://elsewhere.test/"),
        ("--check", "//elsewhere.test/"),
        ("--check", ""),
        ("--min-ttl", "x"),
    ],
)
def test_invalid_usage_exits_with_2_even_without_a_token(xapi: Xapi, args: tuple[str, ...]) -> None:
    outcome = xapi("token", "status", *args, "--base-url", "api.test", "-u", "me")

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def test_the_status_is_that_of_a_token_in_the_environment(xapi: Xapi) -> None:
    outcome = xapi("token", "status", env={"XAPI_TOKEN": "abc"})

    assert _state(outcome) == (0, "valid")
    assert json.loads(outcome.out)["source"] == "env"
    assert outcome.err.startswith("xapi: warning: XAPI_TOKEN is set and overrides the stored token")


def test_a_terminal_gets_a_small_table(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    with xapi.on_terminal("token", "status") as terminal:
        assert terminal.wait() == 0
    lines = terminal.text.splitlines()
    names = ["state", "checked", "username", "base", "profile", "expires", "storage"]
    assert [line.split()[0] for line in lines] == names
    assert lines[0].split() == ["state", "valid"]
    assert b"\x1b[32mvalid\x1b[0m" in terminal.seen
    assert lines[1] == "checked   no; --check PATH sends a request with the token"
    assert lines[2].split() == ["username", MASTER.email]
    assert lines[5].endswith(" UTC (in 30 days)")

    with xapi.on_terminal("token", "status", "--check", "/x-api/me", env=sandbox.settings) as terminal:
        assert terminal.wait() == 0
    assert terminal.text.splitlines()[1] == "checked   yes, GET /x-api/me responded with 200"

    with xapi.on_terminal("token", "status", "--json") as terminal:
        assert terminal.wait() == 0
    assert json.loads(terminal.seen)["state"] == "valid"


def test_the_table_shows_the_response_to_the_check(xapi: Xapi, sandbox: Sandbox) -> None:
    login = {"XAPI_BASE_URL": sandbox.base_url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password}
    xapi("login", env=login)
    sandbox.revoke_tokens()

    shown = {}
    for path in ("/nope?key=1", "/x-api/me"):
        with xapi.on_terminal("token", "status", "--check", path) as terminal:
            code = terminal.wait()
        shown[code] = terminal.text.splitlines()[:2]

    assert shown == {
        0: ["state     valid", "checked   yes, GET /nope responded with 404"],
        10: ["state     rejected", "checked   yes, GET /x-api/me responded with 401"],
    }


def test_the_table_of_a_check_that_sent_no_request_has_no_response(xapi: Xapi, sandbox: Sandbox) -> None:
    account = ("--base-url", sandbox.base_url, "-u", MASTER.email)

    with xapi.on_terminal("token", "status", "--check", "/x-api/me", *account) as terminal:
        assert terminal.wait() == 10

    assert "checked" not in terminal.text
    assert sandbox.requests == 0
