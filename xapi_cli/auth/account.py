"""One account: tokens for requests, explicit and automatic logins, logout."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from xapi_cli.auth.login_failures import LoginFailures
from xapi_cli.auth.login_lock import AnotherLoggedIn, LoginLock
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, StoreError, TimeoutExpired, XapiError
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.lock import LockTimeout, LockUnavailable
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity, Record, Token

Reason = Literal["missing", "expired", "rejected", "short", "fresh"]
Source = Literal["store", "login", "env"]

_WHY: dict[Reason, str] = {
    "missing": "no token was stored",
    "expired": "the stored token has expired",
    "rejected": "the API rejected the stored token (401)",
    "short": "the stored token has too little time left",
    "fresh": "a fresh token was asked for",
}
_PROMPTS = 3  # password prompts, as with ssh and sudo
_MARGIN = 10.0  # seconds that a process waits for another process's login, beyond the timeout of one login


class Credentials(Protocol):
    """The interface that the 401 flow uses: the token to send, a newer one after a 401, the report of a final 401."""

    @property
    def login_reason(self) -> Reason | None:
        """The reason for this process's login, or None if it did not log in."""

    def check(self) -> None:
        """Raise an error, without sending a request, if there is neither a token nor a way to get one."""

    def current(self) -> Token:
        """Return the token to send."""

    def renew(self, rejected: Token) -> Token | None:
        """Return a newer token than *rejected*, or None if the 401 is final."""

    def replace(self, rejected: Token) -> Token | None:
        """Do the same as `renew`, any number of times; the caller must limit the number of renewals."""

    def newer(self, than: Token) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""

    def refused(self) -> None:
        """Record that the last response was 401."""

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""


class SuppliedToken:
    """The token from XAPI_TOKEN: sent as is, never stored, never renewed."""

    login_reason: Reason | None = None

    def __init__(self, access_token: str) -> None:
        self.token = Token(access_token)

    def check(self) -> None:
        """Do nothing: there is a token."""

    def current(self) -> Token:
        """Return the token from the environment."""
        return self.token

    def renew(self, rejected: Token) -> Token | None:
        """Return None: a token from the environment cannot be renewed."""
        return None

    replace = renew
    newer = renew

    def is_fresh(self, token: Token) -> bool:
        """Return False: the token does not come from a login."""
        return False

    def refused(self) -> None:
        """Do nothing."""

    def advice(self) -> str:
        """Return a hint that names the variable."""
        return "XAPI_TOKEN is not accepted: set it anew, or unset it so that xapi logs in by itself"


@dataclass(frozen=True)
class Passwords:
    """The password sources of an automatic login; each is None if it is not available."""

    given: str | None  # XAPI_PASSWORD
    command: Callable[[], str] | None
    ask: Callable[[str], str] | None  # receives the reason for the login
    command_words: str = field(default="", repr=False)  # distinguishes one password command from another


