"""Indented JSON has the values that were sent."""

import json

import pytest

from xapi_cli.request.json.pretty import Formatter, pretty


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
def test_parts_of_any_size_give_the_same_text(size: int, colors: bool) -> None:
    text = ' {"a" : [1.50, true, {}, [ ], "x\\n\\ud83d\\ude00{,"], "\\u00fc":{"b": -2e5,"c":null} } '
    whole = pretty(text, colors=colors)
    formatter = Formatter(colors=colors)
    parts = [formatter.feed(text[start : start + size]) for start in range(0, len(text), size)]

    assert whole is not None
    assert "".join([*parts, formatter.end()]) == "".join(whole)
