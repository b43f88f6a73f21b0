"""What `xapi batch` prints on a terminal: one line for each call."""

import re
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, jsonl
from tests.support.program import Xapi
from tests.support.servers import free_port

LINES = jsonl(
    {"path": "/a", "headers": {"X-Secret": "hunter2"}},
    {"path": "/missing", "method": "delete"},
    {"path": "/moved", "json": 1},
    {"no path": 1},
)


HEADER = ["LINE", "STATUS", "METHOD", "PATH", "TIME"]


def _reply(received: ReceivedRequest) -> Reply:
    status = {"/missing": 404, "/moved": 304}.get(received.path, 200)
    return Reply(b"" if status == 304 else b'{"t": "\xc2\x9b"}', status=status)


def _times_removed(text: str) -> list[str]:
    return re.sub(r" +\d+ ms\b", " N ms", text).splitlines()


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "in.jsonl").write_text(LINES)
    return str(tmp_path / "in.jsonl")


def test_each_call_is_one_line_without_headers_and_body(xapi: Xapi, file: str) -> None:
    with Api(_reply) as api, xapi.on_terminal("batch", "--ordered", file, env=api.settings, columns=120) as terminal:
        assert terminal.wait() == 4

    shown = [
        line for line in _times_removed(re.sub(r"\r[^\n]*\x1b\[K", "", terminal.text)) if line[:5].strip().isdigit()
    ]
    assert shown == [
        "    1  200      GET     /a N ms",
        "    2  404      DELETE  /missing N ms",
        "    3  304      POST    /moved N ms",
        (
            "    4  input    -       -  unknown field 'no path'; "
            "known fields: id, method, path, query, headers, json, data"
        ),
    ]
    for color, status in (("32", "200"), ("31", "404"), ("33", "304"), ("31", "input")):
        assert f"\x1b[{color}m{status:<7}\x1b[0m".encode() in terminal.seen
    assert b"hunter2" not in terminal.seen


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_path_is_shortened_and_a_long_error_is_wrapped(xapi: Xapi, tmp_path: Path, columns: int) -> None:
    (tmp_path / "in").write_text(jsonl({"path": "/" + "x" * 100 + "?end"}, {"path": "/\u6f22" + "x" * 100}))
    (tmp_path / "bad").write_text('{"path": "/", "methods": "GET"}\n')
    with Api() as api, xapi.on_terminal("batch", str(tmp_path / "in"), env=api.settings, columns=columns) as terminal:
        assert terminal.wait() == 0
    lines = [line for line in terminal.text.splitlines() if "  200  " in line]
    assert len(lines) == 2
    assert {len(line.rpartition("\x1b[K")[2]) for line in lines} == {columns}
    assert all("…" in line for line in lines)

    with Api() as api, xapi.on_terminal("batch", str(tmp_path / "bad"), env=api.settings, columns=columns) as terminal:
        assert terminal.wait() == 2
    header, *lines = terminal.text.partition("xapi: ")[0].rpartition("\x1b[K")[2].splitlines()
    assert (header.split(), len(header)) == (HEADER, columns)
    assert len(lines) > 1
    assert [line for line in lines if len(line) > columns] == []
    assert all(line.startswith(" " * 16) for line in lines[1:])


def test_a_result_from_a_journal_is_shown_without_a_time(xapi: Xapi, tmp_path: Path, file: str) -> None:
    args = ("batch", "--ordered", "--journal", str(tmp_path / "journal"), file)
    with Api(_reply) as api:
        xapi(*args, env=api.settings)
        sent = len(api.requests)
        with xapi.on_terminal(*args, env=api.settings, columns=120) as terminal:
            assert terminal.wait() == 4
        assert len(api.requests) == sent

    assert re.search(r"    1  200      GET     /a +journal\r\n", terminal.text)


def test_a_failed_connection_is_an_error_on_the_line_of_the_call(xapi: Xapi, file: str) -> None:
    port = free_port()
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{port}", "XAPI_TOKEN": "abc"}
    with xapi.on_terminal("batch", "--ordered", file, env=env, columns=300) as terminal:
        assert terminal.wait() == 11

    assert f"    1  network  GET     /a  no connection to 127.0.0.1:{port}: connection refused" in terminal.text


