"""`xapi each`: one request for each row, from the rows to the file."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send, wait_for
from xapi_cli.errors import UsageError
from xapi_cli.features.each.rows import rows
from xapi_cli.features.sandbox import Sandbox

DETAILS = ("--list", "/x-api/projects", "/x-api/projects/{id}")
NAMES = ["Winter Cup", "Spring Open", "Autumn League"]


@pytest.fixture
def forgetful() -> Iterator[Sandbox]:
    """A sandbox in which each token becomes invalid after two requests."""
    with Sandbox(forget_after=2) as server:
        yield server


def rows_of(outcome: Outcome) -> list[Any]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_list_becomes_a_table_although_the_token_is_invalidated_half_way(
    xapi: Xapi, forgetful: Sandbox, tmp_path: Path
) -> None:
    file = tmp_path / "projects.csv"
    args = ("--csv", "--fields", "id,name,owner.email", "-o", str(file), "-j", "1")
    outcome = xapi("each", *DETAILS, *args, env=forgetful.settings)

    assert (outcome.code, outcome.out) == (0, "")
    assert file.read_text().splitlines() == [
        "id,name,owner.email",
        *(f"{number},{name},master@example.com" for number, name in enumerate(NAMES, 1)),
    ]
    assert forgetful.logins == 2


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/x-api/projects/{id}", '[{"id": 1}, {"id": 2}, {"id": 3}]'),
        ("/x-api/projects/{id}", '{"id": 1}\n{"id": 2}{\n"id": 3}'),
        ("/x-api/projects/{id}", "\ufeffid;x\r\n1;a\r\n2;b\r\n\r\n3;c\r\n"),
        ("/x-api/projects/{id}", "id\tx\n1\ta,b;\n2\t\n3\t\n"),
        ("/x-api/projects/{id.of}", '[{"id.of": 1}, {"id": {"of": 2}}, {"id": {"of": "3"}}]'),
        ("/x-api/projects/{}", "1\n2\n3"),
        ("/x-api/projects/{}", '"1"\n"2"\n"3"\n'),
        ("{link}", json.dumps([{"link": f"/x-api/projects/{number}"} for number in (1, 2, 3)])),
    ],
)
def test_rows_come_in_each_format(xapi: Xapi, sandbox: Sandbox, path: str, data: str) -> None:
    for text in (data.encode(), data.removeprefix("\ufeff").encode("utf-16")):
        outcome = xapi("each", path, input=text, env=sandbox.settings)

        assert (outcome.code, [row["name"] for row in rows_of(outcome)]) == (0, NAMES), outcome


def test_a_byte_order_mark_may_arrive_in_parts() -> None:
    for codec in ("utf-16-le", "utf-16-be"):
        data = "\ufeff[1]".encode(codec)
        assert [row.value for row in rows([data[:1], data[1:]])] == ["1"]


def test_a_cell_has_at_most_10_mib() -> None:
    table = (b"a\n", b"x" * 200_000)
    assert [row.value for row in rows(table, needed=["a"])] == [{"a": "x" * 200_000}]
    with pytest.raises(UsageError, match="more than 10 MiB"):
        list(rows(table[1:] * 60))


def test_a_post_for_each_row_of_a_sheet_is_shown_first_then_sent_and_what_failed_is_sent_again(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    sheet, rest = tmp_path / "fields.csv", tmp_path / "rest.jsonl"
    sheet.write_text('id,name,teams\n1,"Cup, the ""first""",["a"]\n9,x,[]\n2,1.10,TRUE\n')
    args = ("each", "--from", str(sheet), "POST", "/x-api/projects/{id}", "name={name}", "teams:={teams}")

    shown = xapi(*args, "--dry-run", "--failed", str(sheet), env=sandbox.settings)
    assert sandbox.requests == 0
    sent = xapi(*args, "--failed", str(rest), env=sandbox.settings)
    again = xapi("batch", str(rest), env=sandbox.settings)
    wrong = xapi("each", "--from", str(sheet), "DELETE", "/d/{no}", "--failed", str(sheet), env=sandbox.settings)

    bodies = [{"name": 'Cup, the "first"', "teams": ["a"]}, {"name": "x", "teams": []}, {"name": "1.10", "teams": True}]
    assert [line["json"] for line in rows_of(shown)] == bodies
    assert (sent.code, [row["name"] for row in rows_of(sent)]) == (4, ['Cup, the "first"', "1.10"])
    assert (wrong.code, sheet.exists()) == (2, True)  # it is to be corrected
    assert "row 2 (line 3): POST " in sent.err
    assert f"run `xapi batch -j 1 {rest}` to send" in sent.err
    assert "responded with 404: there is no such project" in sent.err
    assert [line["path"] for line in map(json.loads, rest.read_text().splitlines())] == ["/x-api/projects/9"]
    assert rest.stat().st_mode & 0o777 == 0o600
    assert (again.code, rows_of(again)[0]["status"]) == (4, 404)


