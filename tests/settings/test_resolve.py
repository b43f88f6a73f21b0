"""Precedence of settings: flag, environment variable, profile, default."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings import resolve, values
from xapi_cli.settings.table import Settings

CONFIG = """\
[profiles.default]
base_url = "profile.test"
username = "profile"
storage = "keyring"
timeout = 3
max_time = 30.5
ca_bundle = "/profile.pem"
password_command = ["profile", "a b"]
[profiles.empty]
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config.toml").write_text(CONFIG)
    return {"XAPI_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)}


def _resolve(environ: Mapping[str, str], **flags: str | None) -> Settings:
    return resolve.resolve(flags, environ)


PROFILE = Settings(
    "default",
    base_url="https://profile.test",
    username="profile",
    storage="keyring",
    timeout=3,
    max_time=30.5,
    ca_bundle="/profile.pem",
    password_command=("profile", "a b"),
)
VARIABLES = {
    "XAPI_BASE_URL": "http://Env.test:80/",
    "XAPI_USERNAME": "env",
    "XAPI_STORAGE": "file",
    "XAPI_TIMEOUT": "5",
    "XAPI_MAX_TIME": "50",
    "XAPI_PASSWORD": " env ",
    "XAPI_TOKEN": "token",
    "XAPI_NO_INPUT": "yes",
    "XAPI_QUIET": "1",
}


def test_without_other_sources_the_defaults_apply(environ: dict[str, str]) -> None:
    assert _resolve(environ, profile="empty") == Settings("empty")
    assert _resolve({"XAPI_CONFIG_DIR": "/nonexistent"}) == Settings("default")


def test_the_profile_takes_precedence_over_the_defaults(environ: dict[str, str]) -> None:
    assert _resolve(environ) == PROFILE


def test_the_environment_takes_precedence_over_the_profile(environ: dict[str, str]) -> None:
    found = _resolve(environ | VARIABLES)

    assert found == Settings(
        "default",
        base_url="http://env.test",
        username="env",
        storage="file",
        timeout=5,
        max_time=50,
        password=" env ",
        token="token",
        no_input=True,
        quiet=True,
        ca_bundle="/profile.pem",
        password_command=("profile", "a b"),
        password_command_mismatch="it belongs to https://profile.test, not to http://env.test",
    )


def test_a_flag_takes_precedence_over_all_other_sources(environ: dict[str, str]) -> None:
    flags = {
        "base_url": "flag.test",
        "username": "flag",
        "storage": "none",
        "timeout": "7.5",
        "max_time": "70",
        "ca_bundle": "flag.pem",
        "password_command": "flag 'c d'",
        "no_input": "1",
    }
    secrets = {"XAPI_PASSWORD": "", "XAPI_TOKEN": ""}  # they belong to the base URL in the environment
    variables = {**VARIABLES, **secrets, "XAPI_NO_INPUT": "0", "SSL_CERT_FILE": "/env.pem"}

    assert resolve.resolve(flags, environ | variables) == Settings(
        "default",
        base_url="https://flag.test",
        username="flag",
        storage="none",
        timeout=7.5,
        max_time=70,
        ca_bundle=str(Path("flag.pem").absolute()),
        password_command=("flag", "c d"),
        no_input=True,
        quiet=True,
    )


def test_an_empty_variable_is_treated_as_unset(environ: dict[str, str]) -> None:
    assert _resolve(environ | dict.fromkeys([*VARIABLES, "XAPI_PROFILE", "SSL_CERT_FILE"], "")) == PROFILE


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificate_variables_have_precedence_between_flag_and_profile(environ: dict[str, str], variable: str) -> None:
    assert _resolve(environ | {variable: "/env"}).ca_bundle is None  # `tls` reads them
    assert _resolve(environ | {variable: "/env"}, ca_bundle="/flag").ca_bundle == "/flag"


@pytest.mark.parametrize(
    "value, on",
    [
        *dict.fromkeys(("", "0", "false", "No", "OFF", " off "), False).items(),
        *dict.fromkeys(("1", "true", "yes", "on", "x", "00"), True).items(),
    ],
)
def test_some_values_of_a_switch_mean_off_and_all_others_on(environ: dict[str, str], value: str, on: bool) -> None:
    assert _resolve(environ | {"XAPI_NO_INPUT": value}).no_input is on


def test_the_profile_is_selected_by_flag_environment_and_file(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('default_profile = "c"\n[profiles.a]\n[profiles.b]\n[profiles.c]\n')

    assert _resolve(environ | {"XAPI_PROFILE": "b"}, profile="a").profile == "a"
    assert _resolve(environ | {"XAPI_PROFILE": "b"}).profile == "b"
    assert _resolve(environ | {"XAPI_PROFILE": ""}).profile == "c"


def test_a_profile_that_does_not_exist_is_an_error_unless_it_may_be_created(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        _resolve(environ, profile="nowhere")
    assert str(caught.value) == (
        "profile 'nowhere' does not exist; select another profile (default, empty), "
        "or create it with `xapi login --profile nowhere`"
    )

    with pytest.raises(UsageError, match=r"^XAPI_PROFILE: profile 'nowhere' does not exist; select another profile"):
        _resolve(environ | {"XAPI_PROFILE": "nowhere"})
    (tmp_path / "config.toml").write_text('default_profile = "nowhere"\n')
    with pytest.raises(UsageError, match=r"^default_profile: profile 'nowhere' does not exist; create it with"):
        _resolve(environ)

    made = resolve.resolve({"profile": "nowhere"}, environ, may_create_profile=True)
    assert made == Settings("nowhere")


@pytest.mark.parametrize(
    "flags, variables, message",
    [
        ({"base_url": ""}, {}, "--base-url is empty"),
        ({"profile": "../x"}, {}, "--profile: '../x' is not a valid profile name"),
        ({}, {"XAPI_PROFILE": "a b"}, "XAPI_PROFILE: 'a b' is not a valid profile name"),
        ({}, {"XAPI_BASE_URL": "ftp://x"}, "XAPI_BASE_URL: "),
        ({"base_url": "https://me:CANARY@x"}, {}, "--base-url: "),
        ({"base_url": "https://x?a=CANARY"}, {}, "--base-url: "),
        ({}, {"XAPI_USERNAME": "a\nb"}, "XAPI_USERNAME: the username is empty or contains control characters"),
        ({}, {"XAPI_STORAGE": "Keyring"}, "XAPI_STORAGE: 'Keyring' is not a valid storage"),
        ({}, {"XAPI_TIMEOUT": "0"}, "XAPI_TIMEOUT: '0' is not a valid duration"),
        ({"timeout": "1e9"}, {}, "--timeout: '1e9' is"),
        ({"max_time": "nan"}, {}, "--max-time: 'nan' is"),
        ({"timeout": "1200d"}, {}, "--timeout: '1200d' is too long"),
        ({}, {"XAPI_TOKEN": "CAN ARY"}, "XAPI_TOKEN: the value contains characters that are not allowed in a token"),
        ({"password_command": "'CANARY"}, {}, "--password-command: a quote is not closed"),
        ({"password_command": " "}, {}, "--password-command: the command is empty"),
    ],
)
def test_an_invalid_value_is_reported_with_its_source(
    environ: dict[str, str], flags: dict[str, str | None], variables: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve.resolve(flags, environ | variables)

    assert message in caught.value.message
    assert "CANARY" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("30", 30), ("2.5", 2.5), (".5", 0.5), (" 10 ", 10)],
)
def test_a_time_limit_is_a_duration_or_a_number_of_seconds_in_every_source(
    environ: dict[str, str], tmp_path: Path, text: str, seconds: float
) -> None:
    (tmp_path / "config.toml").write_text(f"[profiles.p]\ntimeout = '{text}'\nmax_time = '{text}'\n")

    for found in (
        _resolve(environ, timeout=text, max_time=text),
        _resolve(environ | {"XAPI_TIMEOUT": text, "XAPI_MAX_TIME": text}),
        _resolve(environ, profile="p"),
    ):
        assert (found.timeout, found.max_time) == (seconds, seconds)


def test_the_repr_of_settings_contains_no_secret(environ: dict[str, str]) -> None:
    shown = repr(_resolve(environ | {"XAPI_PASSWORD": "CANARY", "XAPI_TOKEN": "CANARY"}, password_command="CANARY"))
    assert "CANARY" not in shown


@pytest.mark.parametrize("text, seconds", [("0", 0), ("1d1h1m1s", 90061), ("0.1", 0.1)])
def test_other_durations_may_be_zero(text: str, seconds: float) -> None:
    assert values.seconds(text, name="--every") == seconds


@pytest.mark.parametrize("text", ["", "1 h", "h", "1m1h", "-1", "1e3", "0x10", "١s", "5 minutes"])
def test_an_invalid_duration_is_rejected_with_the_valid_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--every: .* is not a valid duration") as caught:
        values.seconds(text, name="--every")
    assert caught.value.hint == "write 90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1"


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("pass show 'a b'", ["pass", "show", "a b"]),
        ('getpw "a \\"b\\"" c\\ d', ["getpw", 'a "b"', "c d"]),
        ("pass show a | head -1", ["pass", "show", "a", "|", "head", "-1"]),
        ("a # b", ["a", "#", "b"]),
    ],
)
def test_a_command_is_split_as_a_shell_does(text: str, arguments: list[str]) -> None:
    assert values.split_command(text) == arguments


