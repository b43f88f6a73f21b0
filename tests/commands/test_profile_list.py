"""`xapi profile list` is one view of the tokens of all accounts."""

import json

from tests.support.credential_helpers import FakeHelper
from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


def test_the_state_and_the_expiry_of_each_token_are_shown(
    xapi: Xapi, sandbox: Sandbox, fake_helper: FakeHelper
) -> None:
    with Sandbox() as other:
        for profile, server, user in (
            ("old", other, MASTER),
            ("default", sandbox, MASTER),
            ("staging", sandbox, MEMBER),
        ):
            env = {"XAPI_PASSWORD": user.password}
            assert xapi("login", "--base-url", server.base_url, "-u", user.email, "-p", profile, env=env).code == 0
            for path in (xapi.state / "tokens").iterdir() if profile == "old" else ():
                path.write_text(json.dumps(json.loads(path.read_text()) | {"expires_at": "2020-01-01T00:00:00Z"}))
    xapi("profile", "set", "timeout", "5", "-p", "empty")
    xapi("logout", "-p", "staging")

    rows = {row["name"]: row for row in json.loads(xapi("profile", "list", "--json").out)}
    states = {"old": "expired", "default": "valid", "staging": "none", "empty": None}
    assert {name: row["state"] for name, row in rows.items()} == states
    default = rows["default"]
    for name in ("default", "old"):
        assert rows[name]["expires_at"] == json.loads(xapi("token", "status", "-p", name).out)["expires_at"]

    listed = xapi("profile", "list")  # a pipe gets a line for each profile, with columns separated by tabs
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in listed.out.splitlines()}
    assert lines["default"] == ["*", MASTER.email, default["base_url"], "valid", default["expires_at"], "-"]
    assert lines["empty"] == ["-", "-", "-", "-", "-", "-"]
    assert list(lines) == list(rows)
    another = {"XAPI_BASE_URL": "https://api.test", "XAPI_USERNAME": "someone", "XAPI_TOKEN": "abc"}
    assert xapi("profile", "list", env=another) == listed

    with xapi.on_terminal("profile", "list", columns=120) as terminal:
        assert terminal.wait() == 0
    header, *shown = terminal.text.splitlines()
    assert header.split() == ["PROFILE", "USERNAME", "BASE", "URL", "TOKEN", "EXPIRES", "MODE"]
    assert {row.index("http") for row in shown[:3]} == {header.index("BASE URL")}
    assert shown[1].startswith("*  default ")
    assert shown[1].split()[-4:] == ["in", "30", "days", "-"]
    assert b"\x1b[32mvalid\x1b[0m" in terminal.seen
    assert b"\x1b[31mexpired\x1b[0m" in terminal.seen

    failing = {"XAPI_STORAGE": "keyring", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    outcome = xapi("profile", "list", "--json", env=failing)  # the storage is tried once
    assert [row["state"] for row in json.loads(outcome.out)] == ["unknown", "unknown", "unknown", None]
    assert (outcome.code, outcome.err.count("\n")) == (0, 1)
    assert outcome.err.startswith("xapi: warning: profile ")

    own = [
        ("storage", "helper", "old"),
        ("credential_helper", str(fake_helper.path), "old"),
        ("storage", "file", "default"),
    ]
    for key, value, profile in own:
        assert xapi("profile", "set", key, value, "-p", profile).code == 0
    rows = {row["name"]: row for row in json.loads(xapi("profile", "list", "--json", env={"XAPI_STORAGE": None}).out)}
    assert (rows["old"]["state"], rows["default"]["state"]) == ("none", "valid")
