"""Flag, then environment, then profile, then default."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings import resolve
from xapi_cli.settings.resolve import Settings

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
}


def test_without_anything_there_are_the_defaults(environ: dict[str, str]) -> None:
    assert _resolve(environ, profile="empty") == Settings("empty")
    assert Settings("empty") == Settings(
        "empty",
        None,
        None,
        None,
        None,
        None,
        storage="auto",
        timeout=30.0,
        max_time=None,
        ca_bundle=None,
        no_input=False,
    )
    assert _resolve({"XAPI_CONFIG_DIR": "/nonexistent"}) == Settings("default")


def test_the_profile_comes_before_the_defaults(environ: dict[str, str]) -> None:
    assert _resolve(environ) == PROFILE


def test_the_environment_comes_before_the_profile(environ: dict[str, str]) -> None:
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
        ca_bundle="/profile.pem",
        password_command=("profile", "a b"),
        withheld="it belongs to https://profile.test, not to http://env.test",
    )


def test_a_flag_comes_before_all(environ: dict[str, str]) -> None:
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
    variables = {**VARIABLES, "XAPI_NO_INPUT": "0", "SSL_CERT_FILE": "/env.pem"}

    assert resolve.resolve(flags, environ | variables) == Settings(
        "default",
        base_url="https://flag.test",
        username="flag",
        storage="none",
        timeout=7.5,
        max_time=70,
        ca_bundle=str(Path("flag.pem").absolute()),
        password=" env ",
        token="token",
        password_command=("flag", "c d"),
        no_input=True,
    )


def test_an_empty_variable_counts_as_unset(environ: dict[str, str]) -> None:
    assert _resolve(environ | dict.fromkeys([*VARIABLES, "XAPI_PROFILE", "SSL_CERT_FILE"], "")) == PROFILE


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_environments_certificates_come_between_flag_and_profile(environ: dict[str, str], variable: str) -> None:
    assert _resolve(environ | {variable: "/env"}).ca_bundle is None  # `tls` reads them
    assert _resolve(environ | {variable: "/env"}, ca_bundle="/flag").ca_bundle == "/flag"


@pytest.mark.parametrize(
    "value, on",
    [
        *dict.fromkeys(("", "0", "false", "No", "OFF", " off "), False).items(),
        *dict.fromkeys(("1", "true", "yes", "on", "x", "00"), True).items(),
    ],
)
def test_some_words_switch_off_and_all_others_on(environ: dict[str, str], value: str, on: bool) -> None:
    assert _resolve(environ | {"XAPI_NO_INPUT": value}).no_input is on


def test_the_profile_is_chosen_by_flag_environment_and_file(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('default_profile = "c"\n[profiles.a]\n[profiles.b]\n[profiles.c]\n')

    assert _resolve(environ | {"XAPI_PROFILE": "b"}, profile="a").profile == "a"
    assert _resolve(environ | {"XAPI_PROFILE": "b"}).profile == "b"
    assert _resolve(environ | {"XAPI_PROFILE": ""}).profile == "c"


def test_a_profile_that_is_not_there_is_an_error_unless_it_is_to_be_made(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        _resolve(environ, profile="nowhere")
    assert str(caught.value) == (
        "there is no profile 'nowhere'; known: default, empty; `xapi login --profile NAME` makes one"
    )

    made = resolve.resolve({"profile": "nowhere"}, environ, may_create_profile=True)
    assert made == Settings("nowhere")


@pytest.mark.parametrize(
    "flags, variables, said",
    [
        ({"base_url": ""}, {}, "--base-url is empty"),
        ({"profile": ""}, {}, "--profile is empty"),
        ({"timeout": ""}, {}, "--timeout is empty"),
        ({"profile": "../x"}, {}, "'../x' is no profile name"),
        ({}, {"XAPI_PROFILE": "a\x1b"}, "is no profile name"),
        ({}, {"XAPI_BASE_URL": "ftp://x"}, "XAPI_BASE_URL: "),
        ({"base_url": "https://me:CANARY@x"}, {}, "--base-url: "),
        ({"base_url": "https://x?a=CANARY"}, {}, "--base-url: "),
        ({}, {"XAPI_USERNAME": "a\nb"}, "XAPI_USERNAME: it is empty or holds control characters"),
        ({"username": "\x9b2J"}, {}, "--username: it is empty or holds control characters"),
        ({}, {"XAPI_STORAGE": "Keyring"}, "XAPI_STORAGE: 'Keyring' is no storage"),
        ({}, {"XAPI_TIMEOUT": "0"}, "XAPI_TIMEOUT: '0' is no number of seconds above 0"),
        ({"timeout": "-1"}, {}, "--timeout: '-1' is"),
        ({"timeout": "1e9"}, {}, "--timeout: '1e9' is"),
        ({"max_time": "inf"}, {}, "--max-time: 'inf' is"),
        ({"max_time": "nan"}, {}, "--max-time: 'nan' is"),
        ({"max_time": "10s"}, {}, "--max-time: '10s' is"),
        ({}, {"XAPI_TOKEN": "CAN ARY"}, "XAPI_TOKEN holds characters that no token can have"),
        ({}, {"XAPI_TOKEN": "CANARY\r\n"}, "XAPI_TOKEN holds characters that no token can have"),
        ({"password_command": "'CANARY"}, {}, "--password-command: a quote is not closed"),
        ({"password_command": " "}, {}, "--password-command: it is empty"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_where_it_came_from(
    environ: dict[str, str], flags: dict[str, str | None], variables: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve.resolve(flags, environ | variables)

    assert said in caught.value.message
    assert "CANARY" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_bad_value_of_a_profile_names_profile_and_key(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[profiles.default]\ntimeout = 0\n")

    with pytest.raises(UsageError, match="profile default, timeout: '0' is no number of seconds"):
        _resolve(environ)


def test_no_secret_is_in_what_settings_show_of_themselves(environ: dict[str, str]) -> None:
    shown = repr(_resolve(environ | {"XAPI_PASSWORD": "CANARY", "XAPI_TOKEN": "CANARY"}, password_command="CANARY"))

    assert "CANARY" not in shown


@pytest.mark.parametrize(
    "environ, config, state",
    [
        ({}, "/home/me/.config/xapi/config.toml", "/home/me/.local/state/xapi"),
        ({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/xapi/config.toml", "/s/xapi"),
        (
            {"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "s"},
            "/home/me/.config/xapi/config.toml",
            "/home/me/.local/state/xapi",
        ),
        (
            {"XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
            "/home/me/.config/xapi/config.toml",
            "/home/me/.local/state/xapi",
        ),
        ({"XAPI_CONFIG_DIR": "/x", "XAPI_STATE_DIR": "/y", "XDG_CONFIG_HOME": "/c"}, "/x/config.toml", "/y/xapi"),
    ],
)
def test_the_folders_are_where_the_platform_wants_them(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], config: str, state: str
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/me")

    assert (resolve.config_path(environ), resolve.state_directory(environ)) == (Path(config), Path(state))


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


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("echo pw | tr a b", "|"),
        ("echo pw|tr a b", "|"),
        ("cat <file", "<"),
        ("cat file 2>/dev/null", ">"),
        ("cat ~/file", "~"),
        ("echo $PW", "$"),
        ('echo "${PW}"', "$"),
        ('echo "$(id)"', "$"),
        ("echo `id`", "`"),
        ("true && echo pw", "&&"),
        ("true || echo pw", "||"),
        ("true; echo pw", ";"),
        ("sleep 1 &", "&"),
        ("sh -c 'echo a' | cat", "|"),
        ("sh -c 'echo pw | tr a b'", None),
        ('/bin/bash -c "cat $HOME/pw"', None),
        ("echo 'a | b; $c' \\$d \\| e", None),
        ("~/bin/getpw show", None),
        ("get 'https://x.test/?a=1&b=2' https://x.test/?a=1&b=2", None),
        ("pass show a~b 5$", None),
    ],
)
def test_what_only_a_shell_understands_is_found_in_a_password_command(command: str, found: str | None) -> None:
    assert resolve.shell_syntax(command) == found
