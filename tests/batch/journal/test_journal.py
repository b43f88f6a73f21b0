"""The journal restores every result that it stores, whatever its exit code and its kind."""

from pathlib import Path

import pytest

from xapi_cli import errors
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
