"""What a command gets: settings, terminal, account and transport, each made when it is first used."""

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xapi_cli.hints import Option, Run
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.render import pasteable, printable
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from xapi_cli.auth.account import Account
    from xapi_cli.auth.passwords import PasswordCommand
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.http.httpx_transport import HttpxTransport
    from xapi_cli.http.log import RequestLog
    from xapi_cli.http.messages import Request
    from xapi_cli.http.transport import Transport
    from xapi_cli.request.verbose import VerboseLog
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import StoreReports, TokenRepository
    from xapi_cli.system.files import StateDirectory
    from xapi_cli.system.lock import LockUnavailable
    from xapi_cli.tokens import Identity, Token


class Context:
    """Environment, terminal, clock, settings, account and transport of one command.

    Before it uses anything else, a command sets `flags`, `may_create_profile`, `verbose` and `default_max_time`.
    """

    def __init__(self, environ: Mapping[str, str], *, terminal: Terminal | None = None) -> None:
        self.command = ""  # its name, for the log
        self.environ = environ
        self.terminal = terminal or Terminal(environ)
        self.terminal.shown = self.shown
        self.flags: resolve.Flags = {}
        self.may_create_profile, self.verbose = False, 0
        self.option: Callable[[str], str] = resolve.flag_of  # what messages call the flag of a setting
        self.default_max_time: float | None = None  # seconds, without --max-time
        self.started = time.monotonic()

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)

    @cached_property
    def settings(self) -> "Settings":
        """The settings from flags, environment and config file."""
        found = resolve.resolve(
            self.flags, self.environ, may_create_profile=self.may_create_profile, option=self.option
        )
        self.terminal.no_input = found.no_input
        self.terminal.redactor.add(found.password, found.token)
        self.note_pasted_end(found.base_url, found.base_url_end)
        if found.overridden:
            override = f"{found.overridden} overrides the account of profile {found.profile}"
            self.terminal.warn(f"{override}; unset it to use it")
        if found.headers:
            from xapi_cli.system.redact import secret_values

            self.terminal.redactor.add(*secret_values(found.headers))
        return found

    def note_pasted_end(self, base_url: str | None, end: str) -> None:
        """Print a note if the user has given *base_url* with an *end* that is not part of it."""
        if end:
            self.terminal.note(f"using the base URL {base_url}, without {printable(end)}")

    @property
    def default_headers(self) -> "tuple[tuple[str, str], ...]":
        """The headers of the profile for each request to the API; warns if they belong to another account.

        A token from a variable, as in a command of `proxy`, is for the API of that variable.
        """
        if (reason := self.settings.headers_mismatch) and not self.settings.token:
            owner = f"profile {self.settings.profile} {reason.removeprefix('it ')}"
            self.terminal.warn(f"the default headers are not sent: {owner}")
        return self.settings.headers

    def shown(self, part: Run | Option, *, profile: str | None = None) -> str:
        """Return the text of a command or flag in a hint.

        A command gets the *profile*, by default the one that a flag selects; `login` also the other flags that select
        the account and its storage.
        """
        if isinstance(part, Option):
            return self.option(part.setting)
        given = {**self.flags, "profile": profile or self.flags.get("profile")}
        if part.setting:
            given[part.setting] = part.value
        is_login = part.command.partition(" ")[0] == "login"
        keys = ("profile", "username", "base_url", "storage") if is_login else ("profile",)
        options = [_option(key, value) for key in keys if (value := given.get(key))]
        return f"`{' '.join(['xapi', part.command, *filter(None, options)])}`"

    @property
    def max_time(self) -> float | None:
        """The limit of --max-time in seconds, None without one."""
        return self.default_max_time if self.settings.max_time is None else self.settings.max_time

    @property
    def deadline(self) -> float | None:
        """The monotonic time at which --max-time expires, None without a limit."""
        return None if self.max_time is None else self.started + self.max_time

    # files

    @property
    def config_path(self) -> Path:
        """The path of config.toml."""
        return config_file.config_path(self.environ)

    def editing_config(self) -> "AbstractContextManager[config_file.Document]":
        """Return the config file for changes in a `with` block, under a lock; see `config_file.editing`."""
        return config_file.editing(self.config_path, lock=self.state_directory.lock_file("config"))

    @cached_property
    def state_directory(self) -> "StateDirectory":
        """The state directory, which contains only files of xapi; raises UsageError if another user can write to it."""
        from xapi_cli.system.files import StateDirectory, state_directory

        state = StateDirectory(state_directory(self.environ))
        state.check()
        return state

    # the account

    @cached_property
    def base_url(self) -> str:
        """The base URL; raises UsageError if it is not set."""
        return self._required("base_url", self.settings.base_url)

    @property
    def identity(self) -> "Identity":
        """The account that the settings select; raises UsageError without a base URL or a username."""
        from xapi_cli.tokens import Identity

        return Identity(self.base_url, self._required("username", self.settings.username))

    def _required(self, key: str, value: str | None) -> str:
        if value is None:
            raise resolve.missing(key, self.settings.profile, config_file.load(self.config_path))
        return value

    def account(
        self, identity: "Identity | None" = None, *, repository: "TokenRepository | None" = None, automatic: bool = True
    ) -> "Account":
        """Return the account *identity*, by default the one in the settings, with its *repository* if that is open.

        Unless *automatic*, it never logs in automatically.
        """
        from xapi_cli.auth import passwords
        from xapi_cli.auth.account import Account

        identity, terminal = identity or self.identity, self.terminal
        prompt = partial(passwords.prompt, terminal, identity) if terminal.interactive else None
        return Account(
            repository or self.repository(identity),
            grant=partial(self._grant, identity),
            passwords=passwords.PasswordSources(self.settings.password, self.password_command, prompt),
            note=terminal.note,
            warn=terminal.warn,
            now=self.now,
            timeout=self.settings.timeout,
            deadline=self.deadline,
            automatic=automatic,
        )

    def _grant(self, identity: "Identity", password: str, origin: str) -> "Token":
        from xapi_cli.auth.grant import request_token

        self.terminal.redactor.add(password)  # before anything can print it
        return request_token(
            self.httpx_transport,
            identity,
            password,
            timeout=self.settings.timeout,
            now=self.now,
            origin=origin,
            deadline=self.deadline,
            warn=self.terminal.warn,
        )

    @property
    def password_command(self) -> "PasswordCommand | None":
        """The password_command that the settings select; its stderr is shown if stderr is a terminal."""
        from xapi_cli.auth.passwords import PasswordCommand

        found, shows_stderr = self.settings, self.terminal.stderr_is_terminal
        if not (command := found.password_command):
            return None
        mismatch = found.password_command_mismatch
        return PasswordCommand(command, self.environ, found.profile, mismatch, self.deadline, shows_stderr)

    def repository(
        self, identity: "Identity", *, settings: "Settings | None" = None, reports: "StoreReports | None" = None
    ) -> "TokenRepository":
        """Return the token repository of *identity*.

        *settings* are those of the account's profile, if it is not the selected one. With *reports*, it collects its
        warnings there instead of printing them, and does not wait for the user.
        """
        from xapi_cli.settings.table import without_secrets
        from xapi_cli.store import registry
        from xapi_cli.store.protocol import UNLOCK_WAIT, StoreOptions
        from xapi_cli.store.repository import TokenRepository

        chosen = settings or self.settings
        options = StoreOptions(
            self.state_directory,
            without_secrets(self.environ),  # a store may run programs
            reports.warnings.append if reports else self.terminal.warn,
            reports.lock_failures.append if reports else self.warn_without_lock,
            unlock_wait=UNLOCK_WAIT if self.terminal.interactive and reports is None else None,
            settings={name: chosen.get(name) for name in registry.SETTING_NAMES},
        )
        return TokenRepository(identity, chosen.storage, options)

    def warn_without_lock(self, error: "OSError | LockUnavailable") -> None:
        """Warn that the state directory cannot be used because of *error*."""
        from xapi_cli.system.lock import state_error

        self.terminal.warn(f"{state_error(self.state_directory.path, error).message}; continuing without locks")

    def tokens(self, *, automatic: bool = True, **options: Any) -> "TokenSource":
        """Return the source of tokens for requests: XAPI_TOKEN or XAPI_TOKEN_FILE if set, else the account.

        Unless *automatic*, the account never logs in automatically. *options* are those of `TokenSource`.
        """
        from xapi_cli.auth.token_source import SuppliedToken, TokenSource

        variable = self.settings.token_variable
        supplied = SuppliedToken(variable, lambda: self.supplied_token() or "") if variable else None
        origin = supplied or self.account(automatic=automatic)
        return TokenSource(origin, redact=self.terminal.redactor.add, **options)

    def warn_of_supplied_token(self, consequence: str) -> None:
        """If the user supplies a token, print a warning that states the *consequence*."""
        if variable := self.settings.token_variable:
            self.terminal.warn(f"{variable} is set and overrides the stored token: {consequence}")

    def supplied_token(self) -> str | None:
        """Return the token that the user supplies, None if there is none; raise UsageError if its file is unusable."""
        from xapi_cli.auth.token_source import read_token_file

        token = read_token_file(self.settings.token_file) if self.settings.token_file else self.settings.token
        self.terminal.redactor.add(token)
        return token

    # the transport

    @cached_property
    def verbose_log(self) -> "VerboseLog | None":
        """The log of requests and responses for --verbose, None without --verbose."""
        if not self.verbose:
            return None
        from xapi_cli.request.verbose import VerboseLog

        terminal = self.terminal
        return VerboseLog(terminal.log, terminal.redactor, terminal.stderr_style, bodies=self.verbose > 1)

    @property
    def log_path(self) -> str | None:
        """The file of the log of requests, None without --log or for the null device."""
        return None if self.settings.log == os.devnull else self.settings.log

    @cached_property
    def request_log(self) -> "RequestLog | None":
        """The log of requests, None without --log or for the null device; raises OutputError if it cannot be opened."""
        if self.log_path is None:
            return None
        from xapi_cli.http import urls
        from xapi_cli.http.log import RequestLog

        found = self.settings
        common = {"command": self.command, "pid": os.getpid(), "profile": found.profile}
        common |= {"base_url": found.base_url, "username": found.username}
        origin = urls.origin(found.base_url) if found.base_url else ("", "", 0)
        return RequestLog(self.log_path, common, origin, self.terminal.redactor.redact, self.terminal.warn)

    @cached_property
    def transport(self) -> "Transport":
        """The transport that sends all requests of the command."""
        from xapi_cli.http import authorization

        verbose = self.verbose_log

        def on_request(request: "Request") -> None:
            self.terminal.redactor.add(request.headers.get(authorization.NAME).partition(" ")[2])
            if verbose is not None:
                verbose.log_request(request)

        return self.open_transport(
            on_request=on_request,
            on_response=verbose.log_response if verbose else None,
            trace=verbose.trace if verbose else None,
            waiting=self.terminal.waiting,
        )

    def open_transport(self, **options: Any) -> "Transport":
        """Return a transport; *options* are those of `http.transport.Transport` which are not settings."""
        from xapi_cli.http.transport import open_transport

        found = self.settings
        return open_transport(
            timeout=found.timeout, ca_bundle=found.ca_bundle, environ=self.environ, log=self.request_log, **options
        )

    @property
    def httpx_transport(self) -> "HttpxTransport":
        """The same transport for an `httpx.Client`: that of logins."""
        from xapi_cli.http.httpx_transport import HttpxTransport

        return HttpxTransport(self.transport)

    def close(self, *, at_end: bool = False) -> None:
        """Write what is missing in the log; unless *at_end* of the process, close the connections too."""
        for name in ("request_log",) if at_end else ("request_log", "transport"):
            if (resource := vars(self).get(name)) is not None:
                resource.close()


def _option(key: str, value: str) -> str | None:
    """Return the flag of the setting *key* with *value*, or None if a hint must not contain it."""
    from xapi_cli.errors import UsageError
    from xapi_cli.settings.table import SETTINGS
    from xapi_cli.store import registry

    try:
        SETTINGS[key].type.parse(value)
    except UsageError:  # it may be a secret, such as the password in a URL
        return None
    is_useless = key == "storage" and not registry.selected(value).is_persistent
    return None if is_useless else f"{SETTINGS[key].flags[0]} {pasteable(value)}"
