"""Programs that exist, and a client that is generated from the description of the API, use `xapi proxy` unchanged."""

import concurrent.futures
import json
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import requests

from tests.commands.api import bearing, response
from tests.features.proxy.running import proxy
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send, wait_for
from xapi_cli.features.sandbox import MASTER, Sandbox

CLIENTS = 32


def require(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def run_under_proxy(xapi: Xapi, env: Mapping[str, str], *command: str) -> Outcome:
    """Run *command* with `xapi proxy`."""
    return xapi("proxy", "--", *command, env=env)


def test_curl_uses_the_port_and_the_socket(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    require("curl")
    body = tmp_path / "body"
    body.write_bytes(os.urandom(2**20))  # above 1 MiB, curl sends Expect: 100-continue
    by_port = 'curl -sS -H "Authorization: Bearer $XAPI_TOKEN" "$XAPI_BASE_URL$@"'
    by_socket = 'curl -sS --unix-socket "$XAPI_PROXY_SOCKET" "http://localhost$@"'
    script = f"""
        set -- /x-api/me; {by_port}; {by_socket}
        set -- /x-api/echo --data-binary @{body} -H "Expect: 100-continue"; {by_port}; {by_socket}
    """.replace('$@"', '$1" "${@:2}"')

    outcome = run_under_proxy(xapi, sandbox.settings, "bash", "-c", script)

    decoder, values, text = json.JSONDecoder(), [], outcome.out
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    assert [value["email"] for value in values[:2]] == [MASTER.email] * 2
    assert [value["length"] for value in values[2:]] == [2**20] * 2
    assert outcome.code == 0


def test_requests_uses_one_connection_for_many_calls(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings) as running, requests.Session() as session:
        session.trust_env = False
        session.headers.update(running.headers)
        session.get(f"{running.url}/x-api/me", timeout=60).raise_for_status()
        sandbox.revoke_tokens()
        echo = session.post(f"{running.url}/x-api/echo", files={"file": b"content"}, timeout=60)
        parts = session.post(f"{running.url}/x-api/echo", data=iter([b"a", b"b"]), timeout=60)
        with session.put(f"{running.url}/x-api/echo", json={"a": 1}, timeout=60, stream=True) as streamed:
            lines = list(streamed.iter_lines())

    assert "content" in echo.json()["text"]
    assert parts.json()["text"] == "ab"
    assert json.loads(lines[0])["json"] == {"a": 1}
    assert sandbox.logins == 2


def test_long_polls_of_many_clients_are_answered_when_there_is_something(xapi: Xapi) -> None:
    """One poll per connection to the API; other calls go on meanwhile."""
    event = threading.Event()
    polls = [[request(), wait_for(event), send(response(body=b"%d" % number))] for number in range(CLIENTS)]
    with (
        Server(*polls, [request(), send(OK)]) as server,
        proxy(xapi, bearing(server)) as running,
        concurrent.futures.ThreadPoolExecutor(CLIENTS) as threads,
        running.client() as client,
    ):
        found = [threads.submit(requests.get, f"{running.url}/poll", headers=running.headers) for _ in range(CLIENTS)]
        while sum(b"\r\n\r\n" in each for each in server.received) < CLIENTS:
            assert not any(each.done() for each in found)
        assert client.get("/").text == "ok"
        event.set()
        texts = {each.result().text for each in found}

    assert texts == {str(number) for number in range(CLIENTS)}
