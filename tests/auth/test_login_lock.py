"""Taking turns at logging in: who waits hears at once that another has a new token."""

import threading
from pathlib import Path

import pytest

from xapi_cli.auth.login_lock import AnotherLoggedIn, LoginLock
from xapi_cli.system.lock import LockTimeout


@pytest.fixture
def turns(tmp_path: Path) -> LoginLock:
    return LoginLock(tmp_path / "locks" / "login.lock")


def _waiting(turns: LoginLock, *, to_the_end: bool) -> "tuple[threading.Thread, list[str]]":
    """Start a thread that waits for its turn, and return it with the list that will hold how it ended."""
    said: list[str] = []

    def wait() -> None:
        try:
            with turns.taken(30, to_the_end=to_the_end):
                said.append("turn")
        except AnotherLoggedIn:
            said.append("left")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, said


def test_all_who_wait_leave_the_line_when_one_has_stored_a_token(turns: LoginLock) -> None:
    with turns.taken(1):
        line = [_waiting(turns, to_the_end=False) for _ in range(5)]
        while any(thread.is_alive() for thread, _ in line):  # some may have come only after the first news
            turns.tell()
            for thread, _ in line:
                thread.join(0.05)
    assert [said for _, said in line] == [["left"]] * 5


def test_who_waits_to_the_end_gets_a_turn(turns: LoginLock) -> None:
    with turns.taken(1):
        thread, said = _waiting(turns, to_the_end=True)
        for _ in range(5):
            turns.tell()
            thread.join(0.05)
        assert said == []
    thread.join(20)
    assert said == ["turn"]


def test_a_failed_login_is_no_news(turns: LoginLock) -> None:
    with turns.taken(1):
        thread, said = _waiting(turns, to_the_end=False)
        thread.join(0.3)
    thread.join(20)
    assert said == ["turn"]


def test_a_turn_that_does_not_come_is_a_timeout(turns: LoginLock) -> None:
    with turns.taken(1), pytest.raises(LockTimeout), turns.taken(0.2):
        pass


def test_news_that_cannot_be_told_are_no_failure(tmp_path: Path) -> None:
    LoginLock(tmp_path / "nowhere" / "login.lock").tell()
