"""Diagnose problems and suggest fixes: check everything that xapi needs, in the order of use.

Each check performs the real operation, with a timeout: ten seconds for the network, six for the keyring.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Literal

import typer

from xapi_cli.auth.account import state_of
from xapi_cli.cli.options import ACCOUNT, NETWORK, Json, settings_flags
from xapi_cli.errors import ChecksFailed, StoreError, UsageError, XapiError
from xapi_cli.feature_table import Storage
from xapi_cli.hints import Hint, Run, text, together
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.repository import StoreReports
from xapi_cli.system.layout import wrapped
from xapi_cli.system.render import printable, relative, until
from xapi_cli.system.style import Name
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from xapi_cli.context import Context
    from xapi_cli.settings.config_file import Config
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.system.terminal import Terminal

Status = Literal["pass", "warn", "fail"]

_COLORS: dict[Status, Name] = {"pass": "good", "warn": "warning", "fail": "error"}
_INDENT = " " * 16  # width of the status and name columns
_PACKAGES = ("httpx", "h11", "keyring", "truststore", "typer")
_USE_FILE: Hint = ("run ", Run("login", "file"))
_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has a resolution of one second, and responses take time


@dataclass(frozen=True)
class _Check:
    """The result of a check, and a hint for the user."""

    name: str
    status: Status
    message: str
    hint: Hint | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the result for scripts."""
        hint = None if self.hint is None else text(self.hint)
        return {"name": self.name, "status": self.status, "message": self.message, "hint": hint}

    def shown(self, terminal: "Terminal") -> str:
        """Return the result as one line, which is wrapped on a terminal."""
        line = printable(f"{self.status}  {self.name:<8}  {self.message}" + (f"; {self.hint}" if self.hint else ""))
        if terminal.stdout_is_terminal:
            line = wrapped(line, terminal.stdout_columns, indent=_INDENT)
        length = len(self.status)
        return terminal.style(_COLORS[self.status], line[:length]) + terminal.style.commands(line[length:])


