"""`xapi batch`: input lines, order, streams and terminals."""

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths, slowly
from tests.support.program import Xapi

TEXT = (("Content-Type", "text/plain; charset=iso-8859-1"),)


def test_every_key_of_a_line_is_sent(xapi: Xapi) -> None:
    line = '{"id": {"a": [1.10, 1e400]}, "method": "put", "path": "/x?a=b", "query": {"q": ["ä b", 7], "t": true}, '
    line += '"headers": {"X-Run": "é", "Accept": null}, '
    line += '"json": {"n": 1.10, "big": 12345678901234567890123, "u": "\\u00e4"}}\n'
    with Api() as api:
        code, _, err = batch(xapi, api, input=line)
        [received] = api.requests

    assert code == 0, err
    assert (received.method, received.path) == ("PUT", "/x?a=b&q=%C3%A4%20b&q=7&t=true")
    assert received.body == b'{"n": 1.10, "big": 12345678901234567890123, "u": "\\u00e4"}'
    assert received.headers["content-type"] == "application/json"
    assert received.headers["x-run"].encode("latin-1").decode() == "é"
    assert "accept" not in received.headers
    assert received.headers["authorization"] == "Bearer token-1"


def test_an_id_is_printed_as_it_was_written(xapi: Xapi) -> None:
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
        seen = [(each.method, each.path, each.body, each.headers.get("content-type")) for each in api.requests]

    assert code == 0, err
    assert seen == [
        ("POST", "/a", "ä\n".encode(), "application/json"),
        ("POST", "/b", b"x", "text/x"),
        ("GET", "/c", b"", None),
    ]


BAD = [
    ("nonsense", "not a JSON object"),
    ("[1]", "not a JSON object"),
    ('{"path": "/", }', "expected a quoted name"),
    ('{"path": "/"', "it is truncated after 12 characters"),
    ('{"path": "/', "it is truncated after 11 characters"),
    ('{"path": "/"} x', "has data after its object"),
    ('{"path": NaN}', "NaN and Infinity"),
    ("{}", '"path" is missing'),
    ('{"path": 5}', '"path" is not a string'),
    ('{"path": ""}', "PATH is empty"),
    ('{"path": "https://elsewhere.test/"}', "has the origin"),
    ('{"path": "/", "path": "/"}', "twice"),
    ('{"path": "/", "pth": 1}', "unknown field 'pth'"),
    ('{"path": "/", "json": 1, "data": "x"}', '"json" and "data" cannot'),
    ('{"path": "/", "data": 1}', '"data" is not a string'),
    ('{"path": "/", "data": "\\ud800"}', "surrogate"),
    ('{"path": "/", "method": "TRACE"}', "TRACE"),
    ('{"path": "/", "query": []}', '"query" is not an object'),
    ('{"path": "/", "query": {"a": null}}', "'a'"),
    ('{"path": "/", "headers": {"X": 1.5e3, "Y": {}}}', "'Y'"),
    ('{"path": "/", "headers": {"X": "a\\nb"}}', "control character"),
    ('{"path": "/", "headers": {"Content-Length": "1"}}', "set by xapi"),
    ('{"path": "/", "json": ' + "[" * 100_001 + "]" * 100_001 + "}", "more than 100,000 levels"),
    ('{"path": "/", "id": ' + "[" * 100_000 + "]" * 100_000 + "}", '"id" is nested too deeply'),
    ('{"path": "/", "json": ' + "[" * 100_000 + "}", "expected a value or ] at character 100001"),
]


def test_an_invalid_line_is_reported_by_number_and_does_not_stop_the_rest(xapi: Xapi) -> None:
    count = len(BAD)
    given = ['{"path":"/1"}', "", *(line for line, _ in BAD), '{"id":"last","path":"/2"}']
    with Api() as api:
        code, (first, *invalid, last), err = batch(xapi, api, "--ordered", input="\n".join(given))

    assert code == 2
    assert [each["line"] for each in (first, *invalid, last)] == [1, *range(3, count + 4)]
    assert {each["error"]["kind"] for each in invalid} == {"input"}
    messages = [each["error"]["message"] for each in invalid]
    assert [(args, text) for (_, args), text in zip(BAD, messages, strict=True) if args not in text] == []
    assert [first["status"], last["status"], last["id"]] == [200, 200, "last"]
    assert f"{count + 2} lines" in err
    assert f"{count} × input" in err


def test_a_line_that_is_not_utf8_or_is_too_long_is_invalid(xapi: Xapi) -> None:
    data = b'{"path":"/\xff"}\n{"path":"/2", "data":"' + b"x" * (17 * 2**20) + b'"}\r\n\xef\xbb\xbf\n{"path":"/4"}\n'
    with Api() as api:
        code, lines, _ = batch(xapi, api, "--ordered", input=data)

    assert code == 2
    messages = [(each["line"], each.get("error", {}).get("message", "")[:24]) for each in lines]
    assert messages == [
        (1, "the line is not valid UT"),
        (2, "the line has more than 1"),
        (3, "the line is not a JSON o"),
        (4, ""),
    ]


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input=b'\xef\xbb\xbf{"path":"/1"}\r\n\r\n{"path":"/3"}\r\n')

    assert (code, sorted(each["line"] for each in lines)) == (0, [1, 3]), err


