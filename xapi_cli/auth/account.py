"""What xapi does for one account: give a usable token, log in, log in again by itself, log out."""

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
_PROMPTS = 3  # for a password, as ssh and sudo have it
_MARGIN = 10.0  # seconds beyond one login that a process waits for another's


class Credentials(Protocol):
    """What the 401 flow needs: the token to send, a newer one after a 401, and to be told of the last 401."""

    @property
    def login_reason(self) -> Reason | None:
        """Why this process logged in, None when it did not."""

    def check(self) -> None:
        """Raise, without sending anything, where there is neither a token nor a way to get one."""

    def current(self) -> Token:
        """Return the token to send."""

    def renew(self, rejected: Token) -> Token | None:
        """Return a newer token than *rejected*, or None where the 401 stands."""

    def replace(self, rejected: Token) -> Token | None:
        """Do what `renew` does, however often; who asks has to know when it is enough."""

    def newer(self, than: Token) -> Token | None:
        """Return what another process has stored in the place of *than*; None where there is nothing. Never logs in."""

    def is_fresh(self, token: Token) -> bool:
        """Tell whether *token* comes from this process's last login."""

    def refused(self) -> None:
        """Hear that the answer, after all, was 401."""

    def advice(self) -> str:
        """Return what a person can do about a 401 that stands."""


class SuppliedToken:
    """XAPI_TOKEN: used as it is, never stored, never renewed."""

    login_reason: Reason | None = None

    def __init__(self, access_token: str) -> None:
        self.token = Token(access_token)

    def check(self) -> None:
        """Do nothing: there is a token."""

    def current(self) -> Token:
        """Return the token from the environment."""
        return self.token

    def renew(self, rejected: Token) -> Token | None:
        """Return None: nothing can be done about it from here."""
        return None

    replace = renew
    newer = renew

    def is_fresh(self, token: Token) -> bool:
        """Return False: it does not come from a login."""
        return False

    def refused(self) -> None:
        """Do nothing."""

    def advice(self) -> str:
        """Name the variable."""
        return "XAPI_TOKEN is not accepted: set it anew, or unset it so that xapi logs in by itself"


@dataclass(frozen=True)
class Passwords:
    """Where an automatic login finds the password; each is None where there is no such source."""

    given: str | None  # XAPI_PASSWORD
    command: Callable[[], str] | None
    ask: Callable[[str], str] | None  # which is told why there has to be a login
    command_words: str = field(default="", repr=False)  # which tell one command from another


