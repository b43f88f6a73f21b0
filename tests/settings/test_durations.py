"""DURATION: a length of time as users write it."""

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings import durations
from xapi_cli.settings.durations import seconds, time_limit


@pytest.mark.parametrize(
    "text, expected",
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("7d", 604800),
        ("1h30m", 5400),
        ("0000000000001h", 3600),
        ("1d2h3m4s", 93784),
        ("1d4s", 86404),
        ("0", 0),
        ("0s", 0),
        ("45", 45),
        ("007", 7),
        (" 5m ", 300),
        ("1000000000", 10**9),
        ("2.5", 2.5),
        (".5", 0.5),
    ],
)
def test_a_duration_is_converted_to_seconds(text: str, expected: int) -> None:
    assert seconds(text, name="--min-ttl") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "s", "h30", "30m1h", "1h 30m", "1.5h", "-1", "+1", "1e3", "1_000", "1w", "1M", "1H", "1hh", "1h1h"),
        *("\u0661h", "\u0661", "½h", "²", "inf", "nan", "1h\n30m", "\x1b[2J"),
    ],
)
def test_any_other_text_is_rejected_and_made_printable(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        seconds(text, name="--min-ttl")

    assert caught.value.message.startswith("--min-ttl: ")
    assert caught.value.hint == "write 90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["1000000001", "9" * 5000, "9" * 30 + "d", "11575d"])
def test_a_duration_that_is_too_long_is_reported_with_the_maximum(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        seconds(text, name="--min-ttl")

    assert str(caught.value) == f"--min-ttl: '{text}' is too long; write at most 11574d"
    assert seconds("11574d", name="--min-ttl") == 11574 * 86400


@pytest.mark.parametrize("value", ["1158d", "1000000001", 1e9, float("inf")])
def test_a_time_limit_that_is_too_long_is_reported_with_the_maximum(value: str | float) -> None:
    with pytest.raises(UsageError) as caught:
        time_limit(value, name="--timeout")

    assert str(caught.value) == f"--timeout: '{value}' is too long; write at most 1157d"
    assert time_limit("1157d") == 1157 * 86400


@pytest.mark.parametrize("text", ["4h", "1h30m", "7d", "90", "2.5", "1d1s", "0.00001"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert time_limit(durations.text(time_limit(text))) == time_limit(text)
    assert durations.text(90) == "1m30s"
