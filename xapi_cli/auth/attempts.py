"""What became of the latest logins, so that those who come after do not repeat a failure.

Accounts are locked by repeated wrong passwords, and a hundred processes that
meet the same dead server must not try it one after another. What is kept for
a minute is the failure and, of a password that was refused, twelve bits of a
salted scrypt: enough to know it again, useless for guessing it.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from xapi_cli import errors, folders
from xapi_cli.errors import LoginRefused, TokenRejected, XapiError
from xapi_cli.tokens import Identity

MEMORY = 60.0  # seconds

_SHARED = (
    LoginRefused,
    errors.RedirectError,
    errors.ClientStatusError,
    errors.ServerStatusError,
    errors.InvalidTokenResponse,
    errors.NetworkError,
    errors.TimeoutExpired,
)


class Attempts:
    """The memory of failed logins in *folder*; without a folder there is none."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock

    def check(self, identity: Identity, password: str, *, since: float) -> None:
        """Raise what a login with *password* would: refused within the minute, or failed anyhow after *since*."""
        found = self._read(identity, "login")
        if found is None:
            return
        kind, at = found.get("kind"), found["at"]
        if kind == LoginRefused.__name__:
            if _mark(password, found.get("salt")) == found.get("mark"):
                left = max(1, round(at + MEMORY - self._clock()))
                raise LoginRefused(
                    f"this password was refused less than a minute ago, so it is not sent again: {found['message']}",
                    hint=f"give the right password, or wait {left} s, or run `xapi login`",
                )
        elif at >= since:
            for shared in _SHARED:
                if shared.__name__ == kind:
                    raise shared(f"{found['message']} (another xapi tried at the same time)", hint=found.get("hint"))

    def note_failure(self, identity: Identity, error: XapiError, password: str) -> None:
        """Keep, for a minute, that a login failed with *error*."""
        entry: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        if isinstance(error, LoginRefused):
            salt = os.urandom(16).hex()
            entry |= {"salt": salt, "mark": _mark(password, salt)}
        if isinstance(error, _SHARED):
            self._write(identity, "login", entry)

    def note_rejection(self, identity: Identity) -> None:
        """Keep, for a minute, that the API refused a token fresh from an automatic login."""
        self._write(identity, "token", {})

    def check_rejection(self, identity: Identity) -> None:
        """Raise TokenRejected when a fresh token was refused within the minute: another login would not help."""
        if (found := self._read(identity, "token")) is not None:
            left = max(1, round(found["at"] + MEMORY - self._clock()))
            raise TokenRejected(
                "the API refused a fresh token less than a minute ago, so xapi does not log in again by itself",
                hint=f"check the base URL and the account's rights, then wait {left} s or run `xapi login`",
            )

    def forget(self, identity: Identity) -> None:
        """Drop what is kept of *identity*: a login has succeeded."""
        for suffix in ("login", "token"):
            with suppress(OSError):
                self._path(identity, suffix).unlink()

    def sweep(self) -> None:
        """Remove what is older than a minute, whichever account it is of."""
        with suppress(OSError):
            for path in self._folder.iterdir() if self._folder else ():
                if not 0 <= self._clock() - path.stat().st_mtime <= MEMORY:
                    path.unlink()

    def _path(self, identity: Identity, suffix: str) -> Path:
        return (self._folder or Path("/nonexistent")) / f"{identity.key}.{suffix}"

    def _read(self, identity: Identity, suffix: str) -> dict[str, Any] | None:
        """Return the entry while it is younger than a minute; one from the future is none (a clock was set back)."""
        try:
            data = folders.read(self._path(identity, suffix), limit=64 * 1024)
            entry = json.loads(data) if data else None
            if isinstance(entry, dict) and 0 <= self._clock() - float(entry["at"]) < MEMORY:
                return entry
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def _write(self, identity: Identity, suffix: str, entry: dict[str, Any]) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # no memory is a pity, not a failure
            folders.private(self._folder)
            folders.replace(
                self._path(identity, suffix), json.dumps(entry | {"at": self._clock()}).encode(), sync=False
            )


def _mark(password: str, salt: object) -> int | None:
    if not isinstance(salt, str):
        return None
    import hashlib

    derived = hashlib.scrypt(
        password.encode("utf-8", "surrogateescape"), salt=salt.encode(), n=2**14, r=8, p=1, dklen=2
    )
    return int.from_bytes(derived, "big") & 0xFFF
