"""Logins and logouts of one account in concurrent processes, with the lock in the state directory or in Redis."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.features.redis.fleet import wait_until_waiting
from tests.support.threads import wait_until, waiting_for_lock
from xapi_cli.hints import text
from xapi_cli.store.deletion import delete_everywhere
from xapi_cli.store.login_session import LoginSession, open_session
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import LockTimeout
from xapi_cli.tokens import Identity, Record, Token

ME, OTHER = Identity("https://api.test", "me@example.com"), Identity("https://api.test", "other")
FIRST, SECOND = Record(Token("first")), Record(Token("second"))
Begin = Callable[..., LoginSession]


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def repository(request: pytest.FixtureRequest, storage: str, tmp_path: Path) -> Callable[[], TokenRepository]:
    """Return what opens the repository of the account, as each process does."""
    settings: dict[str, Any] = {}
    if storage == "redis":
        settings = {"redis_url": request.getfixturevalue("shared_redis").url, "redis_prefix": "test"}
    options = StoreOptions(
        StateDirectory(tmp_path / "state"), {}, lambda hint: pytest.fail(text(hint)), settings=settings
    )
    return lambda: TokenRepository(ME, storage, options)


@pytest.fixture
def begin(repository: Callable[[], TokenRepository]) -> Begin:
    """Return what begins a login, as each process does."""

    def one() -> LoginSession:
        session = open_session(repository())
        session.begin()
        return session

    return one


def log_in(session: LoginSession, record: Record) -> bool:
    with session.locked(60):
        return session.write(record)


def test_one_login_at_a_time_has_the_lock_and_the_next_one_may_read_its_token(
    begin: Begin, repository: Callable[[], TokenRepository]
) -> None:
    first, second = begin(), begin()
    with first.locked(60):
        with pytest.raises(LockTimeout), second.locked(0):
            pass
        assert first.write(FIRST)
    with second.locked(60):
        assert repository().read() == FIRST


def test_waiting_logins_go_on_as_soon_as_another_one_has_stored_a_token(
    request: pytest.FixtureRequest, tmp_path: Path, storage: str, begin: Begin
) -> None:
    log_in(begin(), FIRST)
    ended: list[str] = []

    def wait() -> None:
        with begin().locked(60, stop_on_login=True) as is_held:
            ended.append("locked" if is_held else "stopped")

    with (holder := begin()).locked(60):
        assert not holder.was_logged_out()  # in Redis, its last command is then not the one that gets the lock
        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        if storage == "redis":
            wait_until_waiting(request.getfixturevalue("shared_redis"), 3)
        else:
            wait_until(lambda: waiting_for_lock(tmp_path / "state" / "locks" / f"{ME.key}.login.lock") == 3)
        assert ended == []
        assert holder.write(SECOND)
        for thread in waiting:
            thread.join(30)
    assert ended == ["stopped"] * 3


@pytest.mark.parametrize("when", ["before the lock", "while it has the lock"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_login_that_began_before_a_logout_stores_nothing(
    begin: Begin, repository: Callable[[], TokenRepository], when: str, *, is_known: bool
) -> None:
    if is_known:
        log_in(begin(), FIRST)
    session, other = begin(), begin()
    if when == "before the lock":
        assert delete_everywhere(repository()) is is_known
    with session.locked(60):
        if when != "before the lock":
            assert delete_everywhere(repository()) is is_known
        assert session.was_logged_out()
        assert session.write(SECOND) is False
    assert repository().read() is None
    other.begin()
    assert log_in(other, FIRST)
    assert repository().read() == FIRST


def test_the_logout_of_another_account_is_not_mistaken_for_one(
    begin: Begin, repository: Callable[[], TokenRepository]
) -> None:
    session = begin()
    delete_everywhere(repository().of(OTHER))
    log_in(begin(), FIRST)

    assert (session.was_logged_out(), log_in(session, SECOND)) == (False, True)


def test_failures_are_shared_and_removed(begin: Begin) -> None:
    first, second = begin(), begin()
    assert abs(first.now() - second.now()) < 60
    first.record_failure("refused", b"{}")
    first.record_failure("failed", b"[]")
    assert second.failure("refused") == b"{}"

    second.forget_failures(["refused", "command"])

    assert (first.failure("refused"), first.failure("failed")) == (None, b"[]")


# the state directory


def test_a_password_is_added_to_the_record_of_a_newer_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PYTHON_KEYRING_BACKEND": "tests.support.keyrings.fake_keyrings.Plain"}
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "items"))
    options = StoreOptions(StateDirectory(tmp_path / "state"), environ, lambda hint: pytest.fail(text(hint)))
    first, second = (open_session(TokenRepository(ME, "keyring", options)) for _ in range(2))
    for session in (first, second):
        session.begin()
    log_in(first, FIRST)
    log_in(second, SECOND)

    with first.locked(60):
        assert first.remember("secret")
    assert TokenRepository(ME, "keyring", options).read() == SECOND._replace(password="secret")
    delete_everywhere(TokenRepository(ME, "keyring", options))
    with first.locked(60):
        assert not first.remember("secret")


def test_files_of_failures_are_removed_after_a_minute(tmp_path: Path) -> None:
    repository = TokenRepository(ME, "file", StoreOptions(StateDirectory(tmp_path), {}, lambda hint: None))
    open_session(repository).record_failure("refused", b"{}")
    file = tmp_path / "attempts" / f"{ME.key}.refused"

    for age, is_kept in ((50, True), (70, False)):
        os.utime(file, (time.time() - age,) * 2)
        open_session(repository)
        assert file.exists() is is_kept
