"""The journal restores every result that it stores, whatever its exit code and its kind."""

from pathlib import Path

import pytest

from xapi_cli import errors
from xapi_cli.batch.journal.checksummed_file import CHECKSUM_LENGTH, JournalFile
from xapi_cli.batch.journal.journal import Journal
from xapi_cli.batch.output.results import Result

SEEN = bytes(16)


OF_XAPI = [(each.exit_code, each.kind) for each in errors.derived()]
UNKNOWN = (99, "no-kind-of-today")


@pytest.mark.parametrize("code, kind", [*OF_XAPI, UNKNOWN])
def test_a_result_with_any_exit_code_and_kind_is_restored(tmp_path: Path, code: int, kind: str) -> None:
    path, stored = str(tmp_path / "journal"), Result(1, b"{}", code, kind, SEEN)
    with Journal(path, "me") as journal:
        journal.store(stored)

    with Journal(path, "me") as again:
        restored = again.restore(1, SEEN)

    assert (restored, again.restored, again.damaged) == (stored, 1, 0)


def test_an_intact_line_of_an_unknown_kind_is_counted_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(str(path), "me") as journal:
        journal.store(Result(1, b"{}", 0, "200", SEEN))
    first, *rest = path.read_bytes().splitlines(keepends=True)
    unknown = b"".join(JournalFile(str(path), first[:-CHECKSUM_LENGTH]).line(b'{"line": 1, "code": 0, "new": 1'))
    path.write_bytes(first + unknown + b"".join(rest))

    with Journal(str(path), "me") as again:
        assert (again.restored, again.damaged) == (1, 1)
