"""One account on which a test decides: the grant, the clock and the user are fakes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from xapi_cli.auth.account import Account
from xapi_cli.auth.passwords import PasswordCommand, PasswordSources
from xapi_cli.errors import LoginRefused
from xapi_cli.hints import Hint, text
from xapi_cli.store.login_session import open_session
from xapi_cli.store.protocol import UNLOCK_WAIT, StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
RIGHT = "right"


class _Command(PasswordCommand):
    """A password command that is a function."""

    function: Callable[[], str]

    def run(self) -> str:
        return self.function()


def command_that(function: Callable[[], str]) -> PasswordCommand:
    """Return a password command whose output is the result of *function*."""
    command = _Command(("pass",), {}, "default")
    command.function = function
    return command


@dataclass
class World:
    """A state directory, a token endpoint that accepts one password, and the messages to the user."""

    state: Path
    lifetime: timedelta | None = timedelta(days=30)
    logins: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    during: Callable[[], object] = lambda: None  # happens while the token endpoint responds

    def warn(self, message: Hint) -> None:
        self.warnings.append(text(message))

    def grant(self, password: str, origin: str) -> Token:
        self.logins.append(password)
        self.during()
        if password != RIGHT:
            raise LoginRefused("refused (400)", hint=f"check {origin}")
        expires_at = NOW + self.lifetime if self.lifetime else None
        return Token(f"token{len(self.logins)}", "bearer", NOW, expires_at)

    def account(
        self,
        *,
        given: str | None = None,
        command: Callable[[], str] | None = None,
        typed: str | None = None,
        identity: Identity = ME,
        **options: Any,
    ) -> Account:
        """Return the account as a new command opens it."""

        def ask(why: str) -> str:
            self.questions.append(why)
            return str(typed)

        state = StateDirectory(self.state)
        repository = TokenRepository(
            identity,
            "file",
            StoreOptions(state, {}, self.warn, unlock_wait=None if typed is None else UNLOCK_WAIT),
        )
        run = command_that(command) if command else None
        return Account(
            repository,
            grant=self.grant,
            passwords=PasswordSources(given, run, ask if typed is not None else None),
            note=self.notes.append,
            warn=self.warn,
            now=lambda: NOW,
            timeout=options.pop("timeout", 5),
            **options,
        )

    def store(self, access_token: str, left: timedelta | None = timedelta(days=1)) -> Token:
        token = Token(access_token, "bearer", NOW, NOW + left if left is not None else None)
        account = self.account()
        assert open_session(account.repository).write(Record(token))
        return token

    @property
    def stored(self) -> str | None:
        record = self.account().repository.read()
        return record.token.access_token if record else None
