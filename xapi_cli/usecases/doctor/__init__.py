"""Check everything that xapi needs, in the order of use; a check that cannot run reports the reason.

Each check performs the real operation, with a timeout: ten seconds for the network, six for the keyring.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from xapi_cli.errors import XapiError
from xapi_cli.usecases.doctor import installation, network, tokens
from xapi_cli.usecases.doctor.check import Check, NotChecked
from xapi_cli.usecases.doctor.findings import Findings

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_CHECKS: tuple[tuple[str, Callable[[Findings], Check]], ...] = (
    ("python", installation.check_python),
    ("config", installation.check_config),
    ("profile", installation.check_profile),
    ("network", network.check_network),
    ("clock", network.check_clock),
    ("tls", network.check_tls),
    ("proxy", network.check_proxy),
    ("state", installation.check_state),
    ("keyring", tokens.check_store),
    ("token", tokens.check_token),
    ("password", tokens.check_password),
)


def doctor(runtime: "Runtime", *, as_json: bool) -> None:
    """Print the result of each check as soon as it is available; raises XapiError if a check failed."""
    checks = []
    for check in _results(runtime):
        checks.append(check)
        if not as_json:
            _print(runtime, check)
    failed = [check.name for check in checks if check.status == "fail"]
    if as_json:
        runtime.terminal.print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    if failed:
        raise XapiError(
            f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}",
            hint="follow the hints of the failed checks",
        )


def _results(runtime: "Runtime") -> Iterator[Check]:
    """Run all checks; the failure of one does not prevent the others."""
    findings = Findings(runtime)
    for name, run in _CHECKS:
        try:
            check = run(findings)
        except NotChecked as error:
            check = Check(name, "warn", error.message, error.hint)
        except XapiError as error:
            check = Check(name, "fail", error.message, error.hint)
        yield replace(check, hint=runtime.with_profile(check.hint))


def _print(runtime: "Runtime", check: Check) -> None:
    from shutil import get_terminal_size

    terminal = runtime.terminal
    if terminal.stdout_is_terminal:
        terminal.print(check.wrapped(get_terminal_size().columns, colors=terminal.colors))
    else:
        terminal.print(check.line())
