"""ITEMs and `-d` become the intended body, identical each time it is sent."""

import hashlib
import io
import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.context import Context
from xapi_cli.errors import UsageError
from xapi_cli.http.messages import Body
from xapi_cli.request.body.build import FORM, JSON, build
from xapi_cli.request.body.spool import CHUNK, IN_MEMORY
from xapi_cli.request.items import Field, Items, parse
from xapi_cli.request.options import RequestOptions
from xapi_cli.request.plan import Plan

BIG = IN_MEMORY + CHUNK + 7
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ARGUMENTS = st.binary(max_size=50).map(lambda data: data.decode("utf-8", "surrogateescape"))


def no_stdin() -> BinaryIO:
    pytest.fail("stdin was requested")


def piped(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def made(*args: str, data: str | None = None, form: bool = False, stdin: Callable[[], BinaryIO] = no_stdin) -> Body:
    body = build(parse(args), data=data, form=form, stdin=stdin)
    assert body is not None
    return body


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["a=b"], '{"a": "b"}'),
        (["a=", "b=é漢😀"], '{"a": "", "b": "é漢😀"}'),
        (["a=\"\\\n\x1b\x00"], '{"a": "\\"\\\\\\n\\u001b\\u0000"}'),
        (["é\"\n=1"], '{"é\\"\\n": "1"}'),
        (["z:=1", "a:=1.10", "m:=1e400"], '{"z": 1, "a": 1.10, "m": 1e400}'),
        (["a:=" + "9" * 5000], '{"a": ' + "9" * 5000 + "}"),
        (["a:=-0", "b:= null "], '{"a": -0, "b":  null }'),
        (['a:={"b": 1, "b": [ 2 ]}'], '{"a": {"b": 1, "b": [ 2 ]}}'),
        (['a:="\\ud800"'], '{"a": "\\ud800"}'),
        (["a[b]=c", "a.b=c"], '{"a": {"b": "c"}, "a.b": "c"}'),
        (["a[][b]:=1.10", "c[]=é", "a[]:=[ 1e400 ]"], '{"a": [{"b": 1.10}, [ 1e400 ]], "c": ["é"]}'),
    ],
)  # fmt: skip
def test_fields_become_json_verbatim(args: list[str], expected: str) -> None:
    body = made(*args)

    assert b"".join(body) == expected.encode()
    assert (body.length, body.content_type) == (len(expected.encode()), JSON)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["a=b"], b"a=b"),
        (["a=", "b=c d+e&f=g"], b"a=&b=c%20d%2Be%26f%3Dg"),
        (["a[b]=c", "a[]=d", "a[=e"], b"a%5Bb%5D=c&a%5B%5D=d&a%5B=e"),
        (["a=1", "a=2", "b=3", "a=4"], b"a=1&a=2&b=3&a=4"),
        (["é=\r\n漢%"], b"%C3%A9=%0D%0A%E6%BC%A2%25"),
        (["a=\udcff~"], b"a=%FF~"),
    ],
)
def test_with_form_fields_become_a_form(args: list[str], expected: bytes) -> None:
    body = made(*args, form=True)

    assert b"".join(body) == expected
    assert (body.length, body.content_type) == (len(expected), FORM)


@pytest.mark.parametrize("form", [False, True])
def test_an_upload_makes_the_body_multipart(tmp_path: Path, form: bool) -> None:
    (tmp_path / "file").write_bytes(b"content")
    body = made("a=b", "a=c", f"f@{tmp_path / 'file'}", form=form)

    assert (body.content_type or "").startswith("multipart/form-data; boundary=")
    assert b"".join(body).count(b"Content-Disposition: form-data") == 3


@pytest.mark.parametrize("data", ["", "{}", "a=b", "not JSON", "é\n", "a@b", " @x"])
def test_data_is_the_body_verbatim(data: str) -> None:
    body = made(data=data)

    assert b"".join(body) == data.encode()
    assert (body.length, body.content_type) == (len(data.encode()), JSON)


