"""One account: when it logs in, with which password, what it stores; grant, clock and user are fakes."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from xapi_cli.auth.account import Account
from xapi_cli.auth.credentials import SuppliedToken
from xapi_cli.auth.password_sources import PasswordCommand, PasswordSources
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, StoreError, TimeoutExpired, TokenRejected
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.lock import locked
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
RIGHT = "right"


class _Command(PasswordCommand):
    """A password command that is a function."""

    function: Callable[[], str]

    def run(self) -> str:
        return self.function()


def command_that(function: Callable[[], str]) -> PasswordCommand:
    command = _Command(("pass",), {}, "default")
    command.function = function
    return command


@dataclass
class World:
    """A state directory, a token endpoint that accepts one password, and the messages to the user."""

    state: Path
    lifetime: timedelta | None = timedelta(days=30)
    logins: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    during: Callable[[], object] = lambda: None  # happens while the token endpoint responds

    def grant(self, password: str) -> Token:
        self.logins.append(password)
        self.during()
        if password != RIGHT:
            raise LoginRefused("refused (400)", hint="check")
        expires_at = NOW + self.lifetime if self.lifetime else None
        return Token(f"token{len(self.logins)}", "bearer", NOW, expires_at)

    def account(
        self,
        *,
        given: str | None = None,
        command: Callable[[], str] | None = None,
        typed: str | None = None,
        identity: Identity = ME,
        **options: Any,
    ) -> Account:
        """Return the account as a new command opens it."""

        def ask(why: str) -> str:
            self.questions.append(why)
            return str(typed)

        repository = TokenRepository(
            identity, "file", state=self.state, environ={}, warn=self.warnings.append, interactive=typed is not None
        )
        return Account(
            identity,
            repository,
            state=self.state,
            grant=self.grant,
            passwords=PasswordSources(
                given, command_that(command) if command else None, ask if typed is not None else None
            ),
            note=self.notes.append,
            warn=self.warnings.append,
            now=lambda: NOW,
            timeout=options.pop("timeout", 5),
            **options,
        )

    def store(self, access_token: str, left: timedelta | None = timedelta(days=1)) -> Token:
        token = Token(access_token, "bearer", NOW, NOW + left if left is not None else None)
        self.account().repository.write(Record(token))
        return token

    @property
    def stored(self) -> str | None:
        token = self.account().stored()
        return token.access_token if token else None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def test_a_stored_token_is_used_without_any_login(world: World) -> None:
    world.store("old")
    account = world.account(given=RIGHT)

    assert account.current().access_token == "old"
    assert (account.source, account.login_reason, world.logins, world.notes) == ("store", None, [], [])


def test_a_stored_token_of_unknown_expiry_satisfies_any_min_ttl(world: World) -> None:
    world.store("old", None)

    assert world.account(given=RIGHT).token(min_ttl=10**9).access_token == "old"


@pytest.mark.parametrize(
    "left, reason, note",
    [
        (None, "missing", "no stored token: logged in as me@example.com at https://api.test"),
        (timedelta(0), "expired", "the stored token has expired: logged in as me@example.com at https://api.test"),
    ],
)
def test_without_a_usable_token_it_logs_in_and_reports_the_reason(
    world: World, left: timedelta | None, reason: str, note: str
) -> None:
    if left is not None:
        world.store("old", left)
    account = world.account(given=RIGHT)

    assert account.current().access_token == account.current().access_token == "token1"
    assert (account.source, account.login_reason, world.logins, world.notes) == ("login", reason, [RIGHT], [note])
    assert world.stored == "token1"


def test_a_token_with_too_little_time_left_is_renewed_once(world: World) -> None:
    world.store("old", timedelta(minutes=59))
    world.lifetime = timedelta(minutes=30)
    account = world.account(given=RIGHT)

    assert account.token(min_ttl=3600).access_token == "token1"
    assert (account.login_reason, world.logins) == ("short", [RIGHT])


def test_a_token_with_just_enough_time_left_is_not_renewed(world: World) -> None:
    world.store("old", timedelta(hours=1))

    assert world.account(given=RIGHT).token(min_ttl=3600).access_token == "old"


def test_fresh_requests_a_new_token_even_if_the_old_one_is_valid(world: World) -> None:
    world.store("old")
    account = world.account(given=RIGHT)

    assert account.token(fresh=True).access_token == "token1"
    assert account.login_reason == "fresh"


def test_after_a_401_it_logs_in_once_per_command(world: World) -> None:
    old = world.store("old")
    account = world.account(given=RIGHT)

    newer = account.renew(old)
    assert newer is not None
    assert (newer.access_token, account.login_reason, account.current()) == ("token1", "rejected", newer)
    assert account.renew(newer) is None
    assert world.logins == [RIGHT]


def test_after_a_401_a_newer_token_in_the_store_is_used_instead_of_a_login(world: World) -> None:
    old = world.store("old")
    account = world.account(given=RIGHT)
    account.current()
    world.store("newer")

    newer = account.renew(old)

    assert newer is not None
    assert (newer.access_token, world.logins, account.source, account.login_reason) == ("newer", [], "store", None)


def test_a_401_for_a_fresh_token_is_final_and_stops_automatic_logins_for_a_minute(world: World) -> None:
    account = world.account(given=RIGHT)
    token = account.current()

    assert account.renew(token) is None
    account.record_rejection()

    other = world.account(given=RIGHT)
    with pytest.raises(TokenRejected, match="less than a minute ago"):
        other.renew(other.current())
    assert world.logins == [RIGHT]


def test_an_explicit_login_enables_automatic_logins_again(world: World) -> None:
    account = world.account(given=RIGHT)
    account.current()
    account.record_rejection()

    world.account().log_in(RIGHT, remember=None)

    again = world.account(given=RIGHT)
    assert again.renew(again.current()) is not None


def test_a_fresh_token_can_be_requested_within_that_minute(world: World) -> None:
    account = world.account(given=RIGHT)
    account.current()
    account.record_rejection()

    assert world.account(given=RIGHT).token(fresh=True).access_token == "token2"


def test_a_401_without_a_previous_login_does_not_stop_logins(world: World) -> None:
    world.store("old")
    account = world.account(given=RIGHT, automatic=False)
    account.current()
    account.record_rejection()

    assert world.account(given=RIGHT).renew(Token("old")) is not None


@pytest.mark.parametrize("left", [None, timedelta(0), timedelta(minutes=1)])
def test_with_automatic_login_disabled_it_never_logs_in(world: World, left: timedelta | None) -> None:
    if left is not None:
        world.store("old", left)

    with pytest.raises(LoginNeeded, match="--no-login was given; run `xapi login`"):
        world.account(given=RIGHT, automatic=False).token(min_ttl=3600)
    assert world.account(given=RIGHT, automatic=False).renew(Token("old")) is None
    assert world.logins == []


def test_the_password_comes_from_the_first_available_source(world: World) -> None:
    def of(**sources: Any) -> str:
        world.logins.clear()
        world.account(**sources).token(fresh=True)
        return f"{len(world.logins)} {world.questions}"

    def never() -> str:
        raise AssertionError("this source must not be used")

    assert of(given=RIGHT, command=never, typed="wrong") == "1 []"
    assert of(command=lambda: RIGHT, typed="wrong") == "1 []"
    assert of(typed=RIGHT) == "1 ['a fresh token was requested']"


def test_a_remembered_password_takes_precedence_over_a_prompt(world: World, tmp_path: Path) -> None:
    account = world.account(typed="wrong")
    account.repository._store = _Remembering()  # noqa: SLF001 - a keyring, without one
    account.repository.write(Record(Token("old", "bearer", NOW, NOW), RIGHT))

    assert account.current().access_token == "token1"
    assert account.repository.read(again=True) == Record(account.current(), RIGHT)  # it stays remembered
    assert world.questions == []


def test_without_any_source_the_error_has_a_remedy(world: World) -> None:
    with pytest.raises(LoginNeeded) as caught:
        world.account().current()

    assert str(caught.value) == (
        "no stored token for me@example.com at https://api.test, and no password source is available;"
        " run `xapi login`, or set XAPI_PASSWORD or the profile's password_command"
    )


def test_a_rejected_password_is_sent_once_and_another_one_immediately(world: World) -> None:
    for _ in range(3):
        with pytest.raises(LoginRefused):
            world.account(given="wrong").current()
    with pytest.raises(LoginRefused):
        world.account(command=lambda: "wrong").current()
    assert world.logins == ["wrong"]

    assert world.account(given=RIGHT).current().access_token == "token2"


def test_an_explicit_login_always_makes_an_attempt(world: World) -> None:
    for _ in range(2):
        with pytest.raises(LoginRefused):
            world.account().log_in("wrong", remember=None)

    assert world.logins == ["wrong", "wrong"]
    with pytest.raises(LoginRefused, match="not sent again"):
        world.account(given="wrong").current()


def test_a_rejected_login_leaves_the_stored_record_unchanged(world: World) -> None:
    world.store("old")

    with pytest.raises(LoginRefused):
        world.account().log_in("wrong", remember=None)

    assert world.stored == "old"


def test_processes_that_wait_for_a_login_share_its_token_and_its_failure(world: World) -> None:
    def outcomes(count: int) -> list[str]:
        outcomes: list[str] = []

        def run() -> None:
            try:
                outcomes.append(world.account(given=RIGHT).current().access_token)
            except NetworkError as error:
                outcomes.append(error.message)

        threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(outcomes)

    def fail() -> None:
        time.sleep(0.5)
        raise NetworkError("no response")

    world.during = fail
    failure = "no stored token, and the login failed: no response"
    assert outcomes(8) == [failure] + 7 * [f"{failure} (reported by another xapi process)"]
    world.during = lambda: time.sleep(0.5)
    assert outcomes(8) == 8 * ["token2"]
    assert len(world.logins) == 2


def test_a_password_command_that_fails_is_not_run_again_by_waiting_processes(world: World) -> None:
    runs: list[int] = []

    def fail() -> str:
        runs.append(1)
        time.sleep(0.5)
        raise LoginNeeded("it failed")

    def run() -> None:
        with pytest.raises(LoginNeeded, match="it failed"):
            world.account(command=fail).current()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == [1]


def test_the_wait_for_a_login_in_progress_is_bounded(world: World) -> None:
    deadline = time.monotonic() + 0.3
    lock = locked(world.state / "locks" / f"{ME.key}.login.lock", timeout=1)
    with lock, pytest.raises(TimeoutExpired, match="another xapi process has been logging in as me@"):
        world.account(given=RIGHT, deadline=deadline).current()
    assert time.monotonic() - deadline < 2


def test_a_login_to_another_account_causes_no_wait(world: World) -> None:
    with locked(world.state / "locks" / f"{ME.key}.login.lock", timeout=1):
        other = world.account(given=RIGHT, identity=Identity("https://api.test", "other"))
        assert other.current().access_token == "token1"


def test_a_logout_during_a_login_is_not_undone(world: World) -> None:
    world.store("old")
    world.during = lambda: world.account().log_out()
    account = world.account(given=RIGHT)

    assert account.token(fresh=True).access_token == "token1"
    assert world.stored is None
    assert world.warnings == ["the account was logged out in the meantime, so the new token is not stored"]
    with pytest.raises(StoreError, match="logged out during the login"):
        world.account().log_in(RIGHT, remember=None)


def test_a_login_that_waited_during_a_logout_sends_no_password(world: World) -> None:
    world.store("old")
    outcomes: list[object] = []
    accounts = [world.account(given=RIGHT) for _ in range(3)]
    begun = threading.Barrier(len(accounts) + 1, timeout=30)
    for account in accounts:
        account.repository.read()
        begin = account.repository.begin

        def begin_and_tell(begin: Callable[[], None] = begin) -> None:
            begin()
            begun.wait()

        account.repository.begin = begin_and_tell  # type: ignore[method-assign]  # to wait for it

    def log_in(account: Account) -> None:
        try:
            is_explicit = account is accounts[0]
            outcomes.append(account.log_in(RIGHT, remember=None) if is_explicit else account.renew(Token("old")))
        except (LoginNeeded, StoreError) as error:
            outcomes.append(error.message)

    threads = [threading.Thread(target=log_in, args=(account,)) for account in accounts]
    with locked(world.state / "locks" / f"{ME.key}.login.lock", timeout=1):
        for thread in threads:
            thread.start()
        begun.wait()
        world.account().log_out()
    for thread in threads:
        thread.join()

    assert sorted(map(str, outcomes)) == [
        *["me@example.com at https://api.test was logged out in the meantime"] * 2,
        "the account was logged out during the login, so nothing was sent",
    ]
    assert world.logins == []
    assert world.stored is None


def test_the_rejection_of_a_token_that_was_not_stored_is_not_recorded(world: World) -> None:
    world.store("old")
    world.during = lambda: world.account().log_out()
    account = world.account(given=RIGHT)
    account.token(fresh=True)
    account.record_rejection()
    world.during = lambda: None

    assert world.account(given=RIGHT).token().access_token == "token2"


def test_a_failed_login_of_another_process_is_not_mistaken_for_a_logout(world: World) -> None:
    begun = threading.Event()

    def wait_for_the_other() -> None:
        begun.set()
        time.sleep(0.3)

    def fail() -> None:
        with pytest.raises(LoginRefused):
            world.account(given="wrong").current()

    world.during = wait_for_the_other
    failing = threading.Thread(target=fail)
    failing.start()
    begun.wait(5)
    world.account().log_in(RIGHT, remember=None)
    failing.join()

    assert (world.stored, world.logins) == ("token2", ["wrong", RIGHT])


def test_a_token_that_cannot_be_stored_is_still_used(world: World) -> None:
    def break_the_store() -> None:
        (world.state / "tokens").write_text("a file where the directory should be")

    world.during = break_the_store

    assert world.account(given=RIGHT).current().access_token == "token1"
    (warning,) = world.warnings
    assert warning.startswith("the new token could not be stored: ")


def test_an_explicit_login_fails_if_its_token_cannot_be_stored(world: World) -> None:
    world.during = lambda: (world.state / "tokens").write_text("a file where the directory should be")

    with pytest.raises(StoreError):
        world.account().log_in(RIGHT, remember=None)


def test_a_supplied_token_is_sent_and_never_renewed() -> None:
    token = SuppliedToken("abc")

    assert (token.current().access_token, token.renew(token.current()), token.login_reason) == ("abc", None, None)
    assert "XAPI_TOKEN" in token.advice()


class _Remembering:
    """A store in memory that keeps passwords."""

    name: Any = "keyring"
    remembers = True
    record: Record | None = None

    def probe(self) -> None: ...

    def read(self, identity: Identity) -> Record | None:
        return self.record

    def write(self, identity: Identity, record: Record) -> None:
        self.record = record

    def delete(self, identity: Identity) -> bool:
        return False
