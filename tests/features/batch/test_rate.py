"""The rate of requests, with a clock of the test."""

import threading

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.features.batch.rate import RateLimiter, parse_rate


class Clock:
    """A clock that only moves while something waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.late = 0.0  # seconds by which each wait is too long

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds + self.late


@pytest.mark.parametrize(("text", "rate"), [("100", 100.0), ("5/s", 5.0), ("30/m", 0.5), ("0.5/s", 0.5)])
def test_a_rate_is_per_second_or_minute(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "5/d", "1e3", "x", "5/", "0.0/m"])
def test_an_invalid_rate_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid rate; write N, N/s or N/m"):
        parse_rate(text)


def _times(limiter: RateLimiter, clock: Clock, count: int) -> list[float]:
    times = []
    for _ in range(count):
        limiter.acquire(clock.wait)
        times.append(round(clock.now - 1000, 3))
    return times


def test_requests_are_spread_evenly() -> None:
    clock = Clock()
    assert _times(RateLimiter(4, clock=clock), clock, 6) == [0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert _times(RateLimiter(0.5, clock=(clock := Clock())), clock, 3) == [0, 2, 4]
    assert _times(RateLimiter(clock=(clock := Clock())), clock, 3) == [0, 0, 0]


def test_late_requests_are_caught_up_but_never_more_than_the_rate_in_a_second() -> None:
    clock = Clock()
    limiter = RateLimiter(10, clock=clock)
    _times(limiter, clock, 5)
    clock.now += 0.3
    times = _times(limiter, clock, 30)

    assert times[:4] == [0.7, 0.7, 0.8, 0.9]
    assert all(later - earlier >= 0.999 for earlier, later in zip(times, times[10:], strict=False))


def test_waits_that_are_late_do_not_lower_the_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(100, clock=clock)
    clock.late = 0.003
    assert _times(limiter, clock, 200)[-1] < 2.01


def test_a_pause_delays_all_requests() -> None:
    clock = Clock()
    for limiter in (RateLimiter(clock=clock), RateLimiter(1000, clock=clock)):
        start = clock.now
        assert limiter.pause(5)
        assert not limiter.pause(3)  # continues a pause, and does not shorten it
        limiter.acquire(clock.wait)
        assert clock.now == start + 5
        assert limiter.pause(1)


def test_threads_share_the_rate_and_the_end_of_a_wait_ends_all_waits() -> None:
    limiter, stopping = RateLimiter(0.01), threading.Event()
    sent: list[int] = []

    def send(number: int) -> None:
        def wait(seconds: float) -> None:
            if stopping.wait(seconds):
                raise InterruptedError

        try:
            limiter.acquire(wait)
            sent.append(number)
        except InterruptedError:
            pass

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    stopping.set()
    for thread in threads:
        thread.join(10)
    assert len(sent) <= 1
    assert not any(thread.is_alive() for thread in threads)