def test_data_comes_from_a_file_or_stdin(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\x00\r\n")

    for body in (made(data=f"@{tmp_path / 'file'}"), made(data="@-", stdin=piped(b"\xff\x00\r\n"))):
        assert b"".join(body) == b"\xff\x00\r\n"
        assert (body.length, body.content_type) == (4, JSON)


@pytest.mark.parametrize("args", [[], ["a==b"], ["X:y"], ["X:", "a==b"]])
@pytest.mark.parametrize("form", [False, True])
def test_without_fields_there_is_no_body(args: list[str], form: bool) -> None:
    assert build(parse(args), data=None, form=form, stdin=no_stdin) is None


def test_values_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes('"é"\r\n'.encode())
    (tmp_path / "json").write_bytes(b"\xef\xbb\xbf [1.10,\n 1e400] \n")
    text, document = tmp_path / "text", tmp_path / "json"

    assert b"".join(made(f"a=@{text}")) == '{"a": "\\"é\\"\\r\\n"}'.encode()
    assert b"".join(made(f"a:=@{document}", "b=c")) == b'{"a":  [1.10,\n 1e400] \n, "b": "c"}'
    assert b"".join(made(f"a=@{text}", form=True)) == b"a=%22%C3%A9%22%0D%0A"
    assert b"".join(made("a:=@-", stdin=piped(b"[]"))) == b'{"a": []}'
    assert b"".join(made("a=@-", "b=c", stdin=piped(b"x"), form=True)) == b"a=x&b=c"


@pytest.mark.parametrize(
    ("args", "data", "form", "message"),
    [
        (["a=b"], "CAN", False, "-d cannot be combined with fields or uploads"),
        (["a@b"], "CAN", False, "-d cannot be combined with fields or uploads"),
        (["a:=1"], "@-", False, "-d cannot be combined with fields or uploads"),
        ([], "CAN", True, "--form cannot be combined with -d"),
        (["a:=1"], None, True, "a form cannot have JSON fields"),
        (["a:=@x"], None, True, "a form cannot have JSON fields"),
        (["a:=1", "f@x"], None, False, "a request with uploads cannot have JSON fields"),
        (["a=@-", "b=@-"], None, False, "stdin is used more than once (@-)"),
        (["a=@-", "b@-"], None, False, "stdin is used more than once (@-)"),
        (["a@-", "b@-"], None, True, "stdin is used more than once (@-)"),
        (["X:@-"], "@-", False, "stdin is used more than once (@-)"),
        (["a=CAN", "b=1", "a=CAN"], None, False, "the field a is given twice"),
        (["\x1b=CAN", "\x1b:=1"], None, False, "the field \\x1b is given twice"),
        (["a[b]=CAN", "a=1"], None, False, "the field a is given twice"),
        (["a=CAN", "a[b]=1"], None, False, "the field a[b] contradicts a field before it"),
        (["a[b\udcff]=b"], None, False, "the field a[b\\udcff] is not valid UTF-8"),
        (["a\udcff=b"], None, False, "the field a\\udcff is not valid UTF-8"),
        (["a=CAN\udcff"], None, False, "the field a is not valid UTF-8"),
        (['a:="CAN\udcff"'], None, False, "the field a is not valid UTF-8"),
        (["a=\ud800"], None, True, "the field a is not valid UTF-8"),
        (["\ud800=a"], None, True, "the field \\ud800 is not valid UTF-8"),
        ([], "CAN\ud800", False, "the text of -d contains an unpaired surrogate"),
        ([], "@", False, "-d has no file name after its @"),
        ([], "@missing", False, "cannot read missing: No such file or directory"),
        ([], "@.", False, "cannot read .: Is a directory"),
        (["a=@missing"], None, False, "cannot read missing: No such file or directory"),
        (["a:=@missing"], None, False, "cannot read missing: No such file or directory"),
        (["a@missing"], None, False, "cannot read missing: No such file or directory"),
        (["a=@missing"], None, True, "cannot read missing: No such file or directory"),
    ],
)
def test_an_invalid_combination_is_rejected_before_anything_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    data: str | None,
    form: bool,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    context = Context({"XAPI_BASE_URL": "https://api.test", "XAPI_CONFIG_DIR": "/nonexistent"})
    options = RequestOptions(["/", *args], data=data, form=form)
    with pytest.raises(UsageError) as caught:
        build(Plan(context, options).items, data=data, form=form, stdin=no_stdin)

    assert caught.value.message == message
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b"", b"CAN", b"[1,]", b'{"a":1}}', b"NaN"])
def test_a_file_that_is_not_valid_json_is_reported_by_field_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(UsageError) as caught:
        made(f"b:=@{tmp_path / 'file'}")
    assert caught.value.message.startswith("the field b has a value that is not valid JSON: ")
    assert "CAN" not in str(caught.value)


