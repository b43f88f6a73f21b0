"""Combinations of the parameters of a test."""

from collections.abc import Sequence
from typing import Any

import pytest


def combined(rows: Sequence[Any], columns: Sequence[Any]) -> list[Any]:
    """Return each combination of a row and a column, which may be tuples of values.

    `make test` runs those in which each row and each column occurs, `make test-all` the others too, which are slow.
    """
    period = min(len(rows), len(columns))
    return [
        pytest.param(*_values(row), *_values(column), marks=pytest.mark.slow if (at - across) % period else ())
        for at, row in enumerate(rows)
        for across, column in enumerate(columns)
    ]


def _values(of: Any) -> tuple[Any, ...]:
    return of if isinstance(of, tuple) else (of,)