def test_an_error_of_several_lines_is_shown_once(xapi: Xapi, file: str) -> None:
    env = {"XAPI_BASE_URL": "http://api.test", "XAPI_USERNAME": "me", "XAPI_NO_INPUT": "1"}
    with xapi.on_terminal("batch", "--ordered", file, env=env, columns=300) as terminal:
        assert terminal.wait() == 10

    *table, summary = re.sub(r"\r[^\n]*\x1b\[K", "", terminal.text).splitlines()[1:]
    assert [line.split("  ")[-1].partition(":")[0].strip() for line in table] == [
        "not logged in as me at http",
        "same as line 1",
        "same as line 1",
        "unknown field 'no path'; known fields",
    ]
    assert summary.endswith(": 3 × auth, 1 × input; see their lines on stdout")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_failed_expectation_fits_the_column_of_the_status(xapi: Xapi, tmp_path: Path, columns: int) -> None:
    (tmp_path / "in").write_text(jsonl({"path": "/a"}, {"path": "/b"}))
    args = "batch", "--ordered", "--expect", '.p == "/a"', str(tmp_path / "in")
    with (
        Api(lambda received: Reply(f'{{"p": "{received.path}"}}'.encode())) as api,
        xapi.on_terminal(*args, env=api.settings, columns=columns) as terminal,
    ):
        assert terminal.wait() == 6

    text = re.sub(r"\r[^\n]*\x1b\[K", "", terminal.text)  # the progress of a slow batch
    table = [line for line in text.splitlines() if re.match(" +(LINE|[12])  ", line)]
    assert [line.split()[1] for line in table] == ["STATUS", "200", "expectation"]
    starts = [re.search("  (METHOD|GET)  ", line) for line in table]
    assert len({found.start() if found else None for found in starts}) == 1
    assert len(table[0].rstrip()) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_failures_are_repeated_after_a_table_that_does_not_fit_the_screen(
    xapi: Xapi, tmp_path: Path, columns: int
) -> None:
    (tmp_path / "in").write_text(jsonl(*({"path": "/missing" if n in (3, 5) else f"/{n}"} for n in range(1, 41))))
    args = "batch", "--ordered", str(tmp_path / "in")
    with Api(_reply) as api:
        with xapi.on_terminal(*args, env=api.settings, columns=columns, rows=24) as terminal:
            assert terminal.wait() == 4
        with xapi.on_terminal(*args, env=api.settings, columns=columns, rows=50) as tall:
            assert tall.wait() == 4

    text = re.sub(r"\r[^\n]*\x1b\[K", "", terminal.text)
    table, _, rest = text.partition("\r\nfailed lines:\r\n")
    assert [line.split() for line in table.splitlines() if "LINE" in line] == [HEADER]
    assert [line.split()[:4] for line in rest.splitlines()[:2]] == [[n, "404", "GET", "/missing"] for n in ("3", "5")]
    assert rest.splitlines()[2].startswith("xapi: error: 2 of 40 lines failed")
    assert "failed lines:" not in tall.text


def test_only_the_first_failures_are_repeated(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(jsonl(*({"path": "/missing"} for _ in range(1300))))
    args = "batch", "--ordered", str(tmp_path / "in")
    with Api(_reply) as api, xapi.on_terminal(*args, env=api.settings, columns=120, rows=24) as terminal:
        assert terminal.wait() == 4

    rest = terminal.text.partition("\r\nthe first 10 of 1,300 failed lines:\r\n")[2]
    assert [line.split()[0] for line in rest.splitlines()[:11]] == [*map(str, range(1, 11)), "xapi:"]


def test_an_empty_batch_has_no_table(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n")
    with Api(_reply) as api, xapi.on_terminal("batch", str(tmp_path / "in"), env=api.settings) as terminal:
        assert terminal.wait() == 0

    assert "LINE" not in terminal.text


def test_ctrl_c_between_two_requests_mentions_none_in_flight(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(jsonl({"path": "/a"}, {"path": "/b"}))
    args = "batch", "--rate", "1/m", str(tmp_path / "in")
    with Api(_reply) as api, xapi.on_terminal(*args, env=api.settings, columns=300) as terminal:
        terminal.expect("1  200  ")
        terminal.interrupt()
        terminal.expect("xapi: interrupted\r\n")
        assert terminal.wait() == 130

    assert "in flight" not in terminal.text
    assert "xapi: stopped early: 1 line in " in terminal.text
