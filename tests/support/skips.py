"""`pytest --no-skips` fails if a test was skipped or expected to fail."""

from collections.abc import Generator

import pytest

# The start of the reason if a test needs a privilege that the machine does not grant, whatever is installed.
IMPOSSIBLE = "not on this machine: "


class NoSkips:
    """A pytest plugin that converts the report of a skip, from any worker, to that of a failure."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that was skipped."""
        report = yield
        _fail_if_left_out(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Fail a module that was skipped as a whole."""
        report = yield
        _fail_if_left_out(report)
        return report


def _fail_if_left_out(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
    if not reason.startswith(f"Skipped: {IMPOSSIBLE}"):
        report.outcome = "failed"
        report.longrepr = f"--no-skips: {report.nodeid} was left out: {reason}"
        vars(report).pop("wasxfail", None)
