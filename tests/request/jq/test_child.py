"""The child process of --jq: how it divides text into documents."""

import json
import math
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.jq.child import lines, parts, without_constants

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\\\{}[],:\\n\u00e9', max_size=4),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text("a{]", max_size=2), children, max_size=3),
    max_leaves=5,
)
DOCUMENTS = st.tuples(VALUES, st.sampled_from([None, 1]), st.sampled_from(["\n", " ", "\r\n", "\n\n "]))


def _documents(text: str) -> Iterator[object]:
    """Yield the documents of *text*; raises ValueError unless all of them are complete."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]


def _blocks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


CONSTANTS = st.recursive(
    st.sampled_from([math.nan, math.inf, -math.inf, "NaN", " NaN", "NaN, ", "[Infinity", 'a": NaN}', "NaNo", 1, None]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(["NaN", "b"]), children),
    max_leaves=5,
)


@given(CONSTANTS, st.sampled_from([None, 1]), st.sampled_from(["", " ", "\n", "\n1", " 1", " [2]", ' "x"']))
def test_nan_and_infinity_are_no_more_valid_than_other_words(value: object, indent: int | None, end: str) -> None:
    text = json.dumps(value, indent=indent) + end

    found = without_constants(text.encode()).decode()

    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        assert len(found) == len(text)
        assert not any(is_valid(found[: len(found) - cut]) for cut in range(len(end) + 1))
    else:
        assert found == text


def is_valid(text: str) -> bool:
    """Return whether *text* is one document, with or without constants."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(st.lists(DOCUMENTS, max_size=6), st.integers(1, 30))
def test_the_parts_of_any_documents_are_complete(documents: list[tuple[object, int | None, str]], size: int) -> None:
    data = "".join(json.dumps(value, indent=indent) + end for value, indent, end in documents).encode()
    found = list(parts(_blocks(data, size)))

    assert b"".join(found) == data
    values = [value for part in found for value in _documents(part.decode())]
    assert values == [value for value, _, _ in documents]


def test_complete_lines_are_passed_on_as_they_arrive() -> None:
    blocks = iter([b'{"a": 1}\n{"a"', b": 2}\n", b"[3]\n[4]\n[5"])
    found = parts(blocks)

    assert next(found) == b'{"a": 1}\n'
    assert next(found) == b'{"a": 2}\n'
    assert next(blocks) == b"[3]\n[4]\n[5"  # it was not read before


def test_a_document_over_several_lines_ends_the_division_into_lines() -> None:
    assert list(parts(iter([b"1\n2\n", b"[\n", b"3]\n4\n"]))) == [b"1\n2\n", b"[\n3]\n4\n"]


@given(st.lists(DOCUMENTS, max_size=6), st.integers(1, 30))
def test_each_line_is_passed_on_as_soon_as_it_has_arrived(
    documents: list[tuple[object, int | None, str]], size: int
) -> None:
    data = "".join(json.dumps(value) + "\n" for value, _, _ in documents).encode()
    found = list(lines(_blocks(data, size)))

    assert b"".join(found) == data
    assert [value for part in found for value in _documents(part.decode())] == [value for value, _, _ in documents]


def test_a_long_first_line_is_passed_on_at_its_end() -> None:
    blocks = iter([b'"', b"x" * 2**20, b"x" * 2**20, b'"\n', b"2\n"])

    assert len(next(lines(blocks))) == 2**21 + 3
    assert next(blocks) == b"2\n"  # it was not read before


def test_a_line_that_is_not_complete_is_not_completed_by_the_next_one() -> None:
    assert list(lines(iter([b'1\n2\n{"a":\n3}\n4\n']))) == [b"1\n2\n", b'{"a":', b""]
