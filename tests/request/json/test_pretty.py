"""Indented JSON has the values that were sent."""

from xapi_cli.request.json.pretty import pretty


def test_pretty_returns_none_for_invalid_json() -> None:
    for text in ("", "{", "text", "[1,]", "[NaN]", "{'a':1}", "[" * 100_000):
        assert pretty(text, colors=True) is None


def test_duplicate_names_and_unusual_whitespace_are_preserved() -> None:
    indented = pretty('\r\n{ "a" :1 ,\t"a":2,"b":[ ] , "c":{ }}', colors=False)

    assert indented is not None
    assert "".join(indented) == '{\n  "a": 1,\n  "a": 2,\n  "b": [],\n  "c": {}\n}'
