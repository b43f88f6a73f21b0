"""The part of a download and its record: which are continued, discarded, or left alone because they are not xapi's."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.downloads.partial_file import PartialFile
from xapi_cli.http.messages import Headers

WHOLE = Headers([(b"ETag", b'"v1"')])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    return tmp_path / "d" / "out"


def part_of(out: Path) -> Path:
    return out.with_name("out.part")


def record_of(out: Path) -> Path:
    return out.with_name("out.part.json")


@contextmanager
def opened(out: Path | str, source: str = "source") -> Iterator[PartialFile]:
    file = PartialFile(str(out), source)
    try:
        file.open()
        yield file
    finally:
        file.close()


def start(out: Path) -> None:
    """Leave the first five of ten bytes in the part."""
    with opened(out) as file:
        file.begin(200, WHOLE)
        file.write(b"01234")


def edit(out: Path, **changes: object) -> None:
    record_of(out).write_text(json.dumps(json.loads(record_of(out).read_text()) | changes))


def names(out: Path) -> list[str]:
    return sorted(os.listdir(out.parent))


DISCARDED: dict[str, Callable[[Path], object]] = {
    "another request": lambda out: edit(out, key="x"),
    "a header injection": lambda out: edit(out, version='"v1"\r\nX: y'),
    "a download that cannot be resumed": lambda out: edit(out, version=""),
}


@pytest.mark.parametrize("change", DISCARDED)
def test_a_part_that_cannot_be_continued_is_named_and_replaced(out: Path, change: str) -> None:
    start(out)
    DISCARDED[change](out)

    with opened(out) as file:
        assert (file.count, file.discarded) == (0, f"{out}.part cannot be continued; 5 bytes discarded")
        assert dict(file.headers) == {"Accept-Encoding": "identity"}
        file.begin(200, WHOLE)
        file.write(b"9876543210")
        file.commit()

    assert out.read_bytes() == b"9876543210"
    assert names(out) == ["out"]


FOREIGN: dict[str, Callable[[Path], object]] = {
    "no record": lambda out: record_of(out).unlink(),
    "a truncated record": lambda out: os.truncate(record_of(out), 30),
    "a record that is not text": lambda out: record_of(out).write_bytes(b"\xff\xfe"),
    "a deeply nested record": lambda out: record_of(out).write_text("[" * 60_000),
    "another object": lambda out: record_of(out).write_text('{"key": "value"}'),
    "a record of another type": lambda out: edit(out, version=7),
    "a record without a part": lambda out: part_of(out).rename(record_of(out)),
}


@pytest.mark.parametrize("change", FOREIGN)
def test_files_of_the_user_are_neither_changed_nor_removed(out: Path, change: str) -> None:
    start(out)
    FOREIGN[change](out)
    before = {path: path.read_bytes() for path in out.parent.iterdir()}

    with pytest.raises(UsageError, match="was not created by xapi"), opened(out):
        pass

    assert {path: path.read_bytes() for path in out.parent.iterdir()} == before


@pytest.mark.parametrize("name", ["out.part", "out.part.json"])
def test_no_symbolic_link_is_followed(out: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_text("precious")
    out.with_name(name).symlink_to(tmp_path / "victim")

    with pytest.raises((OutputError, UsageError)), opened(out):
        pass

    assert (tmp_path / "victim").read_text() == "precious"
    assert name in names(out)


@pytest.mark.parametrize(("name", "message"), [("n" * 249, "name too long"), ("p", "Is a directory")])
def test_what_cannot_be_written_is_reported_when_it_is_opened(out: Path, name: str, message: str) -> None:
    (out.parent / "p.part").mkdir()

    with pytest.raises(OutputError, match=message), opened(f"{out.parent}/{name}"):
        pass

    assert names(out) == ["p.part"]


def test_another_process_does_not_write_the_same_part(out: Path) -> None:
    with opened(out) as file:
        file.begin(200, WHOLE)
        with pytest.raises(UsageError, match="another process is downloading"), opened(out):
            pass
        file.write(b"0123456789")
        file.commit()

    assert (out.read_bytes(), names(out)) == (b"0123456789", ["out"])


def test_a_process_that_is_killed_before_it_writes_the_record_leaves_nothing_to_repair(out: Path) -> None:
    part_of(out).touch()
    record_of(out).touch()

    with opened(out) as file:
        file.begin(200, WHOLE)
        file.write(b"0123456789")
        file.commit()

    assert names(out) == ["out"]


def test_the_mode_of_the_file_stays_and_the_part_is_private(out: Path) -> None:
    out.write_text("old")
    out.chmod(0o640)
    start(out)
    assert part_of(out).stat().st_mode & 0o077 == 0

    with opened(out) as file:
        file.begin(200, WHOLE)
        file.write(b"0123456789")
        file.commit()

    assert out.stat().st_mode & 0o777 == 0o640