class _NotChecked(XapiError):
    """A check cannot run because the check *cause* has failed."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(f"not checked: {why}", hint=f"see {cause}")


class _Findings:
    """The context of the command, and the results that checks store here; None until a check has succeeded."""

    def __init__(self, context: "Context") -> None:
        self.context = context
        self.config_file: Config | None = None
        self.valid_settings: Settings | None = None
        self.checked_state: Path | None = None
        self.response: httpx.Response | None = None
        self.probed_repository: TokenRepository | None = None
        self._store_reports: StoreReports | None = None
        self._store_error: StoreError | UsageError | None = None

    @property
    def settings(self) -> "Settings":
        """The settings; raises _NotChecked if they are not valid."""
        if self.valid_settings is None:
            raise _NotChecked("the settings are not valid", "config" if self.config_file is None else "profile")
        return self.valid_settings

    @property
    def base_url(self) -> str:
        """The base URL; raises _NotChecked if it is not set."""
        if self.settings.base_url is None:
            raise _NotChecked("no base URL is set", "profile")
        return self.settings.base_url

    @property
    def storage_setting(self) -> str:
        """The storage setting, or the default if the settings are not valid."""
        return self.valid_settings.storage if self.valid_settings else registry.AUTO

    @property
    def storage(self) -> Storage:
        """The storage that the setting selects."""
        return registry.selected(self.storage_setting)

    @property
    def storage_is_a_service(self) -> bool:
        """Whether the storage is neither memory nor the state directory, so that it has a separate check."""
        return self.storage.is_persistent and not self.storage.needs_state_directory

    def probe_store(self) -> "StoreReports":
        """Probe the store, which is a service, on the first call; return what it reported, or raise its error."""
        if self._store_reports is None:
            self._store_reports = reports = StoreReports()
            repository = self.context.repository(Identity("", ""), reports=reports)
            try:
                repository.probe()
                self.probed_repository = repository
            except (StoreError, UsageError) as error:
                self._store_error = error
        if self._store_error is not None:
            raise self._store_error
        return self._store_reports

    def check_state_is_usable(self) -> None:
        """Raise _NotChecked if the state directory must not be used."""
        if self.checked_state is None:
            raise _NotChecked("the state directory must not be used", "state")

    def repository(self) -> "TokenRepository | None":
        """Return the token repository of the account, or None if its store does not work.

        Raises _NotChecked if there is no account. Other checks report the problems of the store.
        """
        if self.settings.base_url is None or self.settings.username is None:
            raise _NotChecked("no account is selected", "profile")
        self.check_state_is_usable()
        if not self.storage_is_a_service:
            return self.context.repository(self.context.identity, reports=StoreReports())
        return self.probed_repository and self.probed_repository.of(self.context.identity)


def _check_python(findings: _Findings) -> _Check:
    """Check that the required packages are installed, and report all versions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from xapi_cli import __version__

    found = [f"xapi {__version__}", f"Python {platform.python_version()} on {platform.system()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return _Check("python", "fail", f"{package} is not installed", "reinstall xapi-cli")
    return _Check("python", "pass", ", ".join(found))


def _check_config(findings: _Findings) -> _Check:
    """Check that the config file is valid and that only its owner can write to it."""
    from xapi_cli.settings import config_file

    path = findings.context.config_path
    findings.config_file = found = config_file.load(path)
    if not path.exists():
        return _Check("config", "pass", f"{path} does not exist yet", (Run("login"), " creates it"))
    if sys.platform != "win32" and path.stat().st_mode & 0o020:  # config_file.load() rejects world-writable
        return _Check("config", "warn", f"{path} is writable by its group", "run `chmod g-w` on it")
    return _Check("config", "pass", f"{path} (profiles: {', '.join(found.profiles) or 'none'})")


def _check_profile(findings: _Findings) -> _Check:
    """Check that the settings are valid and identify an account, or at least the base URL of a supplied token."""
    if findings.config_file is None:
        raise _NotChecked("the config file cannot be read", "config")
    findings.valid_settings = settings = findings.context.settings
    missing = [name for name in ("base_url", "username") if getattr(settings, name) is None]
    if missing and not (settings.token_variable and settings.base_url):
        variables = " and ".join(SETTINGS[name].variables[0] for name in missing)
        hint = ("run ", Run("login"), f", or set {variables}")
        return _Check("profile", "fail", f"{settings.profile} has no {' and no '.join(missing)}", hint)
    account = f"{settings.username or settings.token_variable} at {settings.base_url}, storage {settings.storage}"
    return _Check("profile", "pass", f"{settings.profile}: {account}" + (", read-only" if settings.read_only else ""))


def _check_state(findings: _Findings) -> _Check:
    """Check that the state directory is safe and writable, and that its file system supports locks."""
    from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked, state_error

    state = findings.context.state_directory
    findings.checked_state = state.path
    try:
        state.probe()
        with locked(state.lock_file("config"), timeout=0.1):
            pass
    except LockTimeout:
        pass  # another process holds the lock, so locking works
    except (LockUnavailable, OSError) as error:
        status: Status = "fail" if findings.storage.needs_state_directory else "warn"
        failure = state_error(state.path, error)
        return _Check("state", status, failure.message, failure.hint)
    return _Check("state", "pass", f"{state.path} is writable")


def _check_network(findings: _Findings) -> _Check:
    """Check that a token endpoint responds, and that others cannot read what is sent to it."""
    from xapi_cli.auth import grant
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    context, base_url, settings = findings.context, findings.base_url, findings.settings
    try:
        proxy_for(*urls.origin(base_url), context.environ)
    except UsageError as error:
        raise _NotChecked("the proxy setting is not valid", "proxy") from error
    try:
        findings.response, problem = grant.probe(
            context.httpx_transport, base_url, timeout=settings.timeout, deadline=context.deadline
        )
    except XapiError as error:
        hint = error.hint or "check the base URL, the network of this machine, and the proxy"
        return _Check("network", "fail", error.message, hint)
    if problem:
        return _Check("network", "warn", problem.message, problem.hint)
    message = f"{base_url} responds ({findings.response.status_code} from the token endpoint)"
    if findings.response.extensions["exposed"]:
        hint = "password and token can be read in transit; use https"
        return _Check("network", "warn", f"{message}, but is plain http", hint)
    return _Check("network", "pass", message)


def _check_clock(findings: _Findings) -> _Check:
    """Compare the clock with the Date of the server's response: expiry times depend on it."""
    from email.utils import parsedate_to_datetime

    if findings.response is None and findings.base_url:
        raise _NotChecked("no response", "network")
    date = findings.response.headers.get("Date", "") if findings.response is not None else ""
    try:
        server_time = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return _Check("clock", "pass", "cannot be compared: the response has no valid Date header")
    server_time = server_time if server_time.tzinfo else server_time.replace(tzinfo=UTC)
    difference = findings.context.now() - server_time
    if abs(difference.total_seconds()) <= _CLOCK_TOLERANCE:
        return _Check("clock", "pass", "agrees with the server's clock")
    amount = relative(difference).removeprefix("in ").removesuffix(" ago")
    direction = "ahead of" if difference.total_seconds() > 0 else "behind"
    message = f"this machine's clock is {amount} {direction} the server's"
    return _Check("clock", "warn", message, "correct it: xapi uses it to determine whether a token has expired")


def _check_tls(findings: _Findings) -> _Check:
    """Report the TLS version of the connection, and the certificates that are trusted."""
    base_url, ca_bundle = findings.base_url, findings.settings.ca_bundle
    if base_url.startswith("http:"):
        return _Check("tls", "pass", "not used: the base URL is plain http")
    environ = findings.context.environ
    from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)]
    trusted = ca_bundle or (" and ".join(from_environ) if from_environ else "the operating system's trust store")
    version = findings.response.extensions["tls"] if findings.response is not None else None
    if version is None:
        raise _NotChecked(f"no connection; trusted certificates: {trusted}", "network")
    return _Check("tls", "pass", f"{version}, trusted certificates: {trusted}")


