"""`xapi doctor`: every check is made for real, and each failure says what to do."""

import json

from tests.program import Outcome, Xapi
from tests.servers import Server, free_port, request, send
from xapi_cli.sandbox import Sandbox


def statuses(outcome: Outcome) -> dict[str, str]:
    return {check["name"]: check["status"] for check in json.loads(outcome.out)["checks"]}


def line(outcome: Outcome, name: str) -> str:
    return next(line for line in outcome.out.splitlines() if line.split()[1] == name)


def test_all_is_well_after_a_login(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    outcome = xapi("doctor", "--json", env={"XAPI_PASSWORD": sandbox.settings["XAPI_PASSWORD"]})

    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["ok"] is True
    assert set(statuses(outcome).values()) == {"pass"}
    assert list(statuses(outcome)) == [
        "python", "config", "profile", "network", "clock", "tls", "proxy", "state", "keyring", "token", "password",
    ]  # fmt: skip


def test_no_secret_is_printed(xapi: Xapi, sandbox: Sandbox) -> None:
    token = xapi("token", "show", env=sandbox.settings).out.strip()

    outcome = xapi("doctor", env=sandbox.settings)

    assert outcome.code == 0
    assert token not in outcome.out + outcome.err
    assert sandbox.settings["XAPI_PASSWORD"] not in outcome.out + outcome.err


def test_without_settings_it_says_how_to_begin(xapi: Xapi) -> None:
    outcome = xapi("doctor")

    assert outcome.code == 1
    assert line(outcome, "profile") == (
        "fail  profile   default lacks base_url and username; run `xapi login`, or set XAPI_BASE_URL and XAPI_USERNAME"
    )
    assert line(outcome, "network") == "warn  network   not checked: there is no base URL"


def test_a_server_that_is_not_there_fails(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_USERNAME": "me@example.com"}

    outcome = xapi("doctor", "--json", env=env)

    assert outcome.code == 1
    assert statuses(outcome)["network"] == "fail"
    assert statuses(outcome)["clock"] == "warn"


def test_a_clock_that_is_off_is_told(xapi: Xapi) -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nDate: Thu, 01 Jan 2015 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    with Server([request(), send(answer)]) as server:
        outcome = xapi("doctor", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me@example.com"})

    assert outcome.code == 0
    assert line(outcome, "clock").startswith("warn  clock     this machine's clock is ")
    assert line(outcome, "clock").endswith(" ahead of the server's; set it: expiry is told by it")


def test_the_proxy_in_use_is_named_without_its_password(xapi: Xapi, sandbox: Sandbox) -> None:
    proxy = f"http://me:hunter2@127.0.0.1:{free_port()}"

    outcome = xapi("doctor", env={**sandbox.settings, "http_proxy": proxy})

    assert outcome.code == 1  # nothing listens there
    assert line(outcome, "proxy").startswith("pass  proxy     127.0.0.1:")
    assert "hunter2" not in outcome.out + outcome.err


def test_a_missing_keyring_is_a_warning_with_auto_and_a_failure_when_asked_for(xapi: Xapi, sandbox: Sandbox) -> None:
    auto = xapi("doctor", "--json", "--storage", "auto", env=sandbox.settings)
    asked_for = xapi("doctor", "--json", "--storage", "keyring", env=sandbox.settings)

    assert (auto.code, statuses(auto)["keyring"]) == (0, "warn")
    assert (asked_for.code, statuses(asked_for)["keyring"]) == (1, "fail")


def test_a_broken_config_file_is_a_failure_among_others(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.default]\nbase = 1\n")

    outcome = xapi("doctor")

    assert outcome.code == 1
    assert "unknown key profiles.default.base" in line(outcome, "config")


def test_a_state_folder_that_cannot_be_written_is_told(xapi: Xapi, sandbox: Sandbox) -> None:
    blocked = xapi.home / "file"
    blocked.touch()

    outcome = xapi("doctor", env={**sandbox.settings, "XAPI_STATE_DIR": str(blocked)})

    assert outcome.code == 1
    assert line(outcome, "state").startswith(f"fail  state     {blocked} cannot be written: ")
