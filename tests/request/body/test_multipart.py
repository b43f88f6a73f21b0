"""A multipart body has the format of browsers, and a server parses it into the same parts."""

import io
import os
import re
import tracemalloc
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.http.messages import Body
from xapi_cli.request.body.build import multipart
from xapi_cli.request.body.spool import IN_MEMORY
from xapi_cli.request.items import Field, Upload

Part = tuple[dict[str, bytes], bytes]
ARGUMENTS = st.binary(max_size=50).map(lambda data: data.decode("utf-8", "surrogateescape"))


def no_stdin() -> BinaryIO:
    pytest.fail("stdin was requested")


def test_fields_and_uploads_are_sent_as_browsers_do(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    body = multipart([Field("a", "b\né"), Upload("file", str(tmp_path / "photo.png"))], no_stdin)
    boundary = _boundary(body).encode()

    assert b"".join(body) == (
        b"--" + boundary + b"\r\n"
        b'Content-Disposition: form-data; name="a"\r\n'
        b"\r\n"
        b"b\n\xc3\xa9\r\n"
        b"--" + boundary + b"\r\n"
        b'Content-Disposition: form-data; name="file"; filename="photo.png"\r\n'
        b"Content-Type: image/png\r\n"
        b"\r\n"
        b"\x89PNG\r\n"
        b"--" + boundary + b"--\r\n"
    )  # fmt: skip


def test_the_boundary_is_new_for_each_body_and_the_same_each_time_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(data := os.urandom(IN_MEMORY + 1))
    one, other = (multipart([Upload("a", str(tmp_path / "big"))], no_stdin) for _ in range(2))

    assert b"".join(one) == b"".join(one)
    assert one.length == len(b"".join(one))
    assert _boundary(one) != _boundary(other)
    assert [content for _, content in _parts(one)] == [data]
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.png", "image/png"),
        ("a.PNG", "image/png"),
        ("a.csv", "text/csv"),
        ("a.tar.gz", "application/octet-stream"),
        ("a.unheard-of", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ],
)
def test_the_media_type_is_guessed_from_the_name(tmp_path: Path, name: str, content_type: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    [(head, _)] = _parts(multipart([Upload("a", str(tmp_path / name))], no_stdin))
    assert head["content-type"].decode() == content_type


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a b", b"a b"),
        ("é漢", "é漢".encode()),
        ('a"b', b"a%22b"),
        ("a\r\nX: y", b"a%0D%0AX: y"),
        ("a\\b;c=%22", b"a\\b;c=%22"),
        ("a\udcffb", b"a\xffb"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="such files are POSIX's")
def test_names_cannot_break_out_of_their_quotes(tmp_path: Path, name: str, quoted: bytes) -> None:
    (tmp_path / name).write_bytes(b"x")

    [(field, _), (upload, _)] = _parts(multipart([Field(name, ""), Upload(name, str(tmp_path / name))], no_stdin))
    assert field["content-disposition"] == b'form-data; name="' + quoted + b'"'
    assert upload["content-disposition"] == b'form-data; name="' + quoted + b'"; filename="' + quoted + b'"'


def test_stdin_can_be_uploaded_and_fields_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text é\n", encoding="utf-8")
    fields = [Field("a", path=str(tmp_path / "file"))]
    body = multipart([*fields, Upload("b", "-")], lambda: io.BytesIO(b"piped"))

    assert _parts(body) == [
        ({"content-disposition": b'form-data; name="a"'}, "text é\n".encode()),
        (
            {
                "content-disposition": b'form-data; name="b"; filename="-"',
                "content-type": b"application/octet-stream",
            },
            b"piped",
        ),
    ]


@given(st.lists(st.tuples(ARGUMENTS, ARGUMENTS), max_size=5))
def test_a_server_parses_the_same_parts(pairs: list[tuple[str, str]]) -> None:
    body = multipart([Field(name, value) for name, value in pairs], no_stdin)

    assert body.length == len(b"".join(body))
    assert [content for _, content in _parts(body)] == [os.fsencode(value) for _, value in pairs]


def _boundary(body: Body) -> str:
    message = Message()
    message["Content-Type"] = body.content_type or ""
    boundary = message.get_param("boundary")
    assert message.get_content_type() == "multipart/form-data"
    assert isinstance(boundary, str)
    return boundary


def _parts(body: Body) -> Sequence[Part]:
    """Parse *body* strictly by RFC 2046, 5.1.1."""
    delimiter = b"\r\n--" + _boundary(body).encode()
    first, *parts, last = (b"\r\n" + b"".join(body)).split(delimiter)
    assert (first, last) == (b"", b"--\r\n")
    return [_part(part) for part in parts]


def _part(part: bytes) -> Part:
    head, _, content = part.partition(b"\r\n\r\n")
    assert head.startswith(b"\r\n")
    lines = [re.fullmatch(rb"([A-Za-z-]+): ([^\r\n]*)", line) for line in head[2:].split(b"\r\n")]
    return {line[1].decode().lower(): line[2] for line in lines if line}, content


def test_many_uploads_take_no_more_memory_than_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(IN_MEMORY // 2))
    tracemalloc.start()
    multipart([Upload("a", str(tmp_path / "file"))] * 16, no_stdin).close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < IN_MEMORY
