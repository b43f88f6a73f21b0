"""Recent login failures, recorded so that other processes do not repeat them.

Repeated wrong passwords lock an account, and a hundred processes that encounter the same unavailable server must not
try it one after another. A failure is recorded for a minute. Of each rejected password, only twelve bits of a salted
scrypt hash are recorded: enough to recognize it, not enough to guess it. The same applies to a password command that
failed or returned such a password.

Rejected passwords are recorded where the login lock is, and in the state directory as well: the Redis
server that has the lock may be restarted, and processes of one account may use different kinds of storage.
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from xapi_cli import errors
from xapi_cli.errors import LoginNeeded, LoginRefused, TokenRejected, XapiError
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from xapi_cli.store.login_protocol import Failures

_RECORDED_FOR = 60.0  # seconds
_CLOCK_TOLERANCE = 0.5  # seconds by which the clocks of two machines may differ from the one that they share

_COMMAND_ERRORS = (LoginNeeded, LoginRefused)  # errors that a password command can cause
_KINDS = ("failed", "command", "refused", "rejected")
_MAX_REJECTED = 32  # rejected passwords recorded per account; more are not in use


class LoginFailures:
    """The login failures in *records*, which all processes share; *others* also contain rejected passwords."""

    def __init__(self, records: "Failures", *others: "Failures") -> None:
        self._entries = _Entries(records)
        self._everywhere = (self._entries, *map(_Entries, others))

    def now(self) -> float:
        """Return the time, in seconds, with which later failures can be compared."""
        return self._entries.now()

    def check_password(self, identity: Identity, password: str, *, origin: str = "the password") -> None:
        """Raise LoginRefused if *password*, which *origin* names, was rejected within the last minute."""
        rejected = [(each, entry) for each in self._everywhere for entry in each.rejected_passwords(identity)]
        marks = _fingerprints(password, [entry["salt"] for _, entry in rejected])
        for entries, entry in rejected:
            if entry["mark"] == marks[entry["salt"]]:
                raise LoginRefused(
                    f"{entry['message']} less than a minute ago, so this password is not sent again",
                    hint=f"correct {origin}, wait {entries.seconds_left(entry)} s, or run `xapi login`",
                )

    def check_failed(self, identity: Identity, *, since: float) -> None:
        """Raise the error of another process's login that failed after *since* for a reason other than the password."""
        if entry := self._entries.read(identity, "failed"):
            self._raise_shared(entry, since, [each for each in errors.derived() if each.is_shared])

    def check_command_failed(self, identity: Identity, command: str, *, since: float) -> None:
        """Raise the error of another process's login that failed after *since* with the password command *command*."""
        entry = self._entries.read(identity, "command")
        if entry and _is_salt(salt := entry.get("salt")) and entry.get("mark") == _fingerprint(command, salt):
            self._raise_shared(entry, since, _COMMAND_ERRORS)

    def record_rejected_password(self, identity: Identity, error: LoginRefused, password: str) -> None:
        """Record, for a minute, that *password* was rejected."""
        found = [each.rejected_passwords(identity) for each in self._everywhere]
        # everywhere the same salt if possible, because two hashes of a password reveal more bits of it than one
        salt = next((entries[0]["salt"] for entries in found if entries), os.urandom(16).hex())
        salts = [entries[0]["salt"] if entries else salt for entries in found]
        marks = _fingerprints(password, salts)
        for each, others, salt in zip(self._everywhere, found, salts, strict=True):
            each.record_rejected_password(identity, others, salt, marks[salt], error.message)

    def record_failed(self, identity: Identity, error: XapiError) -> None:
        """Record, for waiting processes, that a login failed with *error*."""
        if error.is_shared:
            self._entries.write(identity, "failed", _described(error))

    def record_command_failed(self, identity: Identity, error: XapiError, command: str) -> None:
        """Record, for waiting processes, that the password command *command* failed or its password was rejected."""
        salt = os.urandom(16).hex()
        entry = {**_described(error), "salt": salt, "mark": _fingerprint(command, salt)}
        self._entries.write(identity, "command", entry)

    def record_rejected_token(self, identity: Identity) -> None:
        """Record, for a minute, that the API rejected a new token from an automatic login."""
        self._entries.write(identity, "rejected", {})

    def check_token(self, identity: Identity) -> None:
        """Raise TokenRejected if a new token was rejected within the last minute: another login would not help."""
        if (entry := self._entries.read(identity, "rejected")) is not None:
            raise TokenRejected(
                "the API rejected a new token less than a minute ago, so xapi does not log in automatically",
                hint="check the base URL and the rights of the account, then"
                f" wait {self._entries.seconds_left(entry)} s or run `xapi login`",
            )

    def delete_failed(self, identity: Identity) -> None:
        """Delete the recorded failures of *identity* that a successful login resolves."""
        self._entries.remove(identity, ("failed", "command"))

    def delete(self, identity: Identity) -> None:
        """Delete all records of *identity*."""
        for each in self._everywhere:
            each.remove(identity, _KINDS)

    @staticmethod
    def _raise_shared(entry: dict[str, Any], since: float, kinds: Sequence[type[XapiError]]) -> None:
        if entry["at"] < since or not isinstance(message := entry.get("message"), str):
            return
        hint = entry.get("hint")
        for kind in kinds:
            if entry.get("kind") == kind.__name__ and isinstance(hint, str | None):
                raise kind(f"{message} (reported by another xapi process)", hint=hint)


