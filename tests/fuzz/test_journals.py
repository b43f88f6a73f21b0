"""Any journal is rejected by name, or its valid results are restored and the batch continues."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutations import mutated
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.batch.journal import Journal
from xapi_cli.system.render import printable

ACCOUNT = "https://api.test me@example.com"
SEEN = [bytes([number]) * 16 for number in range(4)]
LINE = b'{"id": %d, "line": %d, "status": 200, "headers": {}, "json": {}, "elapsed_ms": 1}'


def _journal(path: Path) -> bytes:
    """Return a journal with three results, a request without one, and the digest of the input."""
    with Journal(str(path), ACCOUNT) as journal:
        for number in (1, 2, 3):
            journal.store(number, SEEN[number], 0, "200", LINE % (number, number))
        journal.begin(4)
        journal.end_input("0" * 32, 4)
    data = path.read_bytes()
    path.unlink()
    return data


def _results(journal: Journal) -> list[bytes | None]:
    found: list[bytes | None] = []
    for number in (1, 2, 3):
        try:
            stored = journal.restore(number, SEEN[number])
        except UsageError as error:  # the digest was damaged: the input counts as changed
            assert str(error) == printable(str(error))
            stored = None
        found.append(None if stored is None else journal.line(stored))
    return found


def test_any_journal_is_rejected_or_continued(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example rewrites its file
    @given(mutated([_journal(path)]))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            with Journal(str(path), ACCOUNT) as journal:
                results = _results(journal)
        except (UsageError, OutputError) as error:
            assert str(error) == printable(str(error))
            assert path.read_bytes() == data
        else:
            assert all(result in (None, LINE % (number, number)) for number, result in enumerate(results, 1))
            with Journal(str(path), ACCOUNT) as again:
                assert _results(again) == results

    check()


def test_a_whole_journal_is_restored_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    data = _journal(path)
    path.write_bytes(data)
    with Journal(str(path), ACCOUNT) as journal:
        assert (journal.damaged, journal.begun, _results(journal)) == (0, {4}, [LINE % (n, n) for n in (1, 2, 3)])
    assert path.read_bytes() == data