class Account:
    """One account: *grant* exchanges a password for a token; *note* and *warn* print messages for the user.

    *timeout* is the limit of one login in seconds, *deadline* the monotonic time at which the whole command times out.
    With *automatic* False, the account never logs in automatically.
    """

    def __init__(
        self,
        identity: Identity,
        repository: TokenRepository,
        *,
        state: Path,
        grant: Callable[[str], Token],
        passwords: Passwords,
        note: Callable[[str], None],
        warn: Callable[[str], None],
        now: Callable[[], datetime],
        timeout: float,
        deadline: float | None = None,
        automatic: bool = True,
    ) -> None:
        self.identity, self.repository = identity, repository
        self._grant, self._passwords = grant, passwords
        self._note, self._warn, self._now = note, warn, now
        self._timeout, self._deadline, self._automatic = timeout, deadline, automatic
        self._turns = LoginLock(state / "locks" / f"{identity.key}.login.lock")
        self._attempts = LoginFailures(state / "attempts")
        self._attempts.sweep()
        self._token: Token | None = None
        self._granted: Token | None = None
        self._renewed = False
        self.login_reason: Reason | None = None
        self.source: Source = "store"

    # tokens for requests

    def check(self) -> None:
        """Raise what `current` raises if there is neither a token nor a way to get one; send nothing."""
        if not self._automatic or (self._only_prompts and self._passwords.ask is None):
            self.current()

    def current(self) -> Token:
        """Return a token that is not known to have expired; log in if there is none."""
        if self._token is None:
            self._token = self.token()
        return self._token

    def stored(self) -> Token | None:
        """Return the stored token in any state, without a login."""
        record = self.repository.read()
        return record.token if record else None

    def token(self, *, min_ttl: float = 0, fresh: bool = False) -> Token:
        """Return a token with at least *min_ttl* seconds left, if possible; with *fresh*, always a new token."""
        stored = self.stored()
        if fresh:
            return self._log_in("fresh", stored)
        if stored is None:
            return self._log_in("missing", None)
        if not stored.lasts(self._now()):
            return self._log_in("expired", stored)
        if not stored.lasts(self._now(), min_ttl):
            return self._log_in("short", stored)
        self._token = stored
        return stored

    def renew(self, rejected: Token) -> Token | None:
        """Return a replacement for *rejected*: a newer token from another process, else one from a login.

        Returns None if the 401 is final: automatic login is disabled, the rejected token was fresh, or this command
        has already renewed its token.
        """
        if self._renewed or self.is_fresh(rejected):
            return None
        self._renewed = True
        return self.replace(rejected)

    def replace(self, rejected: Token) -> Token | None:
        """Do the same as `renew`, any number of times; the caller must limit the number of renewals."""
        return self._log_in("rejected", rejected) if self._automatic else None

    def newer(self, than: Token | None) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""
        record = self.repository.read(again=True)
        if record is None or not record.token.lasts(self._now()):
            return None
        if than is not None and record.token.access_token == than.access_token:
            return None
        self._token, self.source = record.token, "store"
        return record.token

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""
        return token is self._granted

    def refused(self) -> None:
        """Record that the API rejected the last token; if it was fresh, disable automatic login for a minute."""
        if self._granted is not None:
            self._attempts.note_rejected(self.identity)

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""
        if not self._automatic:
            return "leave --no-login out, or run `xapi login`"
        return "the token was fresh: check the base URL and that the account may use this API"

    # explicit login and logout

    def log_in(self, password: str, *, remember: bool | None) -> Token:
        """Log in with *password*, then store and return the token, which is always a new one.

        With *remember* True, the password is stored with the token. With False, a stored password is deleted. With
        None, *password* replaces a stored password, and nothing is stored if there is none. Raises StoreError if the
        token cannot be stored, and any error that the grant raises.
        """
        self.repository.begin()
        with self._logging_in(must=False):
            token = self._granted_for(password)
            self._attempts.forget(self.identity)
            record = self.repository.read(again=True)
            kept = password if remember or (remember is None and record and record.password) else None
            self.source = "login"
            if not self.repository.write(Record(token, kept)):
                raise StoreError(
                    "the account was logged out while logging in, so nothing was stored", hint="log in again"
                )
            self._turns.tell()
            return token

    def remember(self, token: Token, password: str) -> None:
        """Store *password* with *token* in a keyring; a failure is only a warning."""
        self._keep(Record(token, password), "the password")

    def log_out(self) -> bool:
        """Delete the token and the password from all stores; return whether there were any."""
        found = self.repository.forget()
        self._attempts.forget(self.identity)
        return found

    # automatic login

    def _log_in(self, reason: Reason, stale: Token | None) -> Token:
        """Return a replacement for *stale*: another process's token, stored meanwhile, else one from a login."""
        if not self._automatic:
            raise LoginNeeded(f"{_WHY[reason]} for {self._who()}, and --no-login was given", hint="run `xapi login`")
        if reason != "fresh":
            self._attempts.check_rejected(self.identity)
        if self._only_prompts and (ask := self._passwords.ask):  # before the lock: no process waits for user input
            return log_in_with_prompt(
                lambda: ask(_WHY[reason]), lambda typed: self._log_in_with(typed, reason, stale), self._note
            )[0]
        return self._log_in_with(None, reason, stale)

    def _log_in_with(self, typed: str | None, reason: Reason, stale: Token | None) -> Token:
        """Log in as `_log_in` does, with the *typed* password, or with one from another source if that is None."""
        self._refuse_known_failure(typed)
        since = time.time()
        self.repository.begin()
        with _told_with(reason):
            if reason != "fresh":
                with suppress(AnotherLoggedIn), self._logging_in(leave=True):
                    return self._in_turn(reason, stale, typed, since)
                if (token := self.newer(stale)) is not None:
                    return token
            with self._logging_in():
                return self._in_turn(reason, stale, typed, since)

    def _in_turn(self, reason: Reason, stale: Token | None, typed: str | None, since: float) -> Token:
        """Log in as `_log_in` does, while this process holds the login lock."""
        if reason != "fresh" and (token := self.newer(stale)) is not None:
            return token
        record = self.repository.read(again=reason == "fresh")
        self._refuse_shared_failure(typed, reason, since)
        with self._sharing_command_failure(typed):
            password = typed or self._password(record, reason)
            self._attempts.check_refused(self.identity, password)
            token = self._granted_for(password)
        self._attempts.forget_failed(self.identity)
        self._keep(Record(token, record.password if record else None), "the new token")
        self._token, self._granted, self.source = token, token, "login"
        self.login_reason = reason
        self._note(f"{_WHY[reason]}: logged in as {self._who()}")
        return token

    def _refuse_known_failure(self, typed: str | None) -> None:
        """Raise LoginRefused immediately, without waiting for the lock, if the password was refused recently."""
        password = typed or self._passwords.given
        if not password and not self._passwords.command:
            password = self._remembered
        if password:
            self._attempts.check_refused(self.identity, password)

    def _refuse_shared_failure(self, typed: str | None, reason: Reason, since: float) -> None:
        """Raise the error of another process's failed login, if it was recorded *since* this process began to wait."""
        if reason != "fresh":
            self._attempts.check_rejected(self.identity)
        self._attempts.check_failed(self.identity, since=since)
        if self._runs_command(typed):
            self._attempts.check_command_failed(self.identity, self._passwords.command_words, since=since)

    @property
    def _remembered(self) -> str | None:
        """The password that is stored with the token."""
        record = self.repository.read()
        return record.password if record else None

    def _runs_command(self, typed: str | None) -> bool:
        return not (typed or self._passwords.given) and self._passwords.command is not None

    @contextmanager
    def _sharing_command_failure(self, typed: str | None) -> Iterator[None]:
        """Record a failure of the password command: waiting processes would run it one after another."""
        try:
            yield
        except (LoginNeeded, LoginRefused) as error:
            if self._runs_command(typed):
                self._attempts.note_command_failed(self.identity, error, self._passwords.command_words)
            raise

    def _granted_for(self, password: str) -> Token:
        """Return the token for *password*; record a failure for waiting processes."""
        try:
            token = self._grant(password)
        except LoginRefused as error:
            self._attempts.note_refused(self.identity, error, password)
            raise
        except XapiError as error:
            self._attempts.note_failed(self.identity, error)
            raise
        return token

    def _keep(self, record: Record, what: str) -> None:
        try:
            if self.repository.write(record):
                self._turns.tell()
            else:
                self._warn(f"the account was logged out in the meantime, so {what} is not stored")
        except (StoreError, TimeoutExpired) as error:
            self._warn(f"{what} could not be stored: {error}")

    @property
    def _only_prompts(self) -> bool:
        """Whether a prompt is the only source of the password."""
        return not (self._passwords.given or self._passwords.command or self._remembered)

    def _password(self, record: Record | None, reason: Reason) -> str:
        if self._passwords.given:
            return self._passwords.given
        if self._passwords.command:
            return self._passwords.command()
        if record and record.password:
            return record.password
        raise LoginNeeded(
            f"{_WHY[reason]} for {self._who()}, and there is no password to log in with",
            hint="run `xapi login`, or set XAPI_PASSWORD or the profile's password_command",
        )

    @contextmanager
    def _logging_in(self, *, must: bool = True, leave: bool = False) -> Iterator[None]:
        """Hold the login lock of this account, to exclude other logins to it.

        If another login holds the lock for too long, raise TimeoutExpired; an explicit login (*must* False) then
        continues without the lock. With *leave*, raise AnotherLoggedIn as soon as another process has stored a token.
        """
        limit = self._timeout + _MARGIN + (self._command_limit() if self._passwords.command else 0)
        if self._deadline is not None:
            limit = min(limit, max(0.0, self._deadline - time.monotonic()))
        with ExitStack() as stack:
            try:
                stack.enter_context(self._turns.taken(limit, to_the_end=not leave))
            except LockTimeout as error:
                if must:
                    raise TimeoutExpired(
                        f"another xapi has been logging in as {self._who()} for more than {limit:.0f} s",
                        hint="try again; if it hangs, end it",
                    ) from error
            except LockUnavailable as error:
                self.repository.cannot_write_state(error)
            yield

    def _command_limit(self) -> float:
        from xapi_cli.auth import password_sources

        return password_sources.LIMIT

    def _who(self) -> str:
        return f"{printable(self.identity.username)} at {printable(self.identity.base_url)}"


def log_in_with_prompt(
    ask: Callable[[], str], log_in: Callable[[str], Token], note: Callable[[str], None]
) -> tuple[Token, str]:
    """Prompt for a password and log in; return the token and the password.

    *ask* returns a password, *log_in* the token for it. After LoginRefused, the password is prompted for again, three
    times in total. The same password is not sent twice.
    """
    refused: dict[str, LoginRefused] = {}
    for _ in range(_PROMPTS - 1):
        password = ask()
        try:
            return _unless_refused(password, refused, log_in), password
        except LoginRefused as error:
            refused[password] = error
            note(f"{error.message}; try again")
    password = ask()
    return _unless_refused(password, refused, log_in), password


def _unless_refused(password: str, refused: dict[str, LoginRefused], log_in: Callable[[str], Token]) -> Token:
    if password in refused:
        raise refused[password]
    return log_in(password)


@contextmanager
def _told_with(reason: Reason) -> Iterator[None]:
    """Add the *reason* for the login, and that it failed, to the message of a network error or timeout."""
    try:
        yield
    except (NetworkError, TimeoutExpired) as error:
        error.message = f"{_WHY[reason]}, and the login failed: {error.message}"
        raise
