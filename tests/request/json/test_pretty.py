"""Indented JSON has the values that were sent."""

import json

import pytest

from xapi_cli.request.json.pretty import Formatter, pretty, with_sorted_names


def test_pretty_returns_none_for_invalid_json() -> None:
    for text in ("", "{", "text", "[1,]", "[NaN]", "{'a':1}", "[" * 100_000):
        assert pretty(text, colors=True) is None


def test_duplicate_names_and_unusual_whitespace_are_preserved() -> None:
    indented = pretty('\r\n{ "a" :1 ,\t"a":2,"b":[ ] , "c":{ }}', colors=False)

    assert indented is not None
    assert "".join(indented) == '{\n  "a": 1,\n  "a": 2,\n  "b": [],\n  "c": {}\n}'


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'"\u00dc\/\u003c"', '"Ü/<"'),
        (r'"\ud83d\ude00 \ud83d \ud83dx \ud83d\n\ude00"', r'"😀 \ud83d \ud83dx \ud83d\n\ude00"'),
        (r'"\ude00\ud83d"', r'"\ude00\ud83d"'),
        (r'"\ud83d\u0041\ud83d\ud83d\ude00"', r'"\ud83dA\ud83d😀"'),
        (r'"\\u00dc \\\u00dc \\\\ud83d\\ude00"', r'"\\u00dc \\Ü \\\\ud83d\\ude00"'),
        (r'"\u0022 \u005c \" \\"', r'"\u0022 \u005c \" \\"'),
        (r'"\u0000 \u001b \u009b \u202e"', r'"\u0000 \u001b \u009b \u202e"'),
        (r'"\u200b\ufeff\u0007\u007f"', r'"\u200b\ufeff\u0007\u007f"'),
        ('"\x7f\x9b\u202e"', r'"\u007f\u009b\u202e"'),
        ('"\u00a0\\u00a0"', '"\u00a0\u00a0"'),
    ],
)  # fmt: skip
def test_escapes_of_readable_characters_are_decoded_and_no_others(text: str, shown: str, size: int) -> None:
    formatter = Formatter(colors=False)
    parts = [formatter.feed(text[start : start + size]) for start in range(0, len(text), size)]

    assert "".join([*parts, formatter.end()]) == shown
    assert json.loads(shown) == json.loads(text)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("colors", [False, True])
@pytest.mark.parametrize("indents", [False, True])
def test_parts_of_any_size_give_the_same_text(size: int, colors: bool, indents: bool) -> None:
    text = ' {"a" : [1.50, true, {}, [ ], "x\\n\\ud83d\\ude00{,"], "\\u00fc":{"b": -2e5,"c":null} } '
    whole = pretty(text, colors=colors, indents=indents)
    formatter = Formatter(colors=colors, indents=indents)
    parts = [formatter.feed(text[start : start + size]) for start in range(0, len(text), size)]

    assert whole is not None
    assert "".join([*parts, formatter.end()]) == "".join(whole)


def test_without_indentation_only_colors_are_added() -> None:
    colored = pretty(' { "a": [1,\n2] }\n', colors=True, indents=False)

    assert colored is not None
    shown = ' { \x1b[1;34m"a"\x1b[0m: [\x1b[36m1\x1b[0m,\n\x1b[36m2\x1b[0m] }\n'
    assert "".join(colored) == shown


def test_names_are_sorted_and_nothing_else_changes() -> None:
    text = '{"b": 1.10, "a": [{"z": 1, "\\u0061": 2}, 3], "B": {}, "ä": [], "b": "{,}"}'

    assert "".join(with_sorted_names(text)) == '{"B":{},"a":[{"\\u0061":2,"z":1},3],"b":1.10,"b":"{,}","ä":[]}'


def test_names_are_sorted_at_any_depth() -> None:
    text = '{"b":1,"a":' * 20_000 + "0" + "}" * 20_000

    assert "".join(with_sorted_names(text)) == '{"a":' * 20_000 + "0" + ',"b":1}' * 20_000
