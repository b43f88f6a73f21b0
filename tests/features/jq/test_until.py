"""`xapi request --until`: a GET is repeated until a jq filter accepts the body of its response."""

import json
import signal
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, Step, close, hang, request, send
from tests.support.threads import Gate
from xapi_cli.features.sandbox import Sandbox

pytest.importorskip("jq", reason="libjq is not installed")

RUNNING, DONE = response(body=b'{"state":"running"}'), response(body=b'{"state":"done"}')
UNTIL = ("--until", '.state == "done"', "--every", "0.05")


def script(*replies: bytes) -> list[Step]:
    """Return a script of a server that sends *replies* over one connection."""
    return [step for reply in replies for step in (request(), send(reply))]


def test_only_the_last_body_is_printed_and_its_other_origin_once(xapi: Xapi) -> None:
    with Server(script(RUNNING, RUNNING, DONE)) as other:
        found = response("302 Found", b"", f"Location: {other.url}")
        with Server(script(found, found, found)) as server:
            outcome = xapi("request", "/jobs/1", *UNTIL, env=bearing(server))

    note = f"xapi: the response came from another origin, {other.url}, without the token\n"
    assert outcome == Outcome(0, '{"state":"done"}', note)
    assert sum(each.count(b"GET /jobs/1 ") for each in server.received) == 3


@pytest.mark.parametrize("text", ["(.missing, .state)", '""'])
def test_any_result_other_than_false_and_null_ends_the_wait(xapi: Xapi, text: str) -> None:
    with Server(script(DONE)) as server:
        assert xapi("request", "/", "--until", text, env=bearing(server)) == Outcome(0, '{"state":"done"}', "")


@pytest.mark.parametrize("text", ["false, .missing", "empty"])
def test_other_results_do_not_end_it(xapi: Xapi, text: str) -> None:
    is_repeated = Gate()
    with Server([request(), send(DONE), request(), is_repeated.reached, hang()]) as server:
        process = xapi.start("request", "/", "--until", text, "--every", "0.05", env=bearing(server))
        is_repeated.wait()
        process.kill()

        assert process.communicate() == (b"", b"")


def test_a_transient_failure_counts_as_not_yet(xapi: Xapi) -> None:
    failures = [response(status, b"{}") for status in ("502 Bad Gateway", "504 Gateway Timeout")]
    slow_down = response("429 Too Many Requests", b"{}", "Retry-After: 0")
    with Server(script(slow_down, *failures), [request(), close()], script(DONE)) as server:
        assert xapi("request", "/", *UNTIL, env=bearing(server)) == Outcome(0, '{"state":"done"}', "")


@pytest.mark.parametrize(
    ("failure", "code", "out"),
    [(response("404 Not Found", b"{}"), 4, "{}"), (response("200 OK", b"{", "Content-Length: 9"), 11, "")],
)
def test_any_other_failure_ends_the_wait(xapi: Xapi, tmp_path: Path, failure: bytes, code: int, out: str) -> None:
    with Server(script(RUNNING, failure)) as server:
        outcome = xapi("request", "/", *UNTIL, "-o", str(tmp_path / "file"), env=bearing(server))

    assert (outcome.code, outcome.out, (tmp_path / "file").exists()) == (code, out, False)


def test_a_filter_that_fails_on_the_data_ends_the_wait(xapi: Xapi) -> None:
    with Server(script(response(body=b"[]"))) as server:
        outcome = xapi("request", "/", *UNTIL, env=bearing(server))

    assert outcome.code == 6
    assert outcome.err.startswith("xapi: error: the --until filter failed: Cannot index array")


def test_retry_after_prolongs_the_wait(xapi: Xapi) -> None:
    busy = response("503 Service Unavailable", b"{}", "Retry-After: 1")
    with Server(script(busy, DONE)) as server:
        outcome = xapi("request", "/", *UNTIL, "--meta", "-", env=bearing(server))

    assert json.loads(outcome.err)["elapsed_ms"] >= 1000


def test_the_time_limit_ends_the_wait_and_leaves_the_file(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(RUNNING), request(), hang()]) as server:
        options = ("--until", ".never", "--every", "60", "--max-time", "1", "-o", str(tmp_path / "file"))
        outcome = xapi("request", "/", *options, env=bearing(server))

    assert (outcome.code, outcome.out, (tmp_path / "file").exists()) == (12, "", False)
    assert "within 1 s" in outcome.err
    assert "; raise --max-time" in outcome.err


def test_other_options_apply_to_the_last_response(xapi: Xapi, tmp_path: Path) -> None:
    with Server(script(RUNNING, DONE)) as server:
        file = tmp_path / "file"
        options = ("-o", str(file), "--jq", ".state", "--meta", "-", "--expect", '.state == "done"')
        outcome = xapi("request", "/", *UNTIL, *options, env=bearing(server))

    meta = json.loads(outcome.err)
    assert (outcome.code, outcome.out, file.read_text()) == (0, "", "done\n")
    assert (meta["status"], meta["attempts"], meta["bytes"]) == (200, 2, len('{"state":"done"}'))


def test_a_token_that_becomes_invalid_is_renewed(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()

    outcome = xapi("request", "/x-api/me", "--until", ".email", env=sandbox.settings)

    assert (outcome.code, sandbox.logins) == (0, 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("/", "a=b"), "--until is supported only for a GET request without a body"),
        (("/", "--paginate"), "--paginate cannot be combined with --until"),
        (("/", "-o", "x", "--continue"), "--continue cannot be combined with --until"),
        (("/", "--every", "1s"), "--every requires --until"),
        (("/", "--every", "0"), "--every must be greater than 0"),
        (("/", "--every", "soon"), "--every: 'soon' is not a valid duration"),
    ],
)
def test_options_that_cannot_be_combined_are_refused(xapi: Xapi, args: tuple[str, ...], message: str) -> None:
    until = () if "--every" in args and "1s" in args else ("--until", ".")
    with Server(script(DONE)) as server:
        outcome = xapi("request", *args, *until, env=bearing(server))

    assert (outcome.code, server.received) == (2, [])
    assert message in outcome.err


def test_a_terminal_shows_the_time_and_the_attempts_and_ctrl_c_ends_the_wait(xapi: Xapi) -> None:
    with (
        Server(script(*[RUNNING] * 2), script(RUNNING)) as server,
        xapi.on_terminal("request", "/", "--until", ".never", "--every", "60", env=bearing(server)) as terminal,
    ):
        terminal.expect("waiting for --until, 0:0")
        terminal.expect("1 attempt")
        terminal.interrupt()

        assert terminal.wait() in {130, -signal.SIGINT}
