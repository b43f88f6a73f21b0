"""Recorded login failures, with records in memory and a clock that the test sets."""

import json
from collections.abc import Sequence

import pytest

from xapi_cli.auth.failures import LoginFailures
from xapi_cli.errors import GrantRefused, LoginNeeded, LoginRefused, NetworkError, StoreError, TokenRejected, XapiError
from xapi_cli.store.login_session import Failures
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me"), Identity("https://api.test", "other")
REJECTED = LoginRefused("login as me was rejected (400)")


class Records(Failures):
    """Records that processes share; without *can_write*, nothing is recorded."""

    def __init__(self, *, can_write: bool = True) -> None:
        self.time, self.texts, self._can_write = 1000.0, dict[tuple[Identity, str], bytes](), can_write

    def now(self) -> float:
        return self.time

    def read(self, identity: Identity, kind: str) -> bytes | None:
        return self.texts.get((identity, kind))

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        if self._can_write:
            self.texts[identity, kind] = data

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        for kind in kinds:
            self.texts.pop((identity, kind), None)


@pytest.fixture
def records() -> Records:
    return Records()


def _is_allowed(records: Records, password: str, identity: Identity = ME) -> bool:
    try:
        LoginFailures(records).check_password(identity, password, origin="the password in XAPI_PASSWORD")
    except LoginRefused:
        return False
    return True


def test_a_rejected_password_is_not_sent_again_for_a_minute_and_others_are(records: Records) -> None:
    LoginFailures(records).record_rejected_password(ME, REJECTED, "wrong")
    records.time += 10

    with pytest.raises(LoginRefused) as caught:
        LoginFailures(records).check_password(ME, "wrong", origin="the password in XAPI_PASSWORD")
    assert str(caught.value) == (
        "login as me was rejected (400) less than a minute ago, so this password is not sent again;"
        " correct the password in XAPI_PASSWORD, wait 50 s, or run `xapi login`"
    )
    assert [_is_allowed(records, "right"), _is_allowed(records, "wrong", OTHER)] == [True, True]
    LoginFailures(records).record_rejected_password(ME, REJECTED, "also wrong \udcff")
    assert [_is_allowed(records, each) for each in ("wrong", "also wrong \udcff")] == [False, False]
    LoginFailures(records).delete_failed(ME)
    records.time += 50
    assert [_is_allowed(records, each) for each in ("wrong", "also wrong \udcff")] == [True, False]
    LoginFailures(records).delete(ME)
    assert _is_allowed(records, "also wrong \udcff")


def test_twelve_salted_bits_of_a_password_are_recorded_and_at_most_32_passwords(records: Records) -> None:
    for identity in (ME, OTHER):
        LoginFailures(records).record_rejected_password(identity, REJECTED, "wrong")
    recorded = json.loads(records.texts[ME, "refused"])
    (entry,) = recorded["entries"]
    recorded["entries"] = [{**entry, "mark": mark} for mark in range(40)]
    records.texts[ME, "refused"] = json.dumps(recorded).encode()
    LoginFailures(records).record_rejected_password(ME, REJECTED, "another")

    entries, others = (json.loads(records.texts[identity, "refused"])["entries"] for identity in (ME, OTHER))
    assert len({entry["salt"] for entry in entries}) == 1
    assert len(entries) == 32
    assert all(set(entry) == {"salt", "mark", "at", "message"} and 0 <= entry["mark"] < 4096 for entry in entries)
    assert others[0]["salt"] != entries[0]["salt"]


def test_a_process_that_cannot_record_a_rejection_remembers_it() -> None:
    failures = LoginFailures(Records(can_write=False))
    failures.record_rejected_password(ME, REJECTED, "wrong")

    with pytest.raises(LoginRefused, match="not sent again"):
        failures.check_password(ME, "wrong", origin="it")


NO_RESPONSE = NetworkError("no response", hint="check")
FAILED = LoginNeeded("it failed")
SHARED = [
    # the error, the command that it is recorded for, the command of the login that waits, whether it shares the error
    (NO_RESPONSE, None, None, True),
    (NO_RESPONSE, None, "pass a", True),
    (GrantRefused("refused (400 invalid_client)"), None, None, True),
    (FAILED, "pass a", "pass a", True),
    (REJECTED, "pass a", "pass a", True),
    (FAILED, "pass a", "pass b", False),
    (FAILED, "pass a", None, False),
    (FAILED, None, None, False),
    (StoreError("locked"), None, None, False),
]


@pytest.mark.parametrize(("error", "of", "command", "is_shared"), SHARED)
def test_the_logins_that_waited_share_the_failure_and_later_ones_do_not(
    records: Records, error: XapiError, of: str | None, command: str | None, is_shared: bool
) -> None:
    since = records.now()
    records.time += 1
    LoginFailures(records).record_failed(ME, error, command=of)
    records.time += 1

    LoginFailures(records).check_failed(ME, since=records.now(), command=command)
    LoginFailures(records).check_failed(OTHER, since=since, command=command)
    if is_shared:
        with pytest.raises(type(error)) as caught:
            LoginFailures(records).check_failed(ME, since=since, command=command)
        assert (caught.value.message, caught.value.hint) == (
            f"{error.message} (reported by another xapi process)",
            error.hint,
        )
    LoginFailures(records).delete_failed(ME)
    LoginFailures(records).check_failed(ME, since=since, command=command)


def test_a_rejected_token_stops_logins_for_a_minute_unless_it_is_accepted_later(records: Records) -> None:
    for passed, accepted, stops in ((59, False, True), (60, False, False), (1, True, False), (-5, False, False)):
        LoginFailures(records).record_rejected_token(ME)
        records.time += passed
        if accepted:
            LoginFailures(records).delete_rejected_token(ME)
        if stops:
            with pytest.raises(TokenRejected, match=r"rejected a new token .* wait 1 s, or run `xapi login`"):
                LoginFailures(records).check_token(ME)
        else:
            LoginFailures(records).check_token(ME)


GARBAGE = [
    b"", b"null", b"[]", b"\xff", b"[" * 10_000, b'{"at": "x"}', b'{"at": 1000.0, "entries": 1}', b'{"at": NaN}',
    b'{"at": 1000.0, "entries": [1, {"salt": "x", "mark": "1", "at": 1000.0, "message": ""}]}',
    b'{"at": 1000.0, "entries": [{"salt": "\\ud800", "mark": 1, "at": 1000.0, "message": ""}]}',
    b'{"at": 1000.0, "kind": "OSError", "message": "x"}', b'{"at": 1000.0, "kind": "NetworkError", "hint": 1}',
    b'{"at": 1000.0, "kind": "LoginNeeded", "mark": 1, "salt": 1}',
    b'{"at": 1000.0, "kind": "NetworkError", "message": 1}',
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_ignored(records: Records, data: bytes) -> None:
    for kind in ("refused", "failed"):
        records.texts[ME, kind] = data

    failures = LoginFailures(records)
    failures.check_password(ME, "wrong", origin="it")
    failures.check_failed(ME, since=0, command="pass")
