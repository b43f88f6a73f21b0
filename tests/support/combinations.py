"""Combinations of the parameters of a test."""

from collections.abc import Sequence
from typing import Any

import pytest


def combined(rows: Sequence[Any], columns: Sequence[Any]) -> list[Any]:
    """Return each combination of a row and a column, which may be tuples of values.

    All but a diagonal are marked slow: `make test` runs each row and each column at least once.
    """
    period = min(len(rows), len(columns))
    return [
        pytest.param(*_values(row), *_values(column), marks=pytest.mark.slow if (number - other) % period else ())
        for number, row in enumerate(rows)
        for other, column in enumerate(columns)
    ]


def _values(cell: Any) -> tuple[Any, ...]:
    return cell if isinstance(cell, tuple) else (cell,)
