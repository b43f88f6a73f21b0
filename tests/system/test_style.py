"""Lines and tables that fit a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.system.style import Cell, Style, columns, table, width_of, wrapped

PLAIN = Style(enabled=False)
WORDS = st.lists(st.text("ab漢`-:/", min_size=1, max_size=30), min_size=1).map(" ".join)


@given(WORDS, st.integers(20, 60))
def test_lines_break_between_words_only_and_fit(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")

    assert " ".join([lines[0], *(line.removeprefix("  ") for line in lines[1:])]) == text
    assert all(line.startswith("  ") for line in lines[1:])
    for line in lines:
        alone = line.strip()
        assert width_of(line) <= width or " " not in alone or alone.startswith("`") or "`" in alone


def test_a_url_is_not_broken() -> None:
    url = "https://api.example.com/" + "x" * 40

    assert wrapped(f"no connection to {url}; check it", 30) == f"no connection to\n  {url};\n  check it"


def test_a_command_in_backticks_is_not_broken() -> None:
    assert wrapped("no stored token; run `xapi login --profile a` now", 36) == (
        "no stored token; run\n  `xapi login --profile a` now"
    )
    command = "`xapi logout --base-url https://api.example.com --username me@example.com`"
    assert wrapped(f"the token remains; run {command} now", 60) == f"the token remains; run\n  {command}\n  now"


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert width_of("漢e\u0301") == 3
    assert wrapped("漢" * 8 + " " + "字" * 8, 20) == "漢" * 8 + "\n  " + "字" * 8
    assert table([("漢", "1"), ("abc", "2")], PLAIN) == "漢   1\nabc  2"


def test_a_table_has_its_values_in_one_column() -> None:
    assert table([("a", "1"), ("long name", "\x1b"), ("b", "")], PLAIN) == "a          1\nlong name  \\x1b\nb"
    assert table([], PLAIN) == ""


def test_colors_do_not_change_the_width() -> None:
    rows = [[Cell("a", "good"), Cell("b")], [Cell("cc"), Cell("d")]]

    assert columns(rows, Style(enabled=True)) == "\x1b[32ma\x1b[0m   b\ncc  d"
