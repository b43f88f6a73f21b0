"""The checks: the installation and its files, the connection to the API, the login."""

import os
import sys
from contextlib import suppress
from datetime import UTC

from xapi_cli.auth.account import state_of
from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.hints import Hint, Run, text, together
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.system.render import relative, until
from xapi_cli.usecases.doctor.findings import Check, Findings, NotChecked, Status

_PACKAGES = ("httpx", "h11", "keyring", "truststore", "typer")
_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has a resolution of one second, and responses take time


def check_python(findings: Findings) -> Check:
    """Check that the required packages are installed, and report all versions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from xapi_cli import __version__

    found = [f"xapi {__version__}", f"Python {platform.python_version()} on {platform.system()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("python", "fail", f"{package} is not installed", "reinstall xapi-cli")
    return Check("python", "pass", ", ".join(found))


def check_config(findings: Findings) -> Check:
    """Check that the config file is valid and that only its owner can write to it."""
    from xapi_cli.settings import config_file

    path = findings.context.config_path
    findings.config_file = found = config_file.load(path)
    if not path.exists():
        return Check("config", "pass", f"{path} does not exist yet", (Run("login"), " creates it"))
    if sys.platform != "win32" and path.stat().st_mode & 0o020:  # config_file.load() rejects world-writable
        return Check("config", "warn", f"{path} is writable by its group", "run `chmod g-w` on it")
    return Check("config", "pass", f"{path} (profiles: {', '.join(found.profiles) or 'none'})")


def check_profile(findings: Findings) -> Check:
    """Check that the settings are valid and identify an account, or at least the base URL of a supplied token."""
    if findings.config_file is None:
        raise NotChecked("the config file cannot be read", "config")
    findings.valid_settings = settings = findings.context.settings
    missing = [name for name in ("base_url", "username") if getattr(settings, name) is None]
    if missing and not (settings.token_variable and settings.base_url):
        hint = f"run `{findings.login_command}`, or set " + " and ".join(
            SETTINGS[name].variables[0] for name in missing
        )
        return Check("profile", "fail", f"{settings.profile} has no {' and no '.join(missing)}", hint)
    account = f"{settings.username or settings.token_variable} at {settings.base_url}, storage {settings.storage}"
    return Check("profile", "pass", f"{settings.profile}: {account}" + (", read-only" if settings.read_only else ""))


def check_state(findings: Findings) -> Check:
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
        return Check("state", status, failure.message, failure.hint)
    return Check("state", "pass", f"{state.path} is writable")


def check_network(findings: Findings) -> Check:
    """Check that a token endpoint responds, and that others cannot read what is sent to it."""
    from xapi_cli.auth import grant
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    context, base_url, settings = findings.context, findings.base_url, findings.settings
    try:
        proxy_for(*urls.origin(base_url), context.environ)
    except UsageError as error:
        raise NotChecked("the proxy setting is not valid", "proxy") from error
    try:
        findings.response, problem = grant.probe(
            context.httpx_transport, base_url, timeout=settings.timeout, deadline=context.deadline
        )
    except XapiError as error:
        hint = error.hint or "check the base URL, the network of this machine, and the proxy"
        return Check("network", "fail", error.message, hint)
    if problem:
        return Check("network", "warn", problem.message, problem.hint)
    message = f"{base_url} responds ({findings.response.status_code} from the token endpoint)"
    if findings.response.extensions["exposed"]:
        hint = "password and token can be read in transit; use https"
        return Check("network", "warn", f"{message}, but is plain http", hint)
    return Check("network", "pass", message)


def check_clock(findings: Findings) -> Check:
    """Compare the clock with the Date of the server's response: expiry times depend on it."""
    from email.utils import parsedate_to_datetime

    if findings.response is None and findings.base_url:
        raise NotChecked("no response", "network")
    date = findings.response.headers.get("Date", "") if findings.response is not None else ""
    try:
        server_time = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return Check("clock", "pass", "cannot be compared: the response has no valid Date header")
    server_time = server_time if server_time.tzinfo else server_time.replace(tzinfo=UTC)
    difference = findings.context.now() - server_time
    if abs(difference.total_seconds()) <= _CLOCK_TOLERANCE:
        return Check("clock", "pass", "agrees with the server's clock")
    amount = relative(difference).removeprefix("in ").removesuffix(" ago")
    direction = "ahead of" if difference.total_seconds() > 0 else "behind"
    message = f"this machine's clock is {amount} {direction} the server's"
    return Check("clock", "warn", message, "correct it: xapi uses it to determine whether a token has expired")


