"""Recorded login failures, with a clock that the test sets."""

import itertools
import json
import os
import stat
from pathlib import Path

import pytest

from xapi_cli.auth.login_failures import LoginFailures
from xapi_cli.errors import (
    BodyTooLarge,
    ClientStatusError,
    InvalidTokenResponse,
    LoginNeeded,
    LoginRefused,
    NetworkError,
    RedirectError,
    ServerStatusError,
    StoreError,
    TimeoutExpired,
    TokenRejected,
    UsageError,
    XapiError,
)
from xapi_cli.store.failure_files import FailureFiles
from xapi_cli.system.boot_time import Moment
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me"), Identity("https://api.test", "other")
REJECTED = LoginRefused("login as me at https://api.test was rejected (400)")


class Clock:
    """The clocks of a machine, which change only when the test sets them: `now` is the time since boot."""

    boot, now, wall = "this-boot", 5000.0, 1_800_000_000.0

    def __call__(self) -> Moment:
        return Moment(self.boot, self.now, self.wall)

    def reboot(self, *, took: float) -> None:
        """Start another boot, which is *took* seconds old when the next command runs."""
        self.boot, self.now, self.wall = "another-boot", took, self.wall + took


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path, clock: Clock) -> FailureFiles:
    return FailureFiles(StateDirectory(tmp_path / "failures"), clock)


@pytest.fixture(autouse=True)
def _salts(monkeypatch: pytest.MonkeyPatch) -> None:
    # With random salts, two of the secrets below would have the same twelve bits in one run of several hundred.
    numbers = itertools.count(1)
    monkeypatch.setattr("xapi_cli.auth.login_failures.os.urandom", lambda size: next(numbers).to_bytes(size, "big"))


@pytest.fixture
def failures(files: FailureFiles) -> LoginFailures:
    return LoginFailures(files)


def _rejects(failures: LoginFailures, password: str, identity: Identity = ME) -> bool:
    try:
        failures.check_password(identity, password)
    except LoginRefused:
        return True
    return False


def test_a_rejected_password_is_recorded_for_a_minute_and_the_error_names_the_time_left(
    failures: LoginFailures, clock: Clock
) -> None:
    failures.record_rejected_password(ME, REJECTED, "wrong")
    clock.now += 18

    with pytest.raises(LoginRefused) as caught:
        failures.check_password(ME, "wrong")

    assert str(caught.value) == (
        "login as me at https://api.test was rejected (400) less than a minute ago, so this password is not sent again;"
        " correct the password, wait 42 s, or run `xapi login`"
    )
    clock.now += 41.9
    assert _rejects(failures, "wrong")
    clock.now += 0.1
    assert not _rejects(failures, "wrong")


def test_another_password_and_another_account_are_allowed_immediately(failures: LoginFailures) -> None:
    failures.record_rejected_password(ME, REJECTED, "wrong")

    assert not _rejects(failures, "right")
    assert not _rejects(failures, "wrong", OTHER)


def test_two_alternating_wrong_passwords_are_both_recorded(failures: LoginFailures, clock: Clock) -> None:
    failures.record_rejected_password(ME, REJECTED, "wrong")
    clock.now += 10
    failures.record_rejected_password(ME, REJECTED, "wrong too")

    assert [_rejects(failures, password) for password in ("wrong", "wrong too", "right")] == [True, True, False]
    clock.now += 50
    assert [_rejects(failures, password) for password in ("wrong", "wrong too")] == [False, True]


@pytest.mark.parametrize(
    "change",
    [{"message": None}, {"message": 7}, {"hint": 7}, {"hint": ["x"]}, {"kind": 7}, {"kind": ["x"]}],
)
def test_a_shared_failure_that_is_not_valid_is_ignored(
    failures: LoginFailures, tmp_path: Path, clock: Clock, change: dict[str, object]
) -> None:
    failures.record_failed(ME, ServerStatusError("unavailable"))
    (path,) = (tmp_path / "failures").iterdir()
    entry = json.loads(path.read_text())
    path.write_text(json.dumps(entry | change))

    failures.check_failed(ME, since=clock.now)
    path.write_text(json.dumps({"at": entry["at"], "written": entry["written"], "kind": "NetworkError"}))
    failures.check_failed(ME, since=clock.now)
    path.write_text(json.dumps(entry))
    with pytest.raises(ServerStatusError):
        failures.check_failed(ME, since=clock.now)


