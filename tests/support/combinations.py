"""Combinations of the parameters of a test."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any


def combined(rows: Sequence[Any], columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return combinations in which each row and each column, which may be tuples of values, occurs at least once."""
    number = max(len(rows), len(columns))
    pairs = zip(islice(cycle(rows), number), islice(cycle(columns), number), strict=True)
    return [(*_values(row), *_values(column)) for row, column in pairs]


def _values(cell: Any) -> tuple[Any, ...]:
    return cell if isinstance(cell, tuple) else (cell,)