def test_the_hint_to_send_what_failed_again_has_the_profile(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    rest = tmp_path / "rest.jsonl"
    xapi("login", "-p", "work", env=sandbox.settings)
    args = ("each", "/x-api/projects/{}", "-p", "work", "--failed", str(rest))
    outcome = xapi(*args, input="9\n", env=sandbox.settings)

    assert outcome.err.endswith(f"1 of 1 row failed; run `xapi batch {rest} --profile work` to send them again\n")


def test_only_what_has_changed_since_the_last_run_is_fetched(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    last, file = tmp_path / "last-run", tmp_path / "changed.csv"
    args = ("each", "--list", "/x-api/projects", "--since", f"modifiedSince={last}", "{link}", "--csv", "-o", str(file))

    assert xapi(*args[:5], "/x-api/none/{id}", "--partial", *args[6:], env=sandbox.settings).code == 4
    assert xapi(*args, "--dry-run", env=sandbox.settings).code == 0
    assert (last.exists(), file.exists()) == (False, False)
    stateless = xapi(*args, env={**sandbox.settings, "XAPI_STORAGE": "none", "XAPI_STATE_DIR": __file__})
    assert (stateless.code, "continuing without locks" in stateless.err) == (0, True)
    _, subject = last.read_text().splitlines()
    assert len(file.read_text().splitlines()) == 4
    assert subject == f"{sandbox.base_url} /x-api/projects"
    assert xapi(*args, env=sandbox.settings).code == 0
    assert file.read_text() == ""

    other = xapi(*args[:2], "/x-api/other", *args[3:], env=sandbox.settings)
    assert (other.code, "the time of another list" in other.err) == (2, True)
    last.write_text("2026-13-45\n")
    wrong = xapi(*args, env=sandbox.settings)
    assert (wrong.code, "the first line of" in wrong.err, "is not a time" in wrong.err) == (2, True, True)


def test_a_run_that_finds_another_one_at_work_ends_quietly(xapi: Xapi, tmp_path: Path) -> None:
    is_listed = threading.Event()
    empty = b"HTTP/1.1 200 OK\r\nDate: Sat Nov 28 19:00:00 2026\r\nContent-Length: 2\r\n\r\n[]"  # UTC
    with Server([request(), wait_for(is_listed), send(empty)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "TZ": "America/New_York"}
        args = ("each", "--list", "/l", "--since", f"s={tmp_path / 'last'}", "/d/{id}")
        first = xapi.start(*args, env=env)
        while not server.received:
            assert first.poll() is None
        second = xapi(*args, env=env)
        is_listed.set()
        out, err = first.communicate()

    assert (second.code, second.out, f"(process {first.pid})" in second.err) == (0, "", True)
    assert (first.returncode, out, err) == (0, b"", b"")
    assert (tmp_path / "last").read_text().startswith("2026-11-28T18:5")


DATE = b"Date: Sat, 28 Nov 2026 19:00:00 GMT\r\n"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (b"204 No Content\r\n" + DATE + b"\r\n", 0),
        (b'200 OK\r\nContent-Length: 11\r\n\r\n[{"id": 1}]', 6),
        (b"503 Busy\r\nContent-Length: 11\r\n" + DATE + b'\r\n[{"id": 1}]', 5),
        (b"200 OK\r\nContent-Length: 12\r\n" + DATE + b'\r\n[{"id": 1},]', 6),
    ],
)
def test_the_list_is_checked_before_a_row_is_sent_and_the_time_is_that_of_the_server(
    xapi: Xapi, tmp_path: Path, reply: bytes, code: int
) -> None:
    with Server([request(), send(b"HTTP/1.1 " + reply), request()]) as server:
        args = ("each", "--list", "/l", "--since", f"s={tmp_path / 'last'}", "/d/{id}")
        outcome = xapi(*args, env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, [received.count(b"GET ") for received in server.received]) == (code, [1]), outcome.err
    assert server.received[0].startswith(b"GET /l HTTP")  # without the parameter
    assert code or "2026-11-28T18:58" < (tmp_path / "last").read_text() < "2026-11-28T18:59:59"


def test_the_time_stays_if_the_file_cannot_be_replaced(xapi: Xapi, tmp_path: Path) -> None:
    out, last = tmp_path / "out", tmp_path / "last"
    listed = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" + DATE + b"\r\n[1]"
    with Server([request(), send(listed), request(), lambda peer: out.mkdir(), send(listed)]) as server:
        args = ("each", "--list", "/l", "--since", f"s={last}", "/d/{}", "-o", str(out))
        outcome = xapi(*args, env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, last.exists()) == (14, False)


@pytest.mark.parametrize(
    ("args", "data", "code", "message"),
    [
        (("/d/{id}",), "", 2, "the input is empty; the command before the pipe has failed"),
        (("/d/{id}",), "1\n2\n", 2, "has no column id; it has 1"),
        (("/d/{id}",), "id,id\n1,2\n", 2, "has the column id twice"),
        (("/d/{id}",), 'id\n"a\n', 2, "line 2 of the CSV input is not valid"),
        (("/d/{id}",), '\n\nid,x\n1,"a\n\n', 2, "line 4 of the CSV input is not valid"),
        (("/d/{id}", "--items", "items"), "[]", 2, "omit --items"),
        (("/d/{id}",), '[{"id"', 2, "line 1 of the input is not valid: the input ends inside a value"),
        (("/d/{id}",), '{"items": [{"id": 1}]}', 2, "use --items items"),
        (("/d/{id}",), b"id\n\xe9\n", 2, "not valid UTF-8"),
        (("/list", "/d/{id}"), "[]", 2, "--list"),
        (("/d/{id}", "/etc/passwd"), "[]", 2, "--list"),
        (("/d/{{id}}",), "[]", 2, "write {id}"),
        (("/d/{ id }",), "[]", 2, "write {id}"),
        (("/d/{a:b}",), "[]", 2, "write {name}"),
        (("/d/:id",), "[]", 2, "every row would send the same request; write {id}"),
        (("/{}/{id}",), "[]", 2, "cannot be combined"),
        (("",), "[]", 2, "PATH is empty"),
        (("-I{}", "/d/{}"), "", 2, "unknown option -I; write {} or {name} where the value goes"),
        (("-P", "4", "/d/{}"), "", 2, "unknown option -P; use -j N"),
        (("--input", "rows.csv", "/d/{}"), "", 2, "unknown option --input; use --from FILE"),
        (("--since", "2026-01-01", "--list", "/l", "/d/{id}"), "", 2, "--since is not NAME=FILE"),
        (("--since", "s=none/last", "--list", "/l", "/d/{id}"), "", 14, "none/last cannot be written"),
        (("-d", '{"a": 1}', "POST", "/d/{id}"), "[]", 2, "let jq build the body"),
        (("--csv", "--full", "/d/{id}"), "[]", 2, "--csv and --full cannot be combined"),
        (("DELETE", "/x-api/projects/{id}"), "id,x\n,1\n", 2, "row 1 (line 2): the field id is empty"),
        (("DELETE", "/x-api/projects/{id}"), '[{\n"id": ".."}]', 2, "row 1 (line 1): the path has a segment . or .."),
        (("delete", "/d/{id}"), "id\n1,2\n", 2, "row 1 (line 2): the row has more cells than the header"),
        (("DELETE", "/d/{id}"), '[{"id": null}]', 2, "the field id is null"),
        (("DELETE", "/d/{id}"), '[{"id": "a\\nb"}]', 2, "the field id has a line break"),
        (("POST", "/d", "a:={}"), '[{"id": 1}]', 2, "the row is an object"),
        (("DELETE", "/d", "X-Id:{id}"), '[{"id": ""}]', 2, "the field id is empty"),
        (("DELETE", "--read-only", "--list", "/x-api/me", "/d/{id}"), "", 2, "add --write"),
        (("PUT", "/d/{id}", "a@/etc/passwd"), "[]", 2, "uploads no files"),
        (("PUT", "-X", "POST", "/d/{id}"), "[]", 2, "-X is POST"),
        (("PUT", "/d/{id}", "a=1", "-d", "{}"), "[]", 2, "-d cannot be combined with fields"),
        (("POST", "/d", "a:={a}"), "a,b\nx,1\n", 2, "the field a is not valid JSON"),
        (("POST", "/d", "a={a}"), '[{"a": [1]}]', 2, "the field a is an array"),
        (("{link}",), '[{"link": "http://127.0.0.1:1/x"}]', 2, "the link leads to another origin"),
        (("{link}",), '[{"link": "//evil.test/x"}]', 2, "the link is neither a path"),
        (("/x-api/projects/{id}", "--csv", "--fields", "id,Name"), '[{"id": 1}]', 6, "no row has the field Name"),
        (("--list", "/x-api/me", "/d/{id}"), "", 6, "the list is not a JSON array; use --items FIELD"),
    ],
)
def test_what_cannot_be_sent_is_named(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...], data: str | bytes, code: int, message: str
) -> None:
    outcome = xapi("each", *args, input=data, env=sandbox.settings)

    assert (outcome.code, message in outcome.err) == (code, True), outcome.err
    assert code == 6 or sandbox.requests == 0


