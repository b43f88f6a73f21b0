"""JSON is validated as text in chunks of any size: what Python's parser accepts and RFC 8259 allows."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.json.syntax import InvalidJSON, encode_string, validated

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
BROKEN = st.text(st.sampled_from('{}[],:"\\u0123-+.eEtruefalsn/ \t\n\x01é'), max_size=12)
DAMAGED = st.builds(
    lambda text, at, junk, lost: text[:at] + junk + text[at + lost :],
    VALUES.map(json.dumps), st.integers(0, 30), BROKEN, st.integers(0, 3),
)  # fmt: skip

SIZES = [1, 2, 7, 100_000]
RIGHT = [
    "0", "-0", "1.10", "1e400", "1E+2", "1" * 6000, "true", "false", "null", '""', '"é\u2028\x7f"', '"\\ud800"',
    '"\\/"', "[]", "{}", " [ ] ", '{"a":1,"a":2}', '{"":[{"b":[]}]}', "[1,2]", "\t\r\n1 ", "[" * 5000 + "]" * 5000,
]  # fmt: skip
WRONG = [
    "", " ", "01", "+1", "1.", ".5", "1e", "-", "0x1", "NaN", "Infinity", "-Infinity", "True", "nul", "nulll", "'a'",
    '"', '"a', '"\\', '"\\u12', '"\\x"', '"\\u12g4"', '"\n"', '"\x00"', "[", "]", "[1", "[1,", "[1,]", "[,1]",
    "[1 2]", "{", "}", "{1:2}", "{a:1}", '{"a"}', '{"a":}', '{"a":1,}', '{"a":1 "b":2}', '{,"a":1}', '{"a" 1}',
    '{"a"::1}', "[}", "{]", "1 2", "1,2", "[1]]", "{}{}", "\ufeff1", "\u00a01", "１", "// a\n1", "1 # a", ":", ",",
    '"a" "b"', '["a":1]', "[true:1]",
]  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_json_is_unchanged(text: str) -> None:
    for size in SIZES:
        assert "".join(validated(_pieces(text, size))) == text


@pytest.mark.parametrize("text", WRONG)
def test_invalid_json_is_reported_by_position_and_not_quoted(text: str) -> None:
    for size in SIZES:
        with pytest.raises(InvalidJSON, match=r"at character \d+$|it is truncated after \d+ characters?$|it is empty$"):
            list(validated(_pieces(text, size)))


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ('{"a": tru}', "neither a number nor true, false or null at character 7"),
        ('["a\tb"]', "an unescaped control character at character 4"),
        ('["a\\qb"]', "an invalid escape at character 4"),
        ("[" * 100_001, "more than 100,000 levels at character 100001"),
        ("1" * 65_537, "a number of more than 65,536 characters at character 1"),
    ],
)
@pytest.mark.parametrize("size", [300, 2_000_000])
def test_the_position_is_relative_to_the_start(text: str, flaw: str, size: int) -> None:
    with pytest.raises(InvalidJSON) as caught:
        list(validated(_pieces(text, size)))

    assert str(caught.value) == flaw


@given(VALUES, st.booleans(), st.integers(1, 9))
def test_all_json_written_by_python_is_valid(value: object, ascii_only: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)

    assert "".join(validated(_pieces(text, size))) == text


@given(BROKEN | DAMAGED)
def test_the_validator_agrees_with_python(text: str) -> None:
    assert _passes(text) == _python_takes(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_text_chunks_become_one_json_string(chunks: list[str]) -> None:
    assert json.loads("".join(encode_string(chunks))) == "".join(chunks)


def test_memory_does_not_grow_with_the_text() -> None:
    chunk = '{"name": "value", "list": [1, 2.5, true, null, "' + "x" * 20_000 + '"]},'
    tracemalloc.start()
    try:
        for _ in validated(["[", *[chunk] * 300, "0]"]):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 500_000


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _passes(text: str) -> bool:
    try:
        return "".join(validated(_pieces(text, 3))) == text
    except InvalidJSON:
        return False


def _python_takes(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse)
    except ValueError:
        return False
    return True
