import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.system import render
from xapi_cli.system.render import printable

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain é 漢 😀", "plain é 漢 😀"),
        ("\x00\x1b[0m\x7f\r\n\t", "\\x00\\x1b[0m\\x7f\\x0d\\x0a\\x09"),
        ("\x80\x9b\x9f\xad", "\\x80\\x9b\\x9f\\xad"),
        ("\u200b\u200e\u202e\u2066\u2028\ufeff", "\\u200b\\u200e\\u202e\\u2066\\u2028\\ufeff"),
        ("\U000e0001\U0010ffff", "\\U000e0001\\U0010ffff"),
        ("\udcff", "\\udcff"),
        ("12\u00a0000\u202f€\u3000", "12\u00a0000\u202f€\u3000"),
    ],
)
def test_control_format_and_bidi_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_unchanged_and_one_line(text: str) -> None:
    once = printable(text)

    assert printable(once) == once
    assert len(once.splitlines()) <= 1
    once.encode()


def test_json_line_keeps_text_readable_and_is_one_line() -> None:
    assert render.json_line({"a": "é\n", "b": [1, None]}) == '{"a": "é\\n", "b": [1, null]}'
    assert json.loads(render.json_line(["\x1b"])) == ["\x1b"]


def test_an_instant_is_rfc_3339() -> None:
    assert render.instant(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(days=30), "in 30 days"),
        (timedelta(days=30, seconds=-1), "in 30 days"),
        (timedelta(days=29, hours=11), "in 29 days"),
        (timedelta(days=2), "in 2 days"),
        (timedelta(days=2, seconds=-1), "in 48 hours"),
        (timedelta(days=1), "in 24 hours"),
        (timedelta(hours=5, minutes=29), "in 5 hours"),
        (timedelta(hours=1, minutes=59), "in 119 minutes"),
        (timedelta(hours=1, seconds=-0.4), "in 60 minutes"),
        (timedelta(minutes=2), "in 2 minutes"),
        (timedelta(seconds=119), "in 119 seconds"),
        (timedelta(seconds=1), "in 1 second"),
        (timedelta(0), "now"),
        (timedelta(seconds=0.4), "now"),
        (-timedelta(seconds=1), "1 second ago"),
        (-timedelta(hours=3), "3 hours ago"),
        (-timedelta(days=400), "400 days ago"),
    ],
)
def test_relative_times_are_rounded(span: timedelta, text: str) -> None:
    assert render.relative(span) == text


def test_until_contains_absolute_and_relative_time() -> None:
    assert render.until(NOW + timedelta(days=30), NOW) == "2026-12-21 08:00 UTC (in 30 days)"
    assert render.until(None, NOW) == "an unknown time"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 * 1024**2, "5.0 MiB"),
        (1, "1 byte"), (3 * 1024**3, "3.0 GiB"), (5000 * 1024**4, "5000.0 TiB"),
    ],
)  # fmt: skip
def test_sizes_are_human_readable(count: int, text: str) -> None:
    assert render.size(count) == text


@pytest.mark.parametrize(
    "text",
    ["", "plain", "two words", "it's", "'", "''", '$HOME `x` \\ " \n !', "-n", "é", "~", "a=~/b:~", "{a,b}", "{id}"],
)
def test_a_shell_parses_a_quoted_argument_unchanged(text: str) -> None:
    for quoted in (render.shell_quoted(text), render.pasteable(text)):
        shell = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True)
        assert shell.stdout.decode() == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(30.0, "30"), (2.5, "2.5"), (0.1, "0.1"), (1 / 3, "0.333333"), (0.00001, "0.00001"), (2e6, "2000000")],
)
def test_a_number_is_written_without_an_exponent(value: float, text: str) -> None:
    assert render.decimal(value) == text