@pytest.mark.parametrize(
    ("args", "out"), [((), ""), (("--items", "items"), ""), (("--csv", "--fields", "id,name"), "id,name\n")]
)
def test_a_list_without_content_has_no_rows_and_a_device_stays(
    xapi: Xapi, tmp_path: Path, args: tuple[str, ...], out: str
) -> None:
    (tmp_path / "device").symlink_to("/dev/null")
    with Server([request(), send(b"HTTP/1.1 204 No Content\r\n\r\n")]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("each", "--list", "/l", *args, "/d/{id}", "--failed", str(tmp_path / "device"), env=env)

    assert (outcome, (tmp_path / "device").exists()) == (Outcome(0, out), True)


def test_a_failed_row_leaves_the_file_unless_partial_is_given(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("before")
    args = ("each", "/x-api/projects/{}", "-o", str(file))

    for more in ((), ("--partial", "--fail-fast")):
        assert xapi(*args, *more, input="1\n9\n", env=sandbox.settings).code == 4
        assert file.read_text() == "before"
    rest = tmp_path / "rest"
    rest.touch(mode=0o644)
    partial = xapi(*args, "--partial", "--failed", str(rest), input="1\n..\n" + "9\n" * 25, env=sandbox.settings)
    assert (partial.code, partial.err.count(" (line "), partial.err.count("\n")) == (4, 20, 21)  # the last line counts
    assert "to send them again, without 1 row that cannot be sent" in partial.err
    assert (rest.read_text().count("\n"), rest.stat().st_mode & 0o777) == (25, 0o600)
    assert json.loads(file.read_text())["name"] == "Winter Cup"


def test_a_login_that_fails_ends_the_run_with_one_line_and_no_file(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    out, rest = tmp_path / "out", tmp_path / "rest.jsonl"
    for file in (out, rest):
        file.write_text("before")
    args = ("each", "/x-api/projects/{}", "--partial", "-o", str(out), "--failed", str(rest))
    outcome = xapi(*args, input="1\n2\n3\n", env={**sandbox.settings, "XAPI_PASSWORD": "wrong"})

    assert (outcome.code, outcome.err.count("xapi: error"), out.read_text()) == (10, 1, "before")
    assert len(rest.read_text().splitlines()) == 3
    assert rest.stat().st_mode & 0o777 == 0o600


def test_fail_fast_sends_nothing_after_a_page_that_is_no_json(xapi: Xapi, tmp_path: Path) -> None:
    names = response("200 OK", b'{"n":["\xe9","b","c"]}', "Content-Type: a/json; charset=latin-1")
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 23\r\n\r\n<title>canary-k</title>"
    unchanged = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    with Server([request(), send(names), request(), send(unchanged), request(), send(page)]) as server:
        args = ("each", "--list", "/l", "--items", "n", "/d/{}", "-HX-Api-Key: canary-k", "-j1", "--fail-fast")
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "XAPI_ERROR_FORMAT": "json"}
        outcome = xapi(*args, "--failed", str(tmp_path / "rest"), env=env)

    error = json.loads(outcome.err.splitlines()[0])
    assert (outcome.code, "the response is text/html (***), not JSON" in error["message"]) == (6, True)
    assert (error["status"], error["method"], error["url"]) == (200, "GET", f"{server.url}/d/b")
    assert [json.loads(line)["path"] for line in (tmp_path / "rest").read_text().splitlines()] == ["/d/b", "/d/c"]


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("/api/d/1", "/d/1"),
        ("/d/1", "/d/1"),
        ("http://127.0.0.1:1/api/d/1", "/d/1"),
        ("http://127.0.0.1:1/d/1", "http://127.0.0.1:1/d/1"),
        ("/api", "http://127.0.0.1:1/api"),
        ("/api?x=1", "http://127.0.0.1:1/api?x=1"),
    ],
)
def test_a_link_gets_the_path_prefix_of_the_base_url_at_most_once(xapi: Xapi, link: str, path: str) -> None:
    env = {"XAPI_BASE_URL": "http://127.0.0.1:1/api", "XAPI_TOKEN": "t"}
    outcome = xapi("each", "{link}", "--dry-run", input=json.dumps([{"link": link}]), env=env)

    assert [line["path"] for line in rows_of(outcome)] == [path]


