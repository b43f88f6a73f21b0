"""One account: tokens for requests, explicit and automatic logins, logout."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from xapi_cli.auth import login_messages
from xapi_cli.auth.credentials import Reason, Source
from xapi_cli.auth.login_failures import LoginFailures
from xapi_cli.auth.login_messages import CREDENTIALS, REASONS
from xapi_cli.auth.password_sources import TYPED, PasswordSources, prompt_until_accepted
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, StoreError, TimeoutExpired, XapiError
from xapi_cli.store import registry
from xapi_cli.store.login_lock import AnotherLoggedIn
from xapi_cli.store.login_protocol import LockLost
from xapi_cli.store.login_session import open_session
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.lock import LockTimeout
from xapi_cli.system.render import decimal
from xapi_cli.tokens import Identity, Record, Token


class Account:
    """One account: *grant* exchanges a password for a token, as `request_token` of `password_grant` does.

    *note* and *warn* print messages for the user. *check_server* raises NetworkError or TimeoutExpired if no server
    responds, before the user types a password. *timeout* is the limit of one login in seconds, *deadline* the monotonic
    time at which the whole command times out. With *automatic* False, the account never logs in automatically.
    """

    def __init__(
        self,
        identity: Identity,
        repository: TokenRepository,
        *,
        grant: Callable[[str], Token],
        passwords: PasswordSources,
        note: Callable[[str], None],
        warn: Callable[[str], None],
        now: Callable[[], datetime],
        timeout: float,
        deadline: float | None = None,
        automatic: bool = True,
        check_server: Callable[[], object] = lambda: None,
    ) -> None:
        self._check_server = check_server
        self.identity, self.repository = identity, repository
        self._grant, self._passwords, self._deadline, self._automatic = grant, passwords, deadline, automatic
        self._note, self._warn, self._now = note, warn, now
        self._login_limit = timeout + (passwords.command.timeout if passwords.command else 0)
        self._session = open_session(repository, limit=self._login_limit)
        self._granted: Token | None = None
        self._stored_grant: Token | None = None
        self.login_reason: Reason | None = None
        self.cleared: list[str] = []  # the places from which a logout has deleted a record
        self.source: Source = "store"

    @cached_property
    def _failures(self) -> LoginFailures:
        """The login failures; only a login and a logout need them, and the store may have to connect."""
        return LoginFailures(*self._session.failures)

    # tokens for requests

    def check(self) -> None:
        """Raise what `token` raises if there is neither a token nor a way to get one; send nothing to the API.

        With automatic logins, wait for a login of another process, and for its token or its failure.
        """
        if not self._automatic or (self._must_prompt and self._passwords.prompt is None):
            self.token()

    def token(self, *, min_ttl: float = 0, fresh: bool = False) -> Token:
        """Return a token that was not rejected, unless automatic login is disabled; with *fresh*, always log in.

        If possible, it has at least *min_ttl* seconds left.
        """
        stored = record.token if (record := self.repository.read()) else None
        if fresh:
            return self._log_in_automatically("fresh", stored)
        if stored is None:
            return self._log_in_automatically("missing", None)
        if not stored.lasts(self._now()):
            return self._log_in_automatically("expired", stored)
        if self._automatic and self.repository.is_rejected(stored):
            return self._log_in_automatically("rejected", stored)
        if not stored.lasts(self._now(), min_ttl):
            return self._log_in_automatically("short", stored)
        return stored

    def renew(self, rejected: Token) -> Token | None:
        """Return a replacement for *rejected*: a newer token from another process, else one from a login.

        Returns None if automatic login is disabled. The caller MUST limit the number of renewals.
        """
        return self._log_in_automatically("rejected", rejected, is_responding=True) if self._automatic else None

    def newer(self, than: Token | None) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""
        record = self.repository.read(again=True)
        is_same = record and than and record.token.access_token == than.access_token
        if record is None or is_same or not record.token.lasts(self._now()):
            return None
        self.source = "store"
        return record.token

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""
        return token is self._granted

    def record_rejection(self) -> None:
        """Record that the API rejected the last token; if fresh and stored, disable automatic login for a minute."""
        if self._granted is not None and self._granted is self._stored_grant:  # others may have revoked another one
            self._failures.record_rejected_token(self.identity)

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""
        if not self._automatic:
            return "omit --no-login, or run `xapi login`"
        return "the token was fresh: check the base URL and the rights of the account"

    # explicit login and logout

    def log_in(self, password: str, *, remember: bool | None, origin: str = TYPED) -> Token:
        """Log in with *password*, then store and return the token, which is always a new one.

        *origin* names the source of the password, for the hint of a rejected login.
        *remember* is True to store the password as well, False to delete it from all known stores, None to replace a
        stored one.
        Raises StoreError if the token cannot be stored, and any error that the grant raises.
        """
        self._session.begin()
        logged_out = "the account was logged out during the login, so nothing was"
        with self._locked(required=False):
            if self._session.was_logged_out():
                raise StoreError(f"{logged_out} sent", hint="log in again")
            token = self._request_token(password, origin)
            self._failures.delete(self.identity)
            record = self.repository.read(again=True)
            stored_password = password if remember or (remember is None and record and record.password) else None
            self.source = "login"
            if not self._session.write(Record(token, stored_password)):
                raise StoreError(f"{logged_out} stored", hint="log in again")
            self._session.notify_login()
            if remember is False:
                self._delete_passwords_elsewhere()
            return token

    def _delete_passwords_elsewhere(self) -> None:
        from xapi_cli.store.deletion import Deletion

        try:
            Deletion(self.repository).delete_passwords_elsewhere()
        except TimeoutExpired as error:
            self._warn(f"passwords of this account in other stores may not have been deleted: {error}")

    def was_logged_out(self) -> bool:
        """Return whether the account is known to have been logged out since the last login began."""
        return self._session.was_logged_out()

    def remember(self, password: str) -> None:
        """Store *password* with the stored token, which may be a newer one by now; a failure is only a warning."""
        try:
            with self._locked(required=False):
                self._session.remember(password)
        except (StoreError, TimeoutExpired) as error:
            self._warn(f"the password could not be stored: {error}")

    def log_out(self) -> bool:
        """Delete the token and the password from all stores; return whether there were any."""
        from xapi_cli.store.deletion import Deletion

        deletion = Deletion(self.repository)
        self.cleared = deletion.cleared
        found = deletion.run()
        self._failures.delete(self.identity)
        return found

    # automatic login
    #
    # _log_in_automatically        raises LoginNeeded with --no-login; prompts if there is no other password source
    # └─ _log_in_with              fails immediately if the password was rejected during the last minute
    #    └─ _log_in_or_share       acquires the login lock, unless another process stores a newer token
    #       └─ _log_in_locked      logs in, while this process holds the lock
    #          ├─ _raise_shared_failure   fails if the same login has just failed in another process
    #          ├─ _password               gets the password, unless the user typed it
    #          ├─ _request_token          exchanges it for a token
    #          └─ _store                  stores the token, and notifies the waiting processes

    def _log_in_automatically(self, reason: Reason, stale: Token | None, *, is_responding: bool = False) -> Token:
        """Return a replacement for *stale*: a token that another process has stored, else one from a login.

        *is_responding* is True if the server has just responded: it is then not checked before a prompt.
        """
        if not self._automatic:
            hint = registry.login_hint(self.repository.row)
            raise LoginNeeded(self._not_logged_in(reason, "--no-login was given"), hint=hint)
        self._session.begin()
        if reason != "fresh":
            self._failures.check_token(self.identity)
        if self._must_prompt and (prompt := self._passwords.prompt):  # before the lock: no process waits for user input
            if not is_responding:
                self._check_server()
            token, _ = prompt_until_accepted(
                lambda _: prompt(REASONS[reason]), lambda typed: self._log_in_with(reason, stale, typed), self._warn
            )
            return token
        return self._log_in_with(reason, stale, None)

    @property
    def _must_prompt(self) -> bool:
        return self._passwords.needs_prompt(self.repository.read)

    def _log_in_with(self, reason: Reason, stale: Token | None, typed: str | None) -> Token:
        """Log in with the *typed* password, or with one from another source if that is None."""
        if typed is not None:
            self._session.begin()  # again: typing may have taken long
        if password := typed or self._passwords.known(self.repository.read):
            # immediately, without waiting for the lock
            self._failures.check_password(self.identity, password, origin=self._origin(typed))
        login = _AutomaticLogin(reason, stale, typed, self._failures.now())
        try:
            return self._log_in_or_share(login)
        except (NetworkError, TimeoutExpired) as error:
            error.message = f"{REASONS[reason]}, and the login failed: {error.message}"
            raise

    def _log_in_or_share(self, login: "_AutomaticLogin") -> Token:
        """Wait for the login lock and log in, unless another process stores a newer token first."""
        if login.reason != "fresh":
            try:
                with self._locked(stop_on_login=True):
                    return self.newer(login.stale) or self._log_in_locked(login)
            except AnotherLoggedIn:
                if (token := self.newer(login.stale)) is not None:
                    return token
        with self._locked():
            newer = self.newer(login.stale) if login.reason != "fresh" else None
            return newer or self._log_in_locked(login)

    def _log_in_locked(self, login: "_AutomaticLogin") -> Token:
        """Log in, while this process holds the login lock, unless another process's failure applies to this login."""
        record = self.repository.read(again=login.reason == "fresh")
        if self._session.was_logged_out():  # each waiting process would log in for itself, and store nothing
            raise LoginNeeded(f"{self._name()} was logged out in the meantime", hint="run `xapi login`")
        self._raise_shared_failure(login)
        try:
            password = login.typed or self._password(record, login.reason)
            origin = self._origin(login.typed)
            self._failures.check_password(self.identity, password, origin=origin)
            token = self._request_token(password, origin)
        except (LoginNeeded, LoginRefused) as error:
            if key := self._command_key(login):
                self._failures.record_command_failed(self.identity, error, key)
            raise
        self._failures.delete_failed(self.identity)
        try:
            if self._store(Record(token, record.password if record else None)):
                self._stored_grant = token
        except LockLost as error:
            if (newer := self.newer(login.stale)) is not None:
                return newer  # of the login that began when this one was late; it may have invalidated this one's
            self._warn(f"the new token could not be stored: {error}")
        self._granted, self.source = token, "login"
        self.login_reason = login.reason
        self._note(login_messages.logged_in_automatically(self.identity, login.reason))
        return token

    def _raise_shared_failure(self, login: "_AutomaticLogin") -> None:
        """Raise the error of another process's failed login, if it was recorded since this process began to wait."""
        if login.reason != "fresh":
            self._failures.check_token(self.identity)
        self._failures.check_failed(self.identity, since=login.since)
        if key := self._command_key(login):
            self._failures.check_command_failed(self.identity, key, since=login.since)

    def _command_key(self, login: "_AutomaticLogin") -> str | None:
        """Return what identifies the password command of *login*, or None if it gets the password elsewhere."""
        command = self._passwords.command
        return command.key if command and not (login.typed or self._passwords.variable) else None

    def _password(self, record: Record | None, reason: Reason) -> str:
        if (password := self._passwords.get(record)) is None:
            row = self.repository.row
            hint = registry.password_hint(row)
            if row.is_persistent:
                hint = f"{registry.login_hint(row)}, or {hint}"
            raise LoginNeeded(self._not_logged_in(reason, "no password source is available"), hint=hint)
        return password

    def _not_logged_in(self, reason: Reason, obstacle: str) -> str:
        return login_messages.not_logged_in(self.identity, reason, obstacle)

    def _origin(self, typed: str | None) -> str:
        return self._passwords.origin if typed is None else TYPED

    def _request_token(self, password: str, origin: str) -> Token:
        """Return the token for *password*; record a failure for waiting processes."""
        try:
            return self._grant(password)
        except LoginRefused as error:
            if error.hint:
                error.hint = error.hint.replace(CREDENTIALS, f"{origin}, and the username")
            self._failures.record_rejected_password(self.identity, error, password)
            raise
        except XapiError as error:
            self._failures.record_failed(self.identity, error)
            raise

    def _store(self, record: Record) -> bool:
        """Store *record* and notify waiting processes; return False, after a warning, if it is not stored.

        Raises LockLost.
        """
        try:
            if self._session.write(record):
                self._session.notify_login()
                return True
            self._warn("the account was logged out in the meantime, so the new token is not stored")
        except LockLost:
            raise
        except (StoreError, TimeoutExpired) as error:
            self._warn(f"the new token could not be stored: {error}")
        return False

    @contextmanager
    def _locked(self, *, required: bool = True, stop_on_login: bool = False) -> Iterator[None]:
        """Hold the login lock of this account, to exclude other logins to it.

        If another login holds the lock for too long, raise TimeoutExpired. If the lock is not *required*, continue
        without it instead, unless the wait ended at the deadline. With *stop_on_login*, raise AnotherLoggedIn as soon
        as another process has stored a token.
        """
        limit = self._login_limit + self._session.margin  # as long as another process's login may take
        timeout = limit if self._deadline is None else min(limit, max(0.0, self._deadline - time.monotonic()))
        is_limited = timeout < limit  # a wait until the deadline leaves no time to continue without the lock
        with ExitStack() as stack:
            try:
                lock = self._session.locked(timeout, stop_on_login=stop_on_login, required=required or is_limited)
                stack.enter_context(lock)
            except LockTimeout as error:
                waited = decimal(int(timeout * 10) / 10)
                raise TimeoutExpired(
                    f"another xapi process has been logging in as {self._name()} for more than {waited} s",
                    hint=f"try again, {'raise --max-time, ' if is_limited else ''}or end that process if it hangs",
                ) from error
            yield

    def _name(self) -> str:
        return login_messages.name_of(self.identity)


class _AutomaticLogin(NamedTuple):
    """One automatic login: why, in place of which token, with which typed password, and the time of its start."""

    reason: Reason
    stale: Token | None
    typed: str | None
    since: float

    def __repr__(self) -> str:
        return f"_AutomaticLogin({self.reason!r}, …)"
