from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from xapi_cli.http import retry


def _longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


def test_the_waits_double_up_to_a_cap_and_each_may_be_anything_down_to_zero() -> None:
    waits = [retry.delay(tries, None, rng=_longest) for tries in (0, 1, 2, 3, 4, 5, 6, 7, 1000)]

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_without_a_given_source_the_wait_is_random_within_its_bounds() -> None:
    waits = {retry.delay(2, None) for _ in range(50)}

    assert len(waits) > 10
    assert all(wait is not None and 0.0 <= wait <= 2.0 for wait in waits)


@pytest.mark.parametrize(("asked", "wait"), [("0", 0.0), ("7", 7.0), (" 12 ", 12.0), ("300", 300.0), ("00030", 30.0)])
def test_retry_after_in_seconds_is_respected(asked: str, wait: float) -> None:
    assert retry.delay(0, asked, rng=_longest) == wait


@pytest.mark.parametrize("asked", ["301", "1000000000", "9" * 5000])
def test_more_than_300_seconds_is_not_waited_for(asked: str) -> None:
    assert retry.delay(0, asked) is None


def test_retry_after_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)

    wait = retry.delay(0, soon)

    assert wait is not None
    assert 57 < wait <= 60


def test_a_date_that_has_passed_is_no_wait_and_one_too_far_off_the_end() -> None:
    assert retry.delay(0, "Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry.delay(0, format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)) is None


@pytest.mark.parametrize("asked", ["", "-5", "1.5", "soon", "٣", "1e3", "Wed, 99 Foo 2015 99:99:99 GMT", "\x00"])
def test_nonsense_counts_as_no_retry_after(asked: str) -> None:
    assert retry.delay(1, asked, rng=_longest) == 1.0


def test_only_passing_failures_and_safe_methods_are_tried_again() -> None:
    assert {429, 502, 503, 504} == retry.STATUSES
    assert {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} == retry.METHODS
