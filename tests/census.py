"""Counts the tests that passed, by kind, so that one that is skipped or deselected leaves a hole that is seen.

`pytest --complete` fails when a test was skipped or expected to fail, and when
fewer of a kind passed than `census` in pyproject.toml demands.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

# A kind is told by what a test uses. Each test is also one of "all".
KINDS_BY_FIXTURE = {
    "xapi": "program",
    "sandbox": "sandbox",
    "gnome_keyring": "keyring",
    "shared_gnome_keyring": "keyring",
}
# How the reason to skip begins where a test needs a right that the machine does not give; that is told, and no hole.
IMPOSSIBLE = "not on this machine: "
KINDS = ("all", *dict.fromkeys(KINDS_BY_FIXTURE.values()), "property")


class Census:
    """A pytest plugin; with pytest-xdist, workers tell the kinds and the controller counts."""

    def __init__(self, config: pytest.Config) -> None:
        self._complete: bool = config.getoption("complete")
        self._wanted = dict(_demand(line) for line in config.getini("census"))
        self._passed: Counter[str] = Counter()
        self._left_out: list[str] = []

    @staticmethod
    def add_options(parser: pytest.Parser) -> None:
        """Declare what the command line and pyproject.toml may say about this."""
        parser.addoption(
            "--complete", action="store_true", help="fail when tests were skipped, or are too few of a kind"
        )
        parser.addini(
            "census", "how many tests of a kind have to pass, as 'kind = number'", type="linelist", default=[]
        )

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Let each test carry its kinds into its report."""
        for item in items:
            item.user_properties.extend(("kind", kind) for kind in _kinds(item))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that passed, note one that was left out."""
        if report.when == "call" and report.passed:
            self._passed.update(str(value) for name, value in report.user_properties if name == "kind")
        elif report.skipped and not _is_impossible(report):
            self._left_out.append(report.nodeid)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that was left out as a whole."""
        if report.skipped:
            self._left_out.append(report.nodeid)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that claims to be complete and is not."""
        if self._complete and session.exitstatus == pytest.ExitCode.OK and self._holes():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many passed of each kind, and what is missing."""
        counts = ", ".join(f"{kind} {self._passed[kind]}" for kind in KINDS if self._passed[kind])
        terminalreporter.write_line(f"census: {counts or 'nothing passed'}")
        if self._complete:
            for hole in self._holes():
                terminalreporter.write_line(f"census: {hole}", red=True)

    def _holes(self) -> list[str]:
        few = [
            f"{number} tests of kind {kind} wanted, {self._passed[kind]} passed"
            for kind, number in self._wanted.items()
            if self._passed[kind] < number
        ]
        return few + [f"left out: {nodeid}" for nodeid in self._left_out]


def _is_impossible(report: pytest.TestReport) -> bool:
    """Tell whether a test was skipped for what no installation of programs could change."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else ""
    return str(reason).startswith(f"Skipped: {IMPOSSIBLE}")


def _kinds(item: pytest.Item) -> set[str]:
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    kinds = {kind for fixture, kind in KINDS_BY_FIXTURE.items() if fixture in fixtures}
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        kinds.add("property")
    return kinds | {"all"}


def _demand(line: str) -> tuple[str, int]:
    kind, _, number = line.partition("=")
    if kind.strip() not in KINDS:
        raise pytest.UsageError(f"census: unknown kind {kind.strip()!r}")
    return kind.strip(), int(number)
