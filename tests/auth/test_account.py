"""Decisions of an account: when a stored token is used, and when it logs in."""

from datetime import timedelta

import pytest

from tests.auth.world import RIGHT, World
from xapi_cli.auth.passwords import TYPED
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.errors import LoginNeeded, LoginRefused, TokenRejected
from xapi_cli.tokens import Token


def test_a_stored_token_of_unknown_expiry_satisfies_any_min_ttl(world: World) -> None:
    world.store("old", None)

    assert world.account(given=RIGHT).token(min_ttl=10**9).access_token == "old"


def test_a_token_with_just_enough_time_left_is_not_renewed(world: World) -> None:
    world.store("old", timedelta(hours=1))

    assert world.account(given=RIGHT).token(min_ttl=3600).access_token == "old"


def test_after_a_401_a_newer_token_in_the_store_is_used_instead_of_a_login(world: World) -> None:
    old = world.store("old")
    account = world.account(given=RIGHT)
    account.token()
    world.store("newer")

    newer = account.renew(old)

    assert newer is not None
    assert (newer.access_token, world.logins, account.source, account.login_reason) == ("newer", [], "store", None)
    world.store("expired", timedelta(0))
    account.renew(newer)
    assert world.logins == [RIGHT]


def test_a_401_for_a_fresh_token_is_final_and_stops_automatic_logins_for_a_minute(world: World) -> None:
    account = world.account(given=RIGHT)
    tokens = TokenSource(account)

    assert tokens.renew(tokens.current(), 0.0) is None
    tokens.record_rejection()

    other = world.account(given=RIGHT)
    with pytest.raises(TokenRejected, match="less than a minute ago"):
        other.renew(other.token())
    assert world.logins == [RIGHT]


def test_an_explicit_login_enables_automatic_logins_again(world: World) -> None:
    account = world.account(given=RIGHT)
    account.record_rejection(account.token())
    world.during = _refuse
    with pytest.raises(LoginRefused):
        world.account(given=RIGHT).token(fresh=True)
    world.during = lambda: None

    world.account().log_in(RIGHT, remember=None, origin=TYPED)

    again = world.account(given=RIGHT)
    assert again.renew(again.token()) is not None


def _refuse() -> None:
    raise LoginRefused("the account is locked")


def test_a_fresh_token_can_be_requested_within_that_minute(world: World) -> None:
    account = world.account(given=RIGHT)
    account.record_rejection(account.token())

    assert world.account(given=RIGHT).token(fresh=True).access_token == "token2"


def test_a_401_without_a_previous_login_does_not_stop_logins(world: World) -> None:
    world.store("old")
    account = world.account(given=RIGHT, automatic=False)
    account.record_rejection(account.token())

    assert world.account(given=RIGHT).renew(Token("old")) is not None


@pytest.mark.parametrize("left", [None, timedelta(0), timedelta(minutes=1)])
def test_with_automatic_login_disabled_it_never_logs_in(world: World, left: timedelta | None) -> None:
    if left is not None:
        world.store("old", left)

    with pytest.raises(LoginNeeded, match="--no-login was given; run `xapi login`"):
        world.account(given=RIGHT, automatic=False).token(min_ttl=3600)
    assert world.account(given=RIGHT, automatic=False).renew(Token("old")) is None
    assert world.logins == []


def test_a_token_that_was_rejected_is_tried_by_requests_and_not_passed_on(world: World) -> None:
    old = world.store("old")
    world.account(automatic=False).renew(old)

    assert world.account(given=RIGHT).current() == old
    assert world.account(given=RIGHT).token().access_token == "token1"


def test_the_acceptance_of_a_new_token_after_its_rejection_enables_automatic_logins_again(world: World) -> None:
    account = world.account(given=RIGHT)
    account.record_rejection(account.token())
    account.record_success()

    again = world.account(given=RIGHT)
    assert again.renew(again.token()) is not None


def test_the_acceptance_in_another_process_does_not_because_the_rejection_may_be_about_rights(world: World) -> None:
    account = world.account(given=RIGHT)
    account.record_rejection(account.token())
    other = world.account(given=RIGHT)
    other.record_success()

    with pytest.raises(TokenRejected):
        other.renew(other.token())
    assert len(world.logins) == 1


def test_check_raises_without_a_token_and_a_password_and_sends_nothing(world: World) -> None:
    with pytest.raises(LoginNeeded):
        world.account().check()
    world.account(given=RIGHT).check()
    world.store("old")
    world.account().check()
    assert world.logins == []
