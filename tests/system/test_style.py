"""When text has colors, and which."""

from typing import get_args

import pytest

from xapi_cli.system.style import Name, Style, color_of_state, color_of_status, is_wanted


@pytest.mark.parametrize(
    ("environ", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "1"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "3", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "false", "CLICOLOR_FORCE": "1"}, False, False),
        ({"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, False),
    ],
)
def test_the_variables_decide_on_colors_by_convention(
    environ: dict[str, str], on_terminal: bool, in_pipe: bool
) -> None:
    assert is_wanted(environ, is_terminal=True) is on_terminal
    assert is_wanted(environ, is_terminal=False) is in_pipe


def test_colors_are_reset_and_a_disabled_style_adds_nothing() -> None:
    paint, plain = Style(enabled=True), Style(enabled=False)

    assert paint("error", "a") == "\x1b[1;31ma\x1b[0m"
    assert paint("error", "") == paint(None, "") == ""
    assert paint("name", "`b`").join("a ") == paint.commands("a`b` ")
    assert plain("error", "a") == plain.commands("a") == "a"


def test_only_the_palette_of_the_terminal_is_used() -> None:
    codes = {code for name in get_args(Name) for code in Style(enabled=True)(name, "x")[2:-6].split(";")}

    assert codes <= {"1", "2", "4", *map(str, range(31, 37))}


def test_states_and_statuses_have_the_colors_of_their_severity() -> None:
    assert [color_of_state(state) for state in ("valid", "short", "none", "expired", "rejected")] == [
        "good", "caution", "caution", "bad", "bad",
    ]  # fmt: skip
    assert [color_of_status(status) for status in (200, 304, 404, 503)] == ["good", "caution", "bad", "bad"]
