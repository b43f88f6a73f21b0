"""The environment in which commands run: settings, terminal, account and HTTP client, each created on first use."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xapi_cli.hints import Option, Run
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.render import pasteable, printable
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from xapi_cli.auth.account import Account
    from xapi_cli.auth.passwords import PasswordCommand, PasswordSources
    from xapi_cli.auth.token_source import Perform, TokenSource
    from xapi_cli.http.httpx_transport import HttpxTransport
    from xapi_cli.http.log import RequestLog
    from xapi_cli.http.messages import Request, Response
    from xapi_cli.http.transport import Transport
    from xapi_cli.request.verbose import VerboseLog
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import StoreReports, TokenRepository
    from xapi_cli.system.files import StateDirectory
    from xapi_cli.system.lock import LockUnavailable
    from xapi_cli.tokens import Identity, Token


class Runtime:
    """Environment, terminal, clock, settings, account and HTTP client of one command.

    Before it uses anything else, a command sets `flags`, `may_create_profile`, `suggests_login`, `verbose` and
    `default_max_time`. `started` is the monotonic time at which the command started.
    """

    def __init__(self, environ: Mapping[str, str], *, terminal: Terminal | None = None) -> None:
        self.command = ""  # its name, for the log
        self.environ = environ
        self.terminal = terminal or Terminal(environ)
        self.terminal.shown = self.shown
        self.flags: resolve.Flags = {}
        self.may_create_profile = False
        self.suggests_login = True
        self.verbose = 0
        self.option: Callable[[str], str] = lambda name: str(Option(name))  # what messages call the flag of a setting
        self.keeps_connections = True  # of logins and other requests of `transport`
        self.default_max_time: float | None = None  # seconds, without --max-time
        self.started = time.monotonic()

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)

    @cached_property
    def settings(self) -> "Settings":
        """The settings from flags, environment and config file."""
        found = resolve.resolve(
            self.flags,
            self.environ,
            may_create_profile=self.may_create_profile,
            or_log_in=self.suggests_login,
            option=self.option,
        )
        self.terminal.no_input = found.no_input
        self.terminal.redactor.add(found.password, found.token)
        if found.base_url_end:
            self.terminal.note(f"using the base URL {found.base_url}, without {printable(found.base_url_end)}")
        if found.overridden:
            self.terminal.warn(self._overridden(found))
        if found.headers:
            from xapi_cli.system.redact import secret_values

            self.terminal.redactor.add(*secret_values(found.headers))
        return found

    def _overridden(self, found: "Settings") -> str:
        """Return a warning that variables replace the account of the profile that a flag has selected."""
        from xapi_cli.settings.table import SETTINGS

        rows = [SETTINGS[key] for key in found.overridden]
        verb, them = ("overrides", "it") if len(rows) == 1 else ("override", "them")
        variables = " and ".join(row.variables[0] for row in rows)
        titles = " and ".join(row.title for row in rows)
        stored = f", and login stores {them} there" if self.command == "login" else ""
        where = f"the {titles} of profile {printable(found.profile)}"
        return f"{variables} {verb} {where}{stored}; unset {them} to use the profile"

    @property
    def write_remedy(self) -> str:
        """What allows a command in read-only mode to write: the two flags cannot be combined."""
        return "use --write instead of --read-only" if self.flags.get("read_only") else "add --write"

    @property
    def default_headers(self) -> "tuple[tuple[str, str], ...]":
        """The headers of the profile for each request to the API; warns if they belong to another account.

        Does not warn in a command of `xapi proxy`, which adds them.
        """
        if (reason := self.settings.headers_mismatch) and not self._is_in_command_of_proxy:
            owner = f"profile {self.settings.profile} {reason.removeprefix('it ')}"
            self.terminal.warn(f"the default headers are not sent: {owner}")
        return self.settings.headers

    @property
    def _is_in_command_of_proxy(self) -> bool:
        """Whether `xapi proxy` has started this process, and the token is the key of that proxy."""
        from xapi_cli.http import urls
        from xapi_cli.http.connection import is_loopback

        found = self.settings.base_url if self.environ.get("XAPI_BASE_URL") and self.settings.token else None
        has_socket = sys.platform == "win32" or self.environ.get("XAPI_PROXY_SOCKET")  # Windows has none
        return bool(has_socket) and found is not None and is_loopback(urls.origin(found)[1])

    def shown(self, part: "Run | Option", *, profile: str | None = None) -> str:
        """Return the text of a command or flag in a hint.

        A command gets the *profile*, by default the one that a flag selects; `login` also the other flags that select
        the account and its storage.
        """
        if isinstance(part, Option):
            return self.option(part.setting)
        given = {**self.flags, "profile": profile or self.flags.get("profile")}
        found: Settings | None = vars(self).get("settings")
        is_login = part.command.partition(" ")[0] == "login"
        if is_login and found and (found.password_command_mismatch or found.headers_mismatch):
            given["profile"] = given["profile"] or "NAME"  # so that these settings of the profile are kept
        if part.storage:
            given["storage"] = part.storage
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
        limit = self.max_time
        return None if limit is None else self.started + limit

    @property
    def config_path(self) -> Path:
        """The path of config.toml."""
        return config_file.config_path(self.environ)

    def edit_config(self, change: "config_file.Change") -> None:
        """Apply *change* to the config file under a lock; raises the exceptions of `config_file.edit`."""
        config_file.edit(self.config_path, change, lock=self.state_directory.lock_file("config"))

    @cached_property
    def state_directory(self) -> "StateDirectory":
        """The state directory, which contains only files of xapi; raises UsageError if another user can write to it."""
        from xapi_cli.system.files import StateDirectory, state_directory

        state = StateDirectory(state_directory(self.environ))
        state.check()
        return state

    def close(self) -> None:
        """Close the connections of logins and the log, for a process that goes on."""
        opened = vars(self)
        for resource in (opened.get("transport"), opened.get("request_log")):
            if resource is not None:
                resource.close()

    def close_log(self) -> None:
        """Write what is missing in the log, at the end of the process: requests whose response was not read."""
        if (log := vars(self).get("request_log")) is not None:
            log.close()

    @cached_property
    def base_url(self) -> str:
        """The base URL; raises UsageError if it is not set."""
        if self.settings.base_url is None:
            raise self._missing("base_url")
        return self.settings.base_url

    @property
    def identity(self) -> "Identity":
        """The account that the settings select; raises UsageError without a base URL or a username."""
        from xapi_cli.tokens import Identity

        base_url = self.base_url
        if self.settings.username is None:
            raise self._missing("username")
        return Identity(base_url, self.settings.username)

    def _missing(self, key: str) -> Exception:
        found = config_file.load(self.config_path)
        return resolve.missing_in_profile(key, self.settings.profile, found, or_log_in=self.suggests_login)

    def account(
        self, identity: "Identity | None" = None, *, repository: "TokenRepository | None" = None, automatic: bool = True
    ) -> "Account":
        """Return the account *identity*, by default the one in the settings.

        *repository* is its token repository if one exists already. With
        *automatic* False, the account never logs in automatically.
        """
        from xapi_cli.auth.account import Account

        identity = identity or self.identity

        def grant(password: str, origin: str) -> "Token":
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

        return Account(
            repository or self.repository(identity),
            grant=grant,
            passwords=self._passwords(identity),
            note=self.terminal.note,
            warn=self.terminal.warn,
            now=self.now,
            timeout=self.settings.timeout,
            deadline=self.deadline,
            automatic=automatic,
        )

    def check_server(self, base_url: str) -> bool:
        """Return whether the API seems to respond at *base_url*, and warn if not.

        Raises NetworkError or TimeoutExpired if no server responds.
        """
        from xapi_cli.auth import grant

        _, problem = grant.probe(self.httpx_transport, base_url, timeout=self.settings.timeout, deadline=self.deadline)
        if problem is not None:
            self.terminal.warn(str(problem))
        return problem is None

    def repository(
        self,
        identity: "Identity",
        *,
        storage: str | None = None,
        settings: "Settings | None" = None,
        reports: "StoreReports | None" = None,
    ) -> "TokenRepository":
        """Return the token repository of *identity* in *storage*, by default the one in the settings.

        *settings* are those of the account's profile, if it is not the selected one. With *reports*, it collects its
        warnings there instead of printing them, and does not wait for the user.
        """
        from xapi_cli.settings.table import without_secrets
        from xapi_cli.store.protocol import UNLOCK_WAIT, StoreOptions
        from xapi_cli.store.repository import TokenRepository

        options = StoreOptions(
            self.state_directory,
            without_secrets(self.environ),  # a store may run programs
            reports.warnings.append if reports else self.terminal.warn,
            reports.lock_failures.append if reports else self._warn_without_lock,
            unlock_wait=UNLOCK_WAIT if self.terminal.interactive and reports is None else None,
            settings=_store_settings(settings or self.settings),
        )
        return TokenRepository(identity, storage or self.settings.storage, options)

    def _warn_without_lock(self, error: "OSError | LockUnavailable") -> None:
        from xapi_cli.system.lock import state_error

        self.terminal.warn(f"{state_error(self.state_directory.path, error).message}; continuing without locks")

    def tokens(
        self, *, automatic: bool = True, serves: bool = False, perform: "Perform" = lambda action: action()
    ) -> "TokenSource":
        """Return the source of tokens for requests: XAPI_TOKEN or XAPI_TOKEN_FILE if set, else the account.

        If it *serves*, it is for other programs. With *automatic* False, the account never logs in automatically.
        *perform* calls what may log in.
        """
        from xapi_cli.auth.token_source import SuppliedToken, TokenSource

        origin: Account | SuppliedToken
        if variable := self.settings.token_variable:
            origin = SuppliedToken(variable, lambda: self.supplied_token() or "")
        else:
            origin = self.account(automatic=automatic)
        return TokenSource(origin, serves=serves, redact=self.terminal.redactor.add, perform=perform)

    def warn_of_supplied_token(self, consequence: str) -> None:
        """If the user supplies a token, print a warning that states the *consequence*."""
        if variable := self.settings.token_variable:
            self.terminal.warn(f"{variable} is set and overrides the stored token: {consequence}")

    def supplied_token(self) -> str | None:
        """Return the token that the user supplies, None if there is none; raise UsageError if its file is unusable."""
        return self._read_token_file() if self.settings.token_file else self.settings.token

    def _read_token_file(self) -> str:
        from xapi_cli.auth.token_source import read_token_file

        token = read_token_file(self.settings.token_file or "")
        self.terminal.redactor.add(token)
        return token

    @cached_property
    def verbose_log(self) -> "VerboseLog | None":
        """The log of request and response headers for --verbose, None without --verbose."""
        if not self.verbose:
            return None
        from xapi_cli.request.verbose import VerboseLog

        log = VerboseLog(self.terminal.log, self.terminal.redactor, self.terminal.stderr_style, bodies=self.verbose > 1)
        if self.settings.profile != "default":
            log.trace(f"* profile {self.settings.profile}")
        return log

    @property
    def ca_bundle(self) -> str | None:
        """The path of the CA bundle, None without one; raises UsageError if it does not exist, even for plain http."""
        path, source = self.settings.ca_bundle, self.settings.ca_bundle_source
        if path and source:
            from xapi_cli.http import tls

            tls.check_exists(source, path)
        return path

    @property
    def log_path(self) -> str | None:
        """The file of the log of requests, None without --log or for the null device."""
        path = self.settings.log
        return None if path == os.devnull else path

    @cached_property
    def request_log(self) -> "RequestLog | None":
        """The log of requests, None without --log or for the null device; raises OutputError if it cannot be opened."""
        path, base_url = self.log_path, self.settings.base_url
        if path is None:
            return None
        from xapi_cli.http import urls
        from xapi_cli.http.log import RequestLog

        common = {
            "command": self.command,
            "pid": os.getpid(),
            "profile": self.settings.profile,
            "base_url": base_url,
            "username": self.settings.username,
        }
        origin = urls.origin(base_url) if base_url else ("", "", 0)
        return RequestLog(path, common, origin, self.terminal.redactor.redact, self.terminal.warn)

    @cached_property
    def transport(self) -> "Transport":
        """The transport that sends all requests of the command."""
        from xapi_cli.http import authorization
        from xapi_cli.http.transport import open_transport

        verbose = self.verbose_log

        def on_request(request: "Request") -> None:
            self.terminal.redactor.add(request.headers.get(authorization.NAME).partition(" ")[2])
            if verbose is not None:
                verbose.log_request(request)

        return open_transport(
            timeout=self.settings.timeout,
            ca_bundle=self.ca_bundle,
            environ=self.environ,
            trace=verbose.trace if verbose else None,
            waiting=self.terminal.waiting,
            on_request=on_request,
            on_response=verbose.log_response if verbose else None,
            keeps_open=self.keeps_connections,
            log=self.request_log,
        )

    def open_transport(
        self, *, on_request: "Callable[[Request], None]", on_response: "Callable[[Response], None]"
    ) -> "Transport":
        """Return a transport for many threads, which does not show for which responses they wait."""
        from xapi_cli.http.transport import open_transport

        return open_transport(
            timeout=self.settings.timeout,
            ca_bundle=self.ca_bundle,
            environ=self.environ,
            on_request=on_request,
            on_response=on_response,
            log=self.request_log,
        )

    @property
    def httpx_transport(self) -> "HttpxTransport":
        """The same transport for an `httpx.Client`: that of logins."""
        from xapi_cli.http.httpx_transport import HttpxTransport

        return HttpxTransport(self.transport)

    def _passwords(self, identity: "Identity") -> "PasswordSources":
        from functools import partial

        from xapi_cli.auth import passwords

        terminal = self.terminal
        return passwords.PasswordSources(
            self.settings.password,
            self.password_command,
            partial(passwords.prompt, terminal, identity) if terminal.interactive else None,
        )

    @property
    def password_command(self) -> "PasswordCommand | None":
        """The password_command that the settings select; its stderr is shown if stderr is a terminal."""
        from xapi_cli.auth.passwords import PasswordCommand

        settings = self.settings
        if not settings.password_command:
            return None
        return PasswordCommand(
            settings.password_command,
            self.environ,
            settings.profile,
            settings.password_command_mismatch,
            self.deadline,
            self.terminal.stderr_is_terminal,
        )


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


def _store_settings(settings: "Settings") -> dict[str, Any]:
    """Return those of *settings* that stores need, by name."""
    from xapi_cli.store import registry

    return {name: getattr(settings, name) for name in registry.SETTING_NAMES}
