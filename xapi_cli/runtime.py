"""The environment in which commands run: settings, terminal, account and HTTP client, each created on first use."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import LoginNeeded, UsageError
from xapi_cli.settings import resolve as settings_module
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    import httpx
    from tomlkit import TOMLDocument

    from xapi_cli.auth.account import Account, Credentials, Passwords
    from xapi_cli.auth.token_formats import Subject
    from xapi_cli.request.verbose import VerboseLog
    from xapi_cli.settings.resolve import Settings
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.tokens import Identity, Token

NO_BASE_URL = UsageError("there is no base URL", hint="give --base-url, set XAPI_BASE_URL, or run `xapi login`")
NO_USERNAME = UsageError("there is no username", hint="give --username, set XAPI_USERNAME, or run `xapi login`")


class Runtime:
    """Environment, terminal, clock, settings, account and HTTP client of one command.

    *bound* is called when --max-time is set, with the limit in seconds and the
    monotonic time at which the command started.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        bound: Callable[[float, float], None] = lambda seconds, started: None,
        terminal: Terminal | None = None,
    ) -> None:
        self.environ = environ
        self._bound = bound
        self.terminal = terminal or Terminal(environ)
        self.flags: Mapping[str, str | None] = {}
        self.may_create_profile = False
        self.verbose = False
        self._started = time.monotonic()

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)

    @cached_property
    def settings(self) -> "Settings":
        """The settings from flags, environment and config file."""
        found = settings_module.resolve(self.flags, self.environ, may_create_profile=self.may_create_profile)
        self.terminal.no_input = found.no_input
        self.terminal.hide(found.password)
        self.terminal.hide(found.token)
        if found.max_time is not None:
            self._bound(found.max_time, self._started)
        return found

    def advice(self, hint: str | None) -> str | None:
        """Return *hint* with the selected profile added to the `xapi login` command that it contains."""
        name = self.flags.get("profile")
        return hint.replace("`xapi login`", f"`xapi login --profile {name}`") if hint and name else hint

    @property
    def deadline(self) -> float | None:
        """The monotonic time at which --max-time expires, None without a limit."""
        limit = self.settings.max_time
        return None if limit is None else self._started + limit

    @property
    def config_path(self) -> Path:
        """The path of config.toml."""
        return settings_module.config_path(self.environ)

    def edit_config(self, change: "Callable[[TOMLDocument], None]") -> None:
        """Apply *change* to the config file under a lock; raises the exceptions of `config_file.edit`."""
        from contextlib import ExitStack

        from xapi_cli.settings import config_file
        from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.state / "locks" / "config.lock", limit=5))
            except (LockTimeout, LockUnavailable):
                pass  # without the lock, too, the file is replaced atomically
            config_file.edit(self.config_path, change)

    @cached_property
    def state(self) -> Path:
        """The state directory, which contains only files of xapi; raises UsageError if another user can write to it."""
        from xapi_cli.system import private_files

        state = settings_module.state_directory(self.environ)
        private_files.check(state)
        return state

    @property
    def base_url(self) -> str:
        """The base URL; raises UsageError if it is not set."""
        if self.settings.base_url is None:
            raise NO_BASE_URL
        return self.settings.base_url

    @property
    def identity(self) -> "Identity":
        """The account that the settings select; raises UsageError without a base URL or a username."""
        from xapi_cli.tokens import Identity

        base_url = self.base_url
        if self.settings.username is None:
            raise NO_USERNAME
        return Identity(base_url, self.settings.username)

    def account(
        self, identity: "Identity | None" = None, *, repository: "TokenRepository | None" = None, automatic: bool = True
    ) -> "Account":
        """Return the account *identity*, by default the one in the settings.

        *repository* is its token repository if one exists already. With
        *automatic* False, the account never logs in automatically.
        """
        from xapi_cli.auth.account import Account

        identity = identity or self.identity
        return Account(
            identity,
            repository or self.repository(identity),
            state=self.state,
            grant=lambda password: self._grant(identity, password),
            passwords=self._passwords(identity),
            note=self.terminal.note,
            warn=self.terminal.warn,
            now=self.now,
            timeout=self.settings.timeout,
            deadline=self.deadline,
            automatic=automatic,
        )

    def repository(self, identity: "Identity") -> "TokenRepository":
        """Return the token repository of *identity*."""
        from xapi_cli.store.repository import TokenRepository

        return TokenRepository(
            identity,
            self.settings.storage,
            state=self.state,
            environ=self.environ,
            warn=self.terminal.warn,
            interactive=self.terminal.interactive,
            quietly=self.terminal.has_streams,
        )

    def credentials(self, *, automatic: bool = True) -> "Credentials":
        """Return the source of tokens for requests: XAPI_TOKEN if it is set, else the account."""
        from xapi_cli.auth.account import SuppliedToken

        return SuppliedToken(self.settings.token) if self.settings.token else self.account(automatic=automatic)

    @cached_property
    def heads(self) -> "VerboseLog | None":
        """The log of request and response headers for --verbose, None without --verbose."""
        from xapi_cli.request.verbose import VerboseLog

        def say(line: str) -> None:
            self.terminal.say(self.terminal.without_secrets(line))  # also hides a secret from a prompt or a command

        return VerboseLog(say, (self.settings.password, self.settings.token)) if self.verbose else None

    @cached_property
    def wire(self) -> "httpx.Client":
        """The HTTP client that sends all requests of the command."""
        from xapi_cli.http.client import open_http

        return open_http(
            timeout=self.settings.timeout,
            ca_bundle=self.settings.ca_bundle,
            environ=self.environ,
            trace=self.heads.trace if self.heads else None,
            hooks=self._hooks(),
        )

    def _hooks(self) -> "dict[str, list[Callable[..., Any]]]":
        """Return the event hooks for httpx: they log headers for --verbose and hide the token in messages."""

        def hide_token(request: "httpx.Request") -> None:
            self.terminal.hide(request.headers.get("Authorization", "").partition(" ")[2])

        hooks = self.heads.hooks if self.heads else {"request": [], "response": []}
        return {**hooks, "request": [hide_token, *hooks["request"]]}

    def usable_token(
        self, *, min_ttl: float = 0, fresh: bool = False, automatic: bool = True
    ) -> "tuple[Token, Subject]":
        """Return a token that is valid for at least *min_ttl* seconds, and its subject; log in if necessary."""
        if self.settings.token:
            return self.present_token()  # type: ignore[return-value]  # with XAPI_TOKEN, it is never None
        account = self.account(automatic=automatic)
        token = account.token(min_ttl=min_ttl, fresh=fresh)
        if min_ttl and not token.lasts(self.now(), min_ttl):
            self.terminal.warn("the new token, too, has less time left than --min-ttl wants")
        return token, self._subject(account)

    def present_token(self) -> "tuple[Token | None, Subject]":
        """Return the stored token or the one from XAPI_TOKEN, and its subject, without a login."""
        from xapi_cli.auth.token_formats import Subject
        from xapi_cli.tokens import Token

        settled = self.settings
        if settled.token:
            return Token(settled.token), Subject(settled.base_url, settled.username, settled.profile, "none", "env")
        account = self.account(automatic=False)
        token = account.stored()
        return token, replace(self._subject(account), source="store" if token else None)

    def _subject(self, account: "Account") -> "Subject":
        from xapi_cli.auth.token_formats import Subject

        identity = account.identity
        return Subject(
            identity.base_url, identity.username, self.settings.profile, account.repository.storage, account.source
        )

    def warn_of_token_in_environment(self, consequence: str) -> None:
        """If XAPI_TOKEN is set, warn about it and state the *consequence*."""
        if self.settings.token:
            self.terminal.warn(f"XAPI_TOKEN is set and hides the stored token: {consequence}")

    def warn_of_shell_syntax(self, name: str, command: str | None) -> None:
        """Warn if the password *command*, set by *name*, contains shell syntax."""
        if command and (found := settings_module.shell_syntax(command)):
            self.terminal.warn(
                f"{name}: {found} is shell syntax, and the command runs without a shell, which takes it as text;"
                " for a shell write sh -c 'COMMAND'"
            )

    def _grant(self, identity: "Identity", password: str) -> "Token":
        from xapi_cli.auth.password_grant import request_token

        self.terminal.hide(password)
        return request_token(
            self.wire,
            identity,
            password,
            limit=self.settings.timeout,
            now=self.now,
            deadline=self.deadline,
            warn=self.terminal.warn,
        )

    def _passwords(self, identity: "Identity") -> "Passwords":
        from xapi_cli.auth.account import Passwords

        command = self.settings.password_command

        return Passwords(
            given=self.settings.password,
            command=self.password_from_command if command else None,
            ask=(lambda why: self.ask_password(identity, f" ({why})")) if self.terminal.interactive else None,
            command_words="\0".join(command or ()),
        )

    def ask_password(self, identity: "Identity", why: str = "") -> str:
        """Prompt for the password of *identity* until it is not empty, and return it; *why* is added to the prompt."""
        question = f"Password for {identity.username} at {identity.base_url}{why}: "
        while not (password := self.terminal.ask(question, hidden=True)):
            self.terminal.note("the password is empty; try again, or press Ctrl-C")
        return password

    def check_password_command(self) -> None:
        """Raise LoginNeeded if the password_command belongs to another account than the settings select."""
        if self.settings.withheld:
            raise LoginNeeded(
                f"the password_command of profile {self.settings.profile} is not run: {self.settings.withheld}",
                hint="set XAPI_PASSWORD, or use the profile of that account",
            )

    def password_from_command(self) -> str:
        """Return the password that password_command prints; its stderr is shown if stderr is a terminal."""
        from xapi_cli.auth import password_sources

        self.check_password_command()
        command = self.settings.password_command or ()
        watched = self.terminal.stderr_is_terminal
        return password_sources.from_command(command, self.environ, deadline=self.deadline, watched=watched)
