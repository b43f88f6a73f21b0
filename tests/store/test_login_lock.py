"""The login lock: waiting processes stop waiting as soon as another one has stored a token."""

import os
import threading
from pathlib import Path

import pytest

from tests.support.threads import wait_until, waiting_for_lock
from xapi_cli.store.login_lock import AnotherLoggedIn, LoginLock
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import LockTimeout


@pytest.fixture
def lock(tmp_path: Path) -> LoginLock:
    return LoginLock(StateDirectory(tmp_path / "locks").file("login.lock"))


def _waiting(lock: LoginLock, *, stop_on_login: bool) -> "tuple[threading.Thread, list[str]]":
    """Start a thread that waits for the lock; return it, and the list to which it adds the outcome."""
    outcomes: list[str] = []

    def wait() -> None:
        try:
            with lock.acquired(30, stop_on_login=stop_on_login):
                outcomes.append("acquired")
        except AnotherLoggedIn:
            outcomes.append("stopped")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, outcomes


def test_all_waiting_processes_stop_waiting_when_one_has_stored_a_token(lock: LoginLock) -> None:
    with lock.acquired(1):
        waiting = [_waiting(lock, stop_on_login=True) for _ in range(5)]
        while any(thread.is_alive() for thread, _ in waiting):  # some may have come only after the first notification
            lock.notify_login()
            for thread, _ in waiting:
                thread.join(0.05)
    assert [outcomes for _, outcomes in waiting] == [["stopped"]] * 5


def test_without_stop_on_login_a_process_waits_for_the_lock(lock: LoginLock) -> None:
    with lock.acquired(1):
        thread, outcomes = _waiting(lock, stop_on_login=False)
        wait_until(lambda: os.getpid() in waiting_for_lock(lock.file.path), "it waits for the lock")
        for _ in range(5):
            lock.notify_login()
            thread.join(0.05)
        assert outcomes == []
    thread.join(20)
    assert outcomes == ["acquired"]


def test_a_failed_login_does_not_notify_waiting_processes(lock: LoginLock) -> None:
    with lock.acquired(1):
        thread, outcomes = _waiting(lock, stop_on_login=True)
        wait_until(lambda: os.getpid() in waiting_for_lock(lock.file.path), "it waits for the lock")
    thread.join(20)
    assert outcomes == ["acquired"]


def test_a_lock_that_is_not_released_is_a_timeout(lock: LoginLock) -> None:
    with lock.acquired(1), pytest.raises(LockTimeout), lock.acquired(0.2):
        pass


def test_a_notification_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    LoginLock(StateDirectory(tmp_path / "nowhere").file("login.lock")).notify_login()
