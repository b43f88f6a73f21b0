"""Diagnose problems and suggest fixes: check everything that xapi needs, in the order of use.

Each check performs the real operation, with a timeout: ten seconds for the network, six for the keyring.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

import typer

from xapi_cli.auth.account import state_of
from xapi_cli.cli.options import ACCOUNT, NETWORK, Json, settings_flags
from xapi_cli.errors import ChecksFailed, StoreError, UsageError, XapiError
from xapi_cli.hints import Hint, Run, text, together
from xapi_cli.http.header_syntax import parse_date
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.repository import StoreReports
from xapi_cli.system.render import printable, relative, until
from xapi_cli.system.style import Name, wrapped
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    import httpx

    from xapi_cli.context import Context
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.system.terminal import Terminal

Status = Literal["pass", "warn", "fail"]

_COLORS: dict[Status, Name] = {"pass": "good", "warn": "warning", "fail": "error"}
_INDENT = " " * 16  # width of the status and name columns
_PACKAGES = ("httpx", "h11", "keyring", "truststore", "typer")
_USE_FILE: Hint = ("run ", Run("login", "storage", "file"))
_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has a resolution of one second, and responses take time


class _Check(NamedTuple):
    """The result of a check, and a hint for the user."""

    name: str
    status: Status
    message: str
    hint: Hint | None = None


class _Findings:
    """The context of the command, and what checks have found.

    *known* has what they have found to be usable: the config file, the settings, the base URL, the proxy.
    """

    def __init__(self, context: "Context") -> None:
        self.context = context
        self.known = set[str]()
        self.response: httpx.Response | None = None
        self.repository: TokenRepository | None = None


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
    found = config_file.load(path)
    findings.known.add("config")
    if not path.exists():
        return _Check("config", "pass", f"{path} does not exist yet", (Run("login"), " creates it"))
    return _Check("config", "pass", f"{path} (profiles: {', '.join(found.profiles) or 'none'})")


def _check_profile(findings: _Findings) -> _Check:
    """Check that the settings are valid and identify an account, or at least the base URL of a supplied token."""
    settings = findings.context.settings
    findings.known |= {"settings", "base URL"} if settings.base_url else {"settings"}
    missing = [name for name in ("base_url", "username") if settings.get(name) is None]
    if missing and not (settings.token_variable and settings.base_url):
        variables = " and ".join(SETTINGS[name].variables[0] for name in missing)
        hint = ("run ", Run("login"), f", or set {variables}")
        return _Check("profile", "fail", f"{settings.profile} has no {' and no '.join(missing)}", hint)
    account = f"{settings.username or settings.token_variable} at {settings.base_url}, storage {settings.storage}"
    return _Check("profile", "pass", f"{settings.profile}: {account}" + (", read-only" if settings.read_only else ""))


def _check_proxy(findings: _Findings) -> _Check:
    """Report the proxy in use, and the variable that sets it."""
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    proxy = proxy_for(*urls.origin(findings.context.base_url), findings.context.environ)
    findings.known.add("proxy")
    if proxy is None:
        return _Check("proxy", "pass", "none for this base URL")
    return _Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excludes hosts")


def _check_network(findings: _Findings) -> _Check:
    """Check that a token endpoint responds, and that others cannot read what is sent to it."""
    from xapi_cli.auth import grant
    from xapi_cli.http import urls

    context = findings.context
    try:
        response, problem = grant.probe(
            context.httpx_transport, context.base_url, timeout=context.settings.timeout, deadline=context.deadline
        )
    except XapiError as error:
        hint = error.hint or "check the base URL, the network of this machine, and the proxy"
        return _Check("network", "fail", error.message, hint)
    findings.response = response
    if problem:
        return _Check("network", "warn", problem.message, problem.hint)
    message = f"{context.base_url} responds ({response.status_code} from the token endpoint)"
    if urls.is_exposed(context.base_url):
        hint = "password and token can be read in transit; use https"
        return _Check("network", "warn", f"{message}, but is plain http", hint)
    return _Check("network", "pass", message)


def _check_clock(findings: _Findings) -> _Check:
    """Compare the clock with the Date of the server's response: expiry times depend on it."""
    if findings.response is None:
        return _Check("clock", "warn", "not checked: no response", "see network")
    try:
        server_time = parse_date(findings.response.headers.get("Date", ""))
    except ValueError:
        return _Check("clock", "pass", "cannot be compared: the response has no valid Date header")
    difference = findings.context.now() - server_time
    if abs(difference.total_seconds()) <= _CLOCK_TOLERANCE:
        return _Check("clock", "pass", "agrees with the server's clock")
    amount = relative(difference).removeprefix("in ").removesuffix(" ago")
    direction = "ahead of" if difference.total_seconds() > 0 else "behind"
    message = f"this machine's clock is {amount} {direction} the server's"
    return _Check("clock", "warn", message, "correct it: xapi uses it to determine whether a token has expired")


def _check_tls(findings: _Findings) -> _Check:
    """Report the TLS version of the connection, and the certificates that are trusted."""
    context = findings.context
    if context.base_url.startswith("http:"):
        return _Check("tls", "pass", "not used: the base URL is plain http")
    from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if context.environ.get(name)]
    trusted = context.settings.ca_bundle or " and ".join(from_environ) or "the operating system's trust store"
    version = findings.response.extensions["tls"] if findings.response is not None else None
    if version is None:
        return _Check("tls", "warn", f"not checked: no connection; trusted certificates: {trusted}", "see network")
    return _Check("tls", "pass", f"{version}, trusted certificates: {trusted}")