def _check_proxy(findings: _Findings) -> _Check:
    """Report the proxy in use, and the variable that sets it."""
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    proxy = proxy_for(*urls.origin(findings.base_url), findings.context.environ)
    if proxy is None:
        return _Check("proxy", "pass", "none for this base URL")
    return _Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excludes hosts")


def _check_store(findings: _Findings) -> _Check:
    """Write, read and delete an item in the keyring or another service; a missing keyring is a warning with `auto`."""
    setting, name = findings.settings.storage, findings.storage.name
    if not findings.storage_is_a_service:
        return _Check("keyring", "pass", f"not used: the storage is {setting}")
    findings.check_state_is_usable()
    try:
        reports = findings.probe_store()
    except (StoreError, UsageError) as error:
        is_auto = setting == registry.AUTO
        hint = _USE_FILE if is_auto and isinstance(error, NoBackend) else error.hint
        return _Check(name, "warn" if is_auto else "fail", error.message, hint)
    if reports.warnings:
        return _Check(name, "warn", "; ".join(map(text, reports.warnings)), _USE_FILE)
    backend = findings.probed_repository.backend if findings.probed_repository else None
    without_lock = ", without a lock" if reports.lock_failures else ""  # the state check reports why
    message = f"{backend or 'a backend'}: an item was written, read and deleted{without_lock}"
    return _Check(name, "pass", message)


