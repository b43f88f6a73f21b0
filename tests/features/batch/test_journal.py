"""The journal: what it restores, and that no damage causes a wrong or missing result."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.batch.journal import Journal

SEEN = [bytes([number]) * 16 for number in range(40)]


def _line(number: int) -> bytes:
    return b'{"line": %d, "text": "%s"}' % (number, b"x" * number * 9)


def _store(journal: Journal, number: int) -> None:
    journal.store(number, SEEN[number], 4 if number == 3 else 0, "404" if number == 3 else "200", _line(number))


def _fill(path: Path, *numbers: int) -> None:
    with Journal(str(path), "me") as journal:
        for number in numbers:
            _store(journal, number)


def _restored(path: Path, last: int = 39) -> dict[int, bytes]:
    with Journal(str(path), "me") as journal:
        found = {number: journal.restore(number, SEEN[number]) for number in range(1, last + 1)}
        return {number: journal.line(stored) for number, stored in found.items() if stored is not None}


def test_a_result_survives_the_process(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        journal = Journal(str(tmp_path / "j"), "me")
        _store(journal, 1)
        journal.begin(2)
        os._exit(0)
    os.waitpid(pid, 0)

    assert set(_restored(tmp_path / "j")) == {1}
    with Journal(str(tmp_path / "j"), "me") as journal:
        assert journal.begun == {2}
        _store(journal, 2)
    with Journal(str(tmp_path / "j"), "me") as journal:
        assert journal.begun == set()


@pytest.mark.parametrize(
    ("digest", "lines", "message"),
    [
        ("0" * 32, 4, None),
        ("1" * 32, 4, "the input has changed since the journal"),
        ("0" * 32, 5, "the input has changed since the journal"),
    ],
)
def test_the_whole_input_must_be_the_same(tmp_path: Path, digest: str, lines: int, message: str | None) -> None:
    with Journal(str(tmp_path / "j"), "me") as journal:
        journal.end_input("0" * 32, 4)
    with Journal(str(tmp_path / "j"), "me") as journal:
        if message is None:
            journal.end_input(digest, lines)
            return
        with pytest.raises(UsageError, match=message):
            journal.end_input(digest, lines)
        with pytest.raises(UsageError, match=r"the input has changed \(it had no line 5\)"):
            journal.restore(5, SEEN[5])


@pytest.mark.parametrize("content", [b"precious\n", b"precious", b'{"xapi": 1}\n', b"\n"])
def test_another_file_is_not_modified(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "precious"
    file.write_bytes(content)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="is not a journal of xapi; pass a new file to --journal"):
        Journal(str(file), "me")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (content, 0o644)


@pytest.mark.parametrize("name", ["", "no/j", "a\0b", "/", "/dev/null", "/dev/zero"])
def test_a_journal_that_cannot_be_opened_is_an_output_error(name: str) -> None:
    with pytest.raises(OutputError, match=r"the journal .* cannot be written"):
        Journal(name, "me")


def test_one_process_writes_a_journal_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    (tmp_path / "j").touch()
    (tmp_path / "j").chmod(0o666)
    with (
        Journal(str(tmp_path / "j"), "me"),
        pytest.raises(UsageError, match="another xapi process is writing to the journal"),
    ):
        Journal(str(tmp_path / "j"), "me")
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600
    Journal(str(tmp_path / "j"), "me").__exit__(None)


def _damages(whole: bytes) -> Iterator[bytes]:
    """Yield *whole* with damage: a bit in each line but the first, each newline, a zeroed page, truncated."""
    rng = random.Random(17)
    first = whole.index(b"\n") + 1
    start = first
    for line in whole[first:].splitlines(keepends=True):
        for at in {start + rng.randrange(len(line)), start + len(line) - 1}:
            yield whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
        start += len(line)
    for page in range(0, len(whole), 4096):
        begin = max(page, first)
        yield whole[:begin] + bytes(len(whole[begin : page + 4096])) + whole[page + 4096 :]
    for _ in range(5):
        yield whole[: rng.randrange(len(whole))]
    yield b"\0" * 4096  # a crash of the machine before the first line was on the disk


def test_no_damage_causes_a_wrong_or_missing_result(tmp_path: Path) -> None:
    path = tmp_path / "j"
    _fill(path, *range(1, 40))
    for data in _damages(path.read_bytes()):
        path.write_bytes(data)
        before = _restored(path)
        assert before == {number: _line(number) for number in before}
        _fill(path, *(number for number in range(1, 40) if number not in before))
        assert _restored(path) == {number: _line(number) for number in range(1, 40)}


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    _fill(tmp_path / "j", 1, 2, 3)
    data = (tmp_path / "j").read_bytes().replace(b'"code": 4', b'"code": 0')
    (tmp_path / "j").write_bytes(data + b"garbage\n" + b'{"line": 1, trunca')
    with Journal(str(tmp_path / "j"), "me") as journal:
        assert journal.damaged == 2
        assert journal.restore(3, SEEN[3]) is None
    assert (tmp_path / "j").read_bytes() == data + b"garbage\n"
