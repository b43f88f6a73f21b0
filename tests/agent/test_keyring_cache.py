"""The program with the cache of the keyring in the agent's keeper."""

import json
import sys

from tests.agent.keeper_programs import ME, without_password
from tests.support.keeper_process import KeeperProcess
from tests.support.program import PROGRAM, Environ, Xapi
from xapi_cli.sandbox import Sandbox
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import key_of
from xapi_cli.tokens import Identity


def test_a_cached_token_is_used_without_the_keyring_until_a_logout(
    xapi: Xapi, keeper: KeeperProcess, env: Environ
) -> None:
    cached = {**env, **xapi.fake_keyring(), "XDG_RUNTIME_DIR": keeper.environ["XDG_RUNTIME_DIR"]}
    assert xapi("profile", "set", "keyring_cache", "true").code == 0
    assert xapi("login", "--remember", env=cached).code == 0
    assert xapi("token", "show", "--no-login", env=without_password(cached)).code == 0
    items = xapi.home / "items.json"
    items.rename(xapi.home / "away")

    shown = xapi("token", "show", "--json", "--no-login", env=without_password(cached))
    assert (shown.code, json.loads(shown.out)["storage"]) == (0, "keyring")
    off = {**without_password(cached), "XAPI_KEYRING_CACHE": "off"}
    assert xapi("token", "show", "--no-login", env=off).code == 10

    (xapi.home / "away").rename(items)
    assert xapi("logout", env=off).code == 0
    assert KeeperClient(keeper.environ, 20).held() == []
    assert xapi("token", "show", "--no-login", env=without_password(cached)).code == 10


def test_a_cached_token_that_is_rejected_is_replaced_with_the_remembered_password(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Environ
) -> None:
    cached = {
        **env,
        **xapi.fake_keyring(),
        "XDG_RUNTIME_DIR": keeper.environ["XDG_RUNTIME_DIR"],
        "XAPI_KEYRING_CACHE": "1",
    }
    assert xapi("login", "--remember", env=cached).code == 0
    for _ in range(2):
        assert xapi(*ME, env=without_password(cached)).code == 0
    sandbox.revoke_tokens()

    assert xapi(*ME, env=without_password(cached)).code == 0
    assert xapi(*ME, "--no-login", env=without_password(cached)).code == 0
    assert sandbox.logins == 2


def test_cached_tokens_in_all_places_prevent_no_login_with_storage_agent(
    xapi: Xapi, keeper: KeeperProcess, env: Environ
) -> None:
    client = KeeperClient(keeper.environ, 20)
    for number in range(messages.MAX_RECORDS):
        assert client.put(key_of(Identity("https://api.test", f"user{number}"), "c"), b"cached")

    assert xapi("login", env=env).code == 0
    assert xapi("token", "show", "--no-login", env=without_password(env)).code == 0
    assert len(client.held()) == messages.MAX_RECORDS


def test_the_keyring_library_is_not_imported_for_a_cached_token(
    xapi: Xapi, keeper: KeeperProcess, env: Environ
) -> None:
    cached = {
        **env,
        **xapi.fake_keyring(),
        "XDG_RUNTIME_DIR": keeper.environ["XDG_RUNTIME_DIR"],
        "XAPI_KEYRING_CACHE": "1",
    }
    assert xapi("login", env=cached).code == 0
    assert xapi("token", "show", env=cached).code == 0
    process = xapi.start("token", "show", argv=(sys.executable, "-X", "importtime", str(PROGRAM)), env=cached)
    err = process.communicate(timeout=60)[1].decode()

    assert process.returncode == 0
    assert "xapi_cli.store.keyring_cache" in err
    assert [line for line in err.splitlines() if line.split()[-1].split(".")[0] == "keyring"] == []
