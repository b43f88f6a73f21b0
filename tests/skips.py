"""`pytest --no-skips` fails where a test was left out: skipped, or expected to fail."""

from collections.abc import Generator

import pytest

# How the reason to skip begins where a test needs a right that the machine does not give: no installation changes that.
IMPOSSIBLE = "not on this machine: "


class NoSkips:
    """A pytest plugin that turns the report of a skip into that of a failure, on whatever worker it was made."""

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
