"""The index: encoded, decoded, stored for a profile; damage is a separate error."""

import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.openapi.documents import SWAGGER, decoded, index_of, index_of_paths, openapi
from xapi_cli.errors import OutputError
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.index import Index, IndexInfo, InvalidIndex, PathTable, decode, encode
from xapi_cli.openapi.routes import Routes
from xapi_cli.system.private_files import StateDirectory


def _encoded(title: str = "Pets") -> bytes:
    return encode(IndexInfo(title, "/v2", "pets.json"), Compiler(SWAGGER).operations())


def _title(state: Path, profile: str) -> str | None:
    with index_file.open_index(StateDirectory(state), profile) as index:
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


def _look_up(index: Index) -> None:
    """Look up paths of `_encoded`, and others; each lookup ends, and fails with InvalidIndex only."""
    for path in ("/pets/7", "/pets/7/photo", "/pet/7", "/", "/v2/pets/{i"):
        for lookup in (Routes.find, Routes.closest, Routes.find_prefix, Routes.completions):
            with suppress(InvalidIndex):
                lookup(Routes(index, "/v2"), path)


@given(st.integers(0, 2000), st.binary(max_size=20), st.integers(0, 20))
def test_any_damage_is_one_error(position: int, added: bytes, removed: int) -> None:
    data = _encoded()
    position %= len(data)
    damaged = data[:position] + added + data[position + removed :]
    try:
        index = decoded(damaged)
        _look_up(index)
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
        (b"xapi-api 5 x\n", "it is damaged"),
        (b"xapi-api 5          5          5         57 00000000\n[1]\n", "it is damaged"),
        (b"xapi-api 5         -5          5         57 00000000\n[1]\n", "it is damaged"),
        (b"xapi-api 4 5 7\n[1]\n", "it was written by another version of xapi"),
        (b"xapi-api 50 5\n", "it was written by another version of xapi"),
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
    for lengths in ((9_000_000_000, 5, 9_000_000_100), (5, 9_000_000_000, len(data)), (len(data), 5, len(data))):
        header = b"xapi-api 5 %10d %10d %10d %08x\n" % (*lengths, 0)
        with pytest.raises(InvalidIndex, match="it is damaged"):
            decode(_Sized(header + data[len(header) :]))

    index = decode(_Sized(data))
    (entry,) = index.at("/pets/{id}/photo")
    for damaged in (entry._replace(length=9_000_000_000), entry._replace(start=len(data)), entry._replace(length=-1)):
        with pytest.raises(InvalidIndex, match="it is damaged"):
            index.summary(damaged)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_file.write(StateDirectory(tmp_path), "p", _encoded(), b"")
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


def test_only_the_head_the_paths_and_one_record_are_read() -> None:
    nodes = {f"/p{number}": {"get": {"description": "d" * 900}} for number in range(5000)}
    data = encode(IndexInfo("", "", ""), Compiler(openapi(nodes)).operations())
    file = _Counted(data)

    index = decode(file)
    (entry,) = index.at("/p2500")
    before = file.bytes_read

    assert index.operation(entry).text == "d" * 900
    assert before < 40 * 5000
    assert file.bytes_read - before == entry.length < 1100


# the paths


_PATHS = st.lists(st.text("/ab{é0", max_size=8).map("/".__add__), min_size=1, max_size=60, unique=True)


@given(_PATHS, st.text("/ab{é0", max_size=5).map("/".__add__), st.text("ab{é0", max_size=4))
def test_lookups_find_what_a_search_of_all_paths_finds(paths: list[str], above: str, start: str) -> None:
    table = index_of_paths(*paths).paths
    listed = [path for path in sorted(paths) if path.startswith(above)]
    segments = dict.fromkeys("".join(path[len(above) :].partition("/")[:2]) for path in listed)

    assert [path for path, _ in table.lines(above)] == listed
    assert table.contains(above) == bool(listed)
    assert table.all_begin_with(above) == (len(listed) == len(paths))
    assert table.fields(above).startswith("GET ") == (above in paths)
    assert list(table.children(above, start)) == [each for each in segments if each.startswith(start)]
    begins = [f"{start[:length]}{{" for length in range(len(start) + 1) if "{" not in start[:length]]
    assert list(table.templates(above, start.partition("{")[0])) == [
        each for begin in begins for each in segments if each.startswith(begin)
    ]


_LINES = st.binary(max_size=20) | st.sampled_from([b"\t", b"/a", b"/pets/{b}\tGET 1 2 3", b"/pets", b""])


@given(st.lists(_LINES, max_size=9))
def test_a_lookup_in_damaged_lines_ends(lines: list[bytes]) -> None:
    table = PathTable(b"".join(line + b"\n" for line in (*lines, b"")), "{")

    _look_up(Index(IndexInfo("", "", ""), table, BytesIO(), 0, 0))


def test_the_marks_are_those_that_the_paths_contain() -> None:
    assert index_of_paths("/a").paths.marks == ""
    assert index_of_paths("/a/{b}", "/c#d", "/e%20").paths.marks == "{%#"


# files


def test_each_profile_has_its_own_file(tmp_path: Path) -> None:
    names = ["default", "A", "a", "a.b", "a%2eb", "..", "x/y", "a+b@c", "é", "A" * 90, "A" * 91, "a" * 300]
    for name in names:
        assert not index_file.exists(StateDirectory(tmp_path), name)
        index_file.write(StateDirectory(tmp_path), name, _encoded(str(names.index(name))), b"")

    assert [_title(tmp_path, name) for name in names] == [str(number) for number in range(len(names))]
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / "api"}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "api").iterdir()} == {0o600}
    assert len({path.name.lower() for path in (tmp_path / "api").iterdir()}) == 2 * len(names)


def test_a_directory_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "api").write_text("not a directory")

    with pytest.raises(OutputError, match="the API description cannot be stored"):
        index_file.write(StateDirectory(tmp_path), "p", _encoded(), b"")
    assert _title(tmp_path, "p") is None


def test_something_else_in_place_of_an_index_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "api" / "p")

    with pytest.raises(InvalidIndex, match="it cannot be read"):
        _title(tmp_path, "p")


def test_the_index_of_a_document_is_small() -> None:
    assert len(index_of(SWAGGER).entries) == 3
    assert len(_encoded()) < 1000
