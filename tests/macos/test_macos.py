"""What only macOS has: its keychain, full syncs, short socket paths, proxies of the system."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.credential_helpers import FakeHelper
from tests.support.program import REAL, Environ, Xapi
from xapi_cli.sandbox import Sandbox

ME = ("request", "/x-api/me")
UPGRADED = {"FAKE_KEYCHAIN_PROGRAM": "upgraded python"}  # to macOS, another program


class Keychain:
    """The fake keychain of `keychain.py`, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.environ: Environ = {"FAKE_KEYCHAIN": str(path), "XAPI_STORAGE": "keyring"}
        path.write_text(json.dumps({"items": {}, "locked": False, "answer": "allow", "asked": 0}))

    def change(self, **values: object) -> None:
        """Change the values of the file."""
        self._path.write_text(json.dumps(json.loads(self._path.read_text()) | values))

    @property
    def items(self) -> dict[str, object]:
        """The items that the keychain contains."""
        items: dict[str, object] = json.loads(self._path.read_text())["items"]
        return items

    @property
    def asked(self) -> int:
        """How many times the user was asked."""
        return int(json.loads(self._path.read_text())["asked"])


@pytest.fixture
def keychain(tmp_path: Path) -> Keychain:
    return Keychain(tmp_path / "keychain.json")


@pytest.mark.parametrize("argv", [(), REAL], ids=["forked", "started"])
def test_the_program_finds_itself_on_macos(xapi: Xapi, argv: tuple[str, ...]) -> None:
    out, _ = xapi.start("doctor", argv=argv).communicate(timeout=60)

    assert " on Darwin, httpx " in out.decode()


def test_auto_selects_the_keychain(xapi: Xapi, sandbox: Sandbox, keychain: Keychain) -> None:
    env = {**sandbox.settings, **keychain.environ, "XAPI_STORAGE": None}

    assert xapi("login", env=env).code == 0
    assert xapi("logout", env=env).code == 0

    assert not list((xapi.state / "tokens").glob("*"))
    assert keychain.items == {}


def test_a_renewed_token_is_read_without_a_question(xapi: Xapi, sandbox: Sandbox, keychain: Keychain) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()

    assert [xapi(*ME, env=env).code for _ in range(3)] == [0, 0, 0]

    assert sandbox.logins == 2
    assert keychain.asked == 0


def test_an_upgraded_python_is_asked_about_until_a_login(xapi: Xapi, sandbox: Sandbox, keychain: Keychain) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0

    assert xapi(*ME, env={**env, **UPGRADED}).code == 0
    assert keychain.asked > 0

    keychain.change(asked=0)
    assert xapi("login", env={**env, **UPGRADED}).code == 0
    keychain.change(asked=0)
    assert xapi(*ME, env={**env, **UPGRADED}).code == 0
    assert keychain.asked == 0


def test_without_an_answer_a_command_ends_and_names_a_storage_that_asks_nothing(
    xapi: Xapi, sandbox: Sandbox, keychain: Keychain
) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0
    keychain.change(answer="none")

    outcome = xapi(*ME, env={**env, **UPGRADED})

    assert outcome.code == 13
    assert "did not respond" in outcome.err
    assert "--storage file" in outcome.err


def test_on_a_terminal_the_notice_names_the_helper(xapi: Xapi, sandbox: Sandbox, keychain: Keychain) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0
    keychain.change(answer="none")

    with xapi.on_terminal(*ME, env={**env, **UPGRADED}) as terminal:
        terminal.expect("waiting for the keychain", timeout=30)
        terminal.expect("osxkeychain", timeout=30)


def test_a_denied_access_names_what_to_do(xapi: Xapi, sandbox: Sandbox, keychain: Keychain) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0
    keychain.change(answer="deny")

    outcome = xapi(*ME, env={**env, **UPGRADED})

    assert outcome.code == 13
    assert outcome.err.startswith("xapi: error: access to the keychain was denied; allow it when macOS asks, or store")
    assert outcome.err.count("\n") == 1


