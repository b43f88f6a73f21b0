"""`xapi batch` and the token: each invalid token causes a single login."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths
from tests.support.program import Xapi
from tests.support.servers import free_port


def test_without_a_password_every_line_is_an_auth_error(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, _ = batch(xapi, api, input=paths(50), env={"XAPI_PASSWORD": None})

    assert (code, len(lines)) == (10, 50)
    assert {each["error"]["kind"] for each in lines} == {"auth"}
    assert "no stored token, and no password source is available" in lines[0]["error"]["message"]


@pytest.mark.parametrize("status", [400, 503])
def test_a_login_that_fails_is_not_repeated_for_each_line(xapi: Xapi, status: int) -> None:
    with Api() as api:
        api.login_status = status
        started = time.monotonic()
        code, lines, _ = batch(xapi, api, input=paths(300))
        seconds = time.monotonic() - started

        assert (code, len(lines)) == (10, 300)
        assert api.logins <= (1 if status == 400 else 1 + seconds / 2)  # a server error may pass within two seconds
    assert {each["error"]["kind"] for each in lines} == {"auth"}


def test_a_login_without_a_connection_is_a_network_error(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
    outcome = xapi("batch", input=paths(5), env=env)

    assert outcome.code == 11
    assert {each["error"]["kind"] for each in out_lines(outcome.out)} == {"network"}


def test_a_rejected_supplied_token_is_an_auth_error(xapi: Xapi) -> None:
    with Api() as api:
        code, lines, _ = batch(xapi, api, input=paths(3), env={"XAPI_TOKEN": "dead"})
        assert (code, api.logins, len(api.requests)) == (10, 0, 3)
    assert "XAPI_TOKEN was rejected" in lines[0]["error"]["message"]


def test_an_authorization_header_in_a_line_disables_token_and_login(xapi: Xapi) -> None:
    lines = [{"path": f"/{value}", "headers": {"authorization": value}} for value in ("Basic x", None, "dead")]

    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=401) if received.path == "/dead" else Reply()

    with Api(response, open_to_all=True) as api:
        code, out, _ = batch(xapi, api, "--ordered", input=jsonl(*lines))
        assert sorted(each.headers.get("authorization", "") for each in api.requests) == ["", "Basic x", "dead"]
        assert api.logins == 0

    assert (code, [line.get("status") for line in out]) == (10, [200, 200, None])
    assert "the request sets or removes the Authorization header" in out[2]["error"]["message"]


def test_after_a_401_the_body_of_a_post_is_sent_again(xapi: Xapi) -> None:
    with Api(lives=3) as api:
        lines = jsonl(*({"path": f"/{n}", "json": {"n": n}} for n in range(5)))
        code, _, err = batch(xapi, api, "-j", "1", input=lines)
        bodies = {each.path: each.body for each in api.requests}
        assert (code, api.rejected, api.logins) == (0, 1, 2), err
    assert bodies == {f"/{n}": b'{"n": %d}' % n for n in range(5)}


def test_each_invalidated_token_causes_one_login_and_each_line_is_processed_once(xapi: Xapi) -> None:
    with Api(lives=100) as api:  # more than are in flight: some were accepted when the first one is rejected
        code, lines, err = batch(xapi, api, "-j", "16", input=paths(500))

        assert (code, len(lines), {each.get("status") for each in lines}) == (0, 500, {200}), err
        assert api.logins == 5
        assert set(api.counts.values()) == {1}
    assert err.count("logged in") == 5


def test_concurrent_processes_trigger_one_login_per_invalidated_token(xapi: Xapi) -> None:
    with Api(lives=450) as api:  # more than two processes send: the third has used a token before it is invalid
        running = [xapi.start("batch", "-j", "8", stdin=subprocess.PIPE, env=api.settings) for _ in range(3)]
        for number, process in enumerate(running):
            assert process.stdin is not None
            process.stdin.write(paths(200, 1000 * number).encode())
            process.stdin.close()
            process.stdin = None
        outs = [process.communicate() for process in running]

        assert [process.returncode for process in running] == [0, 0, 0], outs
        assert (sum(api.counts.values()), api.logins) == (600, 2)


def test_a_fresh_token_that_is_rejected_stops_further_logins(xapi: Xapi) -> None:
    with Api(lives=0) as api:
        api.accepts = lambda authorization: False  # type: ignore[method-assign]  # a server that accepts nothing
        code, lines, _ = batch(xapi, api, input=paths(40))
        assert (code, len(lines), api.logins) == (10, 40, 1)
        assert (batch(xapi, api, input=paths(1))[0], api.logins) == (10, 1)


def test_lines_without_rights_cause_no_further_login(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(b'{"message": "not yours"}', 401) if received.path.startswith("/no") else Reply()

    with Api(response) as api:
        text = jsonl(*({"path": f"/{'no' if number % 2 else 'yes'}/{number}"} for number in range(200)))
        code, lines, _ = batch(xapi, api, "-j", "16", input=text)

    assert (code, api.logins) == (10, 1)
    assert [line.get("status") for line in lines if line["line"] % 2] == [200] * 100
    errors = [line["error"] for line in lines if "error" in line]
    assert (len(errors), {error["kind"] for error in errors}) == (100, {"auth"})
    assert (
        "responded with 401 Unauthorized: not yours; the API accepts the token for other requests"
        in errors[-1]["message"]
    )


def test_the_password_is_prompted_for_on_a_terminal_while_lines_come_from_a_pipe(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(20))
    with (
        Api(lives=10) as api,
        (tmp_path / "in").open("rb") as lines,
        (tmp_path / "out").open("wb") as out,
        xapi.on_terminal(
            "batch", "-j", "4", stdin=lines, stdout=out, env=api.settings | {"XAPI_PASSWORD": None}
        ) as terminal,
    ):
        terminal.expect("Password for me@example.com")
        terminal.type("secret\n")
        terminal.expect("logged in as ")
        terminal.expect("Password for me@example.com")  # the token was revoked
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


def test_a_secret_that_a_server_repeats_is_redacted_in_errors(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        token = received.headers["authorization"].partition(" ")[2]
        return Reply(status=302, headers=(("Location", f"http://127.0.0.1:1/{token}/x?password=canary-password"),))

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "1", input=paths(1))

    assert code == 11
    messages = lines[0]["error"]["message"] + err
    assert "token-1" not in messages
    assert "canary-password" not in messages
