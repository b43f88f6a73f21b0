"""Check everything that xapi needs, in the order of use; a check that cannot run reports the reason.

Each check performs the real operation, with a timeout: ten seconds for the network, six for the keyring.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xapi_cli.errors import ChecksFailed, XapiError
from xapi_cli.usecases.doctor import checks
from xapi_cli.usecases.doctor.findings import Check, Findings, NotChecked

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.system.terminal import Terminal

_Row = tuple[str, Callable[[Findings], Check]]

_CHECKS: tuple[_Row, ...] = (
    ("python", checks.check_python),
    ("config", checks.check_config),
    ("profile", checks.check_profile),
    ("network", checks.check_network),
    ("clock", checks.check_clock),
    ("tls", checks.check_tls),
    ("proxy", checks.check_proxy),
    ("state", checks.check_state),
    ("keyring", checks.check_store),
    ("token", checks.check_token),
    ("password", checks.check_password),
)

_LAST_OF_SETTINGS = "profile"


def doctor(context: "Context", *, as_json: bool) -> None:
    """Print the result of each check as soon as it is available.

    Raises ChecksFailed if a check failed.
    """
    checks, report = [], _Report(context.terminal)
    for check in _results(context):
        checks.append(check)
        if not as_json:
            report.add(check)
    report.end()
    failed = [check.name for check in checks if check.status == "fail"]
    if as_json:
        context.terminal.print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    if failed:
        raise ChecksFailed(
            f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}",
            hint="follow the hints of the failed checks",
        )


def _results(context: "Context") -> Iterator[Check]:
    """Run all checks; the failure of one does not prevent the others."""
    findings = Findings(context)
    for name, run in _CHECKS:
        try:
            check = run(findings)
        except NotChecked as error:
            check = Check(name, "warn", error.message, error.hint, depends_on=error.cause)
        except XapiError as error:
            check = Check(name, "fail", error.message, error.hint)
        yield replace(check, hint=check.hint and context.terminal.text(check.hint))


class _Report:
    """Prints each check: as one line, on a terminal as a paragraph.

    On a terminal, a failure of the settings comes before the checks that passed, and checks that cannot run because
    of it are listed in one line at the end. The checks of the settings take no time; others are printed immediately.
    """

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._held_back: list[Check] | None = []  # until the settings have been checked
        self._not_checked: dict[str, list[str]] = {}  # names, by the failed check that they depend on

    def add(self, check: Check) -> None:
        """Print *check*, now or later."""
        if not self._terminal.stdout_is_terminal:
            self._terminal.print(check.line(self._terminal.style))
        elif check.depends_on:
            self._not_checked.setdefault(check.depends_on, []).append(check.name)
        elif self._held_back is None:
            self._print(check)
        else:
            self._held_back.append(check)
        if check.name == _LAST_OF_SETTINGS:
            self._release()

    def end(self) -> None:
        """Print what has not been printed."""
        for cause, names in self._not_checked.items():
            self._print(Check("", "skip", f"not checked, because {cause} failed: {', '.join(names)}"))

    def _release(self) -> None:
        held_back, self._held_back = self._held_back or [], None
        for check in sorted(held_back, key=lambda check: check.status != "fail"):
            self._print(check)

    def _print(self, check: Check) -> None:
        self._terminal.print(check.wrapped(self._terminal.stdout_columns, self._terminal.style))
