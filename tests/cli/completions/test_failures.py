"""Completion that fails prints nothing into the line that the user types."""

import pytest

from tests.cli.completions.shells import in_each_shell, shell_of
from tests.support.program import Xapi

pytestmark = pytest.mark.slow  # shells


@pytest.mark.parametrize("trouble", ["broken TOML", "unknown key", "a directory", "not UTF-8"])
def test_with_an_invalid_config_file_completion_offers_no_profiles_and_prints_no_error(
    xapi: Xapi, trouble: str
) -> None:
    xapi.config.mkdir()
    file = xapi.config / "config.toml"
    if trouble == "a directory":
        file.mkdir()
    else:
        file.write_bytes(
            {"broken TOML": b"[profiles", "unknown key": b"color = 1\n", "not UTF-8": b"\xff\xfe"}[trouble]
        )

    for line, arguments in (("xapi logo", ["logout"]), ("xapi token status -p ", [":nothing", "0"])):
        request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        shown = xapi(env=request)
        assert (shown.code, shown.out.split(), shown.err) == (0, arguments, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_profile_name_that_a_shell_would_evaluate_is_not_offered(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.'\\$(touch pwned)']\n[profiles.'a`b`']\n[profiles.good]\n")
    request = {
        "_XAPI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "xapi profile use ",
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_ARGS": "xapi profile use ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }

    shown = xapi(env=request)

    assert (shown.code, shown.err) == (0, "")
    assert "good" in shown.out
    assert not {"$", "`"} & set(shown.out)


@in_each_shell
def test_completion_prints_no_errors_into_the_command_line(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles")
    broken = {
        "PYTHON_KEYRING_BACKEND": "no.such.Backend",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere",
        "XAPI_STORAGE": "nonsense",
        "XAPI_STATE_DIR": "/dev/null/x",
        "XAPI_TIMEOUT": "soon",
    }

    with shell_of(xapi, shell, env=broken) as complete:
        assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi token status -p stag") == "<xapi><token><status><-p><stag>"


@in_each_shell
def test_completion_prints_nothing_if_the_program_cannot_run(xapi: Xapi, shell: str) -> None:
    (xapi.home / "bin").mkdir()
    broken = xapi.home / "bin" / "xapi"
    broken.write_text("#!/bin/sh\necho 'Error: no such interpreter' >&2\nexit 127\n")
    broken.chmod(0o755)

    with shell_of(xapi, shell, env={"PATH": f"{broken.parent}:{xapi.environ['PATH']}"}) as complete:
        assert complete("xapi logo") == "<xapi><logo>"


def test_completion_does_not_use_the_keyring(xapi: Xapi) -> None:
    request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi lo", "COMP_CWORD": "1"}
    broken = {"PYTHON_KEYRING_BACKEND": "no.such.Backend", "XAPI_STORAGE": "keyring", "XAPI_STATE_DIR": "/dev/null/x"}

    shown = xapi(env=request | broken)

    assert (shown.code, shown.out.split(), shown.err) == (0, ["login", "logout"], "")
