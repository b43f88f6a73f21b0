"""One token for many requests: an invalid token causes a single login, and a 401 that is about rights causes none."""

import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from xapi_cli.auth.token_source import SuppliedToken, TokenSource, read_token_file
from xapi_cli.errors import LoginRefused, NetworkError, ServerStatusError, UsageError, XapiError
from xapi_cli.tokens import Token


class Issuer:
    """An account whose stored token is `stored`, and whose logins return token-1, token-2 and so on, or fail."""

    login_reason = None
    automatic = True

    def __init__(self, *, error: XapiError | None = None, stored: bool = True) -> None:
        self.error, self._is_stored = error, stored
        self.logins = 0
        self.rejections: list[str] = []
        self.successes = 0
        self.has_expired_token = False
        self.granted: Token | None = None
        self.of_others: Token | None = None  # what another process has stored

    def check(self) -> None:
        """Do nothing: a login is always possible."""

    def current(self) -> Token:
        return Token("stored") if self._is_stored else self._log_in()

    def renew(self, rejected: Token) -> Token | None:
        return self.of_others or self._log_in()

    def newer(self, than: Token) -> Token | None:
        return self.of_others

    def has_expired(self, token: Token) -> bool:
        return self.has_expired_token

    def is_fresh(self, token: Token) -> bool:
        return token is self.granted

    def record_rejection(self, token: Token) -> None:
        self.rejections.append(token.access_token)

    def record_success(self) -> None:
        self.successes += 1

    def _log_in(self) -> Token:
        self.logins += 1
        if self.error is not None:
            raise self.error
        self.granted = Token(f"token-{self.logins}")
        return self.granted


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def source(issuer: Any, **options: Any) -> TokenSource:
    return TokenSource(issuer, **options)


class Repeated:
    """Repeats a GET: the API responds with *status*, or not at all if that is None."""

    def __init__(self, status: int | None) -> None:
        self._status, self.tokens = status, list[str]()

    def __call__(self, token: Token) -> int:
        self.tokens.append(token.access_token)
        if self._status is None:
            raise NetworkError("no response")
        return self._status


class Case(NamedTuple):
    """A 401 for a request that was sent at 100 and rejected at 120, after one that succeeded and was sent at *success*.

    *repeated* is the status of a repetition of that request, if it was a GET. The process has logged in *since* seconds
    before the 401 arrived.
    """

    expected: str
    success: float | None = None
    repeated: int | None = 0
    is_get: bool = True
    since: float | None = None
    is_expired: bool = False