@given(st.dictionaries(TEXT.filter(lambda name: name and not {"[", "]"} & {*name}), TEXT, min_size=1))
def test_a_server_reads_the_json_fields_that_were_given(fields: dict[str, str]) -> None:
    body = build(Items(parts=[Field(*pair) for pair in fields.items()]), data=None, form=False, stdin=no_stdin)

    assert body is not None
    assert json.loads(b"".join(body)) == fields
    assert body.length == len(b"".join(body))


@pytest.mark.parametrize("size", [0, 10, CHUNK + 1, BIG])
def test_every_kind_of_body_is_identical_when_resent(tmp_path: Path, size: int) -> None:
    data = os.urandom(size // 2).hex().encode()
    (tmp_path / "file").write_bytes(data)
    path = tmp_path / "file"
    with ExitStack() as opened:
        redirected, moved_on = (opened.enter_context(path.open("rb")) for _ in range(2))
        pipe, other_pipe, third_pipe = (opened.enter_context(_pipe(data)) for _ in range(3))
        moved_on.seek(5)
        kinds = {
            "text": made(data="a" * size),
            "file": made(data=f"@{path}"),
            "pipe": made(data="@-", stdin=lambda: pipe),
            "redirected stdin": made(data="@-", stdin=lambda: redirected),
            "stdin read in part": made(data="@-", stdin=lambda: moved_on),
            "named pipe": made(data=f"@{_named_pipe(tmp_path / 'pipe', data)}"),
            "fields": made("a=" + "b" * size, "c:=[1]"),
            "field from a file": made(f"a=@{path}", "b=c"),
            "field from stdin": made("a=@-", "b=c", stdin=lambda: other_pipe),
            "form": made("a=" + "b" * size, f"c=@{path}", form=True),
            "multipart": made("a=b", f"c@{path}", "d@-", f"e=@{path}", stdin=lambda: third_pipe),
        }
        for kind, body in kinds.items():
            first = hashlib.sha256(b"".join(body)).hexdigest()
            list(islice(body, 2))  # an early response stops sending
            assert sum(len(chunk) for chunk in body) == body.length, kind
            assert hashlib.sha256(b"".join(body)).hexdigest() == first, kind
            body.close()


def _pipe(data: bytes) -> BinaryIO:
    """Return the read end of a pipe that receives *data*."""
    reading, writing = os.pipe()
    _write(lambda: os.fdopen(writing, "wb"), data)
    return os.fdopen(reading, "rb")


def _named_pipe(path: Path, data: bytes) -> Path:
    os.mkfifo(path)
    _write(lambda: path.open("wb"), data)
    return path


def _write(opened: Callable[[], BinaryIO], data: bytes) -> None:
    def write() -> None:
        with opened() as pipe:
            pipe.write(data)

    threading.Thread(target=write).start()
