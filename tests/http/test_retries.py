"""Retries: what is sent again, how often and until when."""

import httpx
import pytest

from tests.http.sending import BASE, Router, sender_for
from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.http.send import Call


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_transient_failure_is_retried_and_reported(router: Router, status: int) -> None:
    headers = {"Retry-After": "7"}
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers=headers), httpx.Response(status), httpx.Response(200)]
    )
    notes: list[str] = []
    waits: list[float] = []
    sender = sender_for(router, retries=2, note=notes.append, wait=waits.append)

    reply = sender.send(Call("GET", f"{BASE}/a?key=canary"))

    assert (reply.response.status, sender.attempts) == (200, 3)
    assert waits[0] == 7.0
    assert 0 <= waits[1] <= 1.0
    assert notes == [
        f"https://api.test/v1/a?key=*** responded with {status}; retrying in 7.0 s (1 of 2)",
        f"https://api.test/v1/a?key=*** responded with {status}; retrying in {waits[1]:.1f} s (2 of 2)",
    ]


def test_a_wait_that_is_interrupted_is_no_attempt(router: Router) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    router.get(f"{BASE}/a").respond(503)
    sender = sender_for(router, retries=2, wait=interrupt)

    with pytest.raises(KeyboardInterrupt):
        sender.send(Call("GET", f"{BASE}/a"))
    assert sender.attempts == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "REPORT"])
def test_a_method_that_is_not_idempotent_is_not_retried(router: Router, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(503)

    assert sender_for(router, retries=3).send(Call(method, f"{BASE}/a")).response.status == 503
    assert len(router.calls) == 1


@pytest.mark.parametrize(("wait", "calls", "why"), [("0", 3, "--retry 2 was not enough"), ("301", 1, None)])
def test_a_429_after_all_retries_says_so(router: Router, wait: str, calls: int, why: str | None) -> None:
    router.get(f"{BASE}/a").respond(429, headers={"Retry-After": wait})

    assert sender_for(router, retries=2).send(Call("GET", f"{BASE}/a")).refused_retry == why
    assert len(router.calls) == calls


@pytest.mark.parametrize("status", [200, 400, 403, 404, 408, 500, 501, 505])
def test_other_statuses_are_not_retried(router: Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert sender_for(router, retries=3).send(Call("GET", f"{BASE}/a")).response.status == status
    assert len(router.calls) == 1


def test_a_failed_connection_is_retried(router: Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[NetworkError("refused"), NetworkError("reset"), httpx.Response(200)])

    assert sender_for(router, retries=5).send(Call("GET", f"{BASE}/a")).response.status == 200


@pytest.mark.parametrize("error", [NetworkError("truncated", headers_received=True), TimeoutExpired("too slow")])
def test_a_timeout_and_a_truncated_response_are_not_retried(router: Router, error: XapiError) -> None:
    router.get(f"{BASE}/a").mock(side_effect=error)

    with pytest.raises(XapiError) as caught:
        sender_for(router, retries=5).send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == 1


def test_a_delay_beyond_the_deadline_ends_the_retries(router: Router) -> None:
    import time

    router.get(f"{BASE}/a").respond(503, headers={"Retry-After": "60"})

    reply = sender_for(router, retries=5, deadline=time.monotonic() + 30).send(Call("GET", f"{BASE}/a"))

    assert (reply.response.status, len(router.calls)) == (503, 1)


def test_the_number_of_attempts_includes_retries_and_the_replay(router: Router) -> None:
    statuses = [503, 401, 503, 302, 503, 200]
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers={"Location": f"{BASE}/a"}) for status in statuses]
    )
    sender = sender_for(router, retries=3)

    assert sender.send(Call("GET", f"{BASE}/a")).response.status == 200
    assert sender.attempts == 1 + 3 + 1
    tokens = [token for _, _, token, _, _ in router.sent]
    assert tokens == ["Bearer token-1"] * 2 + ["Bearer token-2"] * 4


def test_redirects_do_not_reset_the_number_of_retries(router: Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[httpx.Response(503), httpx.Response(302, headers={"Location": "/v1/b"})])
    router.get(f"{BASE}/b").respond(503)

    assert sender_for(router, retries=2).send(Call("GET", f"{BASE}/a")).response.status == 503
    assert len(router.calls) == 4