@pytest.mark.parametrize("salt", ["\ud800", "\xe9"])
def test_a_failure_with_a_salt_that_is_not_ascii_is_ignored(
    failures: LoginFailures, tmp_path: Path, clock: Clock, salt: str
) -> None:
    failures.record_rejected_password(ME, REJECTED, "wrong")
    (path,) = (tmp_path / "failures").iterdir()
    record = json.loads(path.read_text())
    (entry,) = record["entries"]
    path.write_text(json.dumps(record | {"entries": [entry | {"salt": salt}, entry]}))

    assert _rejects(failures, "wrong")
    failures.record_rejected_password(ME, REJECTED, "wrong too")
    assert _rejects(failures, "wrong too")
    path.unlink()
    failures.record_command_failed(ME, LoginNeeded("no password"), "command")
    (path,) = (tmp_path / "failures").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"salt": salt}))
    failures.check_command_failed(ME, "command", since=clock.now)


@pytest.mark.slow
def test_the_number_of_recorded_rejections_is_limited(failures: LoginFailures, tmp_path: Path) -> None:
    for number in range(34):
        failures.record_rejected_password(ME, REJECTED, f"wrong {number}")

    (path,) = (tmp_path / "failures").iterdir()
    assert len(json.loads(path.read_text())["entries"]) == 32
    assert _rejects(failures, "wrong 33")


def test_a_rejected_password_is_recorded_in_all_places_with_the_same_bits(
    files: FailureFiles, tmp_path: Path, clock: Clock
) -> None:
    """Each place has its own clock, and may have lost its records."""
    others = FailureFiles(StateDirectory(tmp_path / "others"), other_clock := Clock())
    clock.now += 1000
    both = LoginFailures(files, others)
    LoginFailures(others).record_rejected_password(ME, REJECTED, "wrong")
    both.record_rejected_password(ME, REJECTED, "wrong too")

    (of_file,) = json.loads((tmp_path / "failures" / f"{ME.key}.refused").read_text())["entries"]
    of_other, first = json.loads((tmp_path / "others" / f"{ME.key}.refused").read_text())["entries"]
    assert (of_file["salt"], of_file["mark"]) == (of_other["salt"], of_other["mark"])
    assert first["salt"] == of_other["salt"]
    assert [_rejects(both, password) for password in ("wrong", "wrong too", "right")] == [True, True, False]
    clock.now += 60
    assert _rejects(both, "wrong too")
    other_clock.now += 60
    assert not _rejects(both, "wrong too")


def test_a_rejected_password_keeps_the_salt_of_each_place(files: FailureFiles, tmp_path: Path, clock: Clock) -> None:
    others = FailureFiles(StateDirectory(tmp_path / "others"), clock)
    for number, place in enumerate((files, others)):
        LoginFailures(place).record_rejected_password(ME, REJECTED, f"wrong {number}")
    both = LoginFailures(files, others)
    both.record_rejected_password(ME, REJECTED, "wrong too")

    assert [_rejects(both, password) for password in ("wrong 0", "wrong 1", "wrong too")] == [True] * 3
    both.delete_failed(ME)
    assert _rejects(both, "wrong 1")
    both.delete(ME)
    assert [_rejects(both, password) for password in ("wrong 0", "wrong 1", "wrong too")] == [False] * 3
    assert [list(directory.iterdir()) for directory in (tmp_path / "failures", tmp_path / "others")] == [[], []]


def test_twelve_salted_bits_of_a_password_are_recorded_in_a_private_file(
    failures: LoginFailures, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        failures.record_rejected_password(ME, REJECTED, "CANARY")
        failures.record_rejected_password(OTHER, REJECTED, "CANARY")
    finally:
        os.umask(before)

    entries = [json.loads(path.read_text())["entries"][0] for path in sorted((tmp_path / "failures").iterdir())]
    assert [sorted(entry) for entry in entries] == [["at", "mark", "message", "salt"]] * 2
    assert all(0 <= entry["mark"] < 2**12 and len(bytes.fromhex(entry["salt"])) == 16 for entry in entries)
    assert entries[0]["salt"] != entries[1]["salt"]
    assert "CANARY" not in str(entries)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "failures", *(tmp_path / "failures").iterdir())]
    assert modes == [0o700, 0o600, 0o600]


def test_a_password_that_is_not_valid_utf_8_is_recognized(failures: LoginFailures) -> None:
    failures.record_rejected_password(ME, REJECTED, "\udcff")

    assert [_rejects(failures, "\udcff"), _rejects(failures, "\udcfe")] == [True, False]


