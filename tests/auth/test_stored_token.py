"""The stored token for requests: the account is opened only for what needs a login."""

from datetime import timedelta

import pytest

from tests.auth.world import NOW, RIGHT, World
from xapi_cli.auth.account import Account
from xapi_cli.auth.stored_token import StoredToken
from xapi_cli.errors import LoginNeeded


def opened(world: World, *, given: str | None = RIGHT) -> tuple[StoredToken, list[Account]]:
    """Return the stored token of the account, and the accounts that it opens."""
    accounts: list[Account] = []
    repository = world.account().repository

    def open_account() -> Account:
        accounts.append(world.account(given=given))
        return accounts[-1]

    return StoredToken(repository, open_account, now=lambda: NOW), accounts


def test_a_token_that_lasts_opens_no_account(world: World) -> None:
    token = world.store("old")
    stored, accounts = opened(world)

    stored.check()

    assert (stored.current(), stored.token(min_ttl=60), stored.stored()) == (token, token, token)
    assert (stored.source, stored.login_reason, stored.is_fresh(token)) == ("store", None, False)
    stored.record_rejection(token)
    assert accounts == []


@pytest.mark.parametrize(("left", "reason"), [(timedelta(0), "expired"), (None, "missing")])
def test_without_a_token_that_lasts_the_account_logs_in(world: World, left: timedelta | None, reason: str) -> None:
    if left is not None:
        world.store("old", left)
    stored, accounts = opened(world)

    token = stored.current()

    assert (token.access_token, stored.source, stored.login_reason) == ("token1", "login", reason)
    assert stored.is_fresh(token)
    assert len(accounts) == 1


@pytest.mark.parametrize(("min_ttl", "fresh", "reason"), [(2 * 86400, False, "short"), (0, True, "fresh")])
def test_a_token_that_does_not_suffice_is_replaced(world: World, min_ttl: float, fresh: bool, reason: str) -> None:
    world.store("old")
    stored, _ = opened(world)

    assert (stored.token(min_ttl=min_ttl, fresh=fresh).access_token, stored.login_reason) == ("token1", reason)


def test_a_rejected_token_is_renewed_once_by_the_same_account(world: World) -> None:
    rejected = world.store("old")
    stored, accounts = opened(world)

    renewed = stored.renew(rejected)

    assert renewed is not None
    assert (renewed.access_token, stored.newer(renewed), stored.is_fresh(renewed)) == ("token1", None, True)
    assert stored.advice().startswith("the token was fresh")
    assert len(accounts) == 1


def test_check_raises_without_a_token_and_a_password_and_sends_nothing(world: World) -> None:
    stored, _ = opened(world, given=None)

    with pytest.raises(LoginNeeded):
        stored.check()
    assert world.logins == []
