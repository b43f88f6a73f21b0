"""Documents are read as data, in bounded time and memory: JSON and YAML."""

import json
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.openapi import documents, yaml_documents
from xapi_cli.openapi.documents import MAX_SIZE, parse, redacted
from xapi_cli.openapi.yaml_documents import InvalidYAML, read

_BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))


def test_json_is_read_with_numbers_as_they_were_written() -> None:
    data = b'\xef\xbb\xbf {"swagger": 2.0, "n": [1.10, 123456789012345678901234567890, true, null]}'

    assert parse(data, "x") == {"swagger": "2.0", "n": ["1.10", "123456789012345678901234567890", True, None]}


def test_a_number_of_a_million_digits_is_text() -> None:
    assert parse(b'{"n": ' + b"9" * 1_000_000 + b"}", "x") == {"n": "9" * 1_000_000}


def test_yaml_is_read_without_conversions() -> None:
    text = b"""\
%YAML 1.1
---
swagger: 2.0
on: &on {200: ok, no: 'no', ~: x, 2026-01-01: 2026-01-01}
more: [*on, yes, True, false, null, ~, "null", 0x1F, !!python/name:os.system x]
text: |
  a
"""
    on = {"200": "ok", "no": "no", "~": "x", "2026-01-01": "2026-01-01"}

    assert parse(text, "x") == {
        "swagger": "2.0",
        "on": on,
        "more": [on, "yes", True, False, None, None, "null", "0x1F", "x"],
        "text": "a\n",
    }


def test_a_tag_of_python_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse(b'a: !!python/object/apply:os.system ["touch pwned"]', "x") == {"a": ["touch pwned"]}
    assert list(tmp_path.iterdir()) == []


def test_merge_keys_keep_what_is_written() -> None:
    text = "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\nx:\n  b: 0\n  <<: [*base, *other]\n  a: 9\n"

    assert read(text, max_values=100) == {
        "base": {"a": "1", "b": "2"},
        "other": {"b": "3", "c": "4"},
        "x": {"b": "0", "a": "9", "c": "4"},
    }


def test_an_alias_as_a_key_is_its_text() -> None:
    assert read("a: &x name\n*x : 1\n", max_values=10) == {"a": "name", "name": "1"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"<!doctype html>", "is HTML or XML"),
        (b"\xff\xfe{", "is not valid UTF-8 at byte 0"),
        (b'{"a": }', "is not valid JSON at line 1, column 7"),
        (b'{"a": "\x1b"}', "is not valid JSON at line 1, column 8"),
        (b'{"a": 1}\n{"a": 2}\n', "is not one JSON document: another one begins at line 2"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b"[1]", "is not an object"),
        (b"- 1", "is not an object"),
        (b"just text", "is not an object"),
        (b"a: [", "is not valid YAML"),
        (b"a: *b", "an alias without an anchor before it at line 1, column 4"),
        (b"a: &a [*a]", "an alias without an anchor before it at line 1, column 8"),
        (b"? [a]\n: 1", "a key that is not text at line 1, column 3"),
        (b"<<: 1", "a merge key without a mapping"),
        (b"a: " + b"[" * 300, "more than 200 levels"),
        (b"- " * 300, "more than 200 levels"),
        (b"a: \x00", "is not valid YAML"),
        (b'{"a": "' + b"x" * MAX_SIZE + b'"}', "is larger than 50 MB"),
        (b'{"a": [' + b"[]," * 5_000_000 + b"[]]}", "has more than 5,000,000 values"),
    ],
    ids=lambda value: (
        value[:12].decode("latin-1").encode("unicode_escape").decode() if isinstance(value, bytes) else ""
    ),
)
def test_a_document_that_is_not_usable_is_one_error(data: bytes, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(data, "the\x1b[2Jname")

    assert str(caught.value).startswith("the\\x1b[2Jname ")
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


def test_aliases_and_merge_keys_take_bounded_time_and_memory() -> None:
    merges = "".join(f"a{n}: &a{n}\n  k{n}: v\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 2000))
    tracemalloc.start()
    try:
        assert isinstance(read(_BOMB, max_values=10_000), dict)  # shared, not copied
        with pytest.raises(InvalidYAML, match="merge keys add too many members"):
            read(f"a0: &a0 {{k: v}}\n{merges}", max_values=100_000)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_yaml_with_too_many_values_is_rejected() -> None:
    with pytest.raises(InvalidYAML, match="too many values at line 1"):
        read("[" + "[]," * 11 + "]", max_values=11)


def test_without_the_fast_parser_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x [1, 'two', {b: *x}]\n".replace(", {b: *x}", "") + "c: *x\nd: !!str 5\n"
    fast = read(text, max_values=100)
    monkeypatch.setattr(yaml_documents, "_LOADER", yaml.SafeLoader)

    assert read(text, max_values=100) == fast == {"a": ["1", "two"], "c": ["1", "two"], "d": "5"}


_values = st.recursive(
    st.booleans() | st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), _values, max_size=5))
def test_any_json_object_is_read_unchanged(value: dict[str, object]) -> None:
    assert parse(json.dumps(value).encode(), "x") == value


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_an_object_or_one_error(data: bytes) -> None:
    try:
        assert isinstance(parse(data, "x"), dict)
    except UsageError as error:
        assert str(error).isprintable()


def test_the_limits_are_as_documented() -> None:
    assert (documents.MAX_SIZE, documents.MAX_VALUES) == (50_000_000, 5_000_000)


def test_secrets_are_redacted_in_every_text_and_name() -> None:
    shared = {"secret-a": ["x secret y", 1, None]}
    document = {"a": shared, "b": [shared, "secret"], "secret": True}

    found = redacted(document, lambda text: text.replace("secret", "***"))

    inner = {"***-a": ["x *** y", 1, None]}
    assert found == {"a": inner, "b": [inner, "***"], "***": True}
    assert list(found) == ["a", "b", "***"]