@pytest.mark.parametrize(
    ("args", "data", "expected"),
    [
        (("/p/{id}", "q=={role} x"), 'id,role\na/b ?,""""\n', {"path": "/p/a%2Fb%20%3F", "query": {"q": '" x'}}),
        (("p/\\{x}/{id}", "X-A:{id}"), '{"id": 1.10}', {"path": "/p/{x}/1.10", "headers": {"X-A": "1.10"}}),
        (("POST", "/p", "ids[]:={id}", "a[b]:={id}"), "id\nTrue\n", {"json": {"ids": [True], "a": {"b": True}}}),
        (("POST", "/p", 'r:=["{id}",{}]', "s={id}"), '[{"id": 2.50}]', {"json": {"r": ["2.50", {}], "s": "2.50"}}),
        (("POST", "/p", "v:={}"), '"[1]"\n', {"json": {"v": [1]}}),
        (("POST", "/p", "v:={a}", "w:={b}"), "a,b\nFALSE,False\n", {"json": {"v": False, "w": False}}),
        (("POST", "/p", "v:={o.k}"), '[{"o": {"k": [null]}}]', {"json": {"v": [None]}}),
        (("-X", "PATCH", "/p/{id}", "-d", "{id}"), '[{"id": "x"}]', {"method": "PATCH", "json": "x"}),
        (("/p/{id}",), '{"id": 1, "tags": [2]}', {"path": "/p/1"}),
        (("--items", "d.rows", "/p/{id}"), '{"d": {"rows": [{"id": 1}]}}', {"path": "/p/1"}),
    ],
)
def test_placeholders_become_parts_of_the_request(
    xapi: Xapi, args: tuple[str, ...], data: str, expected: dict[str, Any]
) -> None:
    env = {"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": "t"}
    outcome = xapi("each", *args, "--dry-run", input=data, env=env)

    (line,) = rows_of(outcome)
    assert {name: line[name] for name in expected} == expected


