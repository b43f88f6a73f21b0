"""`xapi batch` with --failed, and a journal whose lines ended in a status that --retry would repeat."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, paths
from tests.support.program import Xapi

BUSY = Reply(status=503, headers=(("Retry-After", "0"),))


def failing_first(received: ReceivedRequest, seen: set[str]) -> Reply:
    reply = Reply() if received.path in seen else BUSY
    seen.add(received.path)
    return reply


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_journal_sends_lines_again_that_a_retry_would_repeat(xapi: Xapi, tmp_path: Path, status: int) -> None:
    failing = True
    lines = jsonl({"path": "/get"}, {"path": "/put", "method": "PUT", "json": 1}, {"path": "/post", "json": 1})
    with Api(lambda received: Reply(status=status) if failing else Reply()) as api:
        args = ("--ordered", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *args, input=lines)
        failing = False
        api.requests.clear()
        second = batch(xapi, api, *args, input=lines)
        again = {each.path for each in api.requests}
        api.requests.clear()
        third = batch(xapi, api, *args, input=lines)
        unsafe = [each.path for each in api.requests]

    assert [line["status"] for line in first[1]] == [status] * 3
    assert again == {"/get", "/put"}
    assert [line["status"] for line in second[1]] == [200, 200, status]
    assert (third[1], unsafe) == (second[1], [])


@pytest.mark.parametrize("status", [400, 404, 500, 501])
def test_a_journal_keeps_other_statuses(xapi: Xapi, tmp_path: Path, status: int) -> None:
    with Api(lambda received: Reply(status=status)) as api:
        for _ in range(2):
            batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(3))

    assert len(api.requests) == 3


# --failed


def half(received: ReceivedRequest) -> Reply:
    """Respond with 404 to every other line."""
    return Reply(status=404 if received.path[-1] in "13579" else 200)


@pytest.mark.parametrize("args", [(), ("--ordered",), ("-j", "1")])
def test_the_lines_that_failed_are_written_verbatim(xapi: Xapi, tmp_path: Path, args: tuple[str, ...]) -> None:
    failed = tmp_path / "failed.jsonl"
    bad = '{"path": "/n/1",  "id": 1.50}\r\n\n{"pth": 1}\n {"id": "ü\\u00fc", "path": "/n/3"}\n'
    with Api(half) as api:
        code, _, err = batch(xapi, api, *args, "--failed", str(failed), input=paths(1) + bad + '{"path": "/n/5"}')
        wanted = ['{"path": "/n/1",  "id": 1.50}\r\n', '{"pth": 1}\n', ' {"id": "ü\\u00fc", "path": "/n/3"}\n']
        lines = failed.read_bytes().decode().splitlines(keepends=True)

        assert code == 4
        assert sorted(lines) == sorted([*wanted, '{"path": "/n/5"}\n'])
        assert "--ordered" not in args or lines == [*wanted, '{"path": "/n/5"}\n']
        assert err.endswith(f"; see their lines on stdout, correct the invalid line in {failed}, then send {failed}\n")

        api.response = lambda received: Reply()
        again = batch(xapi, api, str(failed))
    assert [line.get("status") for line in sorted(again[1], key=lambda line: line["line"])].count(200) == 3


def test_the_file_is_empty_if_no_line_failed_and_replaces_an_older_one(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    failed.write_text("old\n")
    failed.chmod(0o640)
    with Api() as api:
        assert batch(xapi, api, "--failed", str(failed), input=paths(3))[0] == 0

    assert (failed.read_text(), failed.stat().st_mode & 0o777) == ("", 0o640)
    assert [each for each in os.listdir(tmp_path) if each != "home"] == ["failed.jsonl"]


def test_a_batch_that_sends_nothing_leaves_the_file_unchanged(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    failed.write_text("old\n")
    with Api() as api:
        journal = tmp_path / "journal"
        journal.write_text("not a journal\n")
        code, _, _ = batch(xapi, api, "--failed", str(failed), "--journal", str(journal), input=paths(3))

    assert (code, failed.read_text()) == (2, "old\n")


@pytest.mark.parametrize(
    ("invalid", "hint"),
    [
        ("", "see its line on stdout, or send {} again"),
        ('{"pth": 1}\n[]\n', "see their lines on stdout, correct the invalid lines in {0}, then send {0}"),
    ],
)
def test_the_hint_says_to_correct_invalid_lines(xapi: Xapi, tmp_path: Path, invalid: str, hint: str) -> None:
    failed = tmp_path / "failed.jsonl"
    with Api(half) as api:
        _, _, err = batch(xapi, api, "--failed", str(failed), input=paths(2) + invalid)

    assert err.endswith(f"; {hint.format(failed)}\n")


def test_shards_and_a_journal_write_their_own_lines(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(8))
    journal = str(tmp_path / "journal")
    with Api(half) as api:
        for name in ("first", "second"):  # the second time, all results are from the journal
            args = ("--shard", "2/4", "--journal", journal, "--failed", str(tmp_path / name), str(tmp_path / "in"))
            assert batch(xapi, api, *args)[0] == 4
        assert len(api.requests) == 2

    every = paths(8).splitlines()
    for name in ("first", "second"):
        assert sorted((tmp_path / name).read_text().splitlines()) == [every[1], every[5]]


def test_with_fail_fast_the_file_has_the_line_that_failed(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    with Api(half) as api:
        code, _, _ = batch(xapi, api, "--fail-fast", "-j", "1", "--failed", str(failed), input=paths(8))

    assert code == 4
    assert failed.read_text() == paths(8).splitlines(keepends=True)[1]


def test_after_ctrl_c_the_file_has_the_lines_that_had_failed(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    with Api(half) as api:
        process = xapi.start("batch", "--failed", str(failed), stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(paths(2).encode())
        process.stdin.flush()
        shown = [process.stdout.readline(), process.stdout.readline()]
        assert not failed.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130

    assert len(shown) == 2
    assert failed.read_text() == paths(2).splitlines(keepends=True)[1]


@pytest.mark.parametrize("role", ["input", "stdin", "journal", "new journal", "stdout"])
def test_a_file_with_two_roles_is_refused_and_unchanged(xapi: Xapi, tmp_path: Path, role: str) -> None:
    file = tmp_path / "file"
    other = tmp_path / "other"
    other.write_text(paths(3))
    if role != "new journal":
        file.write_text(paths(3) if role in ("input", "stdin") else "")
    before = file.read_bytes() if file.exists() else None
    args = {"input": [str(file)], "journal": ["--journal", str(file)], "new journal": ["--journal", str(file)]}
    with Api() as api, ExitStack() as stack:
        own = stack.enter_context((file if role == "stdin" else other).open("rb"))
        stdout = stack.enter_context(file.open("ab")) if role == "stdout" else subprocess.DEVNULL
        process = xapi.start(
            "batch", "--failed", str(file), *args.get(role, []), stdin=own, stdout=stdout, env=api.settings
        )
        _, err = process.communicate(timeout=30)
        assert not api.requests

    assert process.returncode == 2, err
    assert b"are the same file; use two different files\n" in err
    assert (file.read_bytes() if file.exists() else None) == before


def test_a_file_that_cannot_be_written_ends_the_batch_before_anything_is_sent(xapi: Xapi, tmp_path: Path) -> None:
    with Api() as api:
        code, _, err = batch(xapi, api, "--failed", str(tmp_path / "none" / "failed"), input=paths(3))

    assert (code, api.requests) == (14, [])
    assert "cannot be written" in err


def test_a_full_disk_ends_the_batch(xapi: Xapi) -> None:
    with Api(half) as api:
        code, _, err = batch(xapi, api, "--failed", "/dev/full", input=paths(8))

    assert code == 14
    assert err.endswith("xapi: error: /dev/full cannot be written: No space left on device; choose another file\n")


def test_a_line_that_is_too_long_is_not_in_the_file_and_that_is_said(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    with Api() as api:
        text = '{"path": "/' + "x" * (16 * 2**20) + '"}\n'
        code, _, err = batch(xapi, api, "--failed", str(failed), input=text + '{"pth": 1}\n', timeout=60)

    assert (code, failed.read_text()) == (2, '{"pth": 1}\n')
    assert f"xapi: warning: line 1 is too long and was not written to {failed}\n" in err


# what a user sees


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_counts_retries_in_one_line(xapi: Xapi, tmp_path: Path, columns: int) -> None:
    (tmp_path / "in").write_text(paths(50))
    seen: set[str] = set()

    def response(received: ReceivedRequest) -> Reply:
        return failing_first(received, seen)

    args = ("batch", "--retry", "1", str(tmp_path / "in"))
    with Api(response) as api, xapi.on_terminal(*args, env=api.settings, columns=columns) as terminal:
        assert terminal.wait() == 0

    assert "retrying in" not in terminal.text
    assert ", 50 retries)" in " ".join(terminal.text.split())


def test_the_progress_counts_retries(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(3))
    end = time.monotonic() + 30

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/n/1" and sum(each.path == "/n/1" for each in api.requests) == 1:
            return BUSY
        if received.path == "/n/2":
            while not terminals or "1 retried" not in terminals[0].text:
                assert time.monotonic() < end
                time.sleep(0.05)
        return Reply()

    terminals = []
    args = ("batch", "--retry", "1", str(tmp_path / "in"))
    with Api(response) as api, xapi.on_terminal(*args, env=api.settings) as terminal:
        terminals.append(terminal)
        terminal.expect("0 failed, 1 retried", timeout=30)
        assert terminal.wait() == 0


def test_only_the_first_pause_is_a_line(xapi: Xapi) -> None:
    counts: dict[str, int] = {}

    def response(received: ReceivedRequest) -> Reply:
        counts[received.path] = counts.get(received.path, 0) + 1
        return Reply(status=429, headers=(("Retry-After", "1"),)) if counts[received.path] == 1 else Reply()

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "1", "-j", "1", input=paths(3))

    assert (code, len(lines)) == (0, 3)
    assert err.count("sending no requests") == 1
    assert ", 3 retries, 3 pauses)" in err
