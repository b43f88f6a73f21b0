"""`xapi batch` keeps what the contract promises, through the real program."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.batch.server import Api, Asked, Reply, answer_all, batch, jsonl, measured, out_lines, paths, slowly
from tests.program import Xapi
from tests.servers import OK, Server, close, hang, request, send, serve

TEXT = (("Content-Type", "text/plain; charset=iso-8859-1"),)


# lines in


def test_every_key_of_a_line_reaches_the_server(xapi: Xapi) -> None:
    line = '{"id": {"a": [1.10, 1e400]}, "method": "put", "path": "/x?a=b", "query": {"q": ["ä b", 7], "t": true}, '
    line += '"headers": {"X-Run": "é", "Accept": null}, '
    line += '"json": {"n": 1.10, "big": 12345678901234567890123, "u": "\\u00e4"}}\n'
    with Api() as api:
        code, _, err = batch(xapi, api, input=line)
        [asked] = api.asked

    assert code == 0, err
    assert (asked.method, asked.path) == ("PUT", "/x?a=b&q=%C3%A4%20b&q=7&t=true")
    assert asked.body == b'{"n": 1.10, "big": 12345678901234567890123, "u": "\\u00e4"}'
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["x-run"].encode("latin-1").decode() == "é"
    assert "accept" not in asked.headers
    assert asked.headers["authorization"] == "Bearer token-1"


def test_an_id_comes_back_as_it_was_written(xapi: Xapi) -> None:
    ids = ['{"a": [1.10, 1e400]}', "1.0", '"\\u00e4"', "null", "123456789012345678901234567890", "true"]
    with Api() as api:
        outcome = xapi(
            "batch", "--ordered", input="".join(f'{{"id":{each}, "path":"/"}}\n' for each in ids), env=api.settings
        )

    assert [re.match(r'\{"id": (.*), "line": ', line)[1] for line in outcome.out.splitlines()] == ids  # type: ignore[index]  # each matches


def test_data_is_sent_verbatim_and_post_is_the_method_of_a_line_with_a_body(xapi: Xapi) -> None:
    with Api() as api:
        code, _, err = batch(
            xapi,
            api,
            "-j",
            "1",
            input=jsonl(
                {"path": "/a", "data": "ä\n"},
                {"path": "/b", "data": "x", "headers": {"content-type": "text/x"}},
                {"path": "/c"},
            ),
        )
        seen = [(each.method, each.path, each.body, each.headers.get("content-type")) for each in api.asked]

    assert code == 0, err
    assert seen == [
        ("POST", "/a", "ä\n".encode(), "application/json"),
        ("POST", "/b", b"x", "text/x"),
        ("GET", "/c", b"", None),
    ]


BAD = [
    ("nonsense", "no JSON object"),
    ("[1]", "no JSON object"),
    ('{"path": "/", }', 'a name in " is expected'),
    ('{"path": "/"', "is expected"),
    ('{"path": "/"} x', "goes on after its object"),
    ('{"path": NaN}', "NaN and Infinity"),
    ("{}", 'there is no "path"'),
    ('{"path": 5}', '"path" is no string'),
    ('{"path": ""}', "PATH is empty"),
    ('{"path": "https://elsewhere.test/"}', "names the origin"),
    ('{"path": "/", "path": "/"}', "twice"),
    ('{"path": "/", "pth": 1}', "unknown key 'pth'"),
    ('{"path": "/", "json": 1, "data": "x"}', 'both "json" and "data"'),
    ('{"path": "/", "data": 1}', '"data" is no string'),
    ('{"path": "/", "data": "\\ud800"}', "surrogate"),
    ('{"path": "/", "method": "TRACE"}', "TRACE"),
    ('{"path": "/", "query": []}', '"query" is no object'),
    ('{"path": "/", "query": {"a": null}}', "'a'"),
    ('{"path": "/", "headers": {"X": 1.5e3, "Y": {}}}', "'Y'"),
    ('{"path": "/", "headers": {"X": "a\\nb"}}', "control character"),
    ('{"path": "/", "headers": {"Content-Length": "1"}}', "set by xapi itself"),
    ('{"path": "/", "json": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
]


@pytest.mark.parametrize("line, words", BAD, ids=[words for _, words in BAD])
def test_a_bad_line_is_reported_by_number_and_does_not_stop_the_rest(xapi: Xapi, line: str, words: str) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, "--ordered", input=f'{{"path":"/1"}}\n\n{line}\n{{"id":4,"path":"/4"}}')

    assert code == 2
    assert [each["line"] for each in lines] == [1, 3, 4]
    assert lines[1]["error"]["kind"] == "input"
    assert words in lines[1]["error"]["message"]
    assert [lines[0]["status"], lines[2]["status"], lines[2]["id"]] == [200, 200, 4]
    assert "3 lines" in err
    assert "input: 1" in err


def test_a_line_that_is_no_utf8_or_too_long_is_a_bad_line(xapi: Xapi) -> None:
    data = b'{"path":"/\xff"}\n{"path":"/2", "data":"' + b"x" * (17 * 2**20) + b'"}\r\n\xef\xbb\xbf\n{"path":"/4"}\n'
    with Api() as api:
        code, lines, _ = batch(xapi, api, "--ordered", input=data)

    assert code == 2
    messages = [(each["line"], each.get("error", {}).get("message", "")[:24]) for each in lines]
    assert messages == [
        (1, "the line is no UTF-8 (by"),
        (2, "the line has more than 1"),
        (3, "the line is no JSON obje"),
        (4, ""),
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input=b'\xef\xbb\xbf{"path":"/1"}\r\n\r\n{"path":"/3"}\r\n')

    assert (code, sorted(each["line"] for each in lines)) == (0, [1, 3]), err


def test_no_line_at_all_is_a_success_without_a_login(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input="\n")
        assert (code, lines, api.logins) == (0, [], 0), err


def test_lines_come_from_a_file_too_and_one_that_cannot_be_read_is_usage(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(3))
    with Api() as api:
        assert len(batch(xapi, api, str(tmp_path / "in"))[1]) == 3
        assert len(batch(xapi, api, "-", input=paths(2))[1]) == 2
        missing = batch(xapi, api, str(tmp_path / "missing"))
        folder = batch(xapi, api, str(tmp_path))

    assert (missing[0], folder[0]) == (2, 2)
    assert "No such file" in missing[2]
    assert "cannot be read" in folder[2]


# lines out


def test_an_output_line_has_all_that_was_promised(xapi: Xapi) -> None:
    headers = (("Content-Type", "application/json; charset=utf-8"), ("X-Two", "a"), ("X-Two", "b"))
    with Api(lambda asked: Reply(b'{"n":\r\n 1.10, "s": "a b"}\n', 201, headers)) as api:
        outcome = xapi("batch", input='{"id": "x", "path": "/"}', env=api.settings)
    [line] = out_lines(outcome.out)

    assert list(line) == ["id", "line", "status", "headers", "json", "elapsed_ms"]
    assert (line["id"], line["line"], line["status"], line["json"]) == ("x", 1, 201, {"n": 1.1, "s": "a b"})
    assert '"n":   1.10,' in outcome.out
    assert line["headers"] == {
        "content-type": "application/json; charset=utf-8",
        "x-two": "a, b",
        "content-length": "26",
    }
    assert isinstance(line["elapsed_ms"], int)
    assert re.fullmatch(r"xapi: no token.*\nxapi: 1 line in \d+\.\d s \([\d,]+/s\)\n", outcome.err)


BODIES: list[tuple[str, bytes, str, Any]] = [
    ("application/json", b'{"a": 1}', "json", {"a": 1}),
    ("application/problem+json", b"[]", "json", []),
    ("application/json", b'\xef\xbb\xbf"x"', "json", "x"),
    ("application/json", b"{broken", "text", "{broken"),
    ("application/json", b"[NaN]", "text", "[NaN]"),
    ("application/json", b"", "text", ""),
    ("application/json", b'"\xff"', "base64", "Iv8i"),
    ("text/plain", "grüße".encode(), "text", "grüße"),
    ("text/plain; charset=iso-8859-1", "grüße".encode("latin-1"), "text", "grüße"),
    ('text/html; charset="windows-1251"', "привет".encode("cp1251"), "text", "привет"),
    ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "text", "日本"),
    ("text/plain; charset=no-such", b"abc", "base64", "YWJj"),
    ("text/plain; charset=hex", b"6162", "base64", "NjE2Mg=="),
    ("text/plain; charset=idna", b"abc", "base64", "YWJj"),
    ("text/plain", b"\xff\xfe\x00", "base64", "//4A"),
    ("image/png", b"\x89PNG\r\n", "base64", "iVBORw0K"),
    ("application/octet-stream", b"abc", "base64", "YWJj"),
    ("", b"plain", "text", "plain"),
    ("", b"\x80", "base64", "gA=="),
]


def test_a_body_is_json_else_text_in_its_charset_else_base64(xapi: Xapi) -> None:
    def answer(asked: Asked) -> Reply:
        content_type, body, _, _ = BODIES[int(asked.path[1:])]
        return Reply(body, headers=(("Content-Type", content_type),) if content_type else ())

    with Api(answer) as api:
        code, lines, err = batch(xapi, api, "--ordered", input=jsonl(*({"path": f"/{n}"} for n in range(len(BODIES)))))

    assert code == 0, err
    shown = [next((key, line[key]) for key in ("json", "text", "base64") if key in line) for line in lines]
    assert shown == [(key, value) for _, _, key, value in BODIES]


def test_bodies_of_head_and_of_204_are_empty_text(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(status=204, body=b"") if asked.path == "/204" else Reply()) as api:
        code, lines, _ = batch(xapi, api, input=jsonl({"path": "/", "method": "head"}, {"path": "/204"}))

    assert (code, [each["text"] for each in lines]) == (0, ["", ""])


def test_a_body_over_10_mib_is_an_error_of_kind_size(xapi: Xapi) -> None:
    most = 10 * 2**20

    def answer(asked: Asked) -> Reply:
        size = {"/fits": most, "/over": most + 1, "/bomb": most + 1}[asked.path]
        if asked.path == "/bomb":
            return Reply(
                gzip.compress(b"x" * size), headers=(("Content-Type", "text/plain"), ("Content-Encoding", "gzip"))
            )
        return Reply(b"x" * size, headers=(("Content-Type", "text/plain"),))

    with Api(answer) as api:
        code, lines, _ = batch(
            xapi, api, "--ordered", input=jsonl(*({"path": each} for each in ("/fits", "/over", "/bomb")))
        )

    assert code == 11
    assert len(lines[0]["text"]) == most
    assert [each["error"]["kind"] for each in lines[1:]] == ["size", "size"]
    assert "xapi request -o" in lines[1]["error"]["message"]


def test_chunked_and_compressed_and_endless_line_bodies_are_read_like_any_other(xapi: Xapi) -> None:
    packed = gzip.compress(b'{"a":1}')
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b'3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    zipped = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        % len(packed)
        + packed
    )
    early = (
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
        b'{"a":1}'
    )
    to_the_end = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"a":1}'
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"
    half = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n" + packed[:12]
    with Server(
        [request(), send(chunked), request(), send(zipped), request(), send(early), request(), send(to_the_end)],
        [request(), send(cut)],
        [request(), send(half)],
    ) as server:
        outcome = xapi("batch", "-j", "1", input=paths(6), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})
    lines = out_lines(outcome.out)

    assert [each.get("json") for each in lines[:4]] == [{"a": 1}] * 4
    assert [each["error"]["kind"] for each in lines[4:]] == ["network", "network"]
    assert "cut off after 5 bytes" in lines[4]["error"]["message"]
    assert outcome.code == 11


# exit codes and kinds of error


def test_the_exit_code_is_the_highest_that_a_line_stands_for(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(status=int(asked.path[1:]))) as api:
        codes = [
            batch(xapi, api, input=jsonl(*({"path": f"/{status}"} for status in statuses)))[0]
            for statuses in ([200, 304, 204], [200, 404], [404, 503, 200])
        ]
        bad = batch(xapi, api, input=jsonl({"path": "/200"}, {"path": "/404"}, {"pth": 1}))[0]

    assert (codes, bad) == ([0, 4, 5], 4)


def test_no_connection_is_network_and_a_silent_server_is_a_timeout(xapi: Xapi) -> None:
    with Server([request(), hang()]) as server:
        quiet = xapi(
            "batch", input=paths(2), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "XAPI_TIMEOUT": "0.6"}
        )
        url = server.url
    gone = xapi("batch", input=paths(2), env={"XAPI_BASE_URL": url, "XAPI_TOKEN": "t"})

    assert (quiet.code, gone.code) == (12, 11)
    assert {each["error"]["kind"] for each in out_lines(quiet.out)} == {"timeout"}
    assert "no answer from 127.0.0.1" in quiet.out
    assert "within 0.6 s" in quiet.out
    assert {each["error"]["kind"] for each in out_lines(gone.out)} == {"network"}
    assert "connection refused" in gone.out


def test_a_server_that_drips_its_head_meets_the_timeout(xapi: Xapi) -> None:
    def drip(peer: Any) -> None:
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not peer.server.stopping.wait(0.1):
            peer.sock.sendall(b"x")

    with Server([request(), drip]) as server:
        outcome = xapi(
            "batch", input=paths(1), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "XAPI_TIMEOUT": "1"}
        )

    assert (outcome.code, out_lines(outcome.out)[0]["error"]["kind"]) == (12, "timeout")


def test_a_post_that_was_lost_may_have_been_processed_and_is_not_sent_again(xapi: Xapi) -> None:
    with Server([request(), close()]) as server:
        outcome = xapi(
            "batch", "--retry", "3", input='{"path":"/","json":1}', env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        )

    assert outcome.code == 11
    assert "may have been processed" in outcome.out
    assert len(server.received) == 1


def test_a_get_over_a_connection_that_the_server_had_closed_goes_over_another(xapi: Xapi) -> None:
    with Server([request(), send(OK), close()]) as server:
        outcome = xapi("batch", "-j", "1", input=paths(20), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, len(out_lines(outcome.out))) == (0, 20), outcome


def test_connections_are_kept_alive_and_shared(xapi: Xapi) -> None:
    with Server([serve()]) as server:
        outcome = xapi("batch", "-j", "4", input=paths(200), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, len(out_lines(outcome.out))) == (0, 200)
    assert len(server.received) <= 4


@pytest.mark.parametrize("jobs", [1, 3])
def test_no_more_requests_are_in_flight_than_asked_for(xapi: Xapi, jobs: int) -> None:
    with Api(slowly(0.02)) as api:
        assert batch(xapi, api, "-j", str(jobs), input=paths(30))[0] == 0
        assert api.most_under_way == jobs


# the token


def test_without_a_way_to_log_in_every_line_says_so(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input=paths(50), env={"XAPI_PASSWORD": None})

    assert (code, len(lines)) == (10, 50)
    assert {each["error"]["kind"] for each in lines} == {"auth"}
    assert "auth: 50" in err


def test_a_wrong_password_is_tried_once(xapi: Xapi) -> None:
    with Api() as api:
        api.login_status = 400
        code, lines, _ = batch(xapi, api, input=paths(300))
        assert (code, len(lines), api.logins) == (10, 300, 1)
    assert {each["error"]["kind"] for each in lines} == {"auth"}


def test_a_ready_made_token_that_is_rejected_is_an_error_of_kind_auth(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, _ = batch(xapi, api, input=paths(3), env={"XAPI_TOKEN": "dead"})
        assert (code, api.logins, len(api.asked)) == (10, 0, 3)
    assert "XAPI_TOKEN is not accepted" in lines[0]["error"]["message"]


def test_an_authorization_of_a_line_switches_token_and_login_off(xapi: Xapi) -> None:
    with Api(open_to_all=True) as api:
        assert (
            batch(
                xapi,
                api,
                input=jsonl(
                    {"path": "/", "headers": {"authorization": "Basic x"}},
                    {"path": "/", "headers": {"Authorization": None}},
                ),
            )[0]
            == 0
        )
        assert sorted(each.headers.get("authorization", "") for each in api.asked) == ["", "Basic x"]
        assert api.logins == 0


def test_a_token_that_dies_every_100_calls_costs_one_login_a_death_and_no_line(xapi: Xapi) -> None:
    with Api(lives=100) as api:
        code, lines, err = batch(xapi, api, "-j", "32", input=paths(1500), timeout=60)

        assert (code, len(lines), {each["status"] for each in lines}) == (0, 1500, {200}), err
        assert api.logins == 15
        assert set(api.counts.values()) == {1}
    assert err.count("logged in") == 15


def test_processes_share_one_login_a_death(xapi: Xapi) -> None:
    with Api(lives=400) as api:
        running = [xapi.start("batch", "-j", "8", stdin=subprocess.PIPE, env=api.settings) for _ in range(3)]
        for number, process in enumerate(running):
            assert process.stdin is not None
            process.stdin.write(paths(500, 1000 * number).encode())
            process.stdin.close()
            process.stdin = None
        outs = [process.communicate(timeout=60) for process in running]

        assert [process.returncode for process in running] == [0, 0, 0], outs
        assert sum(api.counts.values()) == 1500
        assert api.logins == 4


def test_a_fresh_token_of_which_no_request_succeeds_stops_further_logins(xapi: Xapi) -> None:
    with Api(lives=0) as api:
        api.accepts = lambda authorization: False  # type: ignore[method-assign]  # a server that accepts nothing
        code, lines, _ = batch(xapi, api, input=paths(40))
        assert (code, len(lines), api.logins) == (10, 40, 1)
        again = batch(xapi, api, input=paths(1))
        assert (again[0], api.logins) == (10, 1)


def test_a_401_of_a_post_sends_the_same_body_again(xapi: Xapi) -> None:
    with Api(lives=3) as api:
        code, _, err = batch(
            xapi, api, "-j", "1", input=jsonl(*({"path": f"/{n}", "json": {"n": n}} for n in range(7)))
        )
        bodies = {each.path: each.body for each in api.asked}
        assert (code, api.rejected, api.logins) == (0, 2, 3), err
    assert bodies == {f"/{n}": b'{"n": %d}' % n for n in range(7)}


# retries and redirects


def test_a_passing_failure_is_tried_again_and_only_with_retry(xapi: Xapi) -> None:
    failing: dict[str, int] = {}

    def answer(asked: Asked) -> Reply:
        failing[asked.path] = failing.get(asked.path, 0) + 1
        return Reply(status=503, headers=(("Retry-After", "0"),)) if failing[asked.path] <= 2 else Reply()

    with Api(answer) as api:
        plain = batch(xapi, api, input=jsonl({"path": "/a"}))
        tried = batch(xapi, api, "--retry", "2", input=jsonl({"path": "/b"}, {"path": "/c", "method": "POST"}))

    assert (plain[0], tried[0]) == (5, 5)
    assert sorted((each["line"], each["status"]) for each in tried[1]) == [(1, 200), (2, 503)]
    assert tried[2].count("trying again") == 2


def test_redirects_are_followed_as_request_does(xapi: Xapi) -> None:
    with Api(open_to_all=True) as elsewhere:
        targets = {"/a": "/end", "/loop": "/loop", "/away": f"{elsewhere.url}/there", "/body": f"{elsewhere.url}/no"}

        def answer(asked: Asked) -> Reply:
            target = targets.get(asked.path)
            return Reply(status=307, headers=(("Location", target),)) if target else Reply()

        with Api(answer) as api:
            lines = [
                {"path": "/a"},
                {"path": "/loop"},
                {"path": "/away", "headers": {"X-Mine": "1"}},
                {"path": "/body", "json": 1},
            ]
            code, out, err = batch(xapi, api, "--ordered", input=jsonl(*lines))

    assert (code, [each["status"] for each in out]) == (0, [200, 307, 200, 307])
    assert [each.path for each in elsewhere.asked] == ["/there"]
    assert not {"authorization", "x-mine"} & set(elsewhere.asked[0].headers)
    assert "307: 2" in err


# order, stopping


def test_ordered_keeps_the_order_of_the_input(xapi: Xapi) -> None:
    def answer(asked: Asked) -> Reply:
        time.sleep(random.random() / 50)
        return Reply()

    with Api(answer) as api:
        code, lines, _ = batch(xapi, api, "--ordered", "-j", "16", input="\n" + paths(300) + "bad\n")

    assert (code, [each["line"] for each in lines]) == (2, list(range(2, 303)))


def test_ordered_output_waits_in_bounded_memory_for_a_slow_first_line(xapi: Xapi) -> None:
    sent = []

    def answer(asked: Asked) -> Reply:
        if asked.path == "/n/0":
            time.sleep(3)
            sent.append(len(api.asked))
        return Reply(b"x" * 1_000_000, headers=TEXT)

    with Api(answer) as api:
        code, peak, lines = measured(xapi, 300, "--ordered", "-j", "8", env=api.settings)

    assert (code, lines) == (0, 300)
    assert sent[0] < 60
    assert peak < 120


def test_fail_fast_stops_sending_at_the_first_line_that_fails(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(status=404 if asked.path == "/n/5" else 200)) as api:
        code, lines, err = batch(xapi, api, "--fail-fast", "-j", "2", input=paths(1000))
        assert (code, 6 <= len(api.asked) <= 8, len(lines)) == (4, True, len(api.asked))
    assert "--fail-fast" in err


def test_a_line_is_seen_at_once_and_lines_that_come_slowly_are_sent_at_once(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(paths(1, number).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_closed_reader_ends_it_quietly(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(paths(2000).encode())
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 141
        assert "error" not in process.stderr.read().decode()
        assert len(api.asked) < 2000


def test_a_slow_reader_of_stdout_slows_the_sending(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(b"x" * 10_000, headers=TEXT)) as api:
        process = xapi.start("batch", "-j", "4", stdin=subprocess.PIPE, env={**api.settings, "XAPI_TIMEOUT": "1"})
        assert process.stdin is not None
        process.stdin.write(paths(600).encode())
        process.stdin.close()
        process.stdin = None
        time.sleep(2.5)  # longer than the timeout, which must not count
        sent = len(api.asked)
        out, err = process.communicate(timeout=30)

        assert sent < 40
        assert (process.returncode, len(out.splitlines())) == (0, 600), err


def test_max_time_bounds_the_batch(xapi: Xapi) -> None:
    with Api(slowly(0.2)) as api:
        code, lines, err = batch(xapi, api, "-j", "1", "--max-time", "2", input=paths(100))

    assert code == 12
    assert 3 <= len(lines) < 12
    assert "--max-time" in err


# the journal


def test_a_journal_prints_answers_again_without_sending_them_and_sends_the_rest(xapi: Xapi, tmp_path: Path) -> None:
    broken = {"/n/3"}
    with Api(lambda asked: None if asked.path in broken else Reply(status=404 if asked.path == "/n/1" else 200)) as api:
        words = ("--ordered", "--journal", str(tmp_path / "j"))
        first = batch(xapi, api, *words, input=paths(6) + "bad\n")
        broken.clear()
        api.counts.clear()
        second = batch(xapi, api, *words, input=paths(6) + "bad\n")
        api.counts.clear()
        third = batch(xapi, api, *words, input=paths(6) + "bad\n")
        assert not api.counts
        mode = (tmp_path / "j").stat().st_mode & 0o777

    assert (first[0], second[0], third[0], mode) == (11, 4, 4, 0o600)
    assert first[1][3]["error"]["kind"] == "network"
    assert second[1][3]["status"] == 200
    assert [line for line in second[1] if line["line"] != 4] == [line for line in first[1] if line["line"] != 4]
    assert third[1] == second[1]


def test_only_what_was_not_answered_is_sent_again(xapi: Xapi, tmp_path: Path) -> None:
    broken = {"/n/3"}
    with Api(lambda asked: None if asked.path in broken else Reply()) as api:
        batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(6))
        broken.clear()
        api.asked.clear()
        batch(xapi, api, "--journal", str(tmp_path / "j"), input=paths(6))
        assert [each.path for each in api.asked] == ["/n/3"]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_changed_input_is_refused_before_anything_is_sent(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    def run(text: str) -> tuple[int, list[dict[str, Any]], str]:
        if kind == "pipe":
            return batch(xapi, api, "--journal", str(tmp_path / "j"), input=text)
        (tmp_path / "in").write_text(text)
        return batch(xapi, api, "--journal", str(tmp_path / "j"), str(tmp_path / "in"))

    with Api() as api:
        assert run(paths(5))[0] == 0
        api.asked.clear()
        changed = run(paths(5, 1))
        longer = run(paths(6)) if kind == "file" else (2, [], "has changed")
        shorter = run(paths(4))
        same = run(paths(5))
        assert not api.asked

    assert (changed[0], longer[0], shorter[0], same[0]) == (2, 2, 2, 0)
    assert "has changed" in changed[2]
    assert "has changed" in longer[2]


def test_another_account_another_writer_or_no_journal_is_refused(xapi: Xapi, tmp_path: Path) -> None:
    journal, other = str(tmp_path / "j"), tmp_path / "other"
    other.write_text("important\n")
    with Api(slowly(0.5)) as api:
        assert batch(xapi, api, "--journal", journal, input=paths(1))[0] == 0
        account = batch(xapi, api, "--journal", journal, input=paths(1), env={"XAPI_USERNAME": "you@example.com"})
        no_journal = batch(xapi, api, "--journal", str(other), input=paths(1))
        folder = batch(xapi, api, "--journal", str(tmp_path / "no" / "j"), input=paths(1))
        writing = xapi.start("batch", "--journal", str(tmp_path / "k"), stdin=subprocess.PIPE, env=api.settings)
        while not (tmp_path / "k").exists() or not (tmp_path / "k").read_bytes():
            time.sleep(0.01)
        second = batch(xapi, api, "--journal", str(tmp_path / "k"), input=paths(1))
        writing.communicate(timeout=10)

    assert (account[0], no_journal[0], folder[0], second[0]) == (2, 2, 14, 2)
    assert "another account" in account[2]
    assert "no journal" in no_journal[2]
    assert "another xapi is writing" in second[2]
    assert other.read_text() == "important\n"


def test_a_torn_last_line_of_the_journal_is_sent_again(xapi: Xapi, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with Api() as api:
        batch(xapi, api, "-j", "1", "--journal", str(journal), input=paths(5))
        whole = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(whole[:5]) + whole[5][:-20])
        api.asked.clear()
        code, lines, _ = batch(xapi, api, "--journal", str(journal), input=paths(5))

        assert (code, len(lines), [each.path for each in api.asked]) == (0, 5, ["/n/4"])


def test_killed_at_random_moments_and_resumed_every_line_is_answered_and_none_twice(xapi: Xapi, tmp_path: Path) -> None:
    count, rng = 2000, random.Random(5)
    (tmp_path / "in").write_text(paths(count))
    printed: set[int] = set()
    with Api(slowly(0.002)) as api:
        words = ("batch", "-j", "8", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        for _ in range(20):
            out = tmp_path / "out"
            before = dict(api.counts)
            with out.open("wb") as file:
                enough = len(api.asked) + rng.randint(1, 120)
                process = xapi.start(*words, stdout=file, env=api.settings)
                while len(api.asked) < enough and process.poll() is None:
                    time.sleep(0.001)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            assert not {path for path in before if int(path[3:]) in printed and api.counts[path] > before[path]}
            printed |= {line["id"] for line in out_lines("\n".join(out.read_text().split("\n")[:-1]))}
        last = xapi(*words, env=api.settings)

    assert last.code == 0, last.err
    assert sorted(line["id"] for line in out_lines(last.out)) == list(range(count))
    assert printed  # the killed runs had got somewhere


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_what_is_in_flight_and_says_how_to_resume(
    xapi: Xapi, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "in").write_text(paths(100))
    with Api(slowly(0.4)) as api:
        words = ("batch", "-j", "4", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        process = xapi.start(*words, env=api.settings)
        while len(api.asked) < 6:
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        sent = len(api.asked)
        rest = xapi(*words, env=api.settings, timeout=60)

        assert process.returncode == code
        assert len(out_lines(out.decode())) == sent == 8
        assert b"4 requests under way are finished" in err
        assert b"run the same command again" in err
        assert (rest.code, len(out_lines(rest.out)), len(api.asked)) == (0, 100, 100)


def test_a_second_signal_ends_it_at_once(xapi: Xapi) -> None:
    with Api(slowly(5)) as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        process.stdin.write(paths(10).encode())
        process.stdin.flush()
        while len(api.asked) < 10:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(3) == 130


# memory, people, start-up


def _memory(xapi: Xapi, tmp_path: Path, count: int, timeout: float) -> None:
    words = ("-j", "32", "--ordered", "--journal", str(tmp_path / "j"))
    with Server([answer_all]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        first, again = (measured(xapi, count, *words, env=env, timeout=timeout) for _ in range(2))

    assert (first[0], first[2], again[0], again[2]) == (0, count, 0, count)
    assert max(first[1], again[1]) < 120


@pytest.mark.slow
def test_50_000_lines_with_order_and_journal_need_less_than_120_mib(xapi: Xapi, tmp_path: Path) -> None:
    _memory(xapi, tmp_path, 50_000, 60)


@pytest.mark.soak
def test_a_million_lines_with_order_and_journal_need_less_than_120_mib(xapi: Xapi, tmp_path: Path) -> None:
    _memory(xapi, tmp_path, 1_000_000, 1800)


def test_large_bodies_in_flight_share_one_budget(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(b"x" * (9 * 2**20), headers=TEXT)) as api:
        code, peak, lines = measured(xapi, 40, "-j", "32", env=api.settings)

    assert (code, lines) == (0, 40)
    assert peak < 160


def test_a_terminal_shows_how_far_it_is(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(60))
    words = ("batch", "-j", "2", str(tmp_path / "in"))
    with (
        Api(slowly(0.05)) as api,
        (tmp_path / "out").open("wb") as out,
        xapi.on_terminal(*words, stdout=out, env=api.settings) as terminal,
    ):
        terminal.expect("lines, ")
        terminal.expect(" left")
        terminal.expect("60 lines in")
        assert terminal.wait() == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 60


def test_what_arrives_through_a_proxy_and_over_tls_is_the_same(xapi: Xapi, tmp_path: Path) -> None:
    import ssl

    import trustme

    from tests.servers import forward

    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(bundle))
    with Server([serve()], tls=context) as server, Server([forward()]) as proxy:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        untrusted = xapi("batch", input=paths(2), env=env)
        trusted = xapi("batch", "--ca-bundle", str(bundle), input=paths(50), env=env)
        proxied = xapi("batch", "--ca-bundle", str(bundle), input=paths(50), env={**env, "HTTPS_PROXY": proxy.url})
        tunnelled = proxy.received

    assert (untrusted.code, trusted.code, proxied.code) == (11, 0, 0), proxied
    assert "unknown CA" in untrusted.out
    assert all(each.startswith(b"CONNECT ") and b"Bearer" not in each for each in tunnelled if each)


def test_a_plain_proxy_is_given_the_whole_url(xapi: Xapi) -> None:
    with Server([serve()]) as proxy:
        outcome = xapi(
            "batch",
            input=paths(1),
            env={
                "XAPI_BASE_URL": "http://api.test",
                "XAPI_TOKEN": "t",
                "HTTP_PROXY": proxy.url.replace("//", "//u:p@"),
            },
        )

    assert outcome.code == 0, outcome
    assert proxy.received[0].startswith(b"GET http://api.test/n/0 HTTP/1.1\r\nHost: api.test\r\n")
    assert b"Proxy-Authorization: Basic dTpw" in proxy.received[0]


def test_no_secret_is_shown_or_kept(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lives=10) as api:
        outcome = xapi("batch", "--journal", str(tmp_path / "j"), input=paths(50), env=api.settings)

    for text in (outcome.out, outcome.err, (tmp_path / "j").read_text()):
        assert "token-" not in text
        assert "canary" not in text
