"""`xapi batch --jq`."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths
from tests.commands.jq_processes import ENDLESS, wait_for_busy_children, wait_until_ended, without_library
from tests.support.program import REAL, Xapi

ENDLESS_ON_LINE_2 = f"if .n == 1 then ({ENDLESS}) else .n end"


def numbered(received: ReceivedRequest) -> Reply:
    """Respond with the number at the end of the path."""
    return Reply(b'{"n": %d}' % _number(received))


def bodies(*texts: bytes) -> Callable[[ReceivedRequest], Reply]:
    """Respond to line N with text N."""
    return lambda received: Reply(texts[_number(received)])


def _number(received: ReceivedRequest) -> int:
    return int(received.path.rpartition("/")[2])


def test_json_is_the_result_an_array_of_several_or_absent(xapi: Xapi) -> None:
    texts = (b'[{"id": "x"}]', b'[{"id": 1},\n {"id": "\xc3\xa9\\u0000"}]', b"[]", b'[{"id": null}]', b'[{"id": [2]}]')
    with Api(bodies(*texts)) as api:
        code, lines, err = batch(xapi, api, "--ordered", "--jq", ".[].id", input=paths(5))

    assert code == 0, err
    assert [line.get("json", "absent") for line in lines] == ["x", [1, "é\0"], "absent", None, [2]]
    assert [list(line) for line in lines][2] == ["id", "line", "status", "headers", "elapsed_ms"]
    assert list(lines[0]) == ["id", "line", "status", "headers", "json", "elapsed_ms"]


@pytest.mark.parametrize("text", [".", "[.[]]", ".[1:][]"])
def test_numbers_stay_as_sent(xapi: Xapi, text: str) -> None:
    with Api(bodies(b"[0, 1.10, 123456789012345678901234567890]")) as api:
        outcome = xapi("batch", "--jq", text, input=paths(1), env=api.settings)

    assert outcome.code == 0
    assert "1.10,123456789012345678901234567890]" in outcome.out


def test_other_bodies_and_error_statuses_are_not_filtered(xapi: Xapi) -> None:
    text = (("Content-Type", "text/plain"),)
    replies = [Reply(b'{"a": 1}', 404), Reply(b'{"a": 1}', headers=text), Reply(b"{", 200), Reply(b""), Reply()]
    with Api(lambda received: replies[_number(received)]) as api:
        code, lines, _ = batch(xapi, api, "--ordered", "--jq", "7", input=paths(5))

    assert code == 4
    assert [line.get("json", line.get("text")) for line in lines] == [{"a": 1}, '{"a": 1}', "{", "", 7]


@pytest.mark.parametrize("text", [".[", "unknown_function", ".a) | (.b", "."])
@pytest.mark.states("If a filter does not compile, xapi exits with code 2 before it reads the input.")
def test_a_filter_that_cannot_run_exits_with_2_before_the_input_is_read(xapi: Xapi, tmp_path: Path, text: str) -> None:
    env = without_library(tmp_path) if text == "." else {}
    with Api() as api:
        process = xapi.start("batch", "--jq", text, stdin=subprocess.PIPE, env={**api.settings, **env})
        assert process.wait(20) == 2  # stdin is still open
        out, err = process.communicate()
        assert (out, api.requests, api.logins) == (b"", [], 0)

    assert err.startswith(b"xapi: error: ")
    assert b"--jq" in err


@pytest.mark.parametrize("text", ['error("no")', ".n.n", "input", "halt", "error({a: 1})", '"x" | halt_error'])
def test_a_filter_that_fails_is_an_error_of_its_line(xapi: Xapi, text: str) -> None:
    with Api(numbered) as api:
        args = ("--ordered", "--jq", f"if .n == 1 then {text} else .n end")
        code, lines, err = batch(xapi, api, *args, input=paths(4))

    assert code == 1
    assert [line.get("json") for line in lines] == [0, None, 2, 3]
    assert lines[1].keys() == {"id", "line", "error"}
    assert lines[1]["error"]["kind"] == "filter"
    assert lines[1]["error"]["message"].startswith("the --jq filter failed: ")
    assert "1 of 4 lines failed" in err


def test_fail_fast_stops_after_a_filter_that_fails(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, _, _ = batch(xapi, api, "-j", "1", "--fail-fast", "--jq", "error", input=paths(50))
        assert (code, len(api.requests)) == (1, 1)


def test_an_endless_filter_delays_no_other_line(xapi: Xapi) -> None:
    with Api(numbered) as api:
        args = ("batch", "-j", "4", "--timeout", "60", "--jq", ENDLESS_ON_LINE_2)
        process = xapi.start(*args, stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(paths(40).encode())
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(39)]  # all while the filter still runs
        children = wait_for_busy_children(process)
        own, *priorities = [os.getpriority(os.PRIO_PROCESS, each) for each in (process.pid, *children)]
        process.kill()
        process.communicate()

    assert len(priorities) == 1
    assert priorities[0] >= min(own + 10, 19)
    assert sorted(line["json"] for line in lines) == [0, *range(2, 40)]


@pytest.mark.parametrize(
    "limit, code, kind, message",
    [
        ("--timeout=1.5", 1, "filter", "the --jq filter did not finish within 1.5 s; raise --timeout"),
        # from the start of the program, which takes two seconds under Wine
        ("--max-time=4", 12, "timeout", "no response before --max-time expired; raise --max-time"),
    ],
)
@pytest.mark.slow
def test_a_time_limit_ends_an_endless_filter(xapi: Xapi, limit: str, code: int, kind: str, message: str) -> None:
    with Api(numbered) as api:
        args = ("--ordered", "--jq", ENDLESS_ON_LINE_2, limit)
        result = batch(xapi, api, *args, input=paths(3))

    assert (result[0], result[1][1]["error"]) == (code, {"kind": kind, "message": message})


@pytest.mark.parametrize("text", ['"x" * 11000000', pytest.param("[range(1e12)]", marks=pytest.mark.slow)])
def test_an_unlimited_result_is_an_error_of_its_line(xapi: Xapi, text: str) -> None:
    with Api(numbered) as api:
        args = ("--ordered", "--timeout", "20", "--jq", f"if .n == 1 then {text} else .n end")
        code, lines, _ = batch(xapi, api, *args, input=paths(3))

    assert (code, lines[0]["json"], lines[2]["json"]) == (1, 0, 2)
    assert lines[1]["error"]["kind"] == "filter"


@pytest.mark.slow
def test_a_large_body_and_a_large_result(xapi: Xapi) -> None:
    values = [{"id": number, "name": f"é {number}"} for number in range(100_000)]
    body = json.dumps(values, indent=1, ensure_ascii=False).encode()
    with Api(lambda received: Reply(body if _number(received) % 2 else b"[]")) as api:
        code, lines, err = batch(xapi, api, "--ordered", "--jq", "[.[].id], .", input=paths(4))

    assert code == 0, err
    assert [line["json"] for line in lines] == [[[], []], [list(range(100_000)), values]] * 2


@pytest.mark.parametrize("text", [b"[" * 300 + b"]" * 300, b"[" * 20_000 + b"]" * 20_000])
def test_a_deep_body_has_a_result_or_is_an_error_of_its_line(xapi: Xapi, text: bytes) -> None:
    with Api(bodies(b"1", text, b"3")) as api:
        outcome = xapi("batch", "--ordered", "--jq", "length", input=paths(3), env=api.settings)

    lines = out_lines(outcome.out)
    assert (lines[0]["json"], lines[2]["json"]) == (1, 3)
    assert {"json", "text"} & lines[1].keys() or lines[1]["error"]["kind"] == "filter"


@pytest.mark.states(
    "A journal stores the results and is bound to the filter: with a different --jq, or none, xapi exits with code 2."
)
def test_a_journal_stores_results_and_is_bound_to_the_filter(xapi: Xapi, tmp_path: Path) -> None:
    journal = ("--ordered", "--journal", str(tmp_path / "j"))
    text = "if .n == 1 then error else .n + 1 end"
    with Api(numbered) as api:
        first = batch(xapi, api, *journal, "--jq", text, input=paths(3))
        again = batch(xapi, api, *journal, "--jq", text, input=paths(3))
        other = batch(xapi, api, *journal, "--jq", ".n", input=paths(3))
        none = batch(xapi, api, *journal, input=paths(3))
        assert len(api.requests) == 3

    assert (first[0], [line.get("json") for line in first[1]]) == (1, [1, None, 3])
    assert again[:2] == first[:2]
    assert (other[0], other[1], none[0], none[1]) == (2, [], 2, [])
    assert "belongs to a batch with other filters; use its --jq and --expect" in other[2]


def test_the_outputs_of_shards_can_be_merged(xapi: Xapi, tmp_path: Path) -> None:
    outs = [tmp_path / "1", tmp_path / "2"]
    with Api(numbered) as api:
        for index, out in enumerate(outs, 1):
            result = xapi("batch", "--shard", f"{index}/2", "--jq", ".n", input=paths(6), env=api.settings)
            out.write_text(result.out)
    merged = xapi("batch", "--merge", *map(str, outs))
    refused = xapi("batch", "--merge", "--jq", ".", *map(str, outs))

    assert [line["json"] for line in out_lines(merged.out)] == list(range(6))
    assert (refused.code, refused.err) == (2, "xapi: error: --merge and --jq cannot be combined; omit --jq\n")


def _endless(xapi: Xapi, api: Api) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """Start a batch with an endless filter; return it with the processes that run the filter."""
    args = ("batch", "--timeout", "60", "--jq", ENDLESS)
    process = xapi.start(*args, stdin=subprocess.PIPE, env=api.settings, argv=REAL)
    assert process.stdin is not None
    process.stdin.write(jsonl({"path": "/n/1"}).encode())
    process.stdin.flush()
    return process, wait_for_busy_children(process)


def test_the_filters_end_when_xapi_is_killed(xapi: Xapi) -> None:
    with Api(numbered) as api:
        process, children = _endless(xapi, api)
        process.kill()
        process.communicate(timeout=10)

    for child in children:
        wait_until_ended(child)


def test_a_second_interrupt_ends_the_filters(xapi: Xapi) -> None:
    with Api(numbered) as api:
        process, children = _endless(xapi, api)
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        while b"finishing 1 request in flight" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)

    assert process.returncode == 130
    for child in children:
        wait_until_ended(child)


def test_the_environment_of_the_filter_has_no_secret(xapi: Xapi) -> None:
    with Api(numbered) as api:
        _, lines, _ = batch(xapi, api, "--jq", "$ENV", input=paths(1), env={"MINE": "yes"})

    assert lines[0]["json"]["MINE"] == "yes"
    assert "canary" not in json.dumps(lines)
