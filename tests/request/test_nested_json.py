"""Names that are paths build one JSON value; invalid and contradictory ones are rejected with the place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.request.body.build import json_body
from xapi_cli.request.items import parse
from xapi_cli.request.nested_json import build

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children),
    max_leaves=20,
)


def built(*args: str) -> str:
    """Return the JSON body of the ITEMs *args*."""
    return b"".join(json_body(parse(args).fields, lambda: None)).decode()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["a[b]=c"], '{"a": {"b": "c"}}'),
        (["a[b]=1", "a[c]:=2", "d=3"], '{"a": {"b": "1", "c": 2}, "d": "3"}'),
        (["a[b][c][d]=e"], '{"a": {"b": {"c": {"d": "e"}}}}'),
        (["a[]=x", "a[]:=1.10"], '{"a": ["x", 1.10]}'),
        (["a[2]=x", "a[0]=y"], '{"a": ["y", null, "x"]}'),
        (["a[0][b]:=2", "a[0][c]:=3", "a[1][b]:=4"], '{"a": [{"b": 2, "c": 3}, {"b": 4}]}'),
        (["a[][]=1", "a[][]=2"], '{"a": [["1"], ["2"]]}'),
        (["a[][b]=1", "a[0][c]=2"], '{"a": [{"b": "1", "c": "2"}]}'),
        (["a[1]=x", "a[][b]=y"], '{"a": [null, "x", {"b": "y"}]}'),
        (["[]=a", "[1][b]=c"], '["a", {"b": "c"}]'),
        (["[0][0]:=1"], "[[1]]"),
        (["0=a", "1[2]=b"], '{"0": "a", "1": [null, null, "b"]}'),
        (["a[00]=x"], '{"a": ["x"]}'),
        (["a[ 0]=x"], '{"a": {" 0": "x"}}'),
        (["a[1.5]=x", "a[+1]=y", "a[٣]=z"], '{"a": {"1.5": "x", "+1": "y", "٣": "z"}}'),
        (['a["]=b'], '{"a": {"\\"": "b"}}'),
        (["a.b=c"], '{"a.b": "c"}'),
        # backslashes
        ([r"a\[b\]=c"], '{"a[b]": "c"}'),
        ([r"\[\]=c", r"a\]b=d"], '{"[]": "c", "a]b": "d"}'),
        ([r"a[\[\]]=c", r"a[x\]]=d"], '{"a": {"[]": "c", "x]": "d"}}'),
        ([r"a[\0]=b", r"a[\-1]=c", r"a[\x]=d"], '{"a": {"0": "b", "-1": "c", "\\\\x": "d"}}'),
        ([r"a[\\0]=b", r"a[0\\]=c"], '{"a": {"\\\\0": "b", "0\\\\": "c"}}'),
        ([r"\0=b", r"\\1=c"], '{"0": "b", "\\\\1": "c"}'),
        ([r"a\=[b\:\@]=c"], '{"a=": {"b:@": "c"}}'),
        ([r"a\\=b"], r'{"a\\": "b"}'),
        # the value of := is extended
        (["a:=[1, 2.50]", "a[]:=3"], '{"a": [1, 2.50, 3]}'),
        (["a:=[1, 2]", "a[0]=x"], '{"a": ["x", 2]}'),
        (["a:={ }", "a[b]=c"], '{"a": {"b": "c"}}'),
        (['a:={"b": {"c": 1e400}}', "a[b][d]=x"], '{"a": {"b": {"c": 1e400, "d": "x"}}}'),
        (['a:={"b": 1}', "a[b]=x"], '{"a": {"b": "x"}}'),
        (["a:=[[1],{}]", "a[0][]:=2", "a[1][b]:=3", "a[3]:=4"], '{"a": [[1, 2], {"b": 3}, null, 4]}'),
    ],
)  # fmt: skip
def test_paths_build_one_value(args: list[str], expected: str) -> None:
    assert built(*args) == expected


def pointing(text: str) -> str:
    return f"expected {text}; to use a bracket in a name, write \\[ or \\]"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a[", pointing("a name, an index or ] at the end")),
        ("a[[", pointing("a name, an index or ] at character 3")),
        ("a[b", pointing("] at the end")),
        ("a[1", pointing("] at the end")),
        ("a[b[", pointing("] at character 4")),
        ("a[b]c", pointing("[ at character 5")),
        ("a[b]]", pointing("[ at character 5")),
        ("a]", pointing("[ at character 2")),
        ("]a", pointing("[ at character 1")),
        ("[", pointing("a name, an index or ] at the end")),
        ("[a]", pointing("an index or ] at character 2")),
        ("[]a", pointing("[ at character 3")),
        (r"a\[]", pointing("[ at character 4")),
        (r"a[b\]", pointing("] at the end")),
        ("a[-1]", "the index at character 3 is negative; for a name, write \\-1"),
        ("a[1234567890]", "the index at character 3 is too large; for a name, write \\1234567890"),
        ("a[100001]", "the index would add more than 100,000 empty elements"),
        ("a[99999][99999]", "the index would add more than 100,000 empty elements"),
    ],
)
def test_an_invalid_name_is_reported_with_the_place(name: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        built(f"{name}=CAN")

    assert str(caught.value) == f"invalid field name '{name}': {error}"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a=1", "a[b]=2"], "'a[b]' requires 'a' to be an object, but it is a string"),
        (["a:=1", "a[b]=2"], "'a[b]' requires 'a' to be an object, but it is a number"),
        (["a:=null", "a[]=2"], "'a[]' requires 'a' to be an array, but it is null"),
        (["a:=true", "a[0]=2"], "'a[0]' requires 'a' to be an array, but it is a boolean"),
        (["a:=@f", "a[0]=2"], "'a[0]' requires 'a' to be an array, but it is the content of a file"),
        (["a=[]", "a[]=2"], "'a[]' requires 'a' to be an array, but it is a string"),
        (["a[b]=1", "a[]=2"], "'a[]' requires 'a' to be an array, but it is an object"),
        (["a[]=1", "a[b]=2"], "'a[b]' requires 'a' to be an object, but it is an array"),
        (["a[b][0]=1", "a[b][0][c]=2"], "'a[b][0][c]' requires 'a[b][0]' to be an object, but it is a string"),
        (["[]=1", "a=2"], "'a' requires the body to be an object, but it is an array"),
        (["a=1", "[]=2"], "'[]' requires the body to be an array, but it is an object"),
        (["a[][b]=1", "a[0]=2"], "the field a[0] is given twice"),
        (["a[b]=1", "a[b]=2"], "the field a[b] is given twice"),
        (["a[b]=1", "a:={}"], "the field a is given twice"),
        (["a:=[1]", "a[0]=2", "a[0]=3"], "the field a[0] is given twice"),
        (['a:={"b": 1, "b": 2}', "a[c]=3"], "'a[c]' extends an object with a duplicate name"),
        (["\x1b=1", "\x1b[\u202e]=2"], "'\\x1b[\\u202e]' requires '\\x1b' to be an object, but it is a string"),
    ],
)
def test_contradictory_names_are_rejected_without_values(args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(parse(args).fields)

    assert caught.value.message == message
    assert str(caught.value).isprintable()


def _leaves(value: Any) -> int:
    """Return the number of `1` in *value*."""
    if isinstance(value, dict | list):
        return sum(map(_leaves, value.values() if isinstance(value, dict) else value))
    return int(value == 1)


def _items(value: Any, path: str) -> list[str]:
    """Return ITEMs that describe *value* at *path*."""
    if isinstance(value, dict) and value:
        return [item for name, child in value.items() for item in _items(child, f"{path}[{_escaped(name)}]")]
    if isinstance(value, list) and value:
        return [item for index, child in enumerate(value) for item in _items(child, f"{path}[{index}]")]
    return [f"{path}={value}"] if isinstance(value, str) and not value.startswith(("=", "@")) else [
        f"{path}:={json.dumps(value)}"
    ]  # fmt: skip


def _escaped(name: str) -> str:
    if name.removeprefix("-").isascii() and name.removeprefix("-").isdigit():
        return f"\\{name}"
    return "".join(f"\\{character}" if character in "\\[]=:@" else character for character in name)


def _can_be_described(value: Any) -> bool:
    """Return whether *value* has no empty name, which would append an element, and no name with / or ?."""
    if isinstance(value, dict):
        return all(name and not {"/", "?"} & {*name} for name in value) and all(map(_can_be_described, value.values()))
    return not isinstance(value, list) or all(map(_can_be_described, value))


@given(st.lists(st.text(st.sampled_from("a0-[]\\"), min_size=1, max_size=8), min_size=1, max_size=4))
def test_any_names_build_valid_json_or_are_a_usage_error(names: list[str]) -> None:
    try:
        body = built(*(f"{name}:=[1]" for name in names))
    except UsageError as error:
        assert str(error).isprintable()
    else:
        assert _leaves(json.loads(body)) <= len(names)
