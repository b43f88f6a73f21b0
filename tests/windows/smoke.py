"""The main workflow with the program for Windows: `make test-windows` runs it under Wine."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.program import Outcome, Xapi
from tests.windows.wine import INTERPRETER
from xapi_cli.features.sandbox import Sandbox

ME = ("request", "/x-api/me")
Env = Mapping[str, str | None]


@pytest.fixture(params=["file", "keyring"])
def env(request: pytest.FixtureRequest, sandbox: Sandbox) -> Env:
    """The account of *sandbox*, with its token in a file or in the Credential Locker."""
    return {**sandbox.settings, "XAPI_STORAGE": request.param}


def test_the_main_workflow(xapi: Xapi, sandbox: Sandbox, env: Env) -> None:
    assert xapi("login", env=env).code == 0
    token = xapi("token", "show", "--no-login", env=env)
    assert (
        sandbox.user_of(token.out.strip()) is not None
    )  # 900 characters, more than an item of the Credential Locker has
    assert json.loads(xapi(*ME, env=env).out)["id"] == 1

    sandbox.revoke_tokens()
    processes = [xapi.start(*ME, env=env) for _ in range(4)]
    assert [json.loads(process.communicate()[0])["id"] for process in processes] == [1] * 4
    assert sandbox.logins == 2

    lines = xapi("batch", input='{"path": "/x-api/me"}\n' * 2, env=env).out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == [200, 200]
    assert xapi("logout", env=env).code == 0
    assert xapi("token", "show", "--no-login", env=env).code == 10


def test_exec_passes_arguments_and_the_exit_code_on(xapi: Xapi) -> None:
    code = "import os, sys; print(os.environ['XAPI_TOKEN'], sys.argv[1:]); sys.exit(7)"

    outcome = xapi("exec", "--", INTERPRETER, "-c", code, 'a "b', "%PATH%", "c\\", env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(7, "abc ['a \"b', '%PATH%', 'c\\\\']\r\n")


def test_bytes_are_the_same_in_and_out_and_a_file_is_replaced(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    body = bytes(range(256)) + "é→\r\n\n".encode()
    echo = ("request", "/x-api/echo", "-d", "@-")

    sent = json.loads(xapi(*echo, input=body, env=sandbox.settings).out)
    for _ in range(2):
        assert xapi(*ME, "-o", "me.json", env=sandbox.settings, cwd=tmp_path).code == 0

    assert (sent["length"], sent["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert json.loads((tmp_path / "me.json").read_text())["id"] == 1
