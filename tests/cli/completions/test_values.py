"""What completion offers for the values of all options and arguments: words, files, or neither."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.tools.manual import commands
from xapi_cli.cli.completion_replies import _Fish
from xapi_cli.cli.main import app

SETTINGS_WITH_FILES = {"--ca-bundle", "--log", "--password-command"}  # in every command that has them
OTHERS_WITH_FILES = {
    "api diff SOURCE",
    "api load SOURCE",
    "batch --failed",
    "batch --journal",
    "batch FILES",
    "proxy --socket",
    "request --meta",
    "request -o",
}


def values() -> Iterator[tuple[str, str]]:
    """Yield each option and argument with a value, and the command line before the value."""
    root = get_command(app)
    for _, command, context in commands("xapi", root, root.make_context("xapi", [], resilient_parsing=True)):
        path = context.command_path.removeprefix("xapi").strip()
        line = path
        for parameter in command.get_params(context):
            if parameter.param_type_name == "argument":
                yield f"{path} {parameter.name.upper()}", line
                line += " a"
            elif not parameter.is_flag and not parameter.hidden:
                yield f"{path} {parameter.opts[-1]}".strip(), f"{path} {parameter.opts[-1]}"


def offered(line: str) -> str:
    """Return what is offered after *line*: words, a kind of native completion, or files, as after an empty reply."""
    replies = _Fish(get_command(app), {}, "xapi", "_XAPI_COMPLETE")
    found: list[Any] = replies.get_completions(line.split(), "")
    native = replies.native
    if native is None:
        return "words" if found else "files"
    return native.kind


def test_only_the_value_of_an_option_that_takes_a_file_completes_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XAPI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("XAPI_STATE_DIR", str(tmp_path))

    shown = {name: offered(line) for name, line in values()}
    files = {name for name, kind in shown.items() if kind == "files"}
    settings = {name for name in shown if name.split()[-1] in SETTINGS_WITH_FILES}

    assert {name.split()[-1] for name in settings} == SETTINGS_WITH_FILES
    assert files == settings | OTHERS_WITH_FILES
    assert shown["request -d"] == "nothing"  # files only after @
    assert shown["exec COMMAND"] == shown["proxy COMMAND"] == "command"
