"""`xapi doctor`: each check performs the real operation, and each failure has a remedy."""

import json
import re

import pytest

from tests.support.keyring_session import KeyringSession
from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server, free_port, hang, request, send
from xapi_cli.features.sandbox import Sandbox


def statuses(outcome: Outcome) -> dict[str, str]:
    return {check["name"]: check["status"] for check in json.loads(outcome.out)["checks"]}


def line(outcome: Outcome, name: str) -> str:
    return next(line for line in outcome.out.splitlines() if line.split()[1] == name)


def test_all_checks_pass_after_a_login(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    outcome = xapi("doctor", "--json", env={"XAPI_PASSWORD": sandbox.settings["XAPI_PASSWORD"]})

    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["ok"] is True
    assert set(statuses(outcome).values()) == {"pass"}
    assert list(statuses(outcome)) == [
        "python", "config", "profile", "proxy", "network", "clock", "tls", "file", "token", "password",
    ]  # fmt: skip


def test_without_settings_the_hints_explain_how_to_start(xapi: Xapi) -> None:
    outcome = xapi("doctor")

    assert outcome.code == 1
    assert line(outcome, "profile") == (
        "fail  profile   default has no base_url and no username;"
        " run `xapi login`, or set XAPI_BASE_URL and XAPI_USERNAME"
    )
    assert line(outcome, "network") == "warn  network   not checked; see profile"
    assert outcome.err == "xapi: error: 1 of 10 checks failed: profile; follow the hints of the failed checks\n"


@pytest.mark.parametrize(("year", "direction"), [("2015", "ahead of"), ("2099", "behind")])
def test_a_wrong_clock_and_a_base_url_without_a_token_endpoint_are_reported(
    xapi: Xapi, year: str, direction: str
) -> None:
    response = f"HTTP/1.1 404 Not Found\r\nDate: Thu, 01 Jan {year} 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    with Server([request(), send(response.encode())]) as server:
        outcome = xapi("doctor", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me@example.com"})

    assert outcome.code == 0
    assert line(outcome, "clock").startswith("warn  clock     this machine's clock is ")
    assert line(outcome, "clock").endswith(
        f" {direction} the server's; correct it: xapi uses it to determine whether a token has expired"
    )
    assert line(outcome, "network") == (
        f"warn  network   {server.url}/x-api/token responds with 404 Not Found; "
        "check the base URL, which is the part before /x-api/token"
    )
    assert b"authorization" not in server.received[0].lower()


def test_the_proxy_in_use_is_named_without_its_password(xapi: Xapi, sandbox: Sandbox) -> None:
    proxy = f"http://me:hunter2@127.0.0.1:{free_port()}"

    outcome = xapi("doctor", env={**sandbox.settings, "http_proxy": proxy})

    assert outcome.code == 1  # no server listens there
    assert line(outcome, "proxy").startswith("pass  proxy     127.0.0.1:")
    assert "hunter2" not in outcome.out + outcome.err


def test_plain_http_beyond_loopback_is_a_warning_and_no_response_a_failure(xapi: Xapi) -> None:
    with Server([request(), send(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")]) as proxy:
        env = {"XAPI_BASE_URL": "http://api.test", "XAPI_USERNAME": "me", "HTTP_PROXY": proxy.url}
        assert line(xapi("doctor", env=env), "network").startswith("warn  network   http://api.test responds (405 ")
    with Server([hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me"}
        outcome = xapi("doctor", "--timeout", "0.3", "--max-time", "50", env=env)
    assert " before --timeout expired; " in line(outcome, "network")


def test_a_missing_keyring_is_a_warning_with_auto_and_a_failure_if_selected(xapi: Xapi, sandbox: Sandbox) -> None:
    auto = xapi("doctor", "--json", "--storage", "auto", env=sandbox.settings)
    asked_for = xapi("doctor", "--json", "--storage", "keyring", env=sandbox.settings)

    assert (auto.code, statuses(auto)["keyring"]) == (0, "warn")
    assert (asked_for.code, statuses(asked_for)["keyring"]) == (1, "fail")


def test_a_state_directory_that_cannot_be_written_is_reported(xapi: Xapi, sandbox: Sandbox) -> None:
    blocked = xapi.home / "file"
    blocked.touch()

    outcome = xapi("doctor", env={**sandbox.settings, "XAPI_STATE_DIR": str(blocked)})

    assert outcome.code == 1
    assert line(outcome, "file").startswith(f"fail  file      cannot write the token file {blocked}/xapi/")


@pytest.mark.parametrize(
    ("args", "env", "failed"),
    [
        (("-p", "foo"), {}, "profile"),
        ((), {"XAPI_TIMEOUT": "soon"}, "profile"),
        ((), {"XAPI_TOKEN_FILE": "missing"}, "token"),
        ((), {"HTTP_PROXY": "socks5://127.0.0.1:1"}, "proxy"),
        (("--ca-bundle", "missing.pem"), {"XAPI_BASE_URL": "https://127.0.0.1:1"}, "network"),
    ],
)
def test_one_fault_causes_one_failed_check(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...], env: Environ, failed: str
) -> None:
    outcome = xapi("doctor", "--json", *args, env={**sandbox.settings, **env})

    assert [name for name, status in statuses(outcome).items() if status == "fail"] == [failed]
    assert outcome.code == 1
    assert outcome.err == f"xapi: error: 1 of 10 checks failed: {failed}; follow the hints of the failed checks\n"


def test_an_invalid_config_file_fails_once(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[")

    outcome = xapi("doctor", env=sandbox.settings)

    assert [line.split()[1] for line in outcome.out.splitlines() if line.startswith("fail")] == ["config"]
    assert line(outcome, "profile") == "warn  profile   not checked; see config"


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["auto", "keyring"])
def test_a_keyring_that_hangs_is_reported_once(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession, storage: str
) -> None:
    env = {**gnome_keyring.environ, **sandbox.settings, "XAPI_STORAGE": storage, "XAPI_PASSWORD": None}
    gnome_keyring.freeze()

    with xapi.on_terminal("doctor", env=env, columns=200) as terminal:
        code = terminal.wait()

    shown = terminal.seen.decode()
    assert shown.count("did not respond") == 1
    assert "xapi: warning" not in shown
    assert "waiting for the keyring" not in shown  # which would give the user a minute to unlock it
    assert code == (1 if storage == "keyring" else 0)


def test_a_keyring_that_works_is_reported(xapi: Xapi, sandbox: Sandbox, shared_gnome_keyring: KeyringSession) -> None:
    env = {**shared_gnome_keyring.environ, **sandbox.settings, "XAPI_STORAGE": "auto"}
    xapi("login", "--remember", env=env)

    outcome = xapi("doctor", env={**env, "XAPI_PASSWORD": None})

    assert (outcome.code, outcome.err) == (0, "")
    assert line(outcome, "keyring") == (
        "pass  keyring   keyring.backends.SecretService.Keyring: an item was written, read and deleted"
    )
    assert line(outcome, "token").startswith("pass  token     valid, in storage keyring, expires ")
    assert line(outcome, "password") == "pass  password  remembered in the keyring"
    assert shared_gnome_keyring.count("probe") == 0
    xapi("logout", env=env)


def test_a_token_in_the_environment_needs_no_account_and_no_password(xapi: Xapi, sandbox: Sandbox) -> None:
    (xapi.home / "token").write_text("abc\n")
    for env in ({"XAPI_TOKEN": "abc"}, {"XAPI_TOKEN_FILE": str(xapi.home / "token")}):
        outcome = xapi("doctor", "--json", "--base-url", sandbox.base_url, env=env)

        assert outcome.code == 0
        assert set(statuses(outcome).values()) == {"pass"}


def test_a_password_command_is_searched_for_and_not_run(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": None}
    for command, expected in (
        ("touch ran", "pass  password  from the profile's password_command (not run here)"),
        (
            "nowhere show",
            "fail  password  password_command: program 'nowhere' not found; install it, or correct password_command",
        ),
    ):
        xapi("profile", "set", "password_command", command)
        assert line(xapi("doctor", env=env), "password") == expected
    xapi("profile", "set", "base_url", "https://api.test")
    withheld = "fail  password  the password_command of profile default is not run: it belongs to https://api.test, "
    assert line(xapi("doctor", env=env), "password").startswith(withheld)
    assert not (xapi.home / "ran").exists()


@pytest.mark.parametrize(("columns", "env"), [(60, {}), (80, {"NO_COLOR": "1"})])
def test_on_a_terminal_the_lines_fit_and_are_complete_without_color(
    xapi: Xapi, columns: int, env: dict[str, str]
) -> None:
    args = {"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_USERNAME": "me@example.com", "XAPI_CONFIG_DIR": "c"}
    with xapi.on_terminal("doctor", env={**args, "XAPI_STATE_DIR": "s", **env}, columns=columns) as terminal:
        assert terminal.wait() == 1
    seen = terminal.seen.decode()

    assert ("\x1b" in seen) is not bool(env)
    checks = terminal.text.partition("xapi: error: ")[0].splitlines()
    longest = max(len(word) for row in checks for word in re.findall(r"(?:`[^`]*`|\S)+", row))
    assert [row for row in checks if len(row) > max(columns, 16 + longest)] == []
    assert {row[:4] for row in checks} == {"pass", "warn", "fail", "    "}
