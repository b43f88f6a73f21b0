"""What is kept of failed logins for a minute, with a clock that the test moves."""

import json
import os
import stat
from pathlib import Path

import pytest

from xapi_cli.auth.login_failures import LoginFailures
from xapi_cli.errors import (
    InvalidTokenResponse,
    LoginNeeded,
    LoginRefused,
    NetworkError,
    ServerStatusError,
    StoreError,
    TimeoutExpired,
    TokenRejected,
    UsageError,
    XapiError,
)
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me"), Identity("https://api.test", "other")
REFUSED = LoginRefused("login as me at https://api.test was refused (400)")


class Clock:
    """Time that stands still until it is moved."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(tmp_path: Path, clock: Clock) -> LoginFailures:
    return LoginFailures(tmp_path / "attempts", clock)


def _refuses(attempts: LoginFailures, password: str, identity: Identity = ME) -> bool:
    try:
        attempts.check_refused(identity, password)
    except LoginRefused:
        return True
    return False


def test_a_refused_password_is_known_for_a_minute_and_says_for_how_long(attempts: LoginFailures, clock: Clock) -> None:
    attempts.note_refused(ME, REFUSED, "wrong")
    clock.now += 18

    with pytest.raises(LoginRefused) as caught:
        attempts.check_refused(ME, "wrong")

    assert str(caught.value) == (
        "this password was refused less than a minute ago, so it is not sent again: login as me at https://api.test"
        " was refused (400); give the right password, or wait 42 s, or run `xapi login`"
    )
    clock.now += 41.9
    assert _refuses(attempts, "wrong")
    clock.now += 0.1
    assert not _refuses(attempts, "wrong")


def test_another_password_and_another_account_are_let_through_at_once(attempts: LoginFailures) -> None:
    attempts.note_refused(ME, REFUSED, "wrong")

    assert not _refuses(attempts, "right")
    assert not _refuses(attempts, "wrong", OTHER)


def test_two_wrong_passwords_in_turns_are_both_known(attempts: LoginFailures, clock: Clock) -> None:
    attempts.note_refused(ME, REFUSED, "wrong")
    clock.now += 10
    attempts.note_refused(ME, REFUSED, "wrong too")

    assert [_refuses(attempts, password) for password in ("wrong", "wrong too", "right")] == [True, True, False]
    clock.now += 50
    assert [_refuses(attempts, password) for password in ("wrong", "wrong too")] == [False, True]


def test_the_entry_does_not_grow_with_the_refusals(attempts: LoginFailures, tmp_path: Path) -> None:
    for number in range(34):
        attempts.note_refused(ME, REFUSED, f"wrong {number}")

    (path,) = (tmp_path / "attempts").iterdir()
    assert len(json.loads(path.read_text())["entries"]) == 32
    assert _refuses(attempts, "wrong 33")


def test_what_is_kept_of_a_password_is_twelve_salted_bits_in_a_private_file(
    attempts: LoginFailures, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        attempts.note_refused(ME, REFUSED, "CANARY")
        attempts.note_refused(OTHER, REFUSED, "CANARY")
    finally:
        os.umask(before)

    entries = [json.loads(path.read_text())["entries"][0] for path in sorted((tmp_path / "attempts").iterdir())]
    assert [sorted(entry) for entry in entries] == [["at", "mark", "message", "salt"]] * 2
    assert all(0 <= entry["mark"] < 2**12 and len(bytes.fromhex(entry["salt"])) == 16 for entry in entries)
    assert entries[0]["salt"] != entries[1]["salt"]
    assert "CANARY" not in str(entries)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "attempts", *(tmp_path / "attempts").iterdir())]
    assert modes == [0o700, 0o600, 0o600]


def test_a_password_of_bytes_that_are_no_utf_8_is_known_again(attempts: LoginFailures) -> None:
    attempts.note_refused(ME, REFUSED, "\udcff")

    assert [_refuses(attempts, "\udcff"), _refuses(attempts, "\udcfe")] == [True, False]


SHARED = [
    NetworkError("no answer", hint="try later"),
    InvalidTokenResponse("nonsense", hint="is the base URL right?"),
    ServerStatusError("503"),
    TimeoutExpired("too late", hint="--timeout"),
]


@pytest.mark.parametrize("error", SHARED, ids=lambda error: type(error).__name__)
def test_those_who_waited_share_the_failure_and_those_who_come_later_do_not(
    attempts: LoginFailures, clock: Clock, error: XapiError
) -> None:
    began = clock.now
    clock.now += 2
    attempts.note_failed(ME, error)
    clock.now += 1

    with pytest.raises(XapiError) as caught:
        attempts.check_failed(ME, since=began)

    assert (type(caught.value), caught.value.message, caught.value.hint) == (
        type(error),
        f"{error.message} (another xapi tried at the same time)",
        error.hint,
    )
    attempts.check_failed(ME, since=clock.now)
    attempts.check_failed(OTHER, since=began)
    clock.now += 60
    attempts.check_failed(ME, since=began)


@pytest.mark.parametrize("error", [LoginNeeded("the command failed", hint="see why"), REFUSED])
def test_those_who_waited_share_what_came_of_the_same_password_command(
    attempts: LoginFailures, clock: Clock, error: XapiError, tmp_path: Path
) -> None:
    began = clock.now
    clock.now += 2
    attempts.note_command_failed(ME, error, "pass show api")

    with pytest.raises(type(error), match=r"\(another xapi tried at the same time\)"):
        attempts.check_command_failed(ME, "pass show api", since=began)
    attempts.check_command_failed(ME, "pass show other", since=began)
    attempts.check_command_failed(ME, "pass show api", since=clock.now + 1)
    attempts.check_command_failed(OTHER, "pass show api", since=began)
    attempts.check_failed(ME, since=began)
    (path,) = (tmp_path / "attempts").iterdir()
    assert "pass" not in path.read_text()
    attempts.forget_failed(ME)
    attempts.check_command_failed(ME, "pass show api", since=began)


@pytest.mark.parametrize("error", [StoreError("x"), UsageError("x"), REFUSED])
def test_what_is_nobody_elses_failure_is_not_shared(attempts: LoginFailures, clock: Clock, error: XapiError) -> None:
    attempts.note_failed(ME, error)

    attempts.check_failed(ME, since=clock.now - 1)


def test_a_login_that_succeeds_ends_the_failure_but_not_what_is_known_of_passwords_and_tokens(
    attempts: LoginFailures, clock: Clock
) -> None:
    _note_all(attempts)

    attempts.forget_failed(ME)

    attempts.check_failed(ME, since=clock.now - 1)
    assert _refuses(attempts, "wrong")
    with pytest.raises(TokenRejected):
        attempts.check_rejected(ME)


def test_a_persons_login_ends_all(attempts: LoginFailures, clock: Clock, tmp_path: Path) -> None:
    _note_all(attempts)

    attempts.forget(ME)

    attempts.check_failed(ME, since=clock.now - 1)
    attempts.check_rejected(ME)
    assert not _refuses(attempts, "wrong")
    assert list((tmp_path / "attempts").iterdir()) == []
    attempts.forget(ME)  # nothing there is nothing to complain about


def test_a_rejected_fresh_token_stops_automatic_logins_for_a_minute(attempts: LoginFailures, clock: Clock) -> None:
    attempts.check_rejected(ME)
    attempts.note_rejected(ME)
    clock.now += 59

    with pytest.raises(TokenRejected) as caught:
        attempts.check_rejected(ME)

    assert str(caught.value) == (
        "the API rejected a fresh token less than a minute ago, so xapi does not log in again by itself;"
        " check the base URL and the account's rights, then wait 1 s or run `xapi login`"
    )
    attempts.check_rejected(OTHER)
    clock.now += 1
    attempts.check_rejected(ME)


def test_an_entry_from_the_future_is_none(attempts: LoginFailures, clock: Clock) -> None:
    _note_all(attempts)
    clock.now -= 3600

    attempts.check_rejected(ME)
    attempts.check_failed(ME, since=0)
    assert not _refuses(attempts, "wrong")


GARBAGE = [
    b"",
    b"\xff\xfe",
    b"[" * 50_000,
    b"null",
    b"[]",
    b"{}",
    b'{"at": "now"}',
    b'{"at": NaN}',
    b'{"at": 1e999}',
    b'{"at": 1800000000.0}',
    b'{"at": 1800000000.0, "entries": 1, "kind": 1}',
    b'{"at": 1800000000.0, "entries": [1, null], "kind": "SystemExit"}',
    b'{"at": 1800000000.0, "entries": [{"salt": 1, "mark": 2, "at": 1800000000.0, "message": ""}]}',
    b'{"at": 1800000000.0, "entries": [{"salt": "00"}], "kind": "LoginRefused"}',
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_no_memory(attempts: LoginFailures, tmp_path: Path, data: bytes) -> None:
    _note_all(attempts)
    for path in (tmp_path / "attempts").iterdir():
        if path.suffix != ".rejected":  # there any entry says it all
            path.write_bytes(data)

    attempts.check_failed(ME, since=0)
    assert not _refuses(attempts, "wrong")
    attempts.note_refused(ME, REFUSED, "wrong")
    assert _refuses(attempts, "wrong")


def test_a_folder_that_cannot_be_written_costs_the_memory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "attempts").write_text("a file where the folder should be")
    attempts = LoginFailures(tmp_path / "attempts")

    _note_all(attempts)
    attempts.sweep()
    attempts.forget(ME)

    assert not _refuses(attempts, "wrong")


def test_entries_are_gone_after_the_minute_whichever_account_they_are_of(tmp_path: Path) -> None:
    attempts = LoginFailures(tmp_path)
    _note_all(attempts)
    attempts.note_rejected(OTHER)
    for path in tmp_path.glob(f"{ME.key}*"):
        os.utime(path, (path.stat().st_mtime - 61,) * 2)

    attempts.sweep()

    assert [path.name for path in tmp_path.iterdir()] == [f"{OTHER.key}.rejected"]


def _note_all(attempts: LoginFailures) -> None:
    attempts.note_refused(ME, REFUSED, "wrong")
    attempts.note_failed(ME, NetworkError("no answer"))
    attempts.note_rejected(ME)
