"""`xapi profile list`, `show` and `set`."""

import json
import subprocess

import pytest

from tests.commands.profiles import config_of, write_config
from tests.support.program import Outcome, Xapi


def test_list_marks_the_selected_profile_with_a_star(xapi: Xapi) -> None:
    write_config(xapi)

    listed = "work\t*\tme@example.com\thttps://api.test\tnone\t-\t-\nhome\t-\t-\t-\t-\t-\t-\n"
    assert xapi("profile", "list") == Outcome(0, listed, "")
    starred = xapi("profile", "list", env={"XAPI_PROFILE": "home"}).out
    assert [line.split("\t")[1] for line in starred.splitlines()] == ["-", "*"]


def test_list_prints_json_for_scripts(xapi: Xapi) -> None:
    assert xapi("profile", "list", "--json") == Outcome(0, "[]\n", "")
    assert xapi("profile", "list") == Outcome(0, "", "xapi: no profiles; `xapi login` creates one\n")
    write_config(xapi)

    assert json.loads(xapi("profile", "list", "--json").out) == [
        {
            "name": "work",
            "current": True,
            "base_url": "https://api.test",
            "username": "me@example.com",
            "password_command": ["pass", "it's"],
            "state": "none",
            "expires_at": None,
        },
        {"name": "home", "current": False, "timeout": 2.5, "state": None, "expires_at": None},
    ]


def test_show_prints_one_profile(xapi: Xapi) -> None:
    write_config(xapi)

    shown = (
        "name              work\nbase_url          https://api.test\nusername          me@example.com\n"
        "password_command  pass 'it'\"'\"'s'\n"
    )
    assert xapi("profile", "show") == Outcome(0, shown, "")
    assert json.loads(xapi("profile", "show", "home", "--json").out) == {"name": "home", "timeout": 2.5}
    assert json.loads(xapi("profile", "show", "-p", "home", "--json").out) == {"name": "home", "timeout": 2.5}
    assert json.loads(xapi("profile", "show", "--json", env={"XAPI_PROFILE": "home"}).out)["name"] == "home"
    assert json.loads(xapi("profile", "show", "default", "--json").out) == {"name": "default"}


@pytest.mark.parametrize(
    "args",
    [
        ("-p", "home", "profile", "show"),
        ("--profile=home", "profile", "show"),
        ("-phome", "profile", "show"),
        ("-p", "work", "profile", "show", "-p", "home"),
    ],
    ids=" ".join,
)
def test_the_profile_can_precede_the_command(xapi: Xapi, args: tuple[str, ...]) -> None:
    write_config(xapi, "[profiles.home]\nusername = 'me'\n[profiles.work]\nusername = 'us'\n")

    assert json.loads(xapi(*args, "--json", env={"XAPI_PROFILE": "work"}).out) == {"name": "home", "username": "me"}


@pytest.mark.parametrize("args", [("profile", "list"), ("profile", "show"), ("doctor", "--no-input")])
def test_control_sequences_in_json_are_neutralized_and_the_json_is_equivalent(
    xapi: Xapi, args: tuple[str, ...]
) -> None:
    write_config(
        xapi, '[profiles.default]\nusername = "\\u001b[2J\\u009b2J\\u202e\\u007f"\nca_bundle = "\\u009b/\\u2066"\n'
    )
    env = {"XAPI_BASE_URL": "https://127.0.0.1:1", "XAPI_USERNAME": "me"}

    piped = xapi(*args, "--json", env=env).out
    with xapi.on_terminal(*args, "--json", env=env, stderr=subprocess.DEVNULL) as terminal:
        terminal.wait()
    shown = terminal.seen.decode().removesuffix("\r\n")

    assert "\u2066" in piped
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(piped)


@pytest.mark.parametrize(
    "key, value, line",
    [
        ("base_url", "HTTPS://API.test:443/v1/", 'base_url = "https://api.test/v1"'),
        ("timeout", "10", "timeout = 10"),
        ("max_time", "1h30m", 'max_time = "1h30m"'),
        ("password_command", "pass 'a b' c", 'password_command = ["pass", "a b", "c"]'),
        ("read_only", "Yes", "read_only = true"),
        ("read_only", "OFF", "read_only = false"),
    ],
)
def test_set_validates_and_stores_a_setting(xapi: Xapi, key: str, value: str, line: str) -> None:
    note = "xapi: using the base URL https://api.test/v1, without /\n" if key == "base_url" else ""
    assert xapi("profile", "set", key, value) == Outcome(0, "", f"{note}xapi: set {key} of profile default\n")
    assert config_of(xapi) == f"[profiles.default]\n{line}\n"


@pytest.mark.parametrize(
    "key, value",
    [
        ("base_url", "http://u:CANARY@x"),
        ("username", "a\nb"),
        ("timeout", "0"),
        ("ca_bundle", ""),
        ("password", "CANARY"),
    ],
)
def test_an_invalid_key_or_value_exits_with_2_and_changes_nothing(xapi: Xapi, key: str, value: str) -> None:
    outcome = xapi("profile", "set", key, value)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "CANARY" not in outcome.err
    assert not xapi.config.exists()


@pytest.mark.parametrize(
    "key, value, line",
    [
        ("ca_bundle", "ca.pem", 'ca_bundle = "{home}/ca.pem"'),
        ("ca_bundle", "~/ca.pem", 'ca_bundle = "{home}/ca.pem"'),
        ("password_command", "./getpw ./a", 'password_command = ["{home}/getpw", "./a"]'),
        ("password_command", "~/getpw", 'password_command = ["{home}/getpw"]'),
        ("password_command", "getpw", 'password_command = ["getpw"]'),
    ],
)
def test_a_relative_path_is_stored_as_an_absolute_path(xapi: Xapi, key: str, value: str, line: str) -> None:
    xapi("profile", "set", key, value)

    assert config_of(xapi) == f"[profiles.default]\n{line.format(home=xapi.home)}\n"


def test_set_creates_the_profile_and_changes_the_selected_one(xapi: Xapi) -> None:
    xapi("profile", "set", "username", "a", "-p", "new")
    xapi("profile", "set", "username", "b", env={"XAPI_PROFILE": "other"})
    xapi("profile", "use", "new")
    xapi("profile", "set", "timeout", "5")
    assert xapi("profile", "set", "timeout", "6", "-p", "").code == 2

    names = json.loads(xapi("profile", "list", "--json").out)
    assert names == [
        {"name": "new", "current": True, "username": "a", "timeout": 5, "state": None, "expires_at": None},
        {"name": "other", "current": False, "username": "b", "state": None, "expires_at": None},
    ]
