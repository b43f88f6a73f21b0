"""Any journal is rejected by name, or its valid results are restored and the batch continues."""

from pathlib import Path
from zlib import crc32

from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutations import mutated
from xapi_cli.batch.journal.journal import Journal
from xapi_cli.batch.output.results import Result
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system.render import printable

ACCOUNT = "https://api.test me@example.com"
SEEN = [bytes([number]) * 16 for number in range(4)]
OUT = b'{"id":%d,"line":%d,"status":200,"headers":{},"json":{},"elapsed_ms":1}'


def _journals() -> list[bytes]:
    """Return an empty journal, one with one response, and one with three responses and the digest of the input."""
    header = b'{"xapi-journal": 2, "account": "%s"' % ACCOUNT.encode()
    header += _seal(header, 0)
    entries = [
        b'{"line": %d, "code": 0, "kind": "ok", "seen": "%s", "out": %s'
        % (number, SEEN[number].hex().encode(), OUT % (number, number))
        for number in (1, 2, 3)
    ]
    first, *others = [
        line + _seal(line, crc32(header)) for line in [*entries, b'{"input": "%s", "lines": 3' % (b"0" * 32)]
    ]
    return [header, header + first, header + first + b"".join(others)]


def _seal(line: bytes, seed: int) -> bytes:
    return b', "sum": "%08x"}\n' % crc32(line, seed)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example rewrites its file
@given(mutated(_journals()))
def test_any_journal_is_rejected_or_continued(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(data)
    try:
        with Journal(str(path), ACCOUNT) as journal:
            responses = [_response(journal, number) for number in (1, 2, 3)]
            restored = journal.restored
    except (UsageError, OutputError) as error:
        assert str(error) == printable(str(error))
        assert path.read_bytes() == data
    else:
        assert restored >= sum(response is not None for response in responses)
        with Journal(str(path), ACCOUNT) as again:
            assert [_response(again, number) for number in (1, 2, 3)] == responses


def test_the_sample_journals_have_the_format_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for number, whole in enumerate(_journals()):
        path.write_bytes(whole)
        with Journal(str(path), ACCOUNT) as journal:
            assert journal.restored == (0, 1, 3)[number]
            for line in range(1, journal.restored + 1):
                assert journal.restore(line, SEEN[line]) == Result(line, OUT % (line, line), 0, "ok", SEEN[line])
        assert path.read_bytes() == whole


def _response(journal: Journal, number: int) -> Result | None:
    try:
        return journal.restore(number, SEEN[number])
    except UsageError as error:  # the digest was damaged: the input counts as changed
        assert str(error) == printable(str(error))
        return None
