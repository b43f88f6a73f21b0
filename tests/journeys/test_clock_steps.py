"""Steps of the wall clock, which change neither the minute after a login failure nor the hour after a logout."""

import json
import os
from pathlib import Path

import pytest

from tests.support.program import Xapi
from tests.support.servers import Server, request, send, wait_for
from tests.support.threads import Gate
from xapi_cli.sandbox import Sandbox

STEPS = pytest.mark.parametrize("step", [-7200, -5, 7200])


def _step_wall_clock(directory: Path, seconds: float) -> None:
    """Change the files in *directory* as if the wall clock had been set *seconds* ahead since they were written."""
    for path in directory.iterdir():
        status, entry = path.stat(), json.loads(path.read_text())
        for name in entry.keys() & {"written", "emptied"}:
            boot, since_boot, wall = entry[name].split()
            entry[name] = f"{boot} {since_boot} {float(wall) - seconds}"
        path.write_text(json.dumps(entry))
        os.utime(path, (status.st_mtime - seconds,) * 2)


@STEPS
def test_a_rejected_password_is_not_sent_again_after_a_step(xapi: Xapi, sandbox: Sandbox, step: float) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}
    assert xapi("token", "show", env=wrong).code == 10
    for _ in range(3):
        _step_wall_clock(xapi.state / "attempts", step)
        outcome = xapi("token", "show", env=wrong)

        assert outcome.code == 10
        assert "less than a minute ago, so this password is not sent again" in outcome.err
    assert sandbox.login_attempts == 1


@STEPS
def test_a_logout_is_not_undone_by_a_login_in_progress_after_a_step(xapi: Xapi, step: float) -> None:
    gate = Gate()
    body = b'{"access_token": "late"}'
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with Server([request(), gate.reached, wait_for(gate.open), send(response)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        login = xapi.start("token", "show", env=env)
        gate.wait()
        assert xapi("logout", env=env).code == 0
        _step_wall_clock(xapi.state / "known", step)
        assert xapi("logout", env={**env, "XAPI_USERNAME": "other"}).code == 0  # removes old markers
        gate.open.set()
        login.communicate(timeout=20)

    assert xapi("token", "show", "--no-login", env=env).code == 10