def _check_token(findings: _Findings) -> _Check:
    """Report the state of the stored token, without a login."""
    settings, now = findings.settings, findings.context.now()
    if settings.token_variable:
        try:
            findings.context.supplied_token()
        except UsageError as error:
            return _Check("token", "fail", error.message, error.hint)
        return _Check("token", "pass", f"from {settings.token_variable}; its expiry time is unknown")
    repository = findings.repository()
    if repository is None:
        hint: Hint = f"follow the hint for {findings.storage.name}"
        return _Check("token", "warn", f"no stored token: {findings.storage.noun} cannot be used", hint)
    record = repository.read()
    if record is None:
        automatic = "; if a password source is available, commands log in automatically"
        hint = together(registry.login_hint(repository.row), automatic)
        return _Check("token", "warn", "no stored token", hint)
    state = state_of(record.token, now, repository=repository)
    message = f"{state}, in storage {repository.storage}, expires {until(record.token.expires_at, now)}"
    if state == "valid":
        return _Check("token", "pass", message)
    return _Check("token", "warn", message, ("run ", Run("login")))


def _check_password(findings: _Findings) -> _Check:
    """Report where an automatic login would get the password."""
    settings = findings.settings
    if settings.token_variable:
        return _Check("password", "pass", f"not needed: {settings.token_variable} is set, and xapi does not log in")
    if settings.password:
        return _Check("password", "pass", "from XAPI_PASSWORD")
    if command := findings.context.password_command:
        command.check()
        return _check_command(findings, command.argv[0])
    repository = findings.repository()
    record = repository.read() if repository else None
    if record and record.password:
        return _Check("password", "pass", f"remembered in {findings.storage.noun}")
    if findings.context.terminal.interactive:
        return _Check("password", "pass", "from a prompt on this terminal")
    hint = registry.password_hint(findings.storage)
    return _Check("password", "warn", "no source for an automatic login", hint)


def _check_command(findings: _Findings, name: str) -> _Check:
    """Check that the password command *name* exists; it is not run, because it may prompt the user."""
    from xapi_cli.system import programs

    with suppress(OSError, ValueError):
        if os.access(programs.find(name, findings.context.environ), os.X_OK):
            return _Check("password", "pass", "from the profile's password_command (not run here)")
    return _Check(
        "password", "fail", f"password_command: program {name!r} not found", "install it, or correct password_command"
    )


_CHECKS: tuple[tuple[str, Callable[[_Findings], _Check]], ...] = (
    ("python", _check_python),
    ("config", _check_config),
    ("profile", _check_profile),
    ("network", _check_network),
    ("clock", _check_clock),
    ("tls", _check_tls),
    ("proxy", _check_proxy),
    ("state", _check_state),
    ("keyring", _check_store),
    ("token", _check_token),
    ("password", _check_password),
)


def _results(context: "Context") -> Iterator[_Check]:
    """Run all checks; the failure of one does not prevent the others."""
    findings = _Findings(context)
    for name, run in _CHECKS:
        try:
            check = run(findings)
        except _NotChecked as error:
            check = _Check(name, "warn", error.message, error.hint)
        except XapiError as error:
            check = _Check(name, "fail", error.message, error.hint)
        yield replace(check, hint=check.hint and context.terminal.text(check.hint))


@settings_flags(*ACCOUNT, *NETWORK)
def doctor(
    ctx: typer.Context,
    *,
    json: Json = False,
) -> None:
    """Diagnose problems and suggest fixes.

    Checks settings, network, keyring, token and password, and prints a line
    for each: pass, warn or fail, with a hint. The exit code is 0 if
    no check failed, otherwise 1. Prints no secrets, and never logs in. Each
    check has a time limit.

    Examples:

    \b
      xapi doctor
      xapi doctor --json |
        jq -r '.checks[] | select(.status != "pass") | .hint'
    """
    context: Context = ctx.obj
    checks = []
    for check in _results(context):
        checks.append(check)
        if not json:
            context.terminal.print(check.shown(context.terminal))
    failed = [check.name for check in checks if check.status == "fail"]
    if json:
        context.terminal.print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    if failed:
        raise ChecksFailed(
            f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}",
            hint="follow the hints of the failed checks",
        )