class Account:
    """One account; *grant* turns a password into a token, *note* and *warn* speak to people.

    *timeout* is the limit of one login in seconds, *deadline* the monotonic
    time by which everything must be over. With *automatic* off it never logs
    in by itself.
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

    # tokens for others to use

    def check(self) -> None:
        """Raise what `current` raises where there is neither a token nor a way to get one; nothing is sent."""
        if not self._automatic or (self._only_prompts and self._passwords.ask is None):
            self.current()

    def current(self) -> Token:
        """Return a token that is not known to have expired, logging in where there is none."""
        if self._token is None:
            self._token = self.token()
        return self._token

    def stored(self) -> Token | None:
        """Return the stored token, whatever its state, without any login."""
        record = self.repository.read()
        return record.token if record else None

    def token(self, *, min_ttl: float = 0, fresh: bool = False) -> Token:
        """Return a token with *min_ttl* seconds left, if that can be had; with *fresh*, a new one in any case."""
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
        """Return a token in place of *rejected*: another process's newer one, else one from a login.

        Returns None where the 401 stands: no login is allowed, the rejected
        token was fresh, or this command has renewed before.
        """
        if self._renewed or self.is_fresh(rejected):
            return None
        self._renewed = True
        return self.replace(rejected)

    def replace(self, rejected: Token) -> Token | None:
        """Do what `renew` does, however often; who asks has to know when it is enough."""
        return self._log_in("rejected", rejected) if self._automatic else None

    def newer(self, than: Token | None) -> Token | None:
        """Return what another process has stored in the place of *than*; None where there is nothing. Never logs in."""
        record = self.repository.read(again=True)
        if record is None or not record.token.lasts(self._now()):
            return None
        if than is not None and record.token.access_token == than.access_token:
            return None
        self._token, self.source = record.token, "store"
        return record.token

    def is_fresh(self, token: Token) -> bool:
        """Tell whether *token* comes from this process's last login."""
        return token is self._granted

    def refused(self) -> None:
        """Hear that the API refused the last token: if that was fresh, stop automatic logins for a minute."""
        if self._granted is not None:
            self._attempts.note_rejected(self.identity)

    def advice(self) -> str:
        """Return what a person can do about a 401 that stands."""
        if not self._automatic:
            return "leave --no-login out, or run `xapi login`"
        return "the token was fresh: check the base URL and that the account may use this API"

    # a person's own login and logout

    def log_in(self, password: str, *, remember: bool | None) -> Token:
        """Log in with *password* and keep the token, always a new one.

        With *remember* the password is kept beside it, with False dropped,
        with None left as it was (but a changed one replaces what was remembered).
        Raises StoreError when the token cannot be kept, and whatever the grant raises.
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
        """Keep *password* beside *token*, in a keyring; what goes wrong with that is only a warning."""
        self._keep(Record(token, password), "the password")

    def log_out(self) -> bool:
        """Delete token and password wherever they are kept; tell whether there were any."""
        found = self.repository.forget()
        self._attempts.forget(self.identity)
        return found

    # automatic login

    def _log_in(self, reason: Reason, stale: Token | None) -> Token:
        """Return a token in place of *stale*: another process's, stored in the meantime, else one from a login."""
        if not self._automatic:
            raise LoginNeeded(f"{_WHY[reason]} for {self._who()}, and --no-login was given", hint="run `xapi login`")
        if reason != "fresh":
            self._attempts.check_rejected(self.identity)
        if self._only_prompts and (ask := self._passwords.ask):  # before a lock is taken: no process waits for typing
            return log_in_with_prompt(
                lambda: ask(_WHY[reason]), lambda typed: self._log_in_with(typed, reason, stale), self._note
            )[0]
        return self._log_in_with(None, reason, stale)

    def _log_in_with(self, typed: str | None, reason: Reason, stale: Token | None) -> Token:
        """Do what `_log_in` does with the password that was *typed*, None where another source has it."""
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
        """Do what `_log_in` does, while no other process does it."""
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
        """Raise LoginRefused at once, without waiting for the lock, where the password was refused just now."""
        password = typed or self._passwords.given
        if not password and not self._passwords.command:
            password = self._remembered
        if password:
            self._attempts.check_refused(self.identity, password)

    def _refuse_shared_failure(self, typed: str | None, reason: Reason, since: float) -> None:
        """Raise what a login would fail with, where another process has found that out *since* this one waits."""
        if reason != "fresh":
            self._attempts.check_rejected(self.identity)
        self._attempts.check_failed(self.identity, since=since)
        if self._runs_command(typed):
            self._attempts.check_command_failed(self.identity, self._passwords.command_words, since=since)

    @property
    def _remembered(self) -> str | None:
        """The password that is stored beside the token."""
        record = self.repository.read()
        return record.password if record else None

    def _runs_command(self, typed: str | None) -> bool:
        return not (typed or self._passwords.given) and self._passwords.command is not None

    @contextmanager
    def _sharing_command_failure(self, typed: str | None) -> Iterator[None]:
        """Keep what came of the password command for those who wait: they would run it one after another."""
        try:
            yield
        except (LoginNeeded, LoginRefused) as error:
            if self._runs_command(typed):
                self._attempts.note_command_failed(self.identity, error, self._passwords.command_words)
            raise

    def _granted_for(self, password: str) -> Token:
        """Return the token that *password* gets; keep a failure for those who wait."""
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
        """Whether no other source than a prompt has the password."""
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
        """Exclude other logins to this account; a person's own login (not *must*) is not held up by one that hangs.

        With *leave*, AnotherLoggedIn is raised as soon as another process has stored a token.
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
    """Return what *log_in* gets with the password that *ask* returns, and that password.

    A refused password is asked for again, three times in all; the same one is not sent twice.
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
    """Let the error of a login to which no answer came tell of the login and its *reason*."""
    try:
        yield
    except (NetworkError, TimeoutExpired) as error:
        error.message = f"{_WHY[reason]}, and the login failed: {error.message}"
        raise
