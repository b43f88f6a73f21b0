"""The 401 flow, driven by hand: no network, no clock."""

from collections.abc import Callable

import httpx
import pytest

from xapi_cli.auth.bearer import BearerAuth
from xapi_cli.errors import LoginRefused
from xapi_cli.tokens import Token

OLD, NEW = Token("old"), Token("new")


def _request() -> httpx.Request:
    return httpx.Request("POST", "https://api.test/x-api/me", content=b"body")


def _never(rejected: Token) -> Token:
    raise AssertionError("no renewal was called for")


def _giving(answer: Token | None, calls: list[Token]) -> Callable[[Token], Token | None]:
    def renew(rejected: Token) -> Token | None:
        calls.append(rejected)
        return answer

    return renew


@pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 407, 500, 503])
def test_the_current_token_is_sent_and_any_answer_but_401_is_the_answer(status: int) -> None:
    auth = BearerAuth(current=lambda: OLD, renew=_never)
    flow = auth.sync_auth_flow(_request())

    assert next(flow).headers["Authorization"] == "Bearer old"
    with pytest.raises(StopIteration):
        flow.send(httpx.Response(status))
    assert auth.replays == 0


def test_after_a_401_the_same_request_goes_out_again_with_the_renewed_token() -> None:
    calls: list[Token] = []
    auth = BearerAuth(current=lambda: OLD, renew=_giving(NEW, calls))
    request = _request()
    flow = auth.sync_auth_flow(request)
    next(flow)

    again = flow.send(httpx.Response(401))

    assert again is request
    assert again.headers.get_list("Authorization") == ["Bearer new"]
    assert (calls, auth.replays) == ([OLD], 1)
    with pytest.raises(StopIteration):
        flow.send(httpx.Response(200))


def test_a_second_401_is_final() -> None:
    calls: list[Token] = []
    flow = BearerAuth(current=lambda: OLD, renew=_giving(NEW, calls)).sync_auth_flow(_request())
    next(flow)
    flow.send(httpx.Response(401))

    with pytest.raises(StopIteration):
        flow.send(httpx.Response(401))
    assert calls == [OLD]


def test_a_401_stands_where_nothing_can_be_renewed() -> None:
    auth = BearerAuth(current=lambda: OLD, renew=lambda rejected: None)
    flow = auth.sync_auth_flow(_request())
    next(flow)

    with pytest.raises(StopIteration):
        flow.send(httpx.Response(401))
    assert auth.replays == 0


def test_what_the_login_raises_ends_the_call() -> None:
    def refuse(rejected: Token) -> Token:
        raise LoginRefused("no")

    flow = BearerAuth(current=lambda: OLD, renew=refuse).sync_auth_flow(_request())
    next(flow)

    with pytest.raises(LoginRefused):
        flow.send(httpx.Response(401))


def test_the_body_of_the_401_is_dropped_before_the_replay() -> None:
    dropped: list[bool] = []
    flow = BearerAuth(current=lambda: OLD, renew=lambda rejected: NEW).sync_auth_flow(_request())
    next(flow)

    flow.send(httpx.Response(401, extensions={"discard": lambda: dropped.append(True)}))

    assert dropped == [True]


def test_the_body_of_a_401_that_stands_is_kept_for_the_reader() -> None:
    dropped: list[bool] = []
    flow = BearerAuth(current=lambda: OLD, renew=lambda rejected: None).sync_auth_flow(_request())
    next(flow)

    with pytest.raises(StopIteration):
        flow.send(httpx.Response(401, extensions={"discard": lambda: dropped.append(True)}))
    assert dropped == []


def test_an_asynchronous_client_is_refused_aloud() -> None:
    with pytest.raises(NotImplementedError, match="AsyncClient"):
        BearerAuth(current=lambda: OLD, renew=_never).async_auth_flow(_request())
