"""How long to wait before a retry."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from xapi_cli.http import retry


def delay(retry_after: str = "", retries: int = 0) -> float | None:
    return retry.next_delay("GET", retries, 2000, retry_after)


def test_a_delay_is_random_up_to_a_limit_that_doubles_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {delay(retries=2) for _ in range(50)}
    assert len(found) > 10
    assert all(wait is not None and 0.0 <= wait <= 2.0 for wait in found)

    monkeypatch.setattr(random, "uniform", max)
    waits = [delay(retries=tries) for tries in (0, 1, 2, 3, 4, 5, 6, 7, 1000)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def _in(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [
        *[("0", 0.0), ("7", 7.0), (" 12 ", 12.0), ("300", 300.0), ("00030", 30.0), ("2.0", 2.0), ("0.25", 0.25)],
        *[
            ("301", None),
            ("1000000000", None),
            ("9" * 5000, None),
            ("Fri, 01 Jan 2100 00:00:00 GMT", None),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ],
        # what is not valid is ignored
        *[(text, 0.1) for text in ("", "soon", "-1", "1e2", "0x10", "7, 8", "1.2.3", "\xb2", "Wed, 99 Foo 2026")],
    ],
)
def test_retry_after_is_respected_up_to_300_seconds(
    monkeypatch: pytest.MonkeyPatch, retry_after: str, wait: float | None
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.1)

    assert delay(retry_after) == wait


def test_retry_after_may_be_a_date_and_a_429_or_503_with_it_asks_for_a_pause() -> None:
    found = delay(_in(120))

    assert found is not None
    assert 110 < found <= 120
    assert [retry.requested_pause(status, "7") for status in (429, 503, 502)] == [7.0, 7.0, None]
