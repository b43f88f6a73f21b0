"""Logins of an account: sources of the password, failures, waiting processes, logouts and a store that fails."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.auth.world import ME, NOW, RIGHT, World
from tests.support.threads import wait_until, waiting_for_lock
from xapi_cli.auth.account import Account
from xapi_cli.auth.passwords import TYPED
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, StoreError, TimeoutExpired
from xapi_cli.store.deletion import delete_everywhere
from xapi_cli.store.login_session import open_session
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import locked
from xapi_cli.tokens import Identity, Record, Token


def test_the_password_comes_from_the_first_available_source(world: World) -> None:
    def of(**sources: Any) -> str:
        world.logins.clear()
        world.account(**sources).token(fresh=True)
        return f"{len(world.logins)} {world.questions}"

    def never() -> str:
        raise AssertionError("this source must not be used")

    assert of(given=RIGHT, command=never, typed="wrong") == "1 []"
    assert of(command=lambda: RIGHT, typed="wrong") == "1 []"
    assert of(typed=RIGHT) == "1 ['a new token was requested']"


def test_a_remembered_password_takes_precedence_over_a_prompt(world: World, tmp_path: Path) -> None:
    account = world.account(typed="wrong")
    account.repository._store = _Remembering()  # noqa: SLF001 - a keyring, without one
    assert open_session(account.repository).write(Record(Token("old", "bearer", NOW, NOW), RIGHT))

    assert account.token().access_token == "token1"
    assert account.repository.read(again=True) == Record(account.token(), RIGHT)  # it stays remembered
    assert open_session(account.repository).write(Record(Token("old", "bearer", NOW, NOW), "wrong"))
    with pytest.raises(LoginRefused) as caught:
        account.token()
    assert (caught.value.hint, world.questions) == ("check the remembered password", [])


def test_a_rejected_password_is_sent_once_and_another_one_immediately(world: World) -> None:
    for _ in range(3):
        with pytest.raises(LoginRefused):
            world.account(given="wrong").token()
    with pytest.raises(LoginRefused):
        world.account(command=lambda: "wrong").token()
    assert world.logins == ["wrong"]

    assert world.account(given=RIGHT).token().access_token == "token2"


def log_out(world: World) -> None:
    delete_everywhere(world.account().repository)


def together(world: World, count: int, function: Callable[[], object]) -> None:
    """Run *function* in threads; none gets the login lock before all wait for it."""
    file = world.state / "locks" / f"{ME.key}.login.lock"
    threads = [threading.Thread(target=function) for _ in range(count)]
    with locked(StateDirectory(file.parent).file(file.name), timeout=1):
        for thread in threads:
            thread.start()
        wait_until(lambda: waiting_for_lock(file) == count, "all wait")
    for thread in threads:
        thread.join()


def test_processes_that_wait_for_a_login_share_its_token_and_its_failure(world: World) -> None:
    def outcomes(count: int) -> list[str]:
        outcomes: list[str] = []

        def run() -> None:
            try:
                outcomes.append(world.account(given=RIGHT).token().access_token)
            except NetworkError as error:
                outcomes.append(error.message)

        together(world, count, run)
        return sorted(outcomes)

    def fail() -> None:
        raise NetworkError("no response")

    world.during = fail
    failure = "no stored token, and the login failed: no response"
    assert outcomes(8) == [failure] + 7 * [f"{failure} (reported by another xapi process)"]
    world.during = lambda: None
    assert outcomes(8) == 8 * ["token2"]
    assert len(world.logins) == 2


def test_a_password_command_that_fails_is_not_run_again_by_waiting_processes(world: World) -> None:
    runs: list[int] = []

    def fail() -> str:
        runs.append(1)
        raise LoginNeeded("it failed")

    def run() -> None:
        with pytest.raises(LoginNeeded, match="it failed"):
            world.account(command=fail).token()

    together(world, 4, run)
    assert runs == [1]


@pytest.mark.parametrize("is_explicit", [False, True])
def test_the_wait_for_a_login_in_progress_is_bounded(world: World, is_explicit: bool) -> None:
    deadline = time.monotonic() + 0.3
    lock = locked(StateDirectory(world.state / "locks").file(f"{ME.key}.login.lock"), timeout=1)
    account = world.account(given=RIGHT, deadline=deadline)
    with lock, pytest.raises(TimeoutExpired, match="another xapi process has been logging in as me@"):
        account.log_in(RIGHT, remember=None, origin=TYPED) if is_explicit else account.token()
    assert world.logins == []
    assert time.monotonic() - deadline < 20  # not the timeout of a login


def test_a_logout_during_a_login_is_not_undone(world: World) -> None:
    world.store("old")
    world.during = lambda: log_out(world)
    account = world.account(given=RIGHT)

    assert account.token(fresh=True).access_token == "token1"
    assert world.stored is None
    assert account.repository.index.accounts() == []
    assert world.warnings == ["the account was logged out in the meantime, so the new token is not stored"]
    with pytest.raises(StoreError, match="logged out during the login"):
        world.account().log_in(RIGHT, remember=None, origin=TYPED)


def test_a_login_that_waited_during_a_logout_sends_no_password(world: World) -> None:
    world.store("old")
    outcomes: list[object] = []
    accounts = [world.account(given=RIGHT) for _ in range(3)]
    begun = threading.Barrier(len(accounts) + 1, timeout=30)
    for account in accounts:
        account.repository.read()
        session = account._session  # noqa: SLF001 - to wait for its beginning
        begin = session.begin

        def begin_and_tell(begin: Callable[[], None] = begin) -> None:
            begin()
            begun.wait()

        session.begin = begin_and_tell  # type: ignore[method-assign]  # the same

    def log_in(account: Account) -> None:
        try:
            is_explicit = account is accounts[0]
            outcomes.append(
                account.log_in(RIGHT, remember=None, origin=TYPED) if is_explicit else account.renew(Token("old"))
            )
        except (LoginNeeded, StoreError) as error:
            outcomes.append(error.message)

    threads = [threading.Thread(target=log_in, args=(account,)) for account in accounts]
    with locked(StateDirectory(world.state / "locks").file(f"{ME.key}.login.lock"), timeout=1):
        for thread in threads:
            thread.start()
        begun.wait()
        log_out(world)
    for thread in threads:
        thread.join()

    assert sorted(map(str, outcomes)) == [
        *["me@example.com at https://api.test was logged out in the meantime"] * 2,
        "the account was logged out during the login, so nothing was sent",
    ]
    assert world.logins == []
    assert world.stored is None


def test_a_token_that_cannot_be_stored_is_still_used(world: World) -> None:
    def break_the_store() -> None:
        (world.state / "tokens").write_text("a file where the directory should be")

    world.during = break_the_store

    assert world.account(given=RIGHT).token().access_token == "token1"
    (warning,) = world.warnings
    assert warning.startswith("the new token could not be stored: ")


def test_an_explicit_login_fails_if_its_token_cannot_be_stored(world: World) -> None:
    world.during = lambda: (world.state / "tokens").write_text("a file where the directory should be")

    with pytest.raises(StoreError):
        world.account().log_in(RIGHT, remember=None, origin=TYPED)


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