def test_what_two_interrupts_have_prevented_is_in_the_file_of_failed(xapi: Xapi, tmp_path: Path) -> None:
    is_over, rest, rows = threading.Event(), tmp_path / "rest", tmp_path / "rows"
    rows.write_text("1\n2\n")
    with Server([request(), wait_for(is_over)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        program = xapi.start("each", "/d/{}", "--from", str(rows), "-j", "1", "--failed", str(rest), env=env)
        while not server.received:
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        assert program.stderr is not None
        assert b"finishing 1 request in flight" in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        assert program.wait() == 130
        is_over.set()

    assert [json.loads(line)["path"] for line in rest.read_text().splitlines()] == ["/d/1", "/d/2"]


def test_an_interrupt_ends_the_wait_for_the_list(xapi: Xapi, tmp_path: Path) -> None:
    is_over, rest = threading.Event(), tmp_path / "rest"
    rest.write_text("of an earlier run")
    with Server([request(), wait_for(is_over)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        program = xapi.start("each", "--list", "/l", "/d/{id}", "--failed", str(rest), env=env)
        while not server.received:
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        assert (program.wait(), rest.exists()) == (130, False)
        is_over.set()


def test_full_lines_have_the_row_and_its_number(xapi: Xapi, sandbox: Sandbox) -> None:
    started = time.monotonic()
    outcome = xapi("each", "/x-api/projects/{}", "--full", "--rate", "1", input="3\n9\n", env=sandbox.settings)

    assert [(line["id"], line["row"], line["status"]) for line in rows_of(outcome)] == [(1, "3", 200), (2, "9", 404)]
    assert time.monotonic() - started >= 1


def test_the_body_of_a_success_is_one_line_and_after_a_post_it_may_be_anything(xapi: Xapi) -> None:
    bodies = (b'{\n "a":\r\n 1.0 }\n', b"", b"done")
    script = [step for body in bodies for step in (request(), send(response("200 OK", body)))]
    with Server(script) as server:
        outcome = xapi("each", "POST", "/d", "a={}", input="1\n2\n3\n", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, '{  "a":   1.0 }\n')
    assert outcome.err.startswith("xapi: 1 response was not JSON")
    for reply, code in ((response(body=b"1"), 6), (response("302 Found", b"[]"), 3)):
        with Server([request(), send(reply)]) as server:
            assert xapi("each", "/d/{}", "--csv", input="1\n", env=bearing(server)).code == code


def test_a_request_with_query_header_and_the_row_as_its_body(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (file := tmp_path / "value").write_text("{x}\n")
    args = ("PUT", "/x-api/echo", "q=={a b}", f"q==@{file}", "X-Id:{id}", "-H", "X-Id;", "-H", "X-Id: 2", "-d", "{}")
    outcome = xapi("each", *args, input='[{"a b": "x&y", "id": 1.10}]', env=sandbox.settings)

    (echo,) = rows_of(outcome)
    assert (echo["query"], echo["headers"]["x-id"]) == ([["q", "x&y"], ["q", "{x}"]], "2, 1.10")
    assert echo["text"] == '{"a b": "x&y", "id": 1.10}'
