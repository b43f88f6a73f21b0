"""Checks of the machine: Python and packages, config file, profile, state directory."""

import sys

from xapi_cli.settings.table import SETTINGS
from xapi_cli.usecases.doctor.check import Check, NotChecked, Status
from xapi_cli.usecases.doctor.findings import Findings

_PACKAGES = ("httpx", "h11", "keyring", "truststore", "typer")


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

    path = findings.runtime.config_path
    findings.config_file = found = config_file.load(path)
    if not path.exists():
        return Check("config", "pass", f"{path} does not exist yet", "`xapi login` creates it")
    if sys.platform != "win32" and path.stat().st_mode & 0o020:  # config_file.load() rejects world-writable
        return Check("config", "warn", f"{path} is writable by its group", "run `chmod g-w` on it")
    return Check("config", "pass", f"{path} (profiles: {', '.join(found.profiles) or 'none'})")


def check_profile(findings: Findings) -> Check:
    """Check that the settings are valid and identify an account, or at least the base URL of a supplied token."""
    if findings.config_file is None:
        raise NotChecked("the config file cannot be read", "config")
    findings.valid_settings = settings = findings.runtime.settings
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

    state = findings.runtime.state_directory
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