SHARED = [
    NetworkError("no response", hint="try later"),
    InvalidTokenResponse("nonsense", hint="check the base URL"),
    BodyTooLarge("10 MiB"),
    RedirectError("302", hint="check the base URL"),
    ClientStatusError("404"),
    ServerStatusError("503"),
    TimeoutExpired("too late", hint="--timeout"),
]


@pytest.mark.parametrize("error", SHARED, ids=lambda error: type(error).__name__)
def test_waiting_processes_share_the_failure_and_later_ones_do_not(
    failures: LoginFailures, clock: Clock, error: XapiError
) -> None:
    began = clock.now
    clock.now += 2
    failures.record_failed(ME, error)
    clock.now += 1

    with pytest.raises(XapiError) as caught:
        failures.check_failed(ME, since=began)

    assert (type(caught.value), caught.value.message, caught.value.hint) == (
        type(error),
        f"{error.message} (reported by another xapi process)",
        error.hint,
    )
    failures.check_failed(ME, since=clock.now)
    failures.check_failed(OTHER, since=began)
    clock.now += 60
    failures.check_failed(ME, since=began)


@pytest.mark.parametrize("error", [LoginNeeded("the command failed", hint="see why"), REJECTED])
def test_waiting_processes_share_the_failure_of_the_same_password_command(
    failures: LoginFailures, clock: Clock, error: XapiError, tmp_path: Path
) -> None:
    began = clock.now
    clock.now += 2
    failures.record_command_failed(ME, error, "pass show api")

    with pytest.raises(type(error), match=r"\(reported by another xapi process\)"):
        failures.check_command_failed(ME, "pass show api", since=began)
    failures.check_command_failed(ME, "pass show other", since=began)
    failures.check_command_failed(ME, "pass show api", since=clock.now + 1)
    failures.check_command_failed(OTHER, "pass show api", since=began)
    failures.check_failed(ME, since=began)
    (path,) = (tmp_path / "failures").iterdir()
    assert "pass" not in path.read_text()
    failures.delete_failed(ME)
    failures.check_command_failed(ME, "pass show api", since=began)


@pytest.mark.parametrize("error", [StoreError("x"), UsageError("x"), REJECTED])
def test_a_failure_that_concerns_one_process_is_not_shared(
    failures: LoginFailures, clock: Clock, error: XapiError
) -> None:
    failures.record_failed(ME, error)

    failures.check_failed(ME, since=clock.now - 1)


def test_a_successful_login_deletes_the_failure_but_not_the_rejections(failures: LoginFailures, clock: Clock) -> None:
    _record_all(failures)

    failures.delete_failed(ME)

    failures.check_failed(ME, since=clock.now - 1)
    assert _rejects(failures, "wrong")
    with pytest.raises(TokenRejected):
        failures.check_token(ME)


def test_an_explicit_login_deletes_all_records(failures: LoginFailures, clock: Clock, tmp_path: Path) -> None:
    _record_all(failures)

    failures.delete(ME)

    failures.check_failed(ME, since=clock.now - 1)
    failures.check_token(ME)
    assert not _rejects(failures, "wrong")
    assert list((tmp_path / "failures").iterdir()) == []
    failures.delete(ME)  # a missing file is not an error


def test_a_rejected_fresh_token_stops_automatic_logins_for_a_minute(failures: LoginFailures, clock: Clock) -> None:
    failures.check_token(ME)
    failures.record_rejected_token(ME)
    clock.now += 59

    with pytest.raises(TokenRejected) as caught:
        failures.check_token(ME)

    assert str(caught.value) == (
        "the API rejected a new token less than a minute ago, so xapi does not log in automatically;"
        " check the base URL and the rights of the account, then wait 1 s or run `xapi login`"
    )
    failures.check_token(OTHER)
    clock.now += 1
    failures.check_token(ME)


