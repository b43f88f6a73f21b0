"""The flow of a call, driven directly: no network, no clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from xapi_cli.errors import NetworkError, RedirectError, TimeoutExpired, XapiError
from xapi_cli.http.flow import FinalResponse, Flow, Login, Policy, RawHeader, Resume, Send, Wait
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call
from xapi_cli.request.redirects import redirected_call
from xapi_cli.tokens import Token

BASE = "https://api.test"
OTHER = "https://other.test"
OLD = Token("old")


@dataclass(frozen=True)
class Response:
    """A response without a body."""

    status: int
    raw_headers: Sequence[RawHeader] = ()


class Shared:
    """A cached token; records each token that was accepted."""

    def __init__(self, cached: Token | None) -> None:
        self.cached = cached
        self.tokens_accepted: list[Token] = []

    def accepted(self, token: Token, status: int, /) -> None:
        self.tokens_accepted.append(token)


def response(status: int, **headers: str) -> Response:
    return Response(status, [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])


def flow_of(
    method: str = "GET", *, authenticated: bool = True, follow: bool = True, body: Text | None = None, **rules: Any
) -> Flow[Call, Response]:
    redirected = partial(redirected_call, base_url=BASE, follow=follow)
    policy: Policy[Call] = Policy(BASE, redirected=redirected, **{"replays": 1, **rules})
    return policy.flow(Call(method, f"{BASE}/x", body=body), authenticated=authenticated)


def started(method: str = "GET", **rules: Any) -> tuple[Flow[Call, Response], Any]:
    """Return a flow that shares the token OLD, and its first step."""
    flow = flow_of(method, **{"tokens": Shared(OLD)} | rules)
    return flow, next(flow)


def sent(step: Any) -> Send[Call]:
    assert isinstance(step, Send)
    return step


def final(flow: Flow[Call, Response], result: Any) -> FinalResponse[Response]:
    step = flow.send(result)
    assert isinstance(step, FinalResponse)
    return step


# tokens


@pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 407, 500, 503])
def test_the_cached_token_is_sent_and_every_status_but_401_is_final(status: int) -> None:
    shared = Shared(OLD)
    flow = flow_of(tokens=shared)

    assert sent(next(flow))[:3] == (Call("GET", f"{BASE}/x"), OLD, True)
    assert final(flow, response(status)) == FinalResponse(response(status))
    assert shared.tokens_accepted == [OLD]


def test_without_a_cached_token_the_first_step_is_a_login() -> None:
    flow = flow_of(tokens=Shared(None))

    assert next(flow) == Login(None)
    assert sent(flow.send(OLD))[:3] == (Call("GET", f"{BASE}/x"), OLD, True)


def test_after_a_401_the_same_request_is_replayed_with_the_new_token() -> None:
    shared = Shared(OLD)
    flow, first = started("POST", tokens=shared, body=Text(b"body", None))

    assert flow.send(response(401)) == Login(OLD)
    replay = sent(flow.send(Token("new")))
    assert replay == first._replace(token=Token("new"))
    assert final(flow, response(200)).response.status == 200
    assert shared.tokens_accepted == [Token("new")]


@pytest.mark.parametrize("replays", [1, 5])
def test_the_number_of_replays_is_limited_and_each_has_a_newer_token(replays: int) -> None:
    flow, step = started(replays=replays)
    tokens = [step.token]
    for number in range(replays):
        assert flow.send(response(401)) == Login(tokens[-1])
        tokens.append(sent(flow.send(Token(f"token-{number}"))).token)

    assert final(flow, response(401)) == FinalResponse(response(401))
    assert tokens == [OLD, *(Token(f"token-{number}") for number in range(replays))]


def test_a_401_is_final_if_there_is_no_newer_token() -> None:
    shared = Shared(OLD)
    flow, _ = started(tokens=shared)

    assert flow.send(response(401)) == Login(OLD)
    assert final(flow, None) == FinalResponse(response(401))
    assert shared.tokens_accepted == []


# retries


def test_a_transient_failure_is_retried_after_a_wait() -> None:
    notes: list[str] = []
    flow, first = started(retries=2, note=notes.append)

    assert flow.send(response(503, retry_after="7")) == Wait(7.0)
    assert sent(flow.send(None))[:3] == first[:3]
    assert isinstance(flow.throw(NetworkError("lost")), Wait)
    assert isinstance(flow.send(None), Send)
    assert final(flow, response(503)).response.status == 503
    assert [note.partition("retrying")[0] for note in notes] == [f"{BASE}/x responded with 503; ", "lost; "]


def test_a_body_that_breaks_off_counts_as_a_retry_of_the_call_from_its_start() -> None:
    notes: list[str] = []
    flow, _ = started(retries=2, note=notes.append)
    assert flow.send(response(503, retry_after="0")) == Wait(0.0)
    flow.send(None)
    assert sent(flow.send(response(307, location=f"{OTHER}/"))).to_api is False
    broken, rest = NetworkError("truncated", headers_received=True), Call("GET", f"{BASE}/x", [("Range", "bytes=1-")])

    final(flow, response(200))
    assert isinstance(flow.send(Resume(rest, broken)), Wait)
    assert sent(flow.send(None))[:3] == (rest, OLD, True)
    final(flow, response(200))
    with pytest.raises(StopIteration):
        flow.send(Resume(rest, broken))

    assert [note.rpartition(" (")[2] for note in notes] == ["1 of 2)", "2 of 2)"]


def test_a_call_that_starts_again_without_a_failure_is_sent_immediately() -> None:
    flow, first = started(retries=0)
    final(flow, response(206))

    assert sent(flow.send(Resume(first.call, None)))[:3] == first[:3]


def test_a_repeated_retry_after_is_not_valid() -> None:
    flow, _ = started(retries=1)
    twice = Response(503, [(b"Retry-After", b"7"), (b"retry-after", b"7")])

    wait = flow.send(twice)

    assert isinstance(wait, Wait)
    assert wait.seconds <= 0.5


@pytest.mark.parametrize("error", [TimeoutExpired("late"), NetworkError("truncated", headers_received=True)])
def test_a_timeout_and_a_truncated_body_are_not_retried(error: XapiError) -> None:
    flow, _ = started(retries=2)
    with pytest.raises(type(error)):
        flow.throw(error)


def test_a_post_is_not_retried() -> None:
    flow, _ = started("POST", retries=2)
    with pytest.raises(NetworkError):
        flow.throw(NetworkError("lost"))


def test_each_attempt_is_replayed_separately() -> None:
    flow, _ = started(retries=1)

    assert isinstance(flow.send(response(401)), Login)
    assert isinstance(flow.send(Token("new")), Send)
    assert isinstance(flow.send(response(503, retry_after="0")), Wait)
    assert sent(flow.send(None)).token == OLD  # the cached one
    assert isinstance(flow.send(response(401)), Login)


# redirects


def test_no_token_is_sent_after_a_redirect_has_left_the_api() -> None:
    flow, _ = started()

    away = flow.send(response(307, location=f"{OTHER}/"))
    assert sent(away)[:3] == (Call("GET", f"{OTHER}/"), None, False)
    back = flow.send(response(307, location=f"{BASE}/y"))
    assert sent(back)[:3] == (Call("GET", f"{BASE}/y"), None, False)
    assert final(flow, response(401)) == FinalResponse(response(401), from_api=False)


def test_a_redirect_that_is_not_followed_is_the_final_response_with_the_reason() -> None:
    flow, _ = started(follow=False)

    result = final(flow, response(302, location="/y"))

    assert (result.response.status, result.from_api) == (302, True)
    assert isinstance(result.refused_redirect, RedirectError)


def test_without_a_redirect_rule_a_redirect_is_final() -> None:
    policy: Policy[Call] = Policy(BASE, replays=1)
    flow = policy.flow(Call("GET", f"{BASE}/x"), authenticated=False)
    next(flow)

    assert final(flow, response(302, location="/y")) == FinalResponse(response(302, location="/y"))


# bodies that are not needed


@pytest.mark.parametrize(
    "received, needed",
    [
        (response(200), True),
        (response(404), True),
        (response(401), False),
        (response(503), False),
        (response(503, retry_after="301"), True),
        (response(302, location="/y"), False),
        (response(302), True),
        (response(302, location="ftp://api.test/"), True),
    ],
)
def test_the_body_is_not_needed_before_a_replay_a_retry_or_a_redirect(received: Response, needed: bool) -> None:
    _, step = started(retries=1)

    assert step.needs_body(received) is needed


def test_a_retry_is_decided_once_although_the_deadline_passes_while_the_body_is_omitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadline = time.monotonic() + 60
    flow, step = started(retries=1, deadline=deadline)
    received = response(503, retry_after="0")
    assert step.needs_body(received) is False
    monkeypatch.setattr(time, "monotonic", lambda: deadline + 1)

    assert flow.send(received) == Wait(0.0)
