"""`xapi sandbox` prints its settings as shell assignments and serves until it is stopped."""

import shlex
import signal

import httpx
import pytest

from tests.features.sandbox.client import bearer
from tests.support.program import Process, Xapi
from xapi_cli.features.sandbox import MASTER, MEMBER


def assignments_of(process: Process) -> dict[str, str]:
    assert process.stdout
    lines = [process.stdout.readline().decode().rstrip("\n") for _ in range(5)]
    assert all(line.startswith("export ") for line in lines)
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


def test_the_sandbox_prints_shell_assignments_and_serves(xapi: Xapi) -> None:
    process = xapi.start("sandbox")

    settings = assignments_of(process)
    base_url = settings.pop("XAPI_BASE_URL")
    assert settings == {
        "XAPI_USERNAME": MASTER.email,
        "XAPI_PASSWORD": MASTER.password,
        "XAPI_SANDBOX_MEMBER_USERNAME": MEMBER.email,
        "XAPI_SANDBOX_MEMBER_PASSWORD": MEMBER.password,
    }
    assert httpx.get(f"{base_url}/x-api/me", trust_env=False, timeout=60).status_code == 401


def test_a_shell_can_evaluate_the_assignments(xapi: Xapi) -> None:
    script = """
        xapi sandbox >settings 2>/dev/null & server=$!
        until [ "$(wc -l <settings)" -eq 5 ]; do sleep 0.1; done
        eval "$(cat settings)"
        xapi login && xapi request /x-api/me
        XAPI_USERNAME=$XAPI_SANDBOX_MEMBER_USERNAME XAPI_PASSWORD=$XAPI_SANDBOX_MEMBER_PASSWORD xapi request /x-api/me
        echo $?
        kill $server
    """
    process = xapi.start(script, argv=("sh", "-c"))
    out, err = process.communicate()

    response, refusal, code = out.decode().splitlines()
    assert response == '{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}'
    assert '"insufficient_scope"' in refusal
    assert code == "4"
    assert "master rights" in err.decode()


def test_its_options_are_used(xapi: Xapi) -> None:
    options = ("--expires-in", "7", "--forget-after", "1", "--slow", "0.2")
    settings = assignments_of(xapi.start("sandbox", "--port", "0", *options))

    grant = {"grant_type": "password", "username": MASTER.email, "password": MASTER.password}
    response = httpx.post(f"{settings['XAPI_BASE_URL']}/x-api/token", data=grant, trust_env=False, timeout=60)
    assert response.json()["expires_in"] == 7
    url, headers = f"{settings['XAPI_BASE_URL']}/x-api/projects/1", bearer(response.json()["access_token"])
    used = [httpx.get(url, headers=headers, trust_env=False, timeout=60) for _ in range(2)]
    assert ([each.status_code for each in used], used[0].elapsed.total_seconds() >= 0.2) == ([200, 401], True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_stop_the_sandbox(xapi: Xapi, number: signal.Signals, code: int) -> None:
    process = xapi.start("sandbox")
    assignments_of(process)
    process.send_signal(number)

    assert process.wait() == code
    assert process.stderr
    assert b"Traceback" not in process.stderr.read()