@pytest.mark.parametrize("step", [-3600.0, -1.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_no_age(
    failures: LoginFailures, files: FailureFiles, clock: Clock, step: float
) -> None:
    since = failures.now()
    _record_all(failures)
    clock.wall += step
    clock.now += 18

    with pytest.raises(LoginRefused, match="wait 42 s"):
        failures.check_password(ME, "wrong")
    with pytest.raises(TokenRejected, match="wait 42 s"):
        failures.check_token(ME)
    with pytest.raises(NetworkError):
        failures.check_failed(ME, since=since)
    files.remove_old()
    clock.now += 41
    assert _rejects(failures, "wrong")
    clock.now += 1
    assert not _rejects(failures, "wrong")


@pytest.mark.parametrize("step, left", [(0.0, 20), (3600.0, 0), (-3600.0, 40), (-2.0, 22)])
def test_after_a_reboot_the_wall_clock_counts_unless_it_was_set_back(
    failures: LoginFailures, files: FailureFiles, tmp_path: Path, clock: Clock, step: float, left: int
) -> None:
    """With a clock that was set back, the failure is as old as the boot: it was recorded before."""
    failures.record_rejected_password(ME, REJECTED, "wrong")
    clock.now += 20
    clock.wall += 20
    failures.record_rejected_password(ME, REJECTED, "wrong too")
    clock.wall += 20
    clock.reboot(took=20)
    clock.wall += step

    assert _rejects(failures, "wrong too") == (left > 0)
    if left:
        with pytest.raises(LoginRefused, match=f"wait {left} s"):
            failures.check_password(ME, "wrong too")
        assert _rejects(failures, "wrong") == (left > 20)
    clock.now += left + 1
    clock.wall += left + 1
    assert not _rejects(failures, "wrong too")
    files.remove_old()
    assert list((tmp_path / "failures").iterdir()) == []


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
def test_without_an_id_of_the_boot_the_younger_age_counts(failures: LoginFailures, clock: Clock, step: float) -> None:
    clock.boot = ""
    failures.record_rejected_password(ME, REJECTED, "wrong")
    clock.now += 59
    clock.wall += 59 + step
    assert _rejects(failures, "wrong")
    clock.now += 1
    clock.wall += 1
    assert not _rejects(failures, "wrong")


VALID = b'"at": 5000.0, "written": "this-boot 5000.0 1800000000.0"'
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
    b'{"at": 5000.0}',
    b'{"at": 5000.0, "written": 1}',
    b'{"at": 5000.0, "written": "x 1 nan"}',
    b"{%b}" % VALID,
    b'{%b, "entries": 1, "kind": 1}' % VALID,
    b'{%b, "entries": [1, null], "kind": "SystemExit"}' % VALID,
    b'{%b, "entries": [{"salt": 1, "mark": 2, "at": 5000.0, "message": ""}]}' % VALID,
    b'{%b, "entries": [{"salt": "00"}], "kind": "LoginRefused"}' % VALID,
]


@pytest.mark.parametrize(
    "data",
    [
        # computing the mark of a password takes long
        pytest.param(data, id=str(number), marks=pytest.mark.slow if number % 2 else ())
        for number, data in enumerate(GARBAGE)
    ],
)
def test_garbage_is_ignored(failures: LoginFailures, tmp_path: Path, data: bytes) -> None:
    _record_all(failures)
    for path in (tmp_path / "failures").iterdir():
        if path.suffix != ".rejected":  # there any entry says it all
            path.write_bytes(data)

    failures.check_failed(ME, since=0)
    assert not _rejects(failures, "wrong")
    failures.record_rejected_password(ME, REJECTED, "wrong")
    assert _rejects(failures, "wrong")


def test_an_unwritable_directory_only_prevents_recording(tmp_path: Path) -> None:
    (tmp_path / "failures").write_text("a file where the directory should be")
    failures = LoginFailures(FailureFiles(StateDirectory(tmp_path / "failures")))

    _record_all(failures)
    failures.delete(ME)

    assert not _rejects(failures, "wrong")


def test_entries_of_all_accounts_are_deleted_after_a_minute(
    failures: LoginFailures, files: FailureFiles, clock: Clock, tmp_path: Path
) -> None:
    _record_all(failures)
    unfinished = tmp_path / "failures" / f".{ME.key}.refused.{'0' * 16}.new"
    unfinished.touch()
    os.utime(unfinished, (clock.wall - 61,) * 2)
    clock.now += 61
    failures.record_rejected_token(OTHER)

    files.remove_old()

    assert [path.name for path in (tmp_path / "failures").iterdir()] == [f"{OTHER.key}.rejected"]


def _record_all(failures: LoginFailures) -> None:
    failures.record_rejected_password(ME, REJECTED, "wrong")
    failures.record_failed(ME, NetworkError("no response"))
    failures.record_rejected_token(ME)


def test_a_rejected_password_is_remembered_by_the_process_that_cannot_record_it(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "failures").touch()  # where the directory would be
    failures = LoginFailures(FailureFiles(StateDirectory(tmp_path / "failures"), clock))

    failures.record_rejected_password(ME, REJECTED, "secret")

    assert _rejects(failures, "secret")
    assert not _rejects(failures, "other")
    clock.now += 61
    assert not _rejects(failures, "secret")
