"""Names that are paths build one JSON object; invalid and contradictory ones are rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.request.body.build import json_body
from xapi_cli.request.items import parse
from xapi_cli.request.nested_json import build


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
        (["a[][]=1", "a[][]=2"], '{"a": [["1"], ["2"]]}'),
        (["a[][b]=1", "a[][b]=2"], '{"a": [{"b": "1"}, {"b": "2"}]}'),
        (["a[ b]=x", "a[1.5]=y"], '{"a": {" b": "x", "1.5": "y"}}'),
        (['a["]=b'], '{"a": {"\\"": "b"}}'),
        (["a.b=c", "0=d"], '{"a.b": "c", "0": "d"}'),
        ([r"a\=[b\:\@]=c"], '{"a=": {"b:@": "c"}}'),
        ([r"a\\=b"], r'{"a\\": "b"}'),
    ],
)
def test_paths_build_one_value(args: list[str], expected: str) -> None:
    assert built(*args) == expected


@pytest.mark.parametrize("name", ["a[", "a[[", "a[b", "a[b]c", "a[b]]", "a]", "[a]", "[]", r"a\[b\]"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        built(f"{name}=CAN")

    hint = "write name[key]=… or name[]=…, or the body with -d"
    assert str(caught.value) == f"invalid field name '{name}'; {hint}"


def test_an_index_is_not_a_name() -> None:
    with pytest.raises(UsageError) as caught:
        built("a[0]=x")

    assert str(caught.value) == (
        "the field name 'a[0]' has an index, which is not supported; append with a[]=…, or write the list as JSON, "
        "a:='[…]'"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a=1", "a[b]=2"], "the field a[b] contradicts a field before it"),
        (["a:={}", "a[b]=2"], "the field a[b] contradicts a field before it"),
        (["a[b]=1", "a[]=2"], "the field a[] contradicts a field before it"),
        (["a[]=1", "a[b]=2"], "the field a[b] contradicts a field before it"),
        (["a[b]=1", "a[b]=2"], "the field a[b] is given twice"),
        (["a[b]=1", "a:={}"], "the field a is given twice"),
        (["\x1b=1", "\x1b[\u202e]=2"], "the field \\x1b[\\u202e] contradicts a field before it"),
    ],
)
def test_contradictory_names_are_rejected_without_values(args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(parse(args).fields)

    assert caught.value.message == message
    assert str(caught.value).isprintable()


@given(st.lists(st.text(st.sampled_from("a0-[]\\"), min_size=1, max_size=8), min_size=1, max_size=4))
def test_any_names_build_valid_json_or_are_a_usage_error(names: list[str]) -> None:
    try:
        body = built(*(f"{name}:=[1]" for name in names))
    except UsageError as error:
        assert str(error).isprintable()
    else:
        assert isinstance(json.loads(body), dict)