def check_tls(findings: Findings) -> Check:
    """Report the TLS version of the connection, and the certificates that are trusted."""
    base_url, ca_bundle = findings.base_url, findings.settings.ca_bundle
    if base_url.startswith("http:"):
        return Check("tls", "pass", "not used: the base URL is plain http")
    environ = findings.context.environ
    from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)]
    trusted = ca_bundle or (" and ".join(from_environ) if from_environ else "the operating system's trust store")
    version = findings.response.extensions["tls"] if findings.response is not None else None
    if version is None:
        raise NotChecked(f"no connection; trusted certificates: {trusted}", "network")
    return Check("tls", "pass", f"{version}, trusted certificates: {trusted}")


def check_proxy(findings: Findings) -> Check:
    """Report the proxy in use, and the variable that sets it."""
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    proxy = proxy_for(*urls.origin(findings.base_url), findings.context.environ)
    if proxy is None:
        return Check("proxy", "pass", "none for this base URL")
    return Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excludes hosts")


def check_store(findings: Findings) -> Check:
    """Write, read and delete an item in the keyring or another service; a missing keyring is a warning with `auto`."""
    setting, name = findings.settings.storage, findings.storage.name
    if not findings.storage_is_a_service:
        return Check("keyring", "pass", f"not used: the storage is {setting}")
    findings.check_state_is_usable()
    try:
        reports = findings.probe_store()
    except (StoreError, UsageError) as error:
        is_auto = setting == registry.AUTO
        hint = _use(findings.alternative) if is_auto and isinstance(error, NoBackend) else error.hint
        return Check(name, "warn" if is_auto else "fail", error.message, hint)
    if reports.warnings:
        return Check(name, "warn", "; ".join(map(text, reports.warnings)), _use(findings.alternative))
    backend = findings.probed_repository.backend if findings.probed_repository else None
    without_lock = ", without a lock" if reports.lock_failures else ""  # the state check reports why
    message = f"{backend or 'a backend'}: an item was written, read and deleted{without_lock}"
    return Check(name, "pass", message)


def _use(storage: str) -> Hint:
    return "run ", Run("login", storage)


def check_token(findings: Findings) -> Check:
    """Report the state of the stored token, without a login."""
    settings, now = findings.settings, findings.context.now()
    if settings.token_variable:
        try:
            findings.context.supplied_token()
        except UsageError as error:
            return Check("token", "fail", error.message, error.hint)
        return Check("token", "pass", f"from {settings.token_variable}; its expiry time is unknown")
    repository = findings.repository()
    if repository is None:
        hint: Hint = f"follow the hint for {findings.storage.name}"
        return Check("token", "warn", f"no stored token: {findings.storage.noun} cannot be used", hint)
    record = repository.read()
    if record is None:
        automatic = "; if a password source is available, commands log in automatically"
        hint = together(registry.login_hint(repository.row), automatic)
        return Check("token", "warn", "no stored token", hint)
    state = state_of(record.token, now, repository=repository)
    message = f"{state}, in storage {repository.storage}, expires {until(record.token.expires_at, now)}"
    if state == "valid":
        return Check("token", "pass", message)
    return Check("token", "warn", message, ("run ", Run("login")))


def check_password(findings: Findings) -> Check:
    """Report where an automatic login would get the password."""
    settings = findings.settings
    if settings.token_variable:
        return Check("password", "pass", f"not needed: {settings.token_variable} is set, and xapi does not log in")
    if settings.password:
        return Check("password", "pass", "from XAPI_PASSWORD")
    if command := findings.context.password_command:
        command.check()
        return _check_command(findings, command.argv[0])
    repository = findings.repository()
    record = repository.read() if repository else None
    if record and record.password:
        return Check("password", "pass", f"remembered in {findings.storage.noun}")
    if findings.context.terminal.interactive:
        return Check("password", "pass", "from a prompt on this terminal")
    hint = registry.password_hint(findings.storage)
    return Check("password", "warn", "no source for an automatic login", hint)


def _check_command(findings: Findings, name: str) -> Check:
    """Check that the password command *name* exists; it is not run, because it may prompt the user."""
    from xapi_cli.system import programs

    with suppress(OSError, ValueError):
        if os.access(programs.find(name, findings.context.environ), os.X_OK):
            return Check("password", "pass", "from the profile's password_command (not run here)")
    return Check(
        "password", "fail", f"password_command: program {name!r} not found", "install it, or correct password_command"
    )
