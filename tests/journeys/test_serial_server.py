"""A server that serves one connection at a time: each kind of call renews its token over no second connection."""

import json
import socketserver
from collections.abc import Callable

import pytest

from tests.features.batch.server import Api
from tests.features.proxy.running import proxy
from tests.support.library_program import Program
from tests.support.program import Xapi


class SerialApi(Api):
    """An API that serves each connection to its end before the next one."""

    process_request = socketserver.BaseServer.process_request


def _requests(xapi: Xapi, env: dict[str, str]) -> list[int]:
    return [int(xapi("request", "/a", "-i", env=env).out.split()[1]) for _ in range(4)]


def _pages(xapi: Xapi, env: dict[str, str]) -> list[int]:
    return [200 if xapi("request", "/a", "--paginate", env=env).out == '{"ok":true}\n' else 0 for _ in range(4)]


def _batch(xapi: Xapi, env: dict[str, str]) -> list[int]:
    ran = xapi("batch", "-j1", input='{"path": "/a"}\n' * 4, env=env)
    return [json.loads(line)["status"] for line in ran.out.splitlines()]


def _library(xapi: Xapi, env: dict[str, str]) -> list[int]:
    code = "with xapi_cli.open_client() as client: print([client.get('/a').status_code for _ in range(4)])"
    found: list[int] = json.loads(Program(xapi)(code, env).out)
    return found


def _proxy(xapi: Xapi, env: dict[str, str]) -> list[int]:
    with proxy(xapi, env) as started, started.client() as client:
        return [client.get("/a").status_code for _ in range(4)]


@pytest.mark.parametrize("calls", [_requests, _pages, _batch, _library, _proxy])
def test_a_token_is_renewed_without_a_second_connection_beside_that_of_the_401(
    xapi: Xapi, calls: Callable[[Xapi, dict[str, str]], list[int]]
) -> None:
    with SerialApi(lives=2) as api:
        settings = {name: value for name, value in api.settings.items() if value}
        env = {**settings, "XAPI_STORAGE": "file", "XAPI_TIMEOUT": "20"}

        assert calls(xapi, env) == [200] * 4
        assert api.logins == 2
