"""JSON as text: what is valid, where its values are, and how a terminal shows it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.request.json import spans
from xapi_cli.request.json.pretty import pretty
from xapi_cli.request.json.syntax import InvalidJSON, check, encode_string

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    "text",
    [
        "1e400",
        "-0.0",
        " [1 , {}]\n",
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
        ("[NaN]", "NaN and Infinity are not allowed"),
        ("-Infinity", "NaN and Infinity are not allowed"),
        ('"\n"', "invalid control character at character 2"),
        ('"\\x"', "invalid \\escape at character 2"),
        ("\ufeff1", "expecting value at character 1"),
        pytest.param("[" * 100_000, "it has too many levels", id="deep"),
    ],
)
def test_invalid_json(text: str, problem: str) -> None:
    with pytest.raises(InvalidJSON) as raised:
        check(text)

    assert str(raised.value) == problem


def test_a_text_in_chunks_is_one_string() -> None:
    assert "".join(encode_string(['a"', "\n", "é"])) == '"a\\"\\né"'


@given(VALUES, st.sampled_from([None, 1, " \t"]))
def test_any_value_is_found_and_compact(value: object, indent: int | str | None) -> None:
    text = f" {json.dumps({'before': [1, {}], 'x.y': {'z': value}, 'after': None}, indent=indent)} "
    spans.check_document(text)
    found = spans.field(text, spans.whole(text), "x.y.z")

    assert found is not None
    assert json.loads(text[slice(*found)]) == value
    assert spans.compact(text, found) == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a", "{ }"), ("b", "1.10"), ("c.d", '"x"'), ("c.e", None), ("z", None), ("f", "2"), ("é", "3")],
)
def test_a_field_is_as_it_was_written(path: str, expected: str | None) -> None:
    text = '{"a": { }, "b" :1.10, "c.d": "x", "c": {"d": "y"}, "f": 1, "f": 2, "\\u00e9": 3}'
    found = spans.field(text, spans.whole(text), path)

    assert (None if found is None else text[slice(*found)]) == expected


def test_a_document_with_too_many_values_is_refused() -> None:
    with pytest.raises(InvalidJSON, match="more than 5,000,000 values"):
        spans.check_document("[" + "1," * spans.MAX_VALUES + "1]")


def shown(text: str, *, colors: bool = False) -> str | None:
    parts = pretty(text, colors=colors)
    return None if parts is None else "".join(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "[]"),
        ('{"a":{}, "b" :[1.10,2],"a":null}', '{\n  "a": {},\n  "b": [\n    1.10,\n    2\n  ],\n  "a": null\n}'),
        ('"\\u00e9\\n\\/\\u0022"', '"é\\n/\\u0022"'),
        ('"\\ud83d\\ude00 \\ud83d"', '"😀 \\ud83d"'),
        ('["\u009b31m\u202e"]', '[\n  "\\u009b31m\\u202e"\n]'),
        ("[1", None),
    ],
)
def test_json_is_indented_and_control_characters_are_escaped(text: str, expected: str | None) -> None:
    assert shown(text) == expected


def test_names_strings_numbers_and_words_have_colors() -> None:
    colored = shown('{"a": ["b", 1, true]}', colors=True) or ""

    assert '\x1b[1;34m"a"\x1b[0m: [' in colored
    for value in ('\x1b[32m"b"', "\x1b[36m1", "\x1b[35mtrue"):
        assert f"{value}\x1b[0m" in colored


def test_deep_json_is_not_indented_without_a_limit() -> None:
    text = "[" * 900 + "]" * 900

    assert len(shown(text) or "") < 1800 * 90


@given(VALUES)
def test_any_value_stays_the_same(value: object) -> None:
    assert json.loads(shown(json.dumps(value)) or "") == value
