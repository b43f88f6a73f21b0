"""`xapi request --jq`: where the results go, streams, failures, and the process of the filter."""

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.page_server import PageServer, numbered, page
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, hang, request, send, serve, wait_for
from tests.support.threads import wait_until
from xapi_cli.features.sandbox import Sandbox

pytest.importorskip("jq", reason="libjq is not installed")

ENDLESS = "last(repeat(1))"


def filtered(xapi: Xapi, body: bytes | str, text: str, *options: str, headers: tuple[str, ...] = ()) -> Outcome:
    """Return the outcome of the filter *text* on a response with *body*."""
    data = body.encode() if isinstance(body, str) else body
    with PageServer(lambda target: response("200 OK", data, *headers)) as server:
        return xapi("request", "/", "--jq", text, *options, env=bearing(server))


# results


def test_the_output_file_is_complete_or_unchanged(xapi: Xapi, out: Path) -> None:
    assert filtered(xapi, "[1, 2]", ".[]", "-o", str(out)) == Outcome(0)
    assert out.read_text() == "1\n2\n"
    assert filtered(xapi, "[[3], 4]", ".[][0]", "-o", str(out)).code == 6
    assert out.read_text() == "1\n2\n"


def test_the_filter_is_applied_to_each_item_of_all_pages(xapi: Xapi, tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    with PageServer(numbered(2)) as server:
        plain = xapi("request", "/items", "--paginate", env=bearing(server))
        outcome = xapi("request", "/items", "--paginate", "--jq", ".id", "--meta", str(meta), env=bearing(server))

    assert outcome == Outcome(0, "1\n2\n3\n4\n", "")
    assert json.loads(meta.read_text())["bytes"] == len(plain.out)


def test_a_terminal_gets_indented_results_without_control_characters_unlike_a_file(xapi: Xapi, out: Path) -> None:
    with (
        PageServer(lambda target: page(b'["a\\u001b[31mb", {"c": 1}]')) as server,
        xapi.on_terminal("request", "/", "--jq", ".[]", env=bearing(server) | {"NO_COLOR": "1"}) as terminal,
    ):
        assert terminal.wait() == 0
        with xapi.on_terminal("request", "/", "--jq", ".[0]", "-o", str(out), env=bearing(server)) as other:
            assert other.wait() == 0

    assert out.read_text() == "a\x1b[31mb\n"
    assert terminal.text == 'a\\x1b[31mb\r\n{\r\n  "c": 1\r\n}\r\n'


@pytest.mark.parametrize(("options", "out"), [([], ""), (["--error-body", "stdout"], '{"no": 1}')])
def test_an_error_body_is_not_filtered(xapi: Xapi, options: list[str], out: str) -> None:
    no = response("404 No", b'{"no": 1}')
    with Server([serve(no)], [serve(no)], [serve(response("401 No", b"<html>"))]) as server:
        outcome = xapi("request", "/", "--jq", ".no", *options, env=bearing(server))
        checked, rejected = (
            xapi("request", "/", "--jq", ".no", "--no-check-status", env=bearing(server)) for _ in range(2)
        )

    assert (outcome.code, outcome.out) == (4, out)
    assert checked == Outcome(0, "1\n", "")
    assert rejected.code == 10


# as it arrives


def _head(media_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n".encode()


STREAMS = {
    "events": (_head("text/event-stream"), b"data: %b\n\n"),
    "lines": (_head("application/x-ndjson"), b"%b\n"),
}
each_stream = pytest.mark.parametrize(("head", "record"), STREAMS.values(), ids=STREAMS)


@each_stream
def test_each_record_is_filtered_as_it_arrives(xapi: Xapi, head: bytes, record: bytes) -> None:
    seen = threading.Event()
    steps = [request(), send(head + record % b'{"id":1}'), wait_for(seen), send(record % b'{"id":2}')]
    with Server(steps) as server:
        process = xapi.start("request", "/", "--jq", ".id", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate() == (b"2\n", b"")


@each_stream
@pytest.mark.parametrize(
    ("bad", "problem"), [(b"<html>", "--jq cannot parse the body as JSON: "), (b"[]", "Cannot index array")]
)
def test_a_record_that_fails_ends_a_stream_that_is_idle(
    xapi: Xapi, head: bytes, record: bytes, bad: bytes, problem: str
) -> None:
    with Server([request(), send(head + record % b'{"id":1}' + record % bad), hang()]) as server:
        outcome = xapi("request", "/", "--jq", ".id", "--timeout", "60", env=bearing(server))

    assert outcome.code == 6
    assert problem in outcome.err


# failures


def test_a_filter_that_fails_is_one_error_and_exits_with_6(xapi: Xapi) -> None:
    outcome = filtered(xapi, '{"a": 1}\n[2]', ".a")

    assert (outcome.code, outcome.out) == (6, "1\n")
    assert outcome.err.startswith("xapi: error: the --jq filter failed: Cannot index array with string")
    assert outcome.err.endswith("; correct the filter\n")


def test_a_filter_for_the_page_instead_of_an_item_says_so(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--paginate", "--jq", ".[] | .id", env=bearing(server))

    assert outcome.code == 6
    assert outcome.err.endswith("; with --paginate, write a filter for an item, not for the page\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--jq", ".["], "the --jq filter is not valid: syntax error, unexpected end of file"),
        (["--jq", ".", "--paginate", "--slurp"], "--slurp cannot be combined with a filter"),
        (["--jq", ".", "--csv"], "--jq cannot be combined with --csv"),
    ],
)
def test_an_invalid_filter_is_a_usage_error_before_anything_is_sent(
    xapi: Xapi, options: list[str], problem: str
) -> None:
    with Server() as server:
        outcome = xapi("request", "/", *options, env=bearing(server))
        assert server.received == []

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"xapi: error: {problem}")