ENDS = [
    ({"base_url": "api.test/x-api/token"}, {}, "/x-api/token"),
    ({"base_url": "https://api.test/"}, {}, "/"),
    ({}, {"XAPI_BASE_URL": "https://api.test/x-api/"}, "/x-api/"),
    ({}, {"XAPI_BASE_URL": "https://api.test/"}, ""),
]


@pytest.mark.parametrize("flags, variables, end", ENDS)
def test_what_is_removed_from_a_base_url_is_known_for_a_note(
    environ: dict[str, str], flags: dict[str, str | None], variables: dict[str, str], end: str
) -> None:
    found = resolve.resolve(flags, environ | variables)
    assert (found.base_url, found.base_url_end) == ("https://api.test", end)


def test_a_relative_path_in_the_config_file_is_relative_to_it_and_not_to_the_current_directory(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(
        """\
[profiles.here]
password_command = ["./getpw", "./argument"]
ca_bundle = "ca.pem"
[profiles.home]
password_command = ["~/getpw"]
ca_bundle = "~/ca.pem"
"""
    )

    here, home = _resolve(environ, profile="here"), _resolve(environ, profile="home")
    assert (here.password_command, here.ca_bundle) == ((f"{tmp_path}/./getpw", "./argument"), f"{tmp_path}/ca.pem")
    user = Path.home()
    assert (home.password_command, home.ca_bundle) == ((f"{user}/getpw",), f"{user}/ca.pem")


OVERRIDES: list[tuple[dict[str, str | None], dict[str, str], str]] = [
    ({"profile": "default"}, {"XAPI_BASE_URL": "env.test"}, "XAPI_BASE_URL"),
    ({"profile": "default"}, {"XAPI_BASE_URL": "env.test", "XAPI_USERNAME": "e"}, "XAPI_BASE_URL and XAPI_USERNAME"),
    ({"profile": "default"}, {"XAPI_USERNAME": "profile"}, ""),  # the same
    ({"profile": "default", "username": "flag"}, {"XAPI_USERNAME": "env"}, ""),  # a flag overrides both
    ({}, {"XAPI_PROFILE": "default", "XAPI_USERNAME": "env"}, ""),  # the environment selects both
]


@pytest.mark.parametrize("flags, variables, overridden", OVERRIDES)
def test_variables_that_replace_the_account_of_a_profile_selected_by_flag_are_known_for_a_warning(
    environ: dict[str, str], flags: dict[str, str | None], variables: dict[str, str], overridden: str
) -> None:
    assert resolve.resolve(flags, environ | variables).overridden == overridden


@pytest.mark.parametrize(("variables", "applies"), [({}, True), ({"XAPI_REDIS_URL": "redis://other"}, False)])
def test_the_password_for_redis_is_not_used_for_another_server(
    environ: dict[str, str], tmp_path: Path, variables: dict[str, str], applies: bool
) -> None:
    (tmp_path / "config.toml").write_text(
        "[profiles.default]\nredis_url = 'redis://mine'\nredis_password_command = ['getpw']\n"
    )
    assert resolve.resolve({}, environ | variables).get("redis_password_command") == (("getpw",) if applies else None)