class _Entries:
    """The entries of the last minute in *records*, by the clock of *records*."""

    def __init__(self, records: "Failures") -> None:
        self._records, self.now = records, records.now
        self._unrecorded: list[dict[str, Any]] = []  # rejected passwords, if the records cannot be written

    def rejected_passwords(self, identity: Identity) -> list[dict[str, Any]]:
        """Return the rejections of the last minute, the latest first; all have the same salt."""
        entries = (self.read(identity, "refused") or {"entries": self._unrecorded}).get("entries")
        wanted = {"salt": str, "mark": int, "at": float, "message": str}
        found = [
            entry
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict)
            and all(isinstance(entry.get(key), kind) for key, kind in wanted.items())
            and _is_salt(entry["salt"])
            and self._is_recent(entry)
        ]
        return [entry for entry in found if entry["salt"] == found[0]["salt"]]

    def record_rejected_password(
        self, identity: Identity, others: list[dict[str, Any]], salt: str, mark: int, message: str
    ) -> None:
        """Add the rejection of the password with *mark* to the *others*, which all have this *salt*."""
        entry = {"salt": salt, "mark": mark, "at": self.now(), "message": message}
        rejected = [entry, *(other for other in others if other["mark"] != mark)][:_MAX_REJECTED]
        self.write(identity, "refused", {"entries": rejected})
        self._unrecorded = [] if self.read(identity, "refused") else rejected

    def read(self, identity: Identity, kind: str) -> dict[str, Any] | None:
        """Return the record, or None if it is missing, not valid or older than a minute."""
        try:
            entry = json.loads(self._records.read(identity, kind) or b"")
        except (ValueError, RecursionError):
            return None
        fits = isinstance(entry, dict) and isinstance(entry.get("at"), float) and self._is_recent(entry)
        return entry if fits else None

    def write(self, identity: Identity, kind: str, entry: dict[str, Any]) -> None:
        """Record *entry*, if that is possible."""
        self._records.write(identity, kind, json.dumps(entry | {"at": self.now()}).encode())

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*, if that is possible."""
        if "refused" in kinds:
            self._unrecorded = []
        self._records.remove(identity, kinds)

    def seconds_left(self, entry: dict[str, Any]) -> int:
        """Return for how many seconds *entry* is valid."""
        return max(1, round(float(entry["at"]) + _RECORDED_FOR - self.now()))

    def _is_recent(self, entry: dict[str, Any]) -> bool:
        age = self.now() - float(entry["at"])
        return -_CLOCK_TOLERANCE <= age < _RECORDED_FOR  # ignore one from the future: a server was set back


def _is_salt(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii()


def _described(error: XapiError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def _fingerprints(secret: str, salts: Iterable[str]) -> dict[str, int]:
    return {salt: _fingerprint(secret, salt) for salt in set(salts)}


def _fingerprint(secret: str, salt: str) -> int:
    import hashlib

    derived = hashlib.scrypt(secret.encode("utf-8", "surrogateescape"), salt=salt.encode(), n=2**14, r=8, p=1, dklen=2)
    return int.from_bytes(derived, "big") & 0xFFF
