"""What is valid JSON, and values as they were written."""

import json
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xapi_cli.request.json_values import InvalidValue, JsonReader, check, loads, lookup

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "text",
    [
        "1e400",
        " [1 , -0.0]\n",
        '"\\ud800"',
        pytest.param("9" * 5000, id="long"),
        '{"a":1,"a":2}',
        pytest.param("[" * 900 + "]" * 900, id="nested"),
    ],
)
def test_valid_json(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("[1,", "expecting value at character 4"),
        ("{} {}", "extra data at character 4"),
        ('{"a": 01}', "expecting ',' delimiter at character 8"),
        ("[NaN]", "NaN is not a JSON value"),
        ("-Infinity", "-Infinity is not a JSON value"),
        ('"\n"', "invalid control character at character 2"),
        ('"\\x"', "invalid \\escape at character 2"),
        ("\ufeff1", "expecting value at character 1"),
        pytest.param("[" * 100_000, "it has too many levels", id="deep"),
    ],
)
def test_invalid_json(text: str, problem: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        check(text)

    assert str(raised.value) == problem


@given(VALUES, st.sampled_from([None, 1, " \t"]), st.integers(1, 9))
@example([[0] * 30_000], None, 1)
@example(-1.5e-7, None, 1)
def test_any_value_is_read_and_compact_however_it_arrives(value: object, indent: int | str | None, size: int) -> None:
    text = f" {json.dumps({'before': [1, {}], 'x.y': {'z': [value]}, 'after': None}, indent=indent)} "
    reader = JsonReader(text[at : at + size] for at in range(0, len(text), size))

    assert [reader.compact() for _ in reader.elements_at("x.y.z")] == [json.dumps(value, separators=(",", ":"))]
    assert reader.peek() == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", {}), ("b", "1.10"), ("c.d", "x"), ("c.f", "z"), ("c.e", None), ("z", None), ("é", "3")],
)
def test_a_field_has_the_exact_name_or_is_nested(name: str, expected: object) -> None:
    value = loads('{"a": { }, "b" :1.10, "c.d": "x", "c": {"d": "y", "f": "z"}, "\\u00e9": 3}')

    with pytest.raises(KeyError) if expected is None else nullcontext():
        assert lookup(value, name) == expected