def test_a_locked_keychain_without_a_desktop_names_the_command_that_unlocks_it(
    xapi: Xapi, sandbox: Sandbox, keychain: Keychain
) -> None:
    keychain.change(locked=True)

    outcome = xapi("login", env={**sandbox.settings, **keychain.environ})

    assert outcome.code == 13
    assert "the keychain is locked" in outcome.err
    assert "run `security unlock-keychain`" in outcome.err


def test_no_reader_finds_the_item_missing_while_it_is_replaced(
    xapi: Xapi, sandbox: Sandbox, keychain: Keychain
) -> None:
    env = {**sandbox.settings, **keychain.environ}
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()

    processes = [xapi.start(*ME, env=env) for _ in range(8)]

    assert [json.loads(process.communicate(timeout=60)[0])["id"] for process in processes] == [1] * 8
    assert sandbox.logins == 2


def test_the_recommended_helper_leaves_the_keychain_of_the_library_alone(
    xapi: Xapi, sandbox: Sandbox, keychain: Keychain, fake_helper: FakeHelper
) -> None:
    env = {
        **sandbox.settings,
        **keychain.environ,
        "XAPI_STORAGE": "helper",
        "XAPI_CREDENTIAL_HELPER": str(fake_helper.path),
    }

    assert xapi("login", env=env).code == 0
    assert xapi(*ME, env={**env, **UPGRADED}).code == 0

    assert keychain.asked == 0
    assert keychain.items == {}


def test_what_must_survive_a_power_failure_is_flushed_from_the_drive_too(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    log = tmp_path / "syncs"
    log.touch()

    assert xapi("login", env={**sandbox.settings, "FULL_SYNCS": str(log)}).code == 0
    stored = len(log.read_text().splitlines())
    assert (
        xapi(
            "batch",
            "--journal",
            str(tmp_path / "journal"),
            input='{"path": "/x-api/me"}\n',
            env={"FULL_SYNCS": str(log)},
        ).code
        == 0
    )

    assert stored > 0
    assert len(log.read_text().splitlines()) > stored


def test_the_proxies_of_the_system_settings_are_not_used(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0  # nothing listens at those of the imitation
    assert xapi(*ME).code == 0


def test_names_in_the_state_directory_do_not_differ_in_case_only(xapi: Xapi, sandbox: Sandbox) -> None:
    for profile in ("prod", "Prod"):
        assert xapi("login", "--profile", profile, env=sandbox.settings).code == 0
    for name in ("Me@example.com", "me@example.com"):
        xapi("login", env={**sandbox.settings, "XAPI_USERNAME": name})

    for directory in (xapi.config, *filter(Path.is_dir, xapi.state.rglob("*"))):
        names = [path.name for path in directory.iterdir()]
        assert len({name.casefold() for name in names}) == len(names)


def test_a_socket_path_that_is_too_long_for_macos_is_one_line(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    path = "/" + "a" * 103
    env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": f"unix://{path}"}

    outcome = xapi("login", env=env)

    assert outcome.code in {2, 13}
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("args", [("agent", "start"), ("agent", "status"), ("login", "--storage", "agent")])
def test_the_agent_is_not_available(xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]) -> None:
    outcome = xapi(*args, env=sandbox.settings)

    assert outcome.code == 2
    assert outcome.err.startswith("xapi: error: the agent is not available on this platform: it requires Linux; ")


def test_doctor_lists_what_is_not_available(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    lines = xapi("doctor").out.splitlines()

    assert "pass  agent     not available on this platform: it requires Linux" in lines
    assert "on Darwin," in lines[0]


def test_the_first_hour(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    piped = subprocess.run(
        ["sh", "-c", "xapi request /x-api/me | jq .id"], env=xapi.environment(), capture_output=True, check=True
    )
    assert piped.stdout == b"1\n"
    sandbox.revoke_tokens()
    assert xapi(*ME, "--jq", ".id", env=sandbox.settings).out == "1\n"
    lines = xapi("batch", "--jq", ".id", input='{"path": "/x-api/me"}\n' * 40).out.splitlines()
    assert [json.loads(line)["json"] for line in lines] == [1] * 40
    assert xapi("logout").code == 0
    assert xapi("token", "show").code == 10