def test_an_empty_input_succeeds_without_a_login(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input="\n")
        assert (code, lines, api.logins) == (0, [], 0), err


def test_lines_can_be_read_from_a_file_and_an_unreadable_file_is_a_usage_error(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(3))
    with Api() as api:
        assert len(batch(xapi, api, str(tmp_path / "in"))[1]) == 3
        assert len(batch(xapi, api, "-", input=paths(2))[1]) == 2
        missing = batch(xapi, api, str(tmp_path / "missing"))
        directory = batch(xapi, api, str(tmp_path))

    assert (missing[0], directory[0]) == (2, 2)
    assert "No such file" in missing[2]
    assert "cannot be read" in directory[2]


def test_ordered_keeps_the_order_of_the_input(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        time.sleep(random.random() / 50)
        return Reply()

    with Api(response) as api:
        code, lines, _ = batch(xapi, api, "--ordered", "-j", "16", input="\n" + paths(300) + "bad\n")

    assert (code, [each["line"] for each in lines]) == (2, list(range(2, 303)))


def test_fail_fast_stops_sending_after_the_first_failed_line(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=404 if received.path == "/n/5" else 200)) as api:
        code, lines, err = batch(xapi, api, "--fail-fast", "-j", "2", input=paths(1000))
        # The other connection goes on until the 404 has been read, which takes long on a busy machine.
        assert (code, 6 <= len(api.requests) < 500, len(lines)) == (4, True, len(api.requests))
    assert "--fail-fast" in err


def test_each_line_is_sent_and_printed_immediately(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(paths(1, number).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_slow_reader_of_stdout_slows_down_the_requests(xapi: Xapi) -> None:
    with Api(lambda received: Reply(b"x" * 10_000, headers=TEXT)) as api:
        process = xapi.start("batch", "-j", "4", stdin=subprocess.PIPE, env={**api.settings, "XAPI_TIMEOUT": "2"})
        assert process.stdin is not None
        process.stdin.write(paths(600).encode())
        process.stdin.close()
        process.stdin = None
        time.sleep(4)  # longer than the timeout, which must not count
        sent = len(api.requests)
        out, err = process.communicate(timeout=30)

        assert sent < 40
        assert (process.returncode, len(out.splitlines())) == (0, 600), err


def test_a_non_blocking_stdin_without_data_is_not_the_end_of_the_input(xapi: Xapi) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with Api() as api, open(writer, "wb") as pipe:
        process = xapi.start("batch", stdin=reader, env=api.settings)
        os.close(reader)
        for number in range(3):
            pipe.write(paths(1, number).encode())
            pipe.flush()
            while len(api.requests) <= number:
                time.sleep(0.01)
        pipe.close()
        out, _ = process.communicate(timeout=30)

    assert (process.returncode, len(out_lines(out.decode()))) == (0, 3)


def test_a_terminal_shows_the_progress(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(60))
    args = ("batch", "-j", "2", str(tmp_path / "in"))
    with (
        Api(slowly(0.05)) as api,
        (tmp_path / "out").open("wb") as out,
        xapi.on_terminal(*args, stdout=out, env=api.settings) as terminal,
    ):
        terminal.expect("lines, ")
        terminal.expect(" left")
        terminal.expect("60 lines in")
        assert terminal.wait() == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 60


def test_lines_typed_on_a_terminal_are_processed_one_by_one_without_a_progress_bar(xapi: Xapi) -> None:
    with Api() as api, xapi.on_terminal("batch", columns=300, env=api.settings) as terminal:
        terminal.expect("reading lines from the terminal; press Ctrl-D to end the input")
        terminal.type('{"path":"/typed"}\n')
        terminal.expect("1  200 ")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert b"lines, " not in terminal.seen


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_dumb_terminal_gets_no_progress_bar(xapi: Xapi, term: str) -> None:
    with (
        Api(slowly(0.1)) as api,
        xapi.on_terminal(
            "batch", "-j", "1", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=api.settings | {"TERM": term}
        ) as terminal,
    ):
        assert terminal.process.stdin is not None
        terminal.process.stdin.write(paths(20).encode())
        terminal.process.stdin.close()
        assert terminal.wait() == 0
        assert (b"\x1b[K" in terminal.seen) == (term == "xterm")


def test_other_commands_do_not_import_the_batch_package(xapi: Xapi) -> None:
    with Api(open_to_all=True) as api:
        env = api.settings | {"XAPI_TOKEN": "t", "PYTHONPROFILEIMPORTTIME": "1"}
        request = xapi("request", "/", env=env)
        own = xapi("batch", input=paths(1), env=env)

    assert re.findall(r"xapi_cli\.(?:batch|library)\S*", request.err) == []
    assert "xapi_cli.features.batch.engine" in own.err
    assert re.findall(r"\| +(asyncio|anyio|rich|keyring|logging)$", own.err, re.MULTILINE) == []
