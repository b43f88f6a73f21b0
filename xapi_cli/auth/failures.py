"""Recent login failures, recorded so that other processes do not repeat them.

Repeated wrong passwords lock an account, and a hundred processes that encounter the same unavailable server must not
try it one after another. A failure is recorded for a minute. Of each rejected password, only twelve bits of a salted
scrypt hash are recorded: enough to recognize it, not enough to guess it. The same applies to a password command that
failed or returned such a password.
"""

import json
import os
from typing import TYPE_CHECKING, Any

from xapi_cli import errors
from xapi_cli.errors import LoginNeeded, LoginRefused, TokenRejected, XapiError
from xapi_cli.hints import Run, decoded, encoded
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.store.login_session import Failures

_RECORDED_FOR = 60.0  # seconds
_CLOCK_TOLERANCE = 0.5  # seconds by which the clocks of two machines may differ from the one that they share
_OF_COMMANDS = (LoginNeeded, LoginRefused)  # errors that a password command can cause
_KINDS = ("failed", "refused", "rejected")
_MAX_REJECTED = 32  # rejected passwords recorded per account; more are not in use


class LoginFailures:
    """The login failures in *records*, which all processes share."""

    def __init__(self, records: "Failures") -> None:
        self._records, self.now = records, records.now
        self._unrecorded: list[dict[str, Any]] = []  # rejected passwords, if the records cannot be written

    # rejected passwords

    def check_password(self, identity: Identity, password: str, *, origin: str) -> None:
        """Raise LoginRefused if *password*, which *origin* names, was rejected within the last minute."""
        rejected = self._rejected_passwords(identity)
        mark = _fingerprint(password, rejected[0]["salt"]) if rejected else None
        for entry in rejected:
            if entry["mark"] == mark:
                raise LoginRefused(
                    f"{entry['message']} less than a minute ago, so this password is not sent again",
                    hint=(f"correct {origin}, wait {self._seconds_left(entry)} s, or run ", Run("login")),
                )

    def record_rejected_password(self, identity: Identity, error: LoginRefused, password: str) -> None:
        """Record, for a minute, that *password* was rejected."""
        others = self._rejected_passwords(identity)
        # the same salt if possible, because two hashes of a password reveal more bits of it than one
        salt = others[0]["salt"] if others else os.urandom(16).hex()
        entry = {"salt": salt, "mark": _fingerprint(password, salt), "at": self.now(), "message": error.message}
        rejected = [entry, *(other for other in others if other["mark"] != entry["mark"])][:_MAX_REJECTED]
        self._write(identity, "refused", {"entries": rejected})
        self._unrecorded = [] if self._read(identity, "refused") else rejected

    def _rejected_passwords(self, identity: Identity) -> list[dict[str, Any]]:
        """Return the rejections of the last minute, the latest first; all have the same salt."""
        entries = (self._read(identity, "refused") or {"entries": self._unrecorded}).get("entries")
        members = {"salt": str, "mark": int, "at": float, "message": str}
        found = [
            entry
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict)
            and all(isinstance(entry.get(key), kind) for key, kind in members.items())
            and self._is_recent(entry)
        ]
        return [entry for entry in found if entry["salt"] == found[0]["salt"]]

    # failed logins, for the processes that wait for them

    def check_failed(self, identity: Identity, *, since: float, command: str | None) -> None:
        """Raise the error of another process's login that failed after *since* for a reason other than the password.

        If this login uses the password command *command*, the reason may be this command or its password.
        """
        entry = self._read(identity, "failed")
        if entry is None or entry["at"] < since:
            return
        kinds: Iterable[type[XapiError]] = (each for each in errors.derived() if each.is_shared)
        if "mark" in entry:
            if command is None or entry["mark"] != _fingerprint(command, str(entry.get("salt"))):
                return
            kinds = _OF_COMMANDS
        message, hint = entry.get("message"), decoded(entry.get("hint"))
        for kind in kinds:
            if entry.get("kind") == kind.__name__ and isinstance(message, str):
                raise kind(f"{message} (reported by another xapi process)", hint=hint)

    def record_failed(self, identity: Identity, error: XapiError, *, command: str | None = None) -> None:
        """Record, for waiting processes, that a login failed with *error*, because of *command* if it is given."""
        entry = {"kind": type(error).__name__, "message": error.message, "hint": encoded(error.hint)}
        if command is not None:
            salt = os.urandom(16).hex()
            self._write(identity, "failed", {**entry, "salt": salt, "mark": _fingerprint(command, salt)})
        elif error.is_shared:
            self._write(identity, "failed", entry)

    # rejected tokens

    def check_token(self, identity: Identity) -> None:
        """Raise TokenRejected if a new token was rejected within the last minute: another login would not help."""
        if (entry := self._read(identity, "rejected")) is not None:
            raise TokenRejected(
                "the API rejected a new token less than a minute ago, so xapi does not log in automatically",
                hint=(
                    f"check the base URL and the rights of the account, wait {self._seconds_left(entry)} s, or run ",
                    Run("login"),
                ),
            )

    def record_rejected_token(self, identity: Identity) -> None:
        """Record, for a minute, that the API rejected a new token from an automatic login."""
        self._write(identity, "rejected", {})

    # all

    def delete_failed(self, identity: Identity) -> None:
        """Delete the recorded failures of *identity* that a successful login resolves."""
        self._records.remove(identity, ("failed",))

    def delete_rejected_token(self, identity: Identity) -> None:
        """Delete the recorded rejection of a token: it was accepted for another request."""
        self._records.remove(identity, ("rejected",))

    def delete(self, identity: Identity) -> None:
        """Delete all records of *identity*."""
        self._unrecorded = []
        self._records.remove(identity, _KINDS)

    def _read(self, identity: Identity, kind: str) -> dict[str, Any] | None:
        """Return the record, or None if it is missing, not valid or older than a minute."""
        try:
            entry = json.loads(self._records.read(identity, kind) or b"")
        except (ValueError, RecursionError):
            return None
        fits = isinstance(entry, dict) and isinstance(entry.get("at"), float) and self._is_recent(entry)
        return entry if fits else None

    def _write(self, identity: Identity, kind: str, entry: dict[str, Any]) -> None:
        """Record *entry*, if that is possible."""
        self._records.write(identity, kind, json.dumps(entry | {"at": self.now()}).encode())

    def _seconds_left(self, entry: dict[str, Any]) -> int:
        return max(1, round(float(entry["at"]) + _RECORDED_FOR - self.now()))

    def _is_recent(self, entry: dict[str, Any]) -> bool:
        age = self.now() - float(entry["at"])
        return -_CLOCK_TOLERANCE <= age < _RECORDED_FOR  # ignore one from the future: a server was set back


def _fingerprint(secret: str, salt: str) -> int:
    import hashlib

    derived = hashlib.scrypt(
        secret.encode("utf-8", "surrogateescape"), salt=salt.encode(errors="replace"), n=2**14, r=8, p=1, dklen=2
    )
    return int.from_bytes(derived, "big") & 0xFFF
