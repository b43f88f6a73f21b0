"""Recorded login failures, with records in memory and a clock that the test sets."""

import json
from collections.abc import Sequence

import pytest

from xapi_cli.auth.failures import LoginFailures
from xapi_cli.errors import GrantRefused, LoginNeeded, LoginRefused, NetworkError, StoreError, TokenRejected, XapiError
from xapi_cli.hints import Option, Run
from xapi_cli.store.login_session import LoginSession

REJECTED = LoginRefused("login as me was rejected (400)")


class Records(LoginSession):
    """Records of one account that processes share; without *can_write*, nothing is recorded."""

    def __init__(self, *, can_write: bool = True) -> None:
        self.time, self.texts, self._can_write = 1000.0, dict[str, bytes](), can_write

    def now(self) -> float:
        return self.time

    def failure(self, kind: str) -> bytes | None:
        return self.texts.get(kind)

    def record_failure(self, kind: str, text: bytes) -> None:
        if self._can_write:
            self.texts[kind] = text

    def forget_failures(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            self.texts.pop(kind, None)


@pytest.fixture
def records() -> Records:
    return Records()


def of(records: Records) -> LoginFailures:
    """Return the failures as another process sees them."""
    return LoginFailures(records)


def _is_allowed(records: Records, password: str) -> bool:
    try:
        of(records).check_password(password, "the password in XAPI_PASSWORD")
    except LoginRefused:
        return False
    return True


def test_a_rejected_password_is_not_sent_again_for_a_minute_and_others_are(records: Records) -> None:
    of(records).record_password(REJECTED, "wrong")
    records.time += 10

    with pytest.raises(LoginRefused) as caught:
        of(records).check_password("wrong", "the password in XAPI_PASSWORD")
    assert str(caught.value) == (
        "login as me was rejected (400) less than a minute ago, so this password is not sent again;"
        " correct the password in XAPI_PASSWORD, wait 50 s, or run `xapi login`"
    )
    assert [_is_allowed(records, "right"), _is_allowed(Records(), "wrong")] == [True, True]
    of(records).record_password(REJECTED, "also wrong \udcff")
    assert [_is_allowed(records, each) for each in ("wrong", "also wrong \udcff")] == [False, False]
    of(records).forget("failed")
    records.time += 50
    assert [_is_allowed(records, each) for each in ("wrong", "also wrong \udcff")] == [True, False]
    of(records).forget("refused")
    assert _is_allowed(records, "also wrong \udcff")


def test_twenty_salted_bits_of_a_password_are_recorded_and_at_most_32_passwords(records: Records) -> None:
    other = Records()
    for each in (records, other):
        of(each).record_password(REJECTED, "wrong")
    recorded = json.loads(records.texts["refused"])
    ((_, at, message),) = recorded["entries"]
    recorded["entries"] = [[mark, at, message] for mark in range(40)]
    records.texts["refused"] = json.dumps(recorded).encode()
    of(records).record_password(REJECTED, "another")

    mine, others = (json.loads(each.texts["refused"]) for each in (records, other))
    assert set(mine) == {"salt", "entries", "at"}
    assert len(mine["entries"]) == 32
    assert all(0 <= mark < 2**20 for mark, _, _ in mine["entries"])
    assert others["salt"] != mine["salt"] == recorded["salt"]


def test_a_process_that_cannot_record_a_rejection_remembers_it() -> None:
    failures = of(Records(can_write=False))
    failures.record_password(REJECTED, "wrong")

    with pytest.raises(LoginRefused, match="not sent again"):
        failures.check_password("wrong", "it")


NO_RESPONSE = NetworkError("no response", hint="check")
FAILED = LoginNeeded("it failed", hint=("run ", Run("login"), " with ", Option("storage")))
SHARED = [
    # the error, whether the password command caused it, whether the login that waits uses one and shares the error
    (NO_RESPONSE, False, False, True),
    (NO_RESPONSE, False, True, True),
    (GrantRefused("refused (400 invalid_client)"), False, False, True),
    (FAILED, True, True, True),
    (REJECTED, True, True, True),
    (FAILED, True, False, False),
    (FAILED, False, False, False),
    (StoreError("locked"), False, False, False),
]


@pytest.mark.parametrize(("error", "of_command", "uses_command", "is_shared"), SHARED)
def test_the_logins_that_waited_share_the_failure_and_later_ones_do_not(
    records: Records, error: XapiError, of_command: bool, uses_command: bool, is_shared: bool
) -> None:
    since = records.now()
    records.time += 1
    of(records).record_login(error, of_command=of_command)
    records.time += 1

    of(records).check_login(since=records.now(), uses_command=uses_command)
    if is_shared:
        with pytest.raises(type(error)) as caught:
            of(records).check_login(since=since, uses_command=uses_command)
        message = f"{error.message} (reported by another xapi process)"
        assert (caught.value.message, caught.value.hint) == (message, error.hint)
    of(records).forget("failed")
    of(records).check_login(since=since, uses_command=uses_command)


def test_a_rejected_token_stops_logins_for_a_minute_unless_it_is_accepted_later(records: Records) -> None:
    for passed, accepted, stops in ((59, False, True), (60, False, False), (1, True, False), (-5, False, False)):
        of(records).record_token()
        records.time += passed
        if accepted:
            of(records).forget("rejected")
        if stops:
            with pytest.raises(TokenRejected, match=r"rejected a new token .* wait 1 s, or run `xapi login`"):
                of(records).check_token()
        else:
            of(records).check_token()


GARBAGE = [
    b"", b"null", b"[]", b"\xff", b"[" * 10_000, b'{"at": "x"}', b'{"at": 1000.0, "entries": 1}', b'{"at": NaN}',
    b'{"at": 1000.0, "salt": "00", "entries": [1]}', b'{"at": 1000.0, "salt": "x", "entries": [[1, 1000.0, ""]]}',
    b'{"at": 1000.0, "salt": "00", "entries": [["x", 1000.0, ""]]}',
    b'{"at": 1000.0, "salt": "00", "entries": [[Infinity, 1000.0, ""]]}',
    b'{"at": 1000.0, "kind": "OSError", "message": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_ignored(records: Records, data: bytes) -> None:
    for kind in ("refused", "failed"):
        records.texts[kind] = data

    of(records).check_password("wrong", "it")
    of(records).check_login(since=0, uses_command=True)
