"""`xapi batch --journal`: after a crash, a resumed batch loses no response and sends no request again."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths
from tests.support.program import PROGRAM, Xapi


def test_a_journal_prints_responses_again_and_sends_the_rest(xapi: Xapi, tmp_path: Path) -> None:
    broken = {"/n/3"}

    def response(received: ReceivedRequest) -> Reply | None:
        return None if received.path in broken else Reply(status=404 if received.path == "/n/1" else 200)

    with Api(response) as api:
        args = ("--ordered", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *args, input=paths(6) + "bad\n")
        broken.clear()
        api.requests.clear()
        second = batch(xapi, api, *args, input=paths(6) + "bad\n")
        sent = [each.path for each in api.requests]
        last = (*args, "--failed", str(tmp_path / "failed"))
        third = batch(xapi, api, *last, input=paths(6) + "bad\n", env={"XAPI_TOKEN": "another"})
        assert len(api.requests) == 1
        mode = (tmp_path / "j").stat().st_mode & 0o777

    assert (first[0], second[0], third[0], sent, mode) == (11, 4, 4, ["/n/3"], 0o600)
    assert [first[1][3]["error"]["kind"], second[1][3]["status"]] == ["network", 200]
    assert [line for line in second[1] if line["line"] != 4] == [line for line in first[1] if line["line"] != 4]
    assert third[1] == second[1]
    assert (tmp_path / "failed").read_text() == paths(1, 1) + "bad\n"
    assert ", 6 from the journal): 1 × 404, 1 × input" in third[2]


def test_what_a_retry_would_repeat_is_sent_again_and_other_failures_are_kept(xapi: Xapi, tmp_path: Path) -> None:
    busy = [429, 502, 503, 504]
    lines = [{"path": f"/{status}", "method": method} for status in [*busy, 400, 500] for method in ("PUT", "POST")]
    with Api(lambda received: Reply(status=int(received.path[1:]))) as api:
        for _ in range(2):
            batch(xapi, api, "--journal", str(tmp_path / "j"), input=jsonl(*lines))
        again = {(each.method, each.path) for each in api.requests[len(lines) :]}

    assert again == {("PUT", f"/{status}") for status in busy}


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_changed_input_is_a_usage_error_and_nothing_is_sent(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    def run(text: str) -> tuple[int, list[dict[str, Any]], str]:
        if kind == "pipe":
            return batch(xapi, api, "--journal", str(tmp_path / "j"), input=text)
        (tmp_path / "in").write_text(text)
        return batch(xapi, api, "--journal", str(tmp_path / "j"), str(tmp_path / "in"))

    with Api() as api:
        assert run(paths(5))[0] == 0
        api.requests.clear()
        changed = [run(text) for text in (paths(5, 1), paths(6), paths(4), "\n" + paths(5))]
        same = run(paths(5))
        assert not api.requests

    assert [outcome[0] for outcome in (*changed, same)] == [2, 2, 2, 2, 0]
    assert all("the input has changed" in outcome[2] for outcome in changed)


def test_a_journal_of_another_account_or_shard_is_a_usage_error(xapi: Xapi, tmp_path: Path) -> None:
    args = ("--journal", str(tmp_path / "j"))
    with Api() as api:
        assert batch(xapi, api, *args, "--shard", "1/2", input=paths(3))[0] == 0
        account = batch(xapi, api, *args, "--shard", "1/2", input=paths(3), env={"XAPI_USERNAME": "you@example.com"})
        shard = batch(xapi, api, *args, input=paths(3))

    for code, lines, err in (account, shard):
        assert (code, lines, "belongs to another account, base URL or shard" in err) == (2, [], True)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_post_that_was_in_flight_is_sent_again_after_a_crash_and_stderr_says_so(
    xapi: Xapi, tmp_path: Path, method: str
) -> None:
    (tmp_path / "in").write_text(jsonl(*({"path": f"/{number}", "method": method} for number in range(4))))
    are_sent, done = threading.Event(), threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        if len(api.requests) == 3:
            are_sent.set()
        if received.path != "/0":
            done.wait()
        return Reply()

    with Api(response) as api:
        args = ("-j", "2", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        process = xapi.start("batch", *args, env=api.settings)
        are_sent.wait()
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait()
        done.set()
        code, lines, err = batch(xapi, api, *args)

    assert (code, len(lines)) == (0, 4)
    problem = "xapi: warning: 2 requests were in flight when an earlier run ended, and may have been processed"
    assert (f"{problem}; sending again: line 2, 3\n" in err) == (method == "POST")


@pytest.mark.slow
def test_after_sigkill_at_random_times_every_line_has_one_response(xapi: Xapi, tmp_path: Path) -> None:
    count, rng = 1000, random.Random(5)
    (tmp_path / "in").write_text(paths(count))
    printed: set[int] = set()
    enough, is_killed = 0, threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        if len(api.requests) > enough:
            is_killed.wait()
        return Reply()

    with Api(response) as api:
        args = ("batch", "-j", "8", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        for _ in range(10):
            out, before = tmp_path / "out", dict(api.counts)
            with out.open("wb") as file:
                enough, is_killed = len(api.requests) + rng.randint(1, 120), threading.Event()
                process = xapi.start(*args, stdout=file, env=api.settings)
                while len(api.requests) < enough:
                    assert process.poll() is None
                    time.sleep(0.001)
                process.kill()
                process.wait()
                is_killed.set()
            assert not {path for path in before if int(path[3:]) in printed and api.counts[path] > before[path]}
            printed |= {line["id"] for line in out_lines("\n".join(out.read_text().split("\n")[:-1]))}
        enough = 10 * count
        last = xapi(*args, env=api.settings)

    assert last.code == 0, last.err
    assert sorted(line["id"] for line in out_lines(last.out)) == list(range(count))
    assert printed  # the killed runs had got somewhere


def test_a_full_disk_ends_the_batch_and_what_was_printed_is_in_the_journal(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(600))
    args = ("batch", "-j", "4", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
    with Api() as api:
        limited = ("bash", "-c", 'ulimit -f 64; exec "$@"', "-", str(PROGRAM))  # 64 KiB a file
        process = xapi.start(*args, env=api.settings, argv=limited)
        out, err = process.communicate()
        printed = {line["id"] for line in out_lines(out.decode())}
        api.requests.clear()
        rest = xapi(*args, env=api.settings)
        again = {int(received.path[3:]) for received in api.requests}

    assert process.returncode == 14
    assert "cannot be written: disk I/O error" in err.decode()
    assert 0 < len(printed) < 600
    assert (rest.code, len(out_lines(rest.out))) == (0, 600)
    assert not again & printed


def test_fail_fast_stops_at_a_failure_in_the_journal(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lambda received: Reply(status=404 if received.path == "/n/5" else 200)) as api:
        args = ("-j", "1", "--journal", str(tmp_path / "j"))
        first, second = (batch(xapi, api, *args, "--fail-fast", input=paths(20)) for _ in range(2))
        whole = batch(xapi, api, *args, input=paths(20))

    assert ([len(each[1]) for each in (first, second, whole)], first[0], second[0]) == ([6, 6, 20], 4, 4)
    assert set(api.counts.values()) == {1}
    assert "; no more lines were sent (--fail-fast)" in first[2]


def test_no_secret_is_in_the_journal(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lives=10) as api:
        outcome = xapi("batch", "--journal", str(tmp_path / "j"), input=paths(30), env=api.settings)

    for text in (outcome.out, outcome.err, (tmp_path / "j").read_text("latin-1")):
        assert "token-" not in text
        assert "canary" not in text
