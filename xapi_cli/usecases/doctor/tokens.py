"""Checks of the login: the store, the stored token, the password source of an automatic login."""

import os
from contextlib import suppress

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.system.render import until
from xapi_cli.usecases.doctor.check import Check
from xapi_cli.usecases.doctor.findings import Findings
from xapi_cli.usecases.token_status import state_of


def check_store(findings: Findings) -> Check:
    """Write, read and delete an item in the keyring or another service; a missing keyring is a warning with `auto`."""
    setting, name = findings.settings.storage, findings.storage.check_name
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
        return Check(name, "warn", "; ".join(reports.warnings), _use(findings.alternative))
    backend = findings.probed_repository.backend if findings.probed_repository else None
    without_lock = ", without a lock" if reports.lock_failures else ""  # the state check reports why
    message = f"{backend or 'a backend'}: an item was written, read and deleted{without_lock}"
    return Check(name, "pass", message)


def _use(storage: str) -> str:
    return f"run `xapi login --storage {storage}`"


def check_token(findings: Findings) -> Check:
    """Report the state of the stored token, without a login."""
    settings, now = findings.settings, findings.runtime.now()
    if settings.token_variable:
        try:
            findings.runtime.supplied_token()
        except UsageError as error:
            return Check("token", "fail", error.message, error.hint)
        return Check("token", "pass", f"from {settings.token_variable}; its expiry time is unknown")
    repository = findings.repository()
    if repository is None:
        hint = f"follow the hint for {findings.storage.check_name}"
        return Check("token", "warn", f"no stored token: {findings.storage.place} cannot be used", hint)
    record = repository.read()
    if record is None:
        hint = (
            f"{registry.login_hint(repository.row)}; if a password source is available, commands log in automatically"
        )
        return Check("token", "warn", "no stored token", hint)
    state = state_of(record.token, now, repository=repository)
    message = f"{state}, in storage {repository.storage}, expires {until(record.token.expires_at, now)}"
    if state == "valid":
        return Check("token", "pass", message)
    return Check("token", "warn", message, "run `xapi login`")


def check_password(findings: Findings) -> Check:
    """Report where an automatic login would get the password."""
    settings = findings.settings
    if settings.token_variable:
        return Check("password", "pass", f"not needed: {settings.token_variable} is set, and xapi does not log in")
    if settings.password:
        return Check("password", "pass", "from XAPI_PASSWORD")
    if command := findings.runtime.password_command:
        command.check()
        return _check_command(findings, command.argv[0])
    repository = findings.repository()
    record = repository.read() if repository else None
    if record and record.password:
        return Check("password", "pass", f"remembered in {findings.storage.place}")
    if findings.runtime.terminal.interactive:
        return Check("password", "pass", "from a prompt on this terminal")
    hint = registry.password_hint(findings.storage)
    return Check("password", "warn", "no source for an automatic login", hint)


def _check_command(findings: Findings, name: str) -> Check:
    """Check that the password command *name* exists; it is not run, because it may prompt the user."""
    from xapi_cli.system import programs

    with suppress(OSError, ValueError):
        if os.access(programs.find(name, findings.runtime.environ), os.X_OK):
            return Check("password", "pass", "from the profile's password_command (not run here)")
    return Check(
        "password", "fail", f"password_command: program {name!r} not found", "install it, or correct password_command"
    )
