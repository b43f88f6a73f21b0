"""The flags that are made for one call: those that it contains, or all if it may contain another one."""

from typing import Any

import pytest
import typer

from tests.support.program import Xapi
from xapi_cli.cli import main
from xapi_cli.settings import resolve
from xapi_cli.settings.table import SETTINGS


def made(*args: str) -> set[str]:
    """Return the flags that the command of *args* has when it is made for them."""
    command = main._command(args[0], args[1:])  # noqa: SLF001 - the result does not show which flags were made
    return flags_of(typer.main.get_command(command), *args)


def flags_of(command: Any, *args: str) -> set[str]:
    """Return the flags of *command*, or of its subcommand that *args* name."""
    named = command.commands[args[1]] if main.COMMANDS[args[0]] else command
    return {name for each in named.params for name in (*each.opts, *each.secondary_opts) if name[0] == "-"}


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        (["request", "/x-api/me"], set()),
        (["request", "/x-api/me", "--jq", ".email"], {"--jq"}),
        (["request", "/x-api/me", "--timeout=3"], {"--timeout"}),
        (["request", "/x-api/me", "-i"], {"--include", "-i"}),
        (["request", "/x-api/me", "--jq", "-i"], {"--jq", "--include", "-i"}),  # here a value
        (["request", "--", "--jq"], set()),
        (["request", "/x-api/me", "-o", "--", "-i"], {"--output", "-o", "--include", "-i"}),
        (["request", "/x-api/echo", "-d", "-"], {"--data", "-d"}),
    ],
)
def test_a_command_has_the_flags_that_its_arguments_contain(args: list[str], flags: set[str]) -> None:
    assert made(*args) == flags


def test_a_command_has_the_flag_of_a_profile_that_precedes_it(xapi: Xapi) -> None:
    assert xapi("profile", "set", "--profile", "one", "base_url", "http://127.0.0.1:9").code == 0
    expected = "http://127.0.0.1:9/x-api/me"
    assert expected in xapi("-p", "one", "request", "/x-api/me", "--curl").out
    assert expected in xapi("-p", "two", "request", "/x-api/me", "--curl", "-p", "one").out
    assert "profile 'one'" not in xapi("request", "/x-api/me", "--curl", "-p", "one").err
    assert xapi("-p", "", "request", "/x-api/me").err == xapi("request", "/x-api/me", "-p", "").err


def test_two_dashes_after_a_flag_are_its_value(xapi: Xapi) -> None:
    result = xapi("request", "/x-api/echo", "-d", "--", "--curl", "--base-url", "http://127.0.0.1:9")
    assert result.code == 0, result.err
    assert "--data-raw '--'" in result.out


@pytest.mark.parametrize(
    "args",
    [
        ["request", "--help"],
        ["request", "/x-api/me", "--unknown"],
        ["request", "/x-api/me", "-iZ"],
        ["request", "-XPOST", "/x-api/me"],
        ["token", "show", "--unknown"],
    ],
)
def test_a_command_has_all_flags_if_its_arguments_may_contain_another_one(args: list[str]) -> None:
    flags = flags_of(main.command(args[0]), *args)
    assert made(*args) == flags
    assert len(flags) > 10


@pytest.mark.parametrize(
    ("args", "names"),
    [(["show", "--quiet"], {"show"}), (["--quiet", "show"], {"show", "status"}), (["shwo"], {"show", "status"})],
)
def test_a_group_has_only_the_command_with_which_its_arguments_begin(args: list[str], names: set[str]) -> None:
    group: Any = typer.main.get_command(main._command("token", args))  # noqa: SLF001 - made for these arguments
    assert group.commands.keys() == names


def test_the_settings_that_curl_passes_to_token_show_are_those_that_it_has() -> None:
    given = resolve.arguments({name: "1" for name, row in SETTINGS.items() if row.flags})
    expected = {row.flags[0] for row in SETTINGS.values() if row.flags} & flags_of(
        main.command("token"), "token", "show"
    )
    assert {flag for flag, _ in given} == expected
