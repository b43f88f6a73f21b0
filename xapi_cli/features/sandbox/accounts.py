"""The users of the test server, their tokens, and counts of logins and requests."""

import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

MONTH = 30 * 24 * 60 * 60  # seconds

PROJECTS: tuple[dict[str, Any], ...] = tuple(
    {"id": number, "name": name, "status": status, "modified": modified, "link": f"/x-api/projects/{number}"}
    for number, name, status, modified in (
        (1, "Winter Cup", "active", "2026-01-10T09:00:00Z"),
        (2, "Spring Open", "active", "2026-04-02T12:30:00Z"),
        (3, "Autumn League", "archived", "2025-10-20T18:00:00Z"),
    )
)
_DETAILS = {"owner": {"name": "Mara Master", "email": "master@example.com"}, "teams": ["red", "blue"]}


@dataclass(frozen=True)
class User:
    """A user account; with *master* rights, the user can call the API."""

    number: int
    email: str
    name: str
    master: bool
    password: str = field(repr=False)


# Any keyboard can type the passwords, and each contains characters that fail unless they are percent-encoded.
MASTER = User(1, "master@example.com", "Mara Master", master=True, password="correct horse + b%20ttery & staple=1")
MEMBER = User(2, "member@example.com", "Mika Member", master=False, password="one more & 100% + mika=?#")


class Accounts:
    """Issues and checks tokens with a lifetime of *expires_in* seconds; can be used from several threads.

    A token becomes invalid after *forget_after* requests. The details of a project take *slow* seconds.
    """

    def __init__(self, expires_in: int, *, slow: float = 0.0, forget_after: int | None = None) -> None:
        self.expires_in, self.slow, self._forget_after = expires_in, slow, forget_after
        self.projects = {str(each["id"]): each | _DETAILS for each in PROJECTS}
        self._uses: Counter[str] = Counter()
        self.login_attempts = 0
        self.logins = 0
        self.requests = 0  # API requests without logins, including rejected ones
        self.unauthorized = 0
        self._tokens: dict[str, tuple[User, float]] = {}
        self._lock = threading.Lock()

    def log_in(self, username: str, password: str) -> str | None:
        """Return a new token, or None if *username* and *password* do not match."""
        user = next((user for user in (MASTER, MEMBER) if user.email == username), None)
        with self._lock:
            self.login_attempts += 1
            if user is None or not secrets.compare_digest(user.password.encode(), password.encode()):
                return None
            self.logins += 1
            token = secrets.token_urlsafe(675)  # 900 characters: opaque and long, as documented
            self._remove_expired()
            self._tokens[token] = (user, time.monotonic() + self.expires_in)
            return token

    def user_of(self, token: str) -> User | None:
        """Return the user of *token*, or None if it is unknown, expired or revoked."""
        with self._lock:
            user, expires_at = self._tokens.get(token, (None, 0.0))
            self._uses[token] += 1
            if self._forget_after is not None and self._uses[token] > self._forget_after:
                self._tokens.pop(token, None)
                return None
            return user if time.monotonic() < expires_at else None

    def revoke_tokens(self) -> int:
        """Revoke all tokens; return the number of tokens that were valid."""
        with self._lock:
            self._remove_expired()
            revoked = len(self._tokens)
            self._tokens.clear()
            return revoked

    def change(self, project: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        """Change fields of *project*, other than its id and its link, and return it."""
        with self._lock:
            fixed = {name: project[name] for name in ("id", "link")}
            modified = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            project.update(changes | fixed | {"modified": modified})
            return dict(project)

    def count(self, status: int) -> None:
        """Count an API request with the response *status*."""
        with self._lock:
            self.requests += 1
            self.unauthorized += status == 401

    def _remove_expired(self) -> None:
        now = time.monotonic()
        self._tokens = {token: owner for token, owner in self._tokens.items() if now < owner[1]}
