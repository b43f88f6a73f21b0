"""`xapi batch --shard`, `--rate` and `--no-pause`: a batch over many machines, and its rate."""

import os
import signal
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, paths
from tests.support.program import Xapi


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return sorted(line["line"] for line in lines)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_the_shards_send_each_line_exactly_once(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    text = "\n" + paths(20) + "not json\n\n" + paths(10, 20)
    (tmp_path / "in").write_text(text)
    sent = []
    with Api() as api:
        for shard in ("1/3", "2/3", "3/3"):
            given = (str(tmp_path / "in"),) if kind == "file" else ()
            code, lines, err = batch(xapi, api, "--shard", shard, *given, input=text if kind == "pipe" else "")
            sent.append(numbers(lines))
            assert all(
                line.get("error") or line["line"] == line["id"] + (2 if line["id"] < 20 else 4) for line in lines
            )
            assert code == (2 if 22 in sent[-1] else 0), err
        assert sorted(api.counts.values()) == [1] * 30

    assert sent[0] == [4, 7, 10, 13, 16, 19, 22, 25, 28, 31]  # line 1 is blank
    assert sorted(chain(*sent)) == [*range(2, 23), *range(24, 34)]


def test_a_shard_without_lines_succeeds_without_a_login(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, "--shard", "9/9", input=paths(3))

        assert (code, lines, api.logins) == (0, [], 0), err


@pytest.mark.parametrize("args", [("--shard", "0/3"), ("--shard", "4/3"), ("--rate", "0"), ("--rate", "5/d")])
def test_an_invalid_shard_or_rate_is_a_usage_error_before_anything_is_sent(xapi: Xapi, args: tuple[str, str]) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, *args, input=paths(3))
        assert (code, lines, api.logins, api.requests) == (2, [], 0, [])

    assert f"xapi: error: {args[0]}: '{args[1]}' is not a valid {args[0][2:]}; write " in err


def test_a_journal_resumes_its_shard_and_refuses_another(xapi: Xapi, tmp_path: Path) -> None:
    args = ("--ordered", "--journal", str(tmp_path / "j"))
    with Api() as api:
        first = batch(xapi, api, *args, "--shard", "2/3", input=paths(9))
        api.requests.clear()
        again = batch(xapi, api, *args, "--shard", "2/3", input=paths(9))
        other = batch(xapi, api, *args, "--shard", "2/4", input=paths(9))
        whole = batch(xapi, api, *args, input=paths(9))
        changed = batch(xapi, api, *args, "--shard", "2/3", input=paths(12))
        assert api.requests == []

    assert (first[0], numbers(first[1]), again[1]) == (0, [2, 5, 8], first[1])
    for refused in (other, whole):
        assert (refused[0], refused[1]) == (2, [])
        assert "belongs to shard 2/3; use --shard 2/3, or pass another --journal" in refused[2]
    assert (changed[0], "the input has changed" in changed[2]) == (2, True)


def test_a_journal_of_a_whole_batch_refuses_a_shard(xapi: Xapi, tmp_path: Path) -> None:
    with Api() as api:
        assert batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(3))[0] == 0
        code, lines, err = batch(xapi, api, "--journal", str(tmp_path / "j"), "--shard", "1/3", input=paths(3))

    assert (code, lines) == (2, [])
    assert "belongs to a batch without --shard; omit --shard, or pass another --journal" in err


def test_rate_limits_the_requests_and_an_interrupted_batch_resumes_with_the_next_line(
    xapi: Xapi, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(paths(3))
    args = ("--rate", "1/m", "-j", "3", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
    with Api() as api:
        for sent in (1, 2):
            process = xapi.start("batch", *args, env=api.settings)
            assert process.stdout is not None
            for _ in range(sent):
                assert process.stdout.readline()  # the stored responses, and that of the only request
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(20) == 130
            assert [each.path for each in api.requests] == [f"/n/{number}" for number in range(sent)]
        assert batch(xapi, api, *args)[0] == 0
        assert len(api.requests) == 3


def test_the_end_of_the_input_is_noticed_without_waiting_for_the_rate(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, "--rate", "1/m", input=paths(1) + "\nbad\n", timeout=30)

    assert (code, numbers(lines)) == (2, [1, 3]), err


def test_replays_after_a_login_are_subject_to_the_rate(xapi: Xapi) -> None:
    with Api(lives=3) as api:
        code, lines, err = batch(xapi, api, "--rate", "200/s", "-j", "8", input=paths(12))
        assert api.logins >= 4

    assert (code, len(lines)) == (0, 12), err


@pytest.mark.parametrize("options, paused", [((), True), (("--no-pause",), False)])
def test_a_429_with_retry_after_pauses_the_batch_unless_that_is_switched_off(
    xapi: Xapi, options: tuple[str, ...], paused: bool
) -> None:
    seen: set[str] = set()

    def response(received: ReceivedRequest) -> Reply:
        first = received.path == "/n/0" and not seen
        seen.add(received.path)
        return Reply(status=429, headers=(("Retry-After", "1"),)) if first else Reply()

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "1", "-j", "1", *options, input=paths(5))

    assert (code, len(lines)) == (0, 5), err
    assert ("xapi: the API responded with 429; sending no requests for 1.0 s" in err) == paused
    assert f", 1 retry{', 1 pause' if paused else ''})" in err


def test_without_retry_a_429_pauses_nothing(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=429, headers=(("Retry-After", "300"),))) as api:
        code, lines, err = batch(xapi, api, input=paths(5))

    assert (code, [line["status"] for line in lines]) == (4, [429] * 5)
    assert "sending no requests" not in err


def test_a_pause_ends_with_max_time(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=429, headers=(("Retry-After", "299"),))) as api:
        code, _, err = batch(xapi, api, "--retry", "1", "-j", "1", "--max-time", "2", input=paths(5), timeout=30)

    assert code == 12, err
    assert "did not finish within 2 s" in err