CASES = {
    "nothing is known of the stored token": Case("login"),
    "the first login needs no proof": Case("login", success=90, repeated=200),
    "a later request succeeded, and again": Case("final, repeated", success=101, repeated=200),
    "a later request succeeded, and no longer does": Case("login, repeated", success=101, repeated=401),
    "a later request succeeded, its repetition fails": Case("login, repeated", success=101, repeated=503),
    "a much later one succeeded, its repetition fails": Case("final, repeated", success=110, repeated=None),
    "a later POST, which may have overtaken it": Case("login", success=100.5, is_get=False),
    "a much later POST": Case("final", success=110, is_get=False),
    "a request that was sent after the 401 arrived": Case("final", success=121, repeated=401),
    "the token has expired": Case("login", success=121, repeated=200, is_expired=True),
    "a second login, and the last GET succeeds": Case("final, repeated", success=90, repeated=200, since=300),
    "a second login, and the last GET is rejected": Case("login, repeated", success=90, repeated=401, since=5),
    "a second login without a GET within a minute": Case("final", success=90, is_get=False, since=59),
    "a second login without a GET after a minute": Case("login", success=90, is_get=False, since=61),
    "a second login, and the last GET gets no response": Case("final, repeated", success=90, repeated=None, since=59),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_401_that_is_about_rights_is_final_and_any_other_one_causes_a_login(case: Case) -> None:
    issuer, clock, repeated = Issuer(), Clock(), Repeated(case.repeated)
    tokens = source(issuer, clock=clock)
    token = tokens.current()
    if case.since is not None:
        clock.now = 120 - case.since
        token = tokens.renew(token, clock.now - 1) or token
    if case.success is not None:
        tokens.accepted(token, 200, case.success, repeated if case.is_get else None)
    clock.now = 120.0
    issuer.has_expired_token, logins = case.is_expired, issuer.logins

    newer = tokens.renew(token, 100.0)

    result = "final" if newer is None else "login" if issuer.logins == logins + 1 else "neither"
    assert f"{result}{', repeated' if repeated.tokens else ''}" == case.expected
    tokens.record_rejection()
    if newer is None:
        assert issuer.rejections == []
        assert "rights" in tokens.advice()


@pytest.mark.parametrize(("status", "rejections"), [(200, []), (401, ["token-1"]), (None, ["token-1"])])
def test_a_new_token_that_is_rejected_is_not_replaced(status: int | None, rejections: list[str]) -> None:
    """It is about rights if a GET that succeeded with the previous token does so with the new one."""
    issuer, repeated = Issuer(), Repeated(status)
    tokens = source(issuer)
    stored = tokens.current()
    tokens.accepted(stored, 200, 0.0, repeated)
    new = tokens.renew(stored, 1.0)
    assert new == Token("token-1")

    assert tokens.renew(new, 2.0) is None
    tokens.record_rejection()
    tokens.record_rejection()

    assert (issuer.logins, repeated.tokens, issuer.rejections) == (1, ["token-1"], rejections)
    tokens.accepted(new, 200, 3.0)
    assert issuer.successes == 2


def test_what_another_process_has_stored_replaces_a_new_token() -> None:
    issuer = Issuer(stored=False)
    tokens = source(issuer)
    token = tokens.current()
    assert tokens.renew(token, 0.0) is None
    issuer.of_others = Token("theirs")

    assert tokens.renew(token, 0.0) == tokens.current() == issuer.of_others
    assert (issuer.logins, issuer.rejections) == (1, [])
    tokens.accepted(tokens.current(), 200, 1.0, Repeated(200))
    issuer.of_others = None
    assert tokens.renew(tokens.current(), 2.0) is None  # this process has logged in before, so it repeats the GET


def test_what_another_process_has_stored_is_not_a_login_of_this_one_so_the_next_one_needs_no_wait() -> None:
    issuer = Issuer()
    tokens = source(issuer)
    issuer.of_others = Token("theirs")
    assert tokens.renew(tokens.current(), 0.0) == issuer.of_others
    issuer.of_others = None

    assert tokens.renew(tokens.current(), 1.0) == Token("token-1")


def test_a_response_to_an_old_token_and_a_server_error_prove_nothing_about_the_new_one() -> None:
    issuer = Issuer()
    tokens = source(issuer)
    old = tokens.current()
    new = tokens.renew(old, 0.0)
    assert new is not None
    tokens.accepted(old, 200, 5.0)
    tokens.accepted(new, 503, 5.0)

    assert tokens.renew(new, 1.0) is None
    tokens.record_rejection()
    assert issuer.rejections == ["token-1"]


def test_concurrent_renewals_make_one_login_and_share_its_failure() -> None:
    issuer = Issuer()
    tokens = source(issuer)
    stored = tokens.current()

    def renew_in_threads(rejected: Token) -> list[str]:
        start, results = threading.Barrier(8), list[str]()

        def renew() -> None:
            start.wait(30)
            try:
                results.append(str(tokens.renew(rejected, 0.0)))
            except XapiError as error:
                results.append(error.message)

        threads = [threading.Thread(target=renew) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        return results

    assert renew_in_threads(stored) == [str(Token("token-1"))] * 8
    assert issuer.logins == 1
    tokens.accepted(tokens.current(), 200, 1.0, Repeated(401))
    issuer.error = ServerStatusError("503")
    assert renew_in_threads(tokens.current()) == ["503"] * 8
    assert issuer.logins == 2


@pytest.mark.parametrize(
    ("error", "serves", "logins"),
    [
        # the logins of three calls at the same time, and of a fourth one after two seconds
        (LoginRefused("no"), False, (1, 1)),
        (LoginRefused("no"), True, (3, 4)),
        (ServerStatusError("503"), False, (1, 2)),
        (ServerStatusError("503"), True, (1, 2)),
    ],
)
def test_a_failed_login_is_repeated_only_if_it_may_succeed(
    error: XapiError, serves: bool, logins: tuple[int, int]
) -> None:
    issuer, clock = Issuer(error=error, stored=False), Clock()
    tokens = source(issuer, serves=serves, clock=clock)
    for _ in range(3):
        with pytest.raises(type(error), match=error.message):
            tokens.current()
    at_once = issuer.logins
    clock.now += 2
    with pytest.raises(type(error)):
        tokens.current()

    assert (at_once, issuer.logins) == logins


def test_what_may_log_in_is_performed_by_the_caller() -> None:
    performed: list[object] = []

    def perform(action: Any) -> Any:
        performed.append(action())
        return performed[-1]

    tokens = source(Issuer(), perform=perform)
    tokens.renew(tokens.current(), 0.0)

    assert performed == [Token("stored"), Token("token-1")]


def test_a_supplied_token_is_replaced_only_by_what_its_file_contains_now() -> None:
    texts = ["one"]

    def read() -> str:
        if not texts[0]:
            raise UsageError("the file is empty")
        return texts[0]

    redacted: list[str] = []
    tokens = TokenSource(SuppliedToken("XAPI_TOKEN_FILE", read), redact=redacted.append)
    one = tokens.current()
    assert tokens.renew(one, 0.0) is None
    texts[0] = ""
    assert tokens.renew(one, 0.0) is None
    texts[0] = "two"
    two = tokens.renew(one, 0.0)

    assert (two, tokens.current(), redacted) == (Token("two"), Token("two"), ["one", "two"])
    assert str(tokens.advice()).startswith(
        "XAPI_TOKEN_FILE was rejected: replace the token, or unset XAPI_TOKEN_FILE so that"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"a b", "contains more than a token: there is whitespace in the middle"),
        (b"\xff", "contains characters that are not allowed in a token"),
        (b"x" * (64 * 1024 + 1), "is larger than 64 KiB"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(UsageError) as caught:
        read_token_file(str(file))

    assert caught.value.message == f"XAPI_TOKEN_FILE: {file} {problem}"
    file.write_bytes(b"\n good \r\n")
    assert read_token_file(str(file)) == "good"
