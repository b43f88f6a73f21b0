"""One token for many requests: one login a death, however many notice it."""

import threading

import pytest

from xapi_cli.auth.account import Reason, SuppliedToken
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.errors import LoginRefused, ServerStatusError, XapiError
from xapi_cli.tokens import Token


class Issuer:
    """Credentials that give token-1, token-2 and so on, or fail with *error*."""

    login_reason: Reason | None = None

    def __init__(self, error: XapiError | None = None) -> None:
        self.error = error
        self.logins = 0
        self.refusals = 0
        self.granted: Token | None = None
        self.stored: Token | None = None  # by another process

    def check(self) -> None:
        """Have a token, or a way to get one."""

    def current(self) -> Token:
        return self._log_in()

    def renew(self, rejected: Token) -> Token | None:
        return self._log_in()

    def replace(self, rejected: Token) -> Token | None:
        return self._log_in()

    def newer(self, than: Token) -> Token | None:
        return self.stored

    def is_fresh(self, token: Token) -> bool:
        return token is self.granted

    def refused(self) -> None:
        self.refusals += 1

    def advice(self) -> str:
        return "check"

    def _log_in(self) -> Token:
        self.logins += 1
        if self.error is not None:
            raise self.error
        self.granted = Token(f"token-{self.logins}")
        return self.granted


def test_threads_that_meet_the_same_dead_token_make_one_login() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    dead = shared.current()
    shared.worked(dead)
    start, got = threading.Barrier(8), []

    def notice() -> None:
        start.wait(10)
        got.append(shared.renew(dead))

    threads = [threading.Thread(target=notice) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [each.access_token for each in got if each] == ["token-2"] * 8
    assert issuer.logins == 2


def test_a_fresh_token_of_which_no_request_succeeded_is_not_replaced() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()

    assert shared.is_doubtful(token)
    assert shared.renew(token) is None
    shared.refused()
    shared.refused()
    assert (issuer.logins, issuer.refusals) == (1, 1)


def test_a_fresh_token_that_others_have_used_up_is_replaced_by_theirs() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()
    issuer.stored = Token("theirs")

    assert shared.renew(token) == shared.known == issuer.stored
    assert (issuer.logins, issuer.refusals) == (1, 0)


def test_one_that_has_worked_may_be_replaced_again_and_again() -> None:
    issuer = Issuer()
    shared = TokenSource(issuer)
    token = shared.current()
    for number in range(2, 6):
        shared.worked(token)
        assert not shared.is_doubtful(token)
        newer = shared.renew(token)
        assert newer == Token(f"token-{number}")
        token = newer
    shared.refused()
    assert issuer.refusals == 1  # the last one: nothing has succeeded with it


def test_word_of_an_old_token_says_nothing_about_the_new_one() -> None:
    shared = TokenSource(Issuer())
    old = shared.current()
    shared.worked(old)
    new = shared.renew(old)
    assert new is not None
    shared.worked(old)

    assert shared.is_doubtful(new)


def test_a_login_that_was_refused_is_not_repeated() -> None:
    issuer = Issuer(LoginRefused("no"))
    shared = TokenSource(issuer)
    for _ in range(3):
        with pytest.raises(LoginRefused, match="no"):
            shared.current()
    assert issuer.logins == 1
    assert isinstance(shared.failure, LoginRefused)


def test_a_login_that_failed_for_another_reason_is_everybodys_for_a_moment_only() -> None:
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


def test_a_ready_made_token_is_never_replaced() -> None:
    shared = TokenSource(SuppliedToken("theirs"))

    assert shared.renew(shared.current()) is None
