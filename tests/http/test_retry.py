from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from xapi_cli.http import retry


def _longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


def test_the_longest_delay_doubles_up_to_a_cap_and_the_shortest_is_zero() -> None:
    waits = [retry.delay(tries, None, rng=_longest) for tries in (0, 1, 2, 3, 4, 5, 6, 7, 1000)]

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_the_default_delay_is_random_within_its_bounds() -> None:
    waits = {retry.delay(2, None) for _ in range(50)}

    assert len(waits) > 10
    assert all(wait is not None and 0.0 <= wait <= 2.0 for wait in waits)


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [("0", 0.0), ("7", 7.0), (" 12 ", 12.0), ("300", 300.0), ("00030", 30.0), ("2.0", 2.0), ("0.25", 0.25)],
)
def test_retry_after_in_seconds_is_respected(retry_after: str, wait: float) -> None:
    assert retry.delay(0, retry_after, rng=_longest) == wait


@pytest.mark.parametrize("retry_after", ["301", "1000000000", "9" * 5000])
def test_a_retry_after_of_more_than_300_seconds_ends_the_retries(retry_after: str) -> None:
    assert retry.delay(0, retry_after) is None


def test_retry_after_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)

    wait = retry.delay(0, soon)

    assert wait is not None
    assert 57 < wait <= 60


def test_a_past_date_means_no_delay_and_a_distant_one_ends_the_retries() -> None:
    assert retry.delay(0, "Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry.delay(0, format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)) is None


@pytest.mark.parametrize(
    "retry_after", ["", "-5", "1.5.0", ".", "1,5", "soon", "٣", "1e3", "Wed, 99 Foo 2015 99:99:99 GMT", "\x00"]
)
def test_an_invalid_retry_after_is_ignored(retry_after: str) -> None:
    assert retry.delay(1, retry_after, rng=_longest) == 1.0


def test_only_transient_failures_and_idempotent_methods_are_retried() -> None:
    assert retry.STATUSES == (429, 502, 503, 504)
    assert {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"} == retry.IDEMPOTENT
