"""Recent login failures of an account, recorded so that other processes do not repeat them.

Repeated wrong passwords lock an account, and a hundred processes that encounter the same unavailable server must not
try it one after another. A failure is recorded for a minute. Of each rejected password, only twenty bits of a salted
scrypt hash are recorded, which it shares with one in a million others: enough to recognize it, too few to guess it.
"""

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from xapi_cli import errors
from xapi_cli.errors import LoginRefused, StoreError, TokenRejected, XapiError
from xapi_cli.hints import Run, decoded, encoded

if TYPE_CHECKING:
    from xapi_cli.store.login_session import LoginSession

Kind = Literal["failed", "refused", "rejected"]  # a login, passwords, a token
_RECORDED_FOR = 60.0  # seconds
_CLOCK_TOLERANCE = 0.5  # seconds by which the clocks of two machines may differ from the one that they share
_MAX_REJECTED = 32  # rejected passwords recorded per account; more are not in use


class LoginFailures:
    """The login failures of the account of *session*, which all processes share."""

    def __init__(self, session: "LoginSession") -> None:
        self._session, self.now = session, session.now
        self._own: dict[str, Any] = {}  # passwords that were rejected in this process, even if nothing can be recorded

    def check_password(self, password: str, origin: str) -> None:
        """Raise LoginRefused if *password*, which *origin* names, was rejected within the last minute."""
        salt, rejected = self._rejected_passwords()
        mark = _fingerprint(password, salt) if rejected else None
        for of, at, message in rejected:
            if of == mark:
                raise LoginRefused(
                    f"{message} less than a minute ago, so this password is not sent again",
                    hint=(f"correct {origin}, wait {self._seconds_left(at)} s, or run ", Run("login")),
                )

    def check_token(self) -> None:
        """Raise TokenRejected if a new token was rejected within the last minute: another login would not help."""
        if (entry := self._read("rejected")) is not None:
            what = (
                f"check the base URL and the rights of the account, wait {self._seconds_left(entry['at'])} s, or run "
            )
            raise TokenRejected(
                "the API rejected a new token less than a minute ago, so xapi does not log in automatically",
                hint=(what, Run("login")),
            )

    def check_login(self, *, since: float, uses_command: bool) -> None:
        """Raise the error of another process's login that failed after *since* for a reason other than the password.

        If this login *uses_command*, the password command, the reason may be the command or its password.
        """
        entry = self._read("failed")
        if entry is None or entry["at"] < since or (entry.get("of_command") and not uses_command):
            return
        for kind in errors.derived():
            if entry.get("kind") == kind.__name__:
                message = f"{entry.get('message')} (reported by another xapi process)"
                raise kind(message, hint=decoded(entry.get("hint")))

    def record_password(self, error: LoginRefused, password: str) -> None:
        """Record that *password* was rejected with *error*."""
        # the same salt if possible, because two hashes of a password reveal more bits of it than one
        salt, others = self._rejected_passwords()
        rejected = [(_fingerprint(password, salt), self.now(), error.message)]
        rejected += [other for other in others if other[0] != rejected[0][0]]
        self._own = {"salt": salt.hex(), "entries": rejected[:_MAX_REJECTED]}
        self._write("refused", self._own)

    def record_token(self) -> None:
        """Record that the API rejected a new token from an automatic login."""
        self._write("rejected", {})

    def record_login(self, error: XapiError, *, of_command: bool = False) -> None:
        """Record, for waiting processes, that a login failed with *error*, because of the password command or not."""
        if of_command or error.is_shared:
            members = {"kind": type(error).__name__, "message": error.message, "hint": encoded(error.hint)}
            self._write("failed", {**members, "of_command": of_command})

    def forget(self, *kinds: Kind) -> None:
        """Delete the records of *kinds*."""
        if "refused" in kinds:
            self._own = {}
        self._session.forget_failures(kinds)

    def _rejected_passwords(self) -> tuple[bytes, list[tuple[int, float, str]]]:
        """Return the salt and the rejections of the last minute, the latest first."""
        record = self._read("refused") or self._own
        try:
            salt = bytes.fromhex(record["salt"])
            rejected = [(int(mark), float(at), str(message)) for mark, at, message in record["entries"]]
        except (KeyError, TypeError, ValueError, OverflowError):
            return os.urandom(16), []
        recent = [each for each in rejected if self._is_recent(each[1])]
        return salt if recent else os.urandom(16), recent

    def _read(self, kind: Kind) -> dict[str, Any] | None:
        """Return the record, or None if it is missing, not valid or older than a minute."""
        try:
            entry = json.loads(self._session.failure(kind) or b"")
        except (ValueError, RecursionError):
            return None
        fits = isinstance(entry, dict) and isinstance(entry.get("at"), float) and self._is_recent(entry["at"])
        return entry if fits else None

    def _write(self, kind: Kind, entry: dict[str, Any]) -> None:
        with suppress(StoreError):  # the failure itself is reported
            self._session.record_failure(kind, json.dumps({**entry, "at": self.now()}).encode())

    def _seconds_left(self, at: float) -> int:
        return max(1, round(at + _RECORDED_FOR - self.now()))

    def _is_recent(self, at: float) -> bool:
        return -_CLOCK_TOLERANCE <= self.now() - at < _RECORDED_FOR  # ignore one from the future: a clock was set back


def _fingerprint(secret: str, salt: bytes) -> int:
    import hashlib

    derived = hashlib.scrypt(secret.encode("utf-8", "surrogateescape"), salt=salt, n=2**14, r=8, p=1, dklen=3)
    return int.from_bytes(derived, "big") & 0xFFFFF
