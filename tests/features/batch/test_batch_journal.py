"""`xapi batch --journal`: after a crash, a resumed batch loses no response and resends no request."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.features.batch.server import MEASURED, Api, Reply, batch, out_lines, paths, slowly
from tests.support.program import PROGRAM, Xapi
from xapi_cli.features.batch.input.line_reader import InputDigest
from xapi_cli.features.batch.journal.checksummed_file import checksum
from xapi_cli.features.batch.journal.journal import Journal
from xapi_cli.features.batch.output.results import Result


def test_a_journal_prints_responses_again_without_sending_them_and_sends_the_rest(xapi: Xapi, tmp_path: Path) -> None:
    broken = {"/n/3"}
    with Api(
        lambda received: None if received.path in broken else Reply(status=404 if received.path == "/n/1" else 200)
    ) as api:
        args = ("--ordered", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *args, input=paths(6) + "bad\n")
        broken.clear()
        api.counts.clear()
        second = batch(xapi, api, *args, input=paths(6) + "bad\n")
        api.counts.clear()
        third = batch(xapi, api, *args, input=paths(6) + "bad\n")
        assert not api.counts
        mode = (tmp_path / "j").stat().st_mode & 0o777

    assert (first[0], second[0], third[0], mode) == (11, 4, 4, 0o600)
    assert first[1][3]["error"]["kind"] == "network"
    assert second[1][3]["status"] == 200
    assert [line for line in second[1] if line["line"] != 4] == [line for line in first[1] if line["line"] != 4]
    assert third[1] == second[1]


def test_only_requests_without_a_response_are_resent(xapi: Xapi, tmp_path: Path) -> None:
    broken = {"/n/3"}
    with Api(lambda received: None if received.path in broken else Reply()) as api:
        batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(6))
        broken.clear()
        api.requests.clear()
        batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(6))
        assert [each.path for each in api.requests] == ["/n/3"]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_changed_input_is_a_usage_error_before_anything_is_sent(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    def run(text: str) -> tuple[int, list[dict[str, Any]], str]:
        if kind == "pipe":
            return batch(xapi, api, "--journal", str(tmp_path / "j"), input=text)
        (tmp_path / "in").write_text(text)
        return batch(xapi, api, "--journal", str(tmp_path / "j"), str(tmp_path / "in"))

    with Api() as api:
        assert run(paths(5))[0] == 0
        api.requests.clear()
        changed = run(paths(5, 1))
        longer = run(paths(6))
        shorter = run(paths(4))
        same = run(paths(5))
        assert not api.requests

    assert (changed[0], longer[0], shorter[0], same[0]) == (2, 2, 2, 0)
    assert "has changed" in changed[2]
    assert "has changed" in longer[2]


def test_an_input_that_ends_before_a_line_that_was_sent_has_changed(xapi: Xapi, tmp_path: Path) -> None:
    """The first run was killed before the pipe ended, so the journal has no digest of the whole input."""
    journal = str(tmp_path / "j")
    with Api() as api:
        killed = xapi.start("batch", "--journal", journal, stdin=subprocess.PIPE, env=api.settings)
        assert killed.stdin is not None
        assert killed.stdout is not None
        killed.stdin.write(paths(6).encode())
        killed.stdin.flush()
        for _ in range(6):
            assert killed.stdout.readline()
        killed.kill()
        killed.wait(20)
        api.requests.clear()

        shorter = batch(xapi, api, "--journal", journal, input=paths(3))
        same = batch(xapi, api, "--journal", journal, input=paths(6))
        assert not api.requests

    assert (shorter[0], same[0], len(same[1])) == (2, 0, 6)
    assert "the input has changed (it had more than 3 lines) since the journal " in shorter[2]


def test_a_journal_of_another_account_or_writer_is_a_usage_error(xapi: Xapi, tmp_path: Path) -> None:
    journal, other = str(tmp_path / "j"), tmp_path / "other"
    other.write_text("important\n")
    with Api(slowly(0.5)) as api:
        assert batch(xapi, api, "--journal", journal, input=paths(1))[0] == 0
        account = batch(xapi, api, "--journal", journal, input=paths(1), env={"XAPI_USERNAME": "you@example.com"})
        no_journal = batch(xapi, api, "--journal", str(other), input=paths(1))
        directory = batch(xapi, api, "--journal", str(tmp_path / "no" / "j"), input=paths(1))
        writing = xapi.start("batch", "--journal", str(tmp_path / "k"), stdin=subprocess.PIPE, env=api.settings)
        while not (tmp_path / "k").exists() or not (tmp_path / "k").read_bytes():
            time.sleep(0.01)
        second = batch(xapi, api, "--journal", str(tmp_path / "k"), input=paths(1))
        writing.communicate(timeout=10)

    assert (account[0], no_journal[0], directory[0], second[0]) == (2, 2, 14, 2)
    assert "another account" in account[2]
    assert "is not a journal" in no_journal[2]
    assert "another xapi process is writing" in second[2]
    assert other.read_text() == "important\n"


def test_the_request_of_a_truncated_last_journal_line_is_resent(xapi: Xapi, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with Api() as api:
        batch(xapi, api, "-j", "1", "--journal", str(journal), input=paths(5))
        whole = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(whole[:5]) + whole[5][:-20])
        api.requests.clear()
        code, lines, _ = batch(xapi, api, "--journal", str(journal), input=paths(5))

        assert (code, len(lines), [each.path for each in api.requests]) == (0, 5, ["/n/4"])


@pytest.mark.slow
def test_after_sigkill_at_random_times_every_line_has_one_response(xapi: Xapi, tmp_path: Path) -> None:
    count, rng = 2000, random.Random(5)
    (tmp_path / "in").write_text(paths(count))
    printed: set[int] = set()
    with Api(slowly(0.002)) as api:
        args = ("batch", "-j", "8", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        for _ in range(20):
            out = tmp_path / "out"
            before = dict(api.counts)
            with out.open("wb") as file:
                enough = len(api.requests) + rng.randint(1, 120)
                process = xapi.start(*args, stdout=file, env=api.settings)
                while len(api.requests) < enough and process.poll() is None:
                    time.sleep(0.001)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
            assert not {path for path in before if int(path[3:]) in printed and api.counts[path] > before[path]}
            printed |= {line["id"] for line in out_lines("\n".join(out.read_text().split("\n")[:-1]))}
        last = xapi(*args, env=api.settings)

    assert last.code == 0, last.err
    assert sorted(line["id"] for line in out_lines(last.out)) == list(range(count))
    assert printed  # the killed runs had got somewhere


def test_a_full_disk_exits_with_14_and_the_written_journal_lines_are_valid(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(600))
    args = ("batch", "-j", "4", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
    with Api() as api:
        limited = ("bash", "-c", 'ulimit -f 64; exec "$@"', "-", str(PROGRAM))  # 64 KiB a file
        process = xapi.start(*args, env=api.settings, argv=limited)
        out, err = process.communicate(timeout=30)
        printed = [line["id"] for line in out_lines(out.decode())]
        api.requests.clear()
        rest = xapi(*args, env=api.settings)
        again = {int(received.path[3:]) for received in api.requests}

    assert process.returncode == 14
    assert "cannot be written: File too large" in err.decode()
    assert 0 < len(printed) < 600
    assert (rest.code, len(out_lines(rest.out))) == (0, 600)
    assert not again & set(printed)


def test_the_journal_cannot_be_the_file_of_stdout(xapi: Xapi, tmp_path: Path) -> None:
    with Api() as api, (tmp_path / "j").open("wb") as out:
        process = xapi.start("batch", "--journal", str(tmp_path / "j"), stdout=out, env=api.settings)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert b"stdout and --journal are the same file" in err


def test_a_journal_has_mode_0600_whatever_mode_it_had(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "j").touch(mode=0o666)
    (tmp_path / "j").chmod(0o666)
    with Api() as api:
        assert batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(1))[0] == 0

    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["directory", "fifo", "/dev/null", "/dev/zero", "/dev/full"])
def test_a_journal_must_be_a_regular_file(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    name = tmp_path / "j"
    if kind == "directory":
        name.mkdir()
    elif kind == "fifo":
        os.mkfifo(name)
    else:
        name = Path(kind)
    with Api() as api:
        code, lines, err = batch(xapi, api, "--journal", str(name), input=paths(1))

        assert (code, lines, api.requests) == (2, [], [])
    assert "is not a regular file; pass a new file to --journal" in err


def test_a_journal_must_have_a_name(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, "--journal", "", input=paths(1))

        assert (code, lines, api.requests) == (2, [], [])
    assert err == "xapi: error: a file without a name is not a regular file; pass a new file to --journal\n"


def test_a_large_file_without_newlines_is_rejected_in_constant_memory(xapi: Xapi, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(20 * 2**30)
    command = (sys.executable, "-c", MEASURED, str(tmp_path / "peak"), str(PROGRAM), "batch")
    with Api() as api:
        process = xapi.start("--journal", str(tmp_path / "huge"), env=api.settings, argv=command)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert b"is not a journal of xapi" in err
    assert (tmp_path / "huge").stat().st_size == 20 * 2**30
    assert int((tmp_path / "peak").read_text()) / 1024 < 100


def test_a_batch_can_be_resumed_with_another_supplied_token(xapi: Xapi, tmp_path: Path) -> None:
    with Api(open_to_all=True) as api:
        args = ("--ordered", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *args, input=paths(3), env={"XAPI_TOKEN": "one"})
        second = batch(xapi, api, *args, input=paths(3), env={"XAPI_TOKEN": "two"})

        assert (first[0], second[0], len(api.requests)) == (0, 0, 3)
    assert second[1] == first[1]


def test_a_large_response_is_restored_unchanged_from_the_journal(xapi: Xapi, tmp_path: Path) -> None:
    body = json.dumps(["ä" * 3_000_000, 1.10]).encode()
    with Api(lambda received: Reply(body)) as api:
        first, second = (batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(2)) for _ in range(2))
        assert len(api.requests) == 2

    assert sorted(first[1], key=lambda each: int(each["id"])) == sorted(second[1], key=lambda each: int(each["id"]))
    assert "(0/s, 2 from the journal)" in second[2]  # a rate is that of what was sent


def test_fail_fast_works_with_a_journal(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lambda received: Reply(status=404 if received.path == "/n/5" else 200)) as api:
        args = ("-j", "1", "--fail-fast", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *args, input=paths(50))
        second = batch(xapi, api, *args, input=paths(50))
        whole = batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(50))

    assert ([len(each[1]) for each in (first, second, whole)], first[0], second[0]) == ([6, 6, 50], 4, 4)
    assert set(api.counts.values()) == {1}


def test_a_file_that_is_not_a_journal_is_not_modified(xapi: Xapi, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("precious\n")
    file.chmod(0o644)
    with Api() as api:
        code, lines, err = batch(xapi, api, "--journal", str(file), input=paths(2))
        assert not api.requests

    assert (code, lines, file.read_text(), file.stat().st_mode & 0o777) == (2, [], "precious\n", 0o644)
    assert "is not a journal of xapi" in err


def test_a_journal_of_another_version_is_not_modified(xapi: Xapi, tmp_path: Path) -> None:
    file = tmp_path / "j"
    header = b'{"xapi-journal": 9, "account": "me"'
    file.write_bytes(header + checksum(crc32(header)))
    before = file.read_bytes()
    with Api() as api:
        code, lines, err = batch(xapi, api, "--journal", str(file), input=paths(2))
        assert not api.requests

    assert (code, lines, file.read_bytes()) == (2, [], before)
    assert err == (
        f"xapi: error: the journal {file} was written by another version of xapi (format 9);"
        " complete the batch with that version, or pass another --journal\n"
    )


@pytest.mark.parametrize("args", ["--journal in in", "--journal in <in", "--journal out in >>out"])
def test_a_journal_that_is_the_input_or_stdout_is_not_modified(xapi: Xapi, tmp_path: Path, args: str) -> None:
    for name in ("in", "out"):
        (tmp_path / name).touch()
    with Api() as api:
        script = f'exec "$1" batch {args}'
        done = subprocess.run(
            ["sh", "-c", script, "sh", str(PROGRAM)],
            env=xapi.environment(api.settings),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )

    assert done.returncode == 2
    assert b"the same file; use two different files" in done.stderr
    assert [(tmp_path / name).read_bytes() for name in ("in", "out")] == [b"", b""]


def test_the_request_of_an_entry_with_a_damaged_exit_code_is_resent(xapi: Xapi, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with Api() as api:
        batch(xapi, api, "--journal", str(journal), input=paths(3))
        journal.write_bytes(journal.read_bytes().replace(b'"code": 0', b'"code": 77', 1))
        api.requests.clear()
        code, lines, _ = batch(xapi, api, "--journal", str(journal), input=paths(3))
        assert len(api.requests) == 1

    assert (code, len(lines)) == (0, 3)


def _damages(whole: bytes) -> Iterator[bytes]:
    """Yield *whole* with damage: a bit in each line, each newline, a zeroed page, truncated."""
    rng = random.Random(17)
    lines = whole.splitlines(keepends=True)
    start = 0
    for line in lines:
        for at in {start + rng.randrange(len(line)), start + len(line) - 1}:
            yield whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
        start += len(line)
    for page in range(0, len(whole), 4096):
        yield whole[:page] + bytes(len(whole[page : page + 4096])) + whole[page + 4096 :]
    for _ in range(3):
        yield whole[: rng.randrange(len(whole))]


def test_no_damage_of_a_journal_causes_a_wrong_or_missing_response(tmp_path: Path) -> None:
    path, seen = tmp_path / "j", [bytes([number]) * 16 for number in range(40)]
    with Journal(str(path), "me") as journal:
        for number in range(1, 40):
            journal.store(_result(number, seen[number]))
        digest = InputDigest()
        digest.add(b"\n" * 39)
        journal.end_input(digest)
    damages = list(_damages(path.read_bytes()))
    for data in damages:
        path.write_bytes(data)
        with Journal(str(path), "me") as journal:
            for number in range(1, 40):
                if not _is_stored(journal, number, seen[number]):
                    journal.store(_result(number, seen[number]))
        with Journal(str(path), "me") as journal:
            assert (journal.restored, journal.damaged) == (39, 0)


def _result(number: int, seen: bytes) -> Result:
    return Result(number, b'{"line": %d, "text": "%s"}' % (number, b"x" * number * 9), 0, "200", seen)


def _is_stored(journal: Journal, number: int, seen: bytes) -> bool:
    found = journal.restore(number, seen)
    if found is None:
        return False
    text = found.text if found.chunks is None else b"".join(found.chunks())
    assert text == _result(number, seen).text
    return True


@pytest.mark.parametrize("place", ["header", "header's newline", "entry", "newline", "page"])
def test_the_request_of_a_damaged_entry_is_resent_and_counted(xapi: Xapi, tmp_path: Path, place: str) -> None:
    journal = tmp_path / "j"
    with Api() as api:
        args = ("--ordered", "--journal", str(journal))
        batch(xapi, api, *args, input=paths(30))
        data = bytearray(journal.read_bytes())
        lines = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
        at = {"header": 20, "header's newline": lines[1] - 1, "entry": lines[3] + 9, "newline": lines[4] - 1}
        if place == "page":
            data[:4096] = bytes(4096)
        else:
            data[at[place]] ^= 4
        journal.write_bytes(data)
        api.requests.clear()
        second = batch(xapi, api, *args, input=paths(30))
        sent = len(api.requests)
        third = batch(xapi, api, *args, input=paths(30))

    expected = {"header": (0, 0), "header's newline": (1, 1), "entry": (1, 1), "newline": (2, 2), "page": (5, 29)}[
        place
    ]
    assert expected[0] <= sent <= expected[1]
    assert [[line["id"] for line in run[1]] for run in (second, third)] == [list(range(30))] * 2
    assert (second[0], third[0], len(api.requests)) == (0, 0, sent)
    consequence = ", so requests may have been sent again" if sent else ""
    assert f"; 1 damaged line in the journal was ignored{consequence}\n" in second[2]
    assert "damaged" not in third[2]


@pytest.mark.parametrize("damage", ["digest of the input", "garbage", "duplicate"])
def test_a_damaged_line_that_is_not_the_only_entry_of_a_result_causes_no_request(
    xapi: Xapi, tmp_path: Path, damage: str
) -> None:
    journal = tmp_path / "j"
    with Api() as api:
        batch(xapi, api, "--journal", str(journal), input=paths(3))
        data = journal.read_bytes()
        (last,) = (line for line in data.splitlines() if line.startswith(b'{"line": 3,'))
        damaged = {
            "digest of the input": data.replace(b'{"input": "', b'{"input": "-'),
            "garbage": data + b"garbage\n" * 2,
            "duplicate": data + last[:50],
        }[damage]
        journal.write_bytes(damaged)
        api.requests.clear()
        code, lines, err = batch(xapi, api, "--journal", str(journal), input=paths(3))

    assert (code, len(lines), api.requests) == (0, 3, [])
    count = "2 damaged lines in the journal were" if damage == "garbage" else "1 damaged line in the journal was"
    assert err.endswith(f" 3 from the journal); {count} ignored\n")


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_a_file_system_without_locks_is_named(xapi: Xapi, tmp_path: Path, error: str) -> None:
    strace = ("strace", "-f", "-qq", "-o", os.devnull, "-e", f"inject=flock:error={error}", str(PROGRAM))
    with Api() as api:
        process = xapi.start("batch", "--journal", str(tmp_path / "j"), os.devnull, env=api.settings, argv=strace)
        out, err = process.communicate(timeout=60)

    problem = f"the file system of the journal {tmp_path}/j does not support locks ("
    assert (process.returncode, out) == (14, b"")
    assert err.decode().startswith(f"xapi: error: {problem}")
    assert err.decode().endswith("; pass a --journal on a local file system\n")
