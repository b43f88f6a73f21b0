"""The journal: what it restores, and what it refuses."""

import os
import sqlite3
from pathlib import Path

import pytest

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.batch.journal import Journal
from xapi_cli.features.batch.lines import Line

LINES = [Line(number, b"%d" % number) for number in range(1, 6)]


def _read(journal: Journal, lines: list[Line]) -> list[tuple[int, str] | None]:
    """Return the results of *lines*, the whole input."""
    found = [journal.restore(line) for line in lines]
    journal.end_input()
    return found


def test_a_result_survives_the_process(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        journal = Journal(str(tmp_path / "j"), "me")
        journal.store(LINES[0], 4, "404", b"first")
        journal.begin(2)
        os._exit(0)
    os.waitpid(pid, 0)

    with Journal(str(tmp_path / "j"), "me") as journal:
        assert (_read(journal, LINES), journal.begun) == ([(4, "404"), *[None] * 4], [2])
        assert journal.output(1) == b"first"
        journal.store(LINES[1], 0, "200", b"second")
    with Journal(str(tmp_path / "j"), "me") as journal:
        assert (_read(journal, LINES)[:2], journal.begun) == ([(4, "404"), (0, "200")], [])


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_input_must_be_the_same(tmp_path: Path, is_whole: bool) -> None:
    with Journal(str(tmp_path / "j"), "me") as journal:
        for line in LINES[1:]:
            journal.store(line, 0, "200", b"")
        if is_whole:
            _read(journal, LINES)
    changed = [LINES[:4], [*LINES[:1], Line(2, b"other"), *LINES[2:]]]
    for lines in changed + ([[Line(1, b""), *LINES[1:]], [*LINES, Line(6, b"")]] if is_whole else []):
        with Journal(str(tmp_path / "j"), "me") as journal, pytest.raises(UsageError, match="the input has changed"):
            _read(journal, lines)
    with Journal(str(tmp_path / "j"), "me") as journal:
        assert _read(journal, LINES) == _read(journal, LINES)


def test_another_file_is_not_modified(tmp_path: Path) -> None:
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_bytes(b"precious\n")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE precious (value TEXT)")
    connection.close()
    for file in (text, database):
        file.chmod(0o644)
        content = file.read_bytes()
        with pytest.raises(UsageError, match="is not a journal of xapi; pass a new file to --journal"):
            Journal(str(file), "me")
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (content, 0o644)


@pytest.mark.parametrize(
    ("name", "reason"), [("no/j", "No such"), ("a\0b", "null"), ("/dev/null", "not a regular file")]
)
def test_a_journal_that_cannot_be_opened_is_an_output_error(name: str, reason: str) -> None:
    with pytest.raises(OutputError, match=f"the journal .* cannot be written: .*{reason}"):
        Journal(name, "me")


def test_one_process_writes_a_journal_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    (tmp_path / "j").touch()
    (tmp_path / "j").chmod(0o666)
    with (
        Journal(str(tmp_path / "j"), "me"),
        pytest.raises(UsageError, match="another xapi process is writing to the journal"),
    ):
        Journal(str(tmp_path / "j"), "me")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    Journal(str(tmp_path / "j"), "me").__exit__(None)
