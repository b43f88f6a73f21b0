"""The merge of outputs: the order of the lines, and what is missing, duplicated, unknown or damaged."""

import io
from collections.abc import Iterable
from typing import Protocol

import pytest

from xapi_cli.batch.merge import BLOCK, Damage, LineNumbers, Merge, OutputReader
from xapi_cli.errors import UsageError

LONG = "x" * (BLOCK + 1000)


class Form(Protocol):
    def __call__(self, number: int, text: str = "") -> str:
        """Return the line *number* with the body *text*."""


class _Pipe(io.BytesIO):
    """A file that can be read only once."""

    def seekable(self) -> bool:
        return False


def _line(number: int, text: str = "") -> str:
    return f'{{"id": null, "line": {number}, "body": "{text}"}}\n'


def _unusual(number: int, text: str = "") -> str:
    return f'{{"body": "{text}", "line": {number}}}\n'


def _merged(
    outputs: Iterable[bytes], expected: Iterable[int] | None = None, kind: type[io.BytesIO] = io.BytesIO
) -> tuple[str, Merge, str]:
    """Return the merged text, the merge, and the damage."""
    damage, written = Damage(), list[bytes]()
    readers = [OutputReader(kind(data), f"o{number}", damage) for number, data in enumerate(outputs, 1)]
    merge = Merge(readers, written.append, None if expected is None else iter(expected))
    merge.run()
    return b"".join(written).decode(), merge, str(damage)


@pytest.mark.parametrize("kind", [io.BytesIO, _Pipe])
@pytest.mark.parametrize(
    "outputs",
    [
        [[1, 2, 3, 4]],
        [[1, 3], [2, 4]],
        [[], [1, 2, 3, 4], []],
        [[4], [3], [2], [1]],
        [[1, 2], [3, 4]],
    ],
    ids=str,
)
@pytest.mark.parametrize(("form", "text"), [(_line, ""), (_line, LONG), (_unusual, "x"), (_unusual, LONG)])
def test_lines_are_in_the_order_of_the_input(
    outputs: list[list[int]], form: Form, text: str, kind: type[io.BytesIO]
) -> None:
    data = ["".join(form(number, text) for number in numbers).encode() for numbers in outputs]

    assert _merged(data, kind=kind)[0] == "".join(form(number, text) for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("outputs", "expected", "missing", "duplicates", "unknown"),
    [
        ([[1, 2, 3]], None, "", "", ""),
        ([[2], [5]], None, "1, 3-4", "", ""),
        ([[1, 2], [2, 3]], None, "", "2", ""),
        ([[1, 1, 1]], None, "", "1", ""),
        ([[1, 3]], [1, 3], "", "", ""),
        ([[1, 3]], [1, 2, 3, 4], "2, 4", "", ""),
        ([[1, 2, 9]], [1, 3], "3", "", "2, 9"),
        ([[]], [7], "7", "", ""),
        ([[]], None, "", "", ""),
    ],
)
def test_missing_duplicated_and_unknown_lines_are_found(
    outputs: list[list[int]], expected: list[int] | None, missing: str, duplicates: str, unknown: str
) -> None:
    _, merge, damage = _merged(["".join(map(_line, numbers)).encode() for numbers in outputs], expected)

    assert (str(merge.missing), str(merge.duplicates), str(merge.unknown), damage) == (missing, duplicates, unknown, "")


@pytest.mark.parametrize("form", [_line, _unusual])
@pytest.mark.parametrize(
    ("last", "damage"),
    [
        ('{"id": null, "line": 2, "bo', "the last line of o1 is truncated"),
        ('{"id": null, "line": 2, "body": "' + LONG, "the last line of o1 is truncated"),
        ('{"id": null, "line": 2, "body": "\n', "line 2 of o1 is damaged"),
        ('{"id": null, "line": 2, "line": 2}\n', "line 2 of o1 is damaged"),
        ('{"id": null, "line": 2}}\n{"id": null, "line": 3\n', "line 2 and 1 more of o1 are damaged"),
        ("\n   \n\t", ""),
        ("", ""),
    ],
)
def test_a_damaged_line_is_reported_and_not_printed(form: Form, last: str, damage: str) -> None:
    text, _, found = _merged([(form(1) + last).encode()])

    assert (text, found) == (form(1), damage)


def test_a_line_that_is_not_printed_is_skipped_to_its_end() -> None:
    data = (_line(1, LONG) + _line(1, LONG * 3) + _line(2)).encode()
    reader = OutputReader(io.BytesIO(data), "o1", Damage())
    assert [reader.advance(), reader.advance(), reader.advance()] == [True] * 3

    assert (reader.number, reader.line(), reader.advance()) == (2, _line(2).encode(), False)


def test_a_byte_order_mark_is_ignored_at_the_start_only() -> None:
    assert _merged([b"\xef\xbb\xbf" + _line(1).encode()])[0] == _line(1)
    with pytest.raises(UsageError, match="line 2 of o1 is not a line of `xapi batch` output"):
        _merged([_line(1).encode() + b"\xef\xbb\xbf[]\n"])


def test_only_the_first_ranges_of_many_numbers_are_shown() -> None:
    numbers = LineNumbers()
    for number in range(1, 100, 2):
        numbers.add(number)

    assert (str(numbers), numbers.count) == ("1, 3, 5, 7, 9, 11, 13, 15, and 42 more", 50)
