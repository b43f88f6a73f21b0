"""One row per setting: flag, variable, profile key, help, documentation and completion derive from it."""

import re
import tomllib
from typing import Any

import certifi
import pytest

from tests.support.program import Outcome, Xapi
from tests.tools.documents import SETTINGS_PAGE, help_of, settings_page
from xapi_cli.settings import resolve
from xapi_cli.settings.table import (
    FEATURE_SETTINGS,
    PROFILE_KEYS,
    SETTINGS,
    Settings,
    default_text,
)

VALID: dict[str, tuple[str, object]] = {  # a valid text for each setting, and its value
    "profile": ("work", "work"),
    "base_url": ("API.test", "https://api.test"),
    "username": ("me@example.com", "me@example.com"),
    "password": ("secret", "secret"),
    "password_command": ("pass 'a b'", ("pass", "a b")),
    "token": ("abc", "abc"),
    "token_file": ("/run/token", "/run/token"),
    "storage": ("file", "file"),
    "redis_url": ("rediss://me@host:6380/1", "rediss://me@host:6380/1"),
    "redis_prefix": ("team:", "team:"),
    "redis_password_command": ("pass 'a b'", ("pass", "a b")),
    "credential_helper": ("pass", "pass"),
    "timeout": ("1m30s", 90.0),
    "max_time": ("2h", 7200.0),
    "ca_bundle": (certifi.where(), certifi.where()),
    "error_format": ("json", "json"),
    "read_only": ("1", True),
    "headers": ("X-Team: blue\nX-Key:k: 1", (("X-Team", "blue"), ("X-Key", "k: 1"))),
    "retry": ("3", 3),
    "log": ("/requests.log", "/requests.log"),
    "no_input": ("1", True),
    "quiet": ("1", True),
}
NOWHERE = {"XAPI_CONFIG_DIR": "/nonexistent"}

each_setting = pytest.mark.parametrize("name", SETTINGS)
each_profile_key = pytest.mark.parametrize("name", PROFILE_KEYS)


def _resolved(flags: dict[str, str | None], environ: dict[str, str], name: str) -> Any:
    return resolve.resolve(flags, environ | NOWHERE, may_create_profile=True).get(name)


@each_setting
def test_every_field_of_the_settings_has_a_row_and_an_example_here(name: str) -> None:
    assert name in (*Settings._fields, *FEATURE_SETTINGS)
    assert name in VALID


@each_setting
def test_a_setting_comes_from_its_flag(name: str) -> None:
    text, value = VALID[name]

    if SETTINGS[name].flags:
        assert _resolved({name: text}, {}, name) == value


@each_setting
def test_a_setting_comes_from_each_of_its_variables(name: str) -> None:
    text, value = VALID[name]

    for variable in SETTINGS[name].variables:
        expected = None if variable.startswith("SSL_") else value  # `http.tls` reads these itself
        assert _resolved({}, {variable: text}, name) == expected


@each_profile_key
def test_a_setting_is_set_in_a_profile_and_comes_from_it(xapi: Xapi, name: str) -> None:
    text, value = VALID[name]

    assert xapi("profile", "set", name, text) == Outcome(0, "", f"xapi: set {name} of profile default\n")

    stored = tomllib.loads((xapi.config / "config.toml").read_text())["profiles"]["default"]
    assert list(stored) == [name]
    found = resolve.resolve({}, {"XAPI_CONFIG_DIR": str(xapi.config)})
    assert found.get(name) == value


@each_setting
def test_a_setting_is_described_in_the_main_help_with_its_variable_and_its_default(name: str) -> None:
    setting, page = SETTINGS[name], " ".join(help_of().split())

    if setting.flags or setting.variables:
        place = page if setting.commands != "login" or setting.variables else " ".join(help_of("login").split())
        assert f"{setting.help}." in place
    if setting.flags and setting.commands != "login":
        assert all(flag in page for flag in setting.flags)
        assert all(f"env: {variable}" in page for variable in setting.variables[:1])
        assert setting.is_switch or not default_text(name) or f"default: {default_text(name)}]" in page


def test_the_documentation_has_the_current_table() -> None:
    assert SETTINGS_PAGE.read_text() == settings_page(), "run `make docs`"
    assert len(re.findall(r"^\| setting \|", SETTINGS_PAGE.read_text(), re.MULTILINE)) == 1


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.choices])
def test_the_choices_of_a_setting_complete(xapi: Xapi, name: str) -> None:
    setting = SETTINGS[name]
    args = f"xapi request {setting.flags[0]} "
    env = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": args, "COMP_CWORD": "3"}

    assert xapi(env=env).out.split() == list(setting.choices)