# the process


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _cpu_time(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_however_xapi_ends_an_endless_filter_ends_too(xapi: Xapi, number: int, code: int) -> None:
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start("request", "/", "--jq", ENDLESS, env=bearing(server))
        wait_until(lambda: any(_cpu_time(child) > 15 for child in _children(process.pid)))
        [child] = _children(process.pid)
        process.send_signal(number)
        assert process.communicate() == (b"", b"")

    assert process.returncode == code
    wait_until(lambda: not _is_running(child))


def test_max_time_ends_an_endless_filter(xapi: Xapi) -> None:
    outcome = filtered(xapi, "1", ENDLESS, "--max-time", "1")

    assert (outcome.code, outcome.out) == (12, "")


def test_a_closed_stdout_ends_an_endless_output(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start("request", "/", "--jq", "range(1e12)", env=bearing(server))
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_environment_of_the_filter_has_no_secret(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**bearing(sandbox), "XAPI_PASSWORD": "canary-password", "MINE": "yes", "NO_PROXY": "*"}
    env |= {"ALL_PROXY": "http://user:canary@127.0.0.1:9"}
    outcome = xapi("request", "/x-api/me", "--jq", "$ENV", env=env)

    found = json.loads(outcome.out)
    assert (outcome.code, found["MINE"]) == (0, "yes")
    assert not {"XAPI_TOKEN", "XAPI_PASSWORD", "ALL_PROXY"} & found.keys()
    assert "canary" not in outcome.out
    assert TOKEN not in outcome.out


def test_without_a_usable_library_nothing_is_sent(xapi: Xapi, tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "jq.py").write_text("raise OSError('first\\nsecond')\n")
    outcome = xapi("request", "/x-api/me", "--jq", ".", env={**bearing(sandbox), "PYTHONPATH": str(tmp_path)})

    assert outcome == Outcome(
        2,
        "",
        "xapi: error: --jq requires libjq, which cannot be used: OSError: first second; "
        "install xapi with the extra jq, or omit --jq\n",
    )
    assert sandbox.requests == 0
