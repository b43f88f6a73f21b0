"""One token for many requests: an invalid token causes a single login."""

import threading

import pytest

from xapi_cli.auth.credentials import Reason, SuppliedToken
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.errors import LoginRefused, ServerStatusError, XapiError
from xapi_cli.tokens import Token


class Issuer:
    """Credentials that issue token-1, token-2 and so on, or raise *error*."""

    login_reason: Reason | None = None

    def __init__(self, error: XapiError | None = None) -> None:
        self.error = error
        self.logins = 0
        self.refusals = 0
        self.successes = 0
        self.granted: Token | None = None
        self.stored: Token | None = None  # by another process

    def check(self) -> None:
        """Do nothing: a login is always possible."""

    def current(self) -> Token:
        return self._log_in()

    def renew(self, rejected: Token) -> Token | None:
        return self._log_in()

    def newer(self, than: Token) -> Token | None:
        return self.stored

    def is_fresh(self, token: Token) -> bool:
        return token is self.granted

    def record_rejection(self, token: Token) -> None:
        self.refusals += 1

    def record_success(self) -> None:
        self.successes += 1

    def advice(self) -> str:
        return "check"

    def _log_in(self) -> Token:
        self.logins += 1
        if self.error is not None:
            raise self.error
        self.granted = Token(f"token-{self.logins}")
        return self.granted


def test_concurrent_renewals_of_the_same_token_make_one_login() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    rejected = shared.current()
    shared.accepted(rejected, 200)
    start, tokens = threading.Barrier(8), []

    def renew() -> None:
        start.wait(30)
        tokens.append(shared.renew(rejected))

    threads = [threading.Thread(target=renew) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [each.access_token for each in tokens if each] == ["token-2"] * 8
    assert issuer.logins == 2


def test_a_fresh_token_is_not_replaced_before_a_request_has_succeeded_with_it() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()

    assert shared.is_unproven(token)
    assert shared.renew(token) is None
    shared.record_rejection()
    shared.record_rejection()
    assert (issuer.logins, issuer.refusals) == (1, 1)


def test_a_fresh_token_is_replaced_by_the_token_that_another_process_has_stored() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()
    issuer.stored = Token("theirs")

    assert shared.renew(token) == shared.cached == issuer.stored
    assert (issuer.logins, issuer.refusals) == (1, 0)


def test_an_accepted_token_can_be_replaced_any_number_of_times() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()
    for number in range(2, 6):
        shared.accepted(token, 200)
        assert not shared.is_unproven(token)
        newer = shared.renew(token)
        assert newer == Token(f"token-{number}")
        token = newer
    shared.record_rejection()
    assert issuer.refusals == 1  # the last one: nothing has succeeded with it


def test_for_a_single_call_a_token_is_renewed_once() -> None:
    issuer = Issuer()
    tokens = TokenSource(issuer, once=True)
    stored = tokens.current()
    issuer.granted = None  # it came from the store

    newer = tokens.renew(stored)
    assert newer == Token("token-2")
    tokens.accepted(newer, 200)
    assert tokens.renew(newer) is None
    assert issuer.logins == 2


def test_for_a_single_call_a_fresh_token_is_not_replaced() -> None:
    issuer = Issuer()
    tokens = TokenSource(issuer, once=True)
    issuer.stored = Token("theirs")

    assert tokens.renew(tokens.current()) is None


def test_the_success_of_an_old_token_does_not_count_for_the_new_one() -> None:
    shared = TokenSource(Issuer())
    old = shared.current()
    shared.accepted(old, 200)
    new = shared.renew(old)
    assert new is not None
    shared.accepted(old, 200)

    assert shared.is_unproven(new)


def test_a_rejected_login_is_not_repeated() -> None:
    issuer = Issuer(LoginRefused("no"))
    shared = TokenSource(issuer)
    for _ in range(3):
        with pytest.raises(LoginRefused, match="no"):
            shared.current()
    assert issuer.logins == 1
    assert isinstance(shared.failure, LoginRefused)


def test_another_login_failure_is_shared_for_two_seconds_only() -> None:
    issuer, now = Issuer(ServerStatusError("503")), [0.0]
    shared = TokenSource(issuer, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(ServerStatusError):
            shared.current()
    assert issuer.logins == 1
    issuer.error = None
    now[0] = 2.0

    assert shared.failure is None
    assert shared.current() == Token("token-2")


def test_a_source_that_serves_tries_again_at_once_after_a_rejected_password() -> None:
    issuer = Issuer(LoginRefused("rejected"))
    shared = TokenSource(issuer, serves=True)

    for _ in range(2):
        with pytest.raises(LoginRefused):
            shared.current()
    issuer.error = None

    assert shared.failure is None
    assert shared.current().access_token == "token-3"


def test_a_supplied_token_is_never_replaced() -> None:
    shared = TokenSource(SuppliedToken("theirs"))

    assert shared.renew(shared.current()) is None
