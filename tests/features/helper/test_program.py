"""The program and storage `helper`: logins, remembered passwords, concurrent processes, helpers that fail."""

import json
from pathlib import Path

import pytest

from tests.support.credential_helpers import FakeHelper, PasswordStore, install
from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox

Env = dict[str, str | None]
ME = ("request", "/x-api/me")


@pytest.fixture
def env(sandbox: Sandbox, fake_helper: FakeHelper) -> Env:
    return {**sandbox.settings, **_with(fake_helper.path)}


def _with(helper: Path) -> Env:
    return {"XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(helper)}


def test_a_token_in_pass_is_used_renewed_described_and_deleted(
    xapi: Xapi, sandbox: Sandbox, shared_password_store: PasswordStore
) -> None:
    env: Env = {**sandbox.settings, **shared_password_store.environ}
    assert xapi("profile", "set", "credential_helper", "pass").code == 0
    assert xapi("profile", "set", "storage", "helper").code == 0
    env["XAPI_STORAGE"] = None

    assert xapi("login", env=env).err.endswith("token stored in the credential helper\n")
    assert len(shared_password_store.secrets()) == 1
    assert xapi(*ME, env={**env, "XAPI_PASSWORD": None}).code == 0
    sandbox.revoke_tokens()
    assert xapi(*ME, env=env).code == 0
    status = json.loads(xapi("token", "status", "--json", env=env).out)
    assert (status["storage"], status["state"], sandbox.logins) == ("helper", "valid", 2)
    assert xapi("logout", "--all", env=env).code == 0
    assert shared_password_store.secrets() == []


def test_processes_with_an_invalid_token_trigger_one_login(xapi: Xapi, sandbox: Sandbox, env: Env) -> None:
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()
    running = [xapi.start(*ME, env=env) for _ in range(8)]
    outcomes = [(process.communicate(), process.returncode) for process in running]

    assert [code for _, code in outcomes] == [0] * 8, [err for (_, err), code in outcomes if code]
    assert {json.loads(out)["email"] for (out, _), _ in outcomes} == {MASTER.email}
    assert sandbox.logins == sandbox.login_attempts == 2


def test_the_password_is_stored_only_with_consent(
    xapi: Xapi, sandbox: Sandbox, env: Env, fake_helper: FakeHelper
) -> None:
    assert xapi("login", env=env).code == 0
    assert MASTER.password not in fake_helper.stored[0]["Secret"]
    assert xapi("login", "--remember", env=env).err.endswith("token and password stored in the credential helper\n")
    sandbox.revoke_tokens()
    assert xapi(*ME, env={**env, "XAPI_PASSWORD": None}).code == 0
    assert xapi("login", "--no-remember", env=env).code == 0
    assert MASTER.password not in fake_helper.stored[0]["Secret"]
    assert xapi("logout", env=env).code == 0
    assert fake_helper.stored == []
    assert MASTER.password not in (fake_helper.directory / "log").read_text()  # arguments and environment of each call


@pytest.mark.slow
def test_a_helper_that_hangs_exits_with_13_in_time_and_nothing_is_sent(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    helper = install(tmp_path / "docker-credential-slow", "time.sleep(600)")
    for command in (("login",), ME, ("logout",)):
        outcome = xapi(*command, env={**sandbox.settings, **_with(helper)})
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        assert "docker-credential-slow did not respond in time; unlock its password store" in outcome.err
    assert sandbox.login_attempts == 0


def test_without_a_helper_the_error_says_what_to_set(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", env={**sandbox.settings, "XAPI_STORAGE": "helper"})
    assert (outcome.code, outcome.err.partition("; ")[0]) == (
        2,
        "xapi: error: storage helper requires the setting credential_helper",
    )
