"""The course of a call, driven by hand."""

from typing import Any

import pytest

from tests.auth.test_token_source import Issuer
from xapi_cli.auth.token_source import MOST_REPLAYS, TokenSource
from xapi_cli.batch.flow import Answer, Course, Pause, Policy, Renew, Send
from xapi_cli.batch.responses import Head, Reply
from xapi_cli.errors import LoginRefused, NetworkError, TimeoutExpired
from xapi_cli.request.calls import Call
from xapi_cli.tokens import Token

BASE = "https://api.test"


def reply(status: int = 200, **headers: str) -> Reply:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Reply(Head(status, raw), b"", persists=True)


def begun(method: str = "GET", *, retries: int = 0, authorized: bool = False) -> tuple[Course, TokenSource, Any]:
    shared = TokenSource(Issuer())
    shared.current()
    course = Policy(BASE, shared, retries).course(Call(method, f"{BASE}/x"), authorized=authorized)
    return course, shared, next(course)


def end(course: Course, value: Any) -> Answer:
    with pytest.raises(StopIteration) as ended:
        course.send(value)
    answer: Answer = ended.value.value
    return answer


def test_an_answer_ends_it() -> None:
    course, shared, step = begun()

    assert step == Send(Call("GET", f"{BASE}/x"), shared.known, inside=True)
    assert end(course, reply(404)).reply.head.status == 404


def test_a_line_is_replayed_five_times_each_with_a_newer_token() -> None:
    course, _, step = begun()
    sent = []
    for number in range(MOST_REPLAYS):
        sent.append(step.token.access_token)
        assert isinstance(course.send(reply(401)), Renew)
        step = course.send(Token(f"newer-{number}"))
    sent.append(step.token.access_token)

    assert end(course, reply(401)).reply.head.status == 401
    assert sent == ["token-1", "newer-0", "newer-1", "newer-2", "newer-3", "newer-4"]


def test_a_login_that_fails_is_no_reason_to_try_again() -> None:
    for error in (LoginRefused("no"), NetworkError("down"), TimeoutExpired("late")):
        course, _, _ = begun(retries=5)
        assert isinstance(course.send(reply(401)), Renew)
        with pytest.raises(type(error)):
            course.throw(error)


def test_a_passing_failure_is_tried_again_after_a_pause() -> None:
    course, _, _ = begun(retries=2)

    assert course.send(reply(503, retry_after="7")) == Pause(7.0)
    assert isinstance(course.send(None), Send)
    assert isinstance(course.throw(NetworkError("lost")), Pause)
    assert isinstance(course.send(None), Send)
    assert end(course, reply(503)).reply.head.status == 503


@pytest.mark.parametrize("error", [TimeoutExpired("late"), NetworkError("cut", answered=True)])
def test_a_timeout_or_a_body_that_was_cut_off_is_final(error: Exception) -> None:
    course, _, _ = begun(retries=2)
    with pytest.raises(type(error)):
        course.throw(error)


def test_a_post_is_not_tried_again() -> None:
    course, _, _ = begun("POST", retries=2)
    with pytest.raises(NetworkError):
        course.throw(NetworkError("lost"))


def test_a_chain_that_has_left_the_api_bears_no_token_any_more() -> None:
    course, _, _ = begun()

    away = course.send(reply(307, location="https://elsewhere.test/"))
    assert away == Send(Call("GET", "https://elsewhere.test/"), None, inside=False)
    back = course.send(reply(307, location=f"{BASE}/y"))
    assert back == Send(Call("GET", f"{BASE}/y"), None, inside=False)
    answer = end(course, reply(401))
    assert (answer.reply.head.status, answer.from_api) == (401, False)


def test_a_line_with_an_authorization_of_its_own_bears_no_token() -> None:
    course, _, step = begun(authorized=True)

    assert (step.token, step.inside) == (None, True)
    assert end(course, reply(401)).reply.head.status == 401
