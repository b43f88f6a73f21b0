"""`xapi batch` and the token: an invalid token causes a single login."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths, slowly
from tests.support.program import Xapi


def test_without_a_password_every_line_is_an_auth_error(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, input=paths(50), env={"XAPI_PASSWORD": None})

    where = f"me@example.com at {api.settings['XAPI_BASE_URL']}"
    reason = f"not logged in as {where}: no stored token, and no password source is available"
    remedy = (
        "run `xapi login`, or set XAPI_PASSWORD or the profile's password_command, or store the password with --storage"
        " keyring or helper"
    )
    assert (code, len(lines)) == (10, 50)
    assert {each["error"]["kind"] for each in lines} == {"auth"}
    assert {each["error"]["message"] for each in lines} == {f"{reason}; {remedy}"}
    summary = re.escape(f": 50 × auth: {reason}; {remedy}\n")
    assert re.fullmatch(rf"xapi: error: 50 of 50 lines failed in [\d.]+ s \([\d,]+/s\){summary}", err)


def test_the_hint_of_all_failed_lines_precedes_the_file_to_send_again(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, err = batch(xapi, api, "--failed", "failed", input=paths(3), env={"XAPI_TOKEN": "dead"})

    assert (code, len(lines)) == (10, 3)
    assert err.endswith(
        ": 3 × auth; XAPI_TOKEN was rejected: replace the token, or unset XAPI_TOKEN so that xapi logs in"
        " automatically, then send failed again\n"
    )


def test_lines_that_failed_for_different_reasons_are_reported_without_one(xapi: Xapi) -> None:
    with Api() as api:
        more = jsonl({"path": "/", "query": 1})
        code, lines, err = batch(xapi, api, input=paths(2) + more, env={"XAPI_PASSWORD": None})

    assert (code, len(lines)) == (10, 3)
    assert err.endswith(": 2 × auth, 1 × input; see their lines on stdout\n")


def test_a_wrong_password_is_sent_once(xapi: Xapi) -> None:
    with Api() as api:
        api.login_status = 400
        code, lines, _ = batch(xapi, api, input=paths(300))
        assert (code, len(lines), api.logins) == (10, 300, 1)
    assert {each["error"]["kind"] for each in lines} == {"auth"}


def test_a_rejected_supplied_token_is_an_auth_error(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, _ = batch(xapi, api, input=paths(3), env={"XAPI_TOKEN": "dead"})
        assert (code, api.logins, len(api.requests)) == (10, 0, 3)
    assert "XAPI_TOKEN was rejected" in lines[0]["error"]["message"]


def test_an_authorization_header_in_a_line_disables_token_and_login(xapi: Xapi) -> None:
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
        assert sorted(each.headers.get("authorization", "") for each in api.requests) == ["", "Basic x"]
        assert api.logins == 0


@pytest.mark.slow
def test_a_token_that_is_invalidated_every_100_requests_causes_one_login_each_time(xapi: Xapi) -> None:
    with Api(lives=100) as api:
        code, lines, err = batch(xapi, api, "-j", "32", input=paths(1500), timeout=60)

        assert (code, len(lines), {each["status"] for each in lines}) == (0, 1500, {200}), err
        assert api.logins == 15
        assert set(api.counts.values()) == {1}
    assert err.count("logged in") == 15


@pytest.mark.slow
def test_concurrent_processes_trigger_one_login_per_invalidated_token(xapi: Xapi) -> None:
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


def test_a_rejected_fresh_token_stops_further_logins(xapi: Xapi) -> None:
    with Api(lives=0) as api:
        api.accepts = lambda authorization: False  # type: ignore[method-assign]  # a server that accepts nothing
        code, lines, _ = batch(xapi, api, input=paths(40))
        assert (code, len(lines), api.logins) == (10, 40, 1)
        again = batch(xapi, api, input=paths(1))
        assert (again[0], api.logins) == (10, 1)


def test_after_a_401_the_body_of_a_post_is_resent(xapi: Xapi) -> None:
    with Api(lives=3) as api:
        code, _, err = batch(
            xapi, api, "-j", "1", input=jsonl(*({"path": f"/{n}", "json": {"n": n}} for n in range(5)))
        )
        bodies = {each.path: each.body for each in api.requests}
        assert (code, api.rejected, api.logins) == (0, 1, 2), err
    assert bodies == {f"/{n}": b'{"n": %d}' % n for n in range(5)}


def test_no_secret_is_printed_or_stored_in_the_journal(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lives=10) as api:
        outcome = xapi("batch", "--journal", str(tmp_path / "j"), input=paths(50), env=api.settings)

    for text in (outcome.out, outcome.err, (tmp_path / "j").read_text()):
        assert "token-" not in text
        assert "canary" not in text


def test_a_token_that_is_invalidated_during_replays_fails_no_line(xapi: Xapi) -> None:
    with Api(lives=10) as api:  # the server determines which of the 32 requests in flight
        code, lines, err = batch(xapi, api, "-j", "32", input=paths(50))

        assert (code, len(lines), [each for each in lines if each.get("status") != 200]) == (0, 50, []), err
        assert api.logins == 5
        assert set(api.counts.values()) == {1}


def test_a_401_after_five_replays_is_final_and_other_lines_continue(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=401 if received.path == "/n/7" else 200)) as api:
        code, lines, _ = batch(xapi, api, "-j", "4", input=paths(40))

        assert (code, sum(each.get("status") == 200 for each in lines)) == (10, 39)
        assert [each["error"]["kind"] for each in lines if "error" in each] == ["auth"]
        assert api.counts["/n/7"] <= 6


def test_a_failing_token_endpoint_receives_few_requests(xapi: Xapi) -> None:
    with Api() as api:
        api.login_status = 503
        code, lines, _ = batch(xapi, api, input=paths(300))
        assert (code, len(lines)) == (10, 300)
        assert api.logins <= 3  # one in two seconds

    assert {each["error"]["kind"] for each in lines} == {"auth"}
    assert "the token endpoint responded with 503" in lines[0]["error"]["message"]


def test_a_login_without_a_connection_is_a_network_error(xapi: Xapi) -> None:
    with Api() as api:
        env = api.settings
    outcome = xapi("batch", input=paths(5), env=env)

    assert outcome.code == 11
    assert {each["error"]["kind"] for each in out_lines(outcome.out)} == {"network"}


def test_no_line_is_lost_during_a_keyring_access(xapi: Xapi) -> None:
    env: dict[str, str | None] = {
        "XAPI_STORAGE": "keyring",
        "PYTHON_KEYRING_BACKEND": "fake_keyrings.Slow",
        "FAKE_KEYRING": str(xapi.home / "items.json"),
        "FAKE_KEYRING_SECONDS": "0.2",
        "PYTHONPATH": str(Path(__file__).parents[2] / "support" / "keyrings"),
    }
    with Api(slowly(0.01), lives=60) as api:
        process = xapi.start("batch", "-j", "8", stdin=subprocess.PIPE, env=api.settings | env)
        assert process.stdin is not None
        for number in range(240):  # the input also arrives during the keyring access
            process.stdin.write(paths(1, number).encode())
            process.stdin.flush()
        process.stdin.close()
        process.stdin = None
        out, err = process.communicate(timeout=60)

        assert (process.returncode, len(out_lines(out.decode())), api.logins) == (0, 240, 4), err


def test_the_password_is_prompted_for_on_a_terminal_while_lines_come_from_a_pipe(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(20))
    with (
        Api() as api,
        (tmp_path / "in").open("rb") as lines,
        (tmp_path / "out").open("wb") as out,
        xapi.on_terminal("batch", stdin=lines, stdout=out, env=api.settings | {"XAPI_PASSWORD": None}) as terminal,
    ):
        terminal.expect("Password for me@example.com")
        terminal.type("secret\n")
        assert terminal.wait() == 0
    assert len(out_lines((tmp_path / "out").read_text())) == 20


def test_ctrl_c_at_the_password_prompt_ends_the_batch_immediately(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(20))
    with (
        Api() as api,
        xapi.on_terminal("batch", str(tmp_path / "in"), env=api.settings | {"XAPI_PASSWORD": None}) as terminal,
    ):
        terminal.expect("Password for me@example.com")
        while terminal.process.poll() is None:  # in the instant before a read begins, Python misses a signal
            terminal.interrupt()
            time.sleep(0.5)
        assert terminal.wait() == 130
        assert not api.requests


def test_a_secret_that_a_server_echoes_is_redacted_in_errors(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        token = received.headers["authorization"].partition(" ")[2]
        return Reply(status=302, headers=(("Location", f"http://127.0.0.1:1/{token}/x?password=canary-password"),))

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "1", input=paths(1))

    assert code == 11
    messages = lines[0]["error"]["message"] + err
    assert "token-1" not in messages
    assert "canary-password" not in messages


def test_no_request_waits_while_the_user_types_the_password(xapi: Xapi, tmp_path: Path) -> None:
    """A request that has a connection when the prompt appears is sent before: the server may close the connection."""
    is_stopped, is_redirected, has_followed = threading.Event(), threading.Event(), threading.Event()
    (tmp_path / "in").write_text(paths(3))

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/n/0":  # from now on, a connection is known to be reusable after such a response
            return Reply(b"", 302, (("Location", "/n/8"),))
        if received.path == "/n/1":
            is_stopped.wait(30)
            return Reply(b"", 302, (("Location", "/n/9"),), between=is_redirected.set)
        if received.path == "/n/2" and api.logins == 1:  # the token is known to be valid: /n/8 was successful
            os.kill(terminal.process.pid, signal.SIGSTOP)  # it gets both responses at the same time
            is_stopped.set()
            is_redirected.wait(30)
            return Reply(b"", 401, between=lambda: os.kill(terminal.process.pid, signal.SIGCONT))
        if received.path == "/n/9":
            has_followed.set()
        return Reply()

    with Api(response) as api:
        settings = api.settings | {"XAPI_STORAGE": "file"}
        assert xapi("login", env=settings).code == 0
        command = ("batch", "-j", "2", str(tmp_path / "in"))
        with xapi.on_terminal(*command, env=settings | {"XAPI_PASSWORD": None}) as terminal:
            terminal.expect("Password for me@example.com")
            assert has_followed.wait(10)
            terminal.type("secret\n")
            assert terminal.wait() == 0


def test_lines_without_rights_cause_no_further_login(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(b"{}", 401) if received.path.startswith("/no") else Reply()

    with Api(response) as api:
        text = jsonl(*({"path": f"/{'no' if number % 2 else 'yes'}/{number}"} for number in range(200)))
        code, lines, _ = batch(xapi, api, "-j", "16", input=text)

    assert (code, api.logins) == (10, 1)
    assert [line.get("status") for line in lines if line["line"] % 2] == [200] * 100
    errors = [line["error"] for line in lines if "error" in line]
    assert len(errors) == 100
    assert all(error["kind"] == "auth" for error in errors)
    assert "the API accepts the token for other requests" in errors[-1]["message"]
