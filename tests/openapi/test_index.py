"""The index: encoded, decoded, stored for a profile; damage is an error of its own."""

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.openapi.documents import SWAGGER, decoded, index_of, openapi
from xapi_cli.errors import OutputError
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.index import IndexInfo, InvalidIndex, decode, encode
from xapi_cli.openapi.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable


def _encoded(title: str = "Pets") -> bytes:
    return encode(IndexInfo(title, "/v2", "pets.json"), Compiler(SWAGGER).operations())


def _title(state: Path, profile: str) -> str | None:
    with index_file.open_index(state, profile) as index:
        return index.info.title if index else None


def test_an_index_contains_what_was_compiled() -> None:
    index, operations = decoded(_encoded()), Compiler(SWAGGER).operations()

    assert index.info == IndexInfo("Pets", "/v2", "pets.json")
    assert [(each.method, each.path, index.summary(each)) for each in index.entries] == [
        (each.method, each.path, each.summary) for each in operations
    ]
    for entry, expected in zip(index.entries, operations, strict=True):
        parameters = [each._replace(values=list(each.values)) for each in expected.parameters]
        assert index.operation(entry) == expected._replace(parameters=parameters)


@given(st.integers(0, 2000), st.binary(max_size=20), st.integers(0, 20))
def test_any_damage_is_one_error(position: int, added: bytes, removed: int) -> None:
    data = _encoded()
    position %= len(data)
    damaged = data[:position] + added + data[position + removed :]
    try:
        index = decoded(damaged)
        operations = [index.operation(entry) for entry in index.entries]
    except InvalidIndex:
        assert damaged != data
        return
    assert operations == [decoded(data).operation(entry) for entry in decoded(data).entries]


def test_a_file_that_ends_after_a_line_of_its_head_is_damaged() -> None:
    data = _encoded()
    lines = data.split(b"\n")

    for count in range(1, len(lines)):
        with pytest.raises(InvalidIndex):
            decoded(b"\n".join(lines[:count]) + b"\n")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is damaged"),
        (b"\xff", "it is damaged"),
        (b"xapi-api", "it is damaged"),
        (b"xapi-api 4 x\n", "it is damaged"),
        (b"xapi-api 4          5 00000000          5\n[1]\n", "it is damaged"),
        (b"xapi-api 4         -5 00000000          5\n[1]\n", "it is damaged"),
        (b"xapi-api 3 5 7\n[1]\n", "it was written by another version of xapi"),
        (b"xapi-api 40 5\n", "it was written by another version of xapi"),
    ],
)
def test_another_version_is_an_error_of_its_own(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidIndex, match=f"^{reason}$"):
        decoded(data)


class _Sized(BytesIO):
    """A file that fails if more is read than it contains, because memory is allocated for it."""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert 0 <= size <= len(self.getbuffer())
        return super().read(size)


def test_no_memory_is_allocated_for_an_announced_length() -> None:
    data = _encoded()
    header = b"xapi-api 4 %10d %08x %10d\n" % (9_000_000_000, 0, 9_000_000_001)
    with pytest.raises(InvalidIndex, match="it is damaged"):
        decode(_Sized(header + data[len(header) :]))

    index = decode(_Sized(data))
    (entry,) = index.at("/pets/{id}/photo")
    for damaged in (entry._replace(length=9_000_000_000), entry._replace(start=len(data)), entry._replace(length=-1)):
        with pytest.raises(InvalidIndex, match="it is damaged"):
            index.summary(damaged)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_file.write(tmp_path, "p", _encoded())
    monkeypatch.setattr(index_file, "_MAX_SIZE", len(_encoded()) - 1)

    with pytest.raises(InvalidIndex, match="it is damaged"):
        _title(tmp_path, "p")


class _Counted(BytesIO):
    """A file that counts the bytes that are read."""

    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def test_only_the_head_a_page_and_one_record_are_read() -> None:
    nodes = {f"/p{number}": {"get": {"description": "d" * 900}} for number in range(5000)}
    data = encode(IndexInfo("", "", ""), Compiler(openapi(nodes)).operations())
    file = _Counted(data)

    index = decode(file)
    head = file.bytes_read
    (entry,) = index.at("/p2500")
    page = file.bytes_read - head

    assert index.operation(entry).text == "d" * 900
    assert head < 2000
    assert page < 5000
    assert file.bytes_read - head - page == entry.length < 1100


def test_a_lookup_reads_few_pages_of_many() -> None:
    templates = [f"/{kind}{number}/{{id}}/x{n}" for kind in "ab" for number in range(100) for n in range(100)]
    data = encode(IndexInfo("", "", ""), Compiler(openapi({each: {"get": {}} for each in templates})).operations())

    lookups: dict[int, Callable[[Routes], list[Any]]] = {
        1: lambda routes: routes.find("/a50/7/x50"),
        0: lambda routes: routes.find("/c"),
        100: lambda routes: routes.completions("/a50/7/"),
    }
    for count, use in lookups.items():
        file = _Counted(data)
        assert len(use(Routes(decode(file), ""))) == count
        assert file.bytes_read < 100_000 < len(data)


def test_each_profile_has_its_own_file(tmp_path: Path) -> None:
    names = ["default", "A", "a", "a.b", "a%2eb", "..", "x/y", "a+b@c", "é", "A" * 90, "A" * 91, "a" * 300]
    for name in names:
        assert not index_file.exists(tmp_path, name)
        index_file.write(tmp_path, name, _encoded(str(names.index(name))))

    assert [_title(tmp_path, name) for name in names] == [str(number) for number in range(len(names))]
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / "api"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "api").iterdir()} == {0o600}
    assert len({path.name.lower() for path in (tmp_path / "api").iterdir()}) == len(names)


def test_an_index_is_moved_and_removed_with_its_profile(tmp_path: Path) -> None:
    index_file.write(tmp_path, "old", _encoded())

    index_file.move(tmp_path, "old", "new")
    assert (index_file.exists(tmp_path, "old"), index_file.exists(tmp_path, "new")) == (False, True)
    index_file.move(tmp_path, "old", "new")  # the old profile has no index, so the new one has none
    assert not index_file.exists(tmp_path, "new")
    assert not index_file.remove(tmp_path, "new")


def test_a_directory_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "api").write_text("not a directory")

    with pytest.raises(OutputError, match="the API description cannot be stored"):
        index_file.write(tmp_path, "p", _encoded())
    assert _title(tmp_path, "p") is None


def test_something_else_in_place_of_an_index_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "api" / "p")

    with pytest.raises(InvalidIndex, match="it cannot be read"):
        _title(tmp_path, "p")


def test_the_index_of_a_document_is_small() -> None:
    assert len(index_of(SWAGGER).entries) == 3
    assert len(_encoded()) < 1000