def _check_store(findings: _Findings) -> _Check:
    """Store, read and delete an item where the token is stored; a missing keyring is a warning with `auto`."""
    from xapi_cli.system.lock import state_error

    context, settings, reports = findings.context, findings.context.settings, StoreReports()
    storage, is_auto = registry.selected(settings.storage), settings.storage == registry.AUTO
    identity = Identity(settings.base_url or "", settings.username or "")
    try:
        repository = context.repository(identity, reports=reports)
        repository.probe()
    except (StoreError, UsageError) as error:
        hint = _USE_FILE if is_auto and isinstance(error, NoBackend) else error.hint
        return _Check(storage.name, "warn" if is_auto else "fail", error.message, hint)
    findings.repository = repository
    if not storage.is_persistent:
        return _Check("keyring", "pass", f"not used: the storage is {storage.name}")
    if reports.warnings:
        return _Check(storage.name, "warn", "; ".join(map(text, reports.warnings)), _USE_FILE)
    for failure in reports.lock_failures:
        problem = state_error(context.state_directory.path, failure)
        return _Check(storage.name, "warn", f"works without locks: {problem.message}", problem.hint)
    message = f"{repository.backend or storage.noun}: an item was written, read and deleted"
    return _Check(storage.name, "pass", message)


def _check_token(findings: _Findings) -> _Check:
    """Report the state of the stored token, without a login."""
    context, settings, repository = findings.context, findings.context.settings, findings.repository
    if settings.token_variable:
        context.supplied_token()
        return _Check("token", "pass", f"from {settings.token_variable}; its expiry time is unknown")
    if repository is None:
        storage = registry.selected(settings.storage)
        return _Check("token", "warn", f"no stored token: {storage.noun} cannot be used", f"see {storage.name}")
    record, now = repository.read(), context.now()
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
    context, settings, repository = findings.context, findings.context.settings, findings.repository
    storage = registry.selected(settings.storage)
    if settings.token_variable:
        return _Check("password", "pass", f"not needed: {settings.token_variable} is set, and xapi does not log in")
    if settings.password:
        return _Check("password", "pass", "from XAPI_PASSWORD")
    if command := context.password_command:
        command.check()
        return _check_command(findings, command.argv[0])
    record = repository.read() if repository else None
    if record and record.password:
        return _Check("password", "pass", f"remembered in {storage.noun}")
    if context.terminal.interactive:
        return _Check("password", "pass", "from a prompt on this terminal")
    return _Check("password", "warn", "no source for an automatic login", registry.password_hint(storage))


def _check_command(findings: _Findings, name: str) -> _Check:
    """Check that the password command *name* exists; it is not run, because it may prompt the user."""
    from xapi_cli.system import programs

    with suppress(OSError, ValueError):
        if os.access(programs.find(name, findings.context.environ), os.X_OK):
            return _Check("password", "pass", "from the profile's password_command (not run here)")
    hint = "install it, or correct password_command"
    return _Check("password", "fail", f"password_command: program {name!r} not found", hint)


_CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[_Findings], _Check]], ...] = (  # with what must be known for each
    ("python", (), _check_python),
    ("config", (), _check_config),
    ("profile", ("config",), _check_profile),
    ("proxy", ("base URL",), _check_proxy),
    ("network", ("base URL", "proxy"), _check_network),
    ("clock", ("base URL",), _check_clock),
    ("tls", ("base URL",), _check_tls),
    ("keyring", ("settings",), _check_store),
    ("token", ("settings",), _check_token),
    ("password", ("settings",), _check_password),
)
_CAUSES = {"settings": "profile", "base URL": "profile"}  # the check that reports why something is not known


def _results(context: "Context") -> Iterator[_Check]:
    """Run all checks; the failure of one does not prevent the others."""
    findings = _Findings(context)
    for name, needed, run in _CHECKS:
        unknown = next((each for each in needed if each not in findings.known), None)
        if unknown:
            yield _Check(name, "warn", "not checked", f"see {_CAUSES.get(unknown, unknown)}")
            continue
        try:
            check = run(findings)
        except XapiError as error:
            check = _Check(name, "fail", error.message, error.hint)
        yield check._replace(hint=check.hint and context.terminal.text(check.hint))


def _line(check: _Check, terminal: "Terminal") -> str:
    """Return *check* as one line, which is wrapped on a terminal."""
    line = printable(f"{check.status}  {check.name:<8}  {check.message}" + (f"; {check.hint}" if check.hint else ""))
    if terminal.stdout_is_terminal:
        line = wrapped(line, terminal.stdout_columns, indent=_INDENT)
    length = len(check.status)
    return terminal.style(_COLORS[check.status], line[:length]) + terminal.style.commands(line[length:])


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
            context.terminal.print(_line(check, context.terminal))
    failed = [check.name for check in checks if check.status == "fail"]
    if json:
        context.terminal.print_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
    if failed:
        raise ChecksFailed(
            f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}",
            hint="follow the hints of the failed checks",
        )
