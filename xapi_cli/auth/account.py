"""One account: its stored token, and the explicit and automatic logins that replace it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from xapi_cli.auth.failures import LoginFailures
from xapi_cli.auth.passwords import COMMAND_TIMEOUT, TYPED, PasswordSources, described, prompt_until_accepted
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, StoreError, TimeoutExpired, XapiError
from xapi_cli.hints import Hint, Run, together
from xapi_cli.store import registry
from xapi_cli.store.protocol import LockLost
from xapi_cli.system.lock import LockTimeout
from xapi_cli.system.render import decimal, printable
from xapi_cli.tokens import Identity, Record, Token

if TYPE_CHECKING:
    from xapi_cli.store.login_session import LoginSession
    from xapi_cli.store.repository import TokenRepository

Reason = Literal["missing", "expired", "rejected", "short", "fresh"]  # for an automatic login
Source = Literal["store", "login", "env"]  # of a token
State = Literal["valid", "short", "expired", "none", "rejected"]
_MARGIN = 10.0  # seconds that a process waits for another process's login, beyond the limit of a login
_REASONS: dict[Reason, str] = {
    "missing": "no stored token",
    "expired": "the stored token has expired",
    "rejected": "the API rejected the stored token (401)",
    "short": "the stored token has too little time left",
    "fresh": "a new token was requested",
}


def name_of(identity: Identity) -> str:
    """Return the name of the account *identity*, for messages."""
    return f"{printable(identity.username)} at {printable(identity.base_url)}"


class Account:
    """The account of *repository*: *grant* exchanges a password, whose source it names in errors, for a token.

    *note* and *warn* print messages for the user. *timeout* is the limit of one login in seconds, *deadline* the
    monotonic time at which the whole command times out. Without *automatic*, the account never logs in automatically.
    """

    def __init__(
        self,
        repository: "TokenRepository",
        *,
        grant: Callable[[str, str], Token],
        passwords: PasswordSources,
        note: Callable[[str], None],
        warn: Callable[[Hint], None],
        now: Callable[[], datetime],
        timeout: float,
        deadline: float | None = None,
        automatic: bool = True,
    ) -> None:
        self.repository, self.identity, self.automatic = repository, repository.identity, automatic
        self._grant, self.passwords, self._deadline, self._timeout = grant, passwords, deadline, timeout
        self._note, self._warn, self._now = note, warn, now
        self._granted: Token | None = None
        self._is_grant_stored = self._is_grant_rejected = False
        self.login_reason: Reason | None = None
        self.source: Source = "store"
        repository.check_settings()  # those that are not usable fail before the first line of a batch

    # the stored token: most calls need nothing else

    def stored(self) -> Token | None:
        """Return the stored token in any state, without a login."""
        return record.token if (record := self.repository.read()) else None

    def check(self) -> None:
        """Raise what `current` raises if there is neither a token nor a way to get one; send nothing to the API.

        With automatic logins, wait for a login of another process, and for its token or its failure.
        """
        if (token := self.stored()) and not self.has_expired(token):
            return
        if not self.automatic or (self._must_prompt and not self.passwords.prompt):
            self.token()

    def current(self) -> Token:
        """Return the token for a request, even one that was rejected: the response shows whether it still is."""
        token = self.stored()
        return token if token and not self.has_expired(token) else self.token()

    def token(self, *, min_ttl: float = 0, fresh: bool = False) -> Token:
        """Return a token for another program; with *fresh*, always log in.

        It was not rejected, unless automatic login is disabled. If possible, it has at least *min_ttl* seconds left.
        """
        stored = self.stored()
        if fresh:
            return self._log_in_automatically("fresh", stored)
        if stored is None:
            return self._log_in_automatically("missing", None)
        if self.has_expired(stored):
            return self._log_in_automatically("expired", stored)
        if self.automatic and self.repository.is_rejected(stored):
            return self._log_in_automatically("rejected", stored)
        if not stored.lasts(self._now(), min_ttl):
            return self._log_in_automatically("short", stored)
        return stored

    def renew(self, rejected: Token) -> Token | None:
        """Return a replacement for *rejected*: a newer token from another process, else one from a login.

        Returns None if automatic login is disabled. The caller MUST limit the number of renewals.
        """
        newer = None
        try:
            if self.automatic:
                newer = self._log_in_automatically("rejected", rejected)
        finally:
            if newer is None:
                self.repository.record_rejection(rejected)
        return newer

    def newer(self, than: Token | None) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""
        record = self.repository.read(again=True)
        is_same = record and than and record.token.access_token == than.access_token
        if record is None or is_same or self.has_expired(record.token):
            return None
        self.source = "store"
        return record.token

    def has_expired(self, token: Token) -> bool:
        """Return whether *token* is known to have expired."""
        return not token.lasts(self._now())

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""
        return token is self._granted

    def record_rejection(self, token: Token) -> None:
        """Record a final 401 for *token*; if it is fresh and stored, disable automatic login for a minute."""
        self.repository.record_rejection(token)
        if token is self._granted and self._is_grant_stored:  # others may have revoked one that is not
            self._failures.record_token()
            self._is_grant_rejected = True

    def record_success(self) -> None:
        """Record that the API accepted the token; nothing is written unless its rejection was recorded.

        A rejection of a new token in another process stops logins nevertheless: it may have been about rights.
        """
        self.repository.forget_rejection()
        if self._is_grant_rejected:
            self._failures.forget("rejected")

    # explicit login

    def log_in(self, password: str, *, remember: bool | None, origin: str) -> Token:
        """Log in with *password*, then store and return the token, which is always a new one.

        *origin* names the source of the password, for the hint of a rejected login. *remember* is True to store the
        password as well, False to delete it from all known stores, None to replace a stored one. Raises StoreError if
        the token cannot be stored, and any error that the grant raises.
        """
        self._session.begin()
        logged_out = "the account was logged out during the login, so nothing was"
        with self._locked():
            if self._session.was_logged_out():
                raise StoreError(f"{logged_out} sent", hint="log in again")
            token = self._request_token(password, origin)
            self._failures.forget("failed", "refused", "rejected")
            record = self.repository.read(again=True)
            stored_password = password if remember or (remember is None and record and record.password) else None
            self.source = "login"
            if not self._session.write(Record(token, stored_password)):
                raise StoreError(f"{logged_out} stored", hint="log in again")
            if remember is False:
                from xapi_cli.store.deletion import delete_passwords_elsewhere

                delete_passwords_elsewhere(self.repository)
            return token

    def remember(self, password: str) -> None:
        """Store *password* with the stored token, which may be a newer one by now; a failure is only a warning."""
        try:
            with self._locked():
                self._session.remember(password)
        except (StoreError, TimeoutExpired) as error:
            self._warn(together("the password could not be stored: ", error.advice))

    # automatic login
    #
    # _log_in_automatically     raises LoginNeeded with --no-login; prompts if there is no other password source
    # └─ _log_in_with           acquires the login lock, unless another process stores a newer token
    #    └─ _log_in_locked      logs in, unless the same login has just failed in another process
    #       ├─ _request_token   exchanges the password for a token
    #       └─ _store           stores the token, and lets the waiting processes go on

    def _log_in_automatically(self, reason: Reason, stale: Token | None) -> Token:
        """Return a replacement for *stale*: a token that another process has stored, else one from a login."""
        if not self.automatic:
            raise self._not_logged_in(reason, "--no-login was given", registry.login_hint(self.repository.row))
        self._session.begin()
        if reason != "fresh":
            self._failures.check_token()
        prompt = self.passwords.prompt
        if not prompt or not self._must_prompt:
            return self._log_in_with(reason, stale, None)
        token, _ = prompt_until_accepted(  # before the lock: no process waits for user input
            lambda _: prompt(_REASONS[reason]), lambda typed: self._log_in_with(reason, stale, typed), self._warn
        )
        return token

    @property
    def _must_prompt(self) -> bool:
        """Whether a prompt is the only possible source of the password, which may not be available either."""
        return self.passwords.command is None and self.passwords.known(self.repository.read()) is None

    def _log_in_with(self, reason: Reason, stale: Token | None, typed: str | None) -> Token:
        """Log in with the *typed* password, or with one from another source if that is None.

        Fails immediately, without waiting for the lock, if the password was rejected during the last minute.
        """
        if typed is not None:
            self._session.begin()  # again: typing may have taken long
        if password := typed or self.passwords.known(self.repository.read()):
            self._failures.check_password(password, self._origin(typed))
        since, is_fresh = self._failures.now(), reason == "fresh"
        try:
            with self._locked(stop_on_login=not is_fresh) as is_held:
                if newer := None if is_fresh else self.newer(stale):
                    return newer
                if is_held:
                    return self._log_in_locked(reason, stale, typed, since)
            with self._locked():
                return self.newer(stale) or self._log_in_locked(reason, stale, typed, since)
        except (NetworkError, TimeoutExpired) as error:
            error.message = f"{_REASONS[reason]}, and the login failed: {error.message}"
            raise

    def _log_in_locked(self, reason: Reason, stale: Token | None, typed: str | None, since: float) -> Token:
        """Log in, while this process holds the login lock, unless another process's failure applies to this login.

        It applies if it was recorded after *since*, when this process began to wait.
        """
        record = self.repository.read(again=reason == "fresh")
        if self._session.was_logged_out():  # each waiting process would log in for itself, and store nothing
            raise LoginNeeded(f"{name_of(self.identity)} was logged out in the meantime", hint=("run ", Run("login")))
        if reason != "fresh":
            self._failures.check_token()
        uses_command = not typed and self.passwords.uses_command
        self._failures.check_login(since=since, uses_command=uses_command)
        try:
            if (password := typed or self.passwords.get(record)) is None:
                raise self._without_password(reason)
            self._failures.check_password(password, self._origin(typed))
            token = self._request_token(password, self._origin(typed))
        except (LoginNeeded, LoginRefused) as error:
            if uses_command:
                self._failures.record_login(error, of_command=True)
            raise
        self._failures.forget("failed")
        if (newer := self._store(Record(token, record.password if record else None), stale)) is not None:
            return newer
        self._granted, self.source, self.login_reason = token, "login", reason
        self._note(f"logged in as {name_of(self.identity)}: {_REASONS[reason]}")
        return token

    def _request_token(self, password: str, origin: str) -> Token:
        """Return the token for *password*; record a failure for waiting processes."""
        try:
            return self._grant(password, described(origin, password))
        except LoginRefused as error:
            self._failures.record_password(error, password)
            raise
        except XapiError as error:
            self._failures.record_login(error)
            raise

    def _store(self, record: Record, stale: Token | None) -> Token | None:
        """Store *record*; warn if it is not stored.

        Returns a newer token if this login took so long that another one has begun, and may have invalidated it.
        """
        self._is_grant_stored = False
        try:
            if self._session.write(record):
                self._is_grant_stored = True
            else:
                self._warn("the account was logged out in the meantime, so the new token is not stored")
        except (StoreError, TimeoutExpired) as error:
            if isinstance(error, LockLost) and (newer := self.newer(stale)) is not None:
                return newer
            self._warn(together("the new token could not be stored: ", error.advice))
        return None

    def _without_password(self, reason: Reason) -> LoginNeeded:
        row = self.repository.row
        hint = registry.password_hint(row)
        if row.is_persistent:
            hint = together(registry.login_hint(row), ", or ", hint)
        return self._not_logged_in(reason, "no password source is available", hint)

    def _not_logged_in(self, reason: Reason, obstacle: str, hint: Hint) -> LoginNeeded:
        return LoginNeeded(f"not logged in as {name_of(self.identity)}: {_REASONS[reason]}, and {obstacle}", hint=hint)

    def _origin(self, typed: str | None) -> str:
        return self.passwords.origin if typed is None else TYPED

    @cached_property
    def _session(self) -> "LoginSession":
        from xapi_cli.store.login_session import open_session

        return open_session(self.repository)

    @cached_property
    def _failures(self) -> LoginFailures:
        """The login failures; only a login needs them, and the store may have to connect."""
        return LoginFailures(self._session)

    @contextmanager
    def _locked(self, *, stop_on_login: bool = False) -> Iterator[bool]:
        """Hold the login lock of this account, to exclude other logins to it; see `LoginSession.locked`.

        Raises TimeoutExpired if another login holds the lock for longer than a login may take.
        """
        limit = self._timeout + COMMAND_TIMEOUT + _MARGIN
        timeout = limit if self._deadline is None else min(limit, max(0.0, self._deadline - time.monotonic()))
        with ExitStack() as stack:
            try:
                is_held = stack.enter_context(self._session.locked(timeout, stop_on_login=stop_on_login))
            except LockTimeout as error:
                more_time = "raise --max-time, " if timeout < limit else ""
                raise TimeoutExpired(
                    f"another xapi process has been logging in as {name_of(self.identity)}"
                    f" for more than {decimal(int(timeout * 10) / 10)} s",
                    hint=f"try again, {more_time}or end that process if it hangs",
                ) from error
            yield is_held


def state_of(token: Token | None, now: datetime, min_ttl: float = 0, *, repository: "TokenRepository | None") -> State:
    """Return the state of *token* from its expiry time, and from the last 401 that *repository* knows of.

    `short` means less than *min_ttl* seconds left. The repository is None for a token that the user supplies.
    """
    if token is None:
        return "none"
    if not token.lasts(now):
        return "expired"
    if repository is not None and repository.is_rejected(token):
        return "rejected"
    return "valid" if token.lasts(now, min_ttl) else "short"
