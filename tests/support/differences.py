"""Leaves out tests that cannot run where a plugin runs the program, and expects the failures that must differ there."""

from collections.abc import Mapping

import pytest


def apply(
    config: pytest.Config,
    items: list[pytest.Item],
    left_out: Mapping[str, str],
    differences: Mapping[str, str] | None = None,
) -> None:
    """Remove the tests that *left_out* lists from *items*; expect those that *differences* lists to fail.

    Both contain reasons, by file, file and name, or file, name and parameters, relative to `tests`. A test that passes
    although it is expected to fail fails.
    """
    kept: list[pytest.Item] = []
    removed: list[pytest.Item] = []
    for item in items:
        node = item.nodeid.removeprefix("tests/")
        names = (node, node.partition("[")[0], node.partition("::")[0])
        (removed if any(name in left_out for name in names) else kept).append(item)
        if reason := next(((differences or {})[name] for name in names if name in (differences or {})), None):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    config.hook.pytest_deselected(items=removed)
    items[:] = kept
