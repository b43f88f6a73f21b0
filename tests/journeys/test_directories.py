"""The directories in which settings and tokens are stored: other users, unusual locations and disks that fail."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tests.support.ownership import make_unsafe, needs_root
from tests.support.program import PROGRAM, Xapi
from tests.support.stores import ME, Env
from xapi_cli.features.sandbox import Sandbox

NOWHERE: Env = {"XAPI_STATE_DIR": None, "XAPI_CONFIG_DIR": None}
UNSAFE = {
    "another user's": "belongs to another user; set {} to a directory that only you can write to\n",
    "another user's, above": "belongs to another user; set {} to a directory that only you can write to\n",
    "everyone's": "`, or set {} to a directory that only you can write to\n",
    "everyone's, above": "`, or set {} to a directory that only you can write to\n",
}
HOWS = [pytest.param(how, marks=needs_root if how.startswith("another") else ()) for how in UNSAFE]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("how", HOWS)
def test_an_unsafe_state_directory_exits_with_2_before_anything_is_sent(xapi: Xapi, sandbox: Sandbox, how: str) -> None:
    storage = "none" if "above" in how else "file"
    xapi.state.mkdir(parents=True)
    make_unsafe(xapi.state, how)
    for args in (("login",), ME, ("logout",), ("token", "status"), ("logout", "--all")):
        outcome = xapi(*args, env={**sandbox.settings, "XAPI_STORAGE": storage})
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert outcome.err.endswith(UNSAFE[how].format("XAPI_STATE_DIR"))
    checks = {each["name"]: each for each in json.loads(xapi("doctor", "--json", env=sandbox.settings).out)["checks"]}
    assert [name for name, check in checks.items() if check["status"] == "fail"] == ["file"]
    assert (sandbox.login_attempts, os.listdir(xapi.state)) == (0, [])


@pytest.fixture
def ran(xapi: Xapi, sandbox: Sandbox) -> Path:
    """Write a config file with a password_command that creates the returned file."""
    marker = xapi.home / "ran"
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{sandbox.settings["XAPI_USERNAME"]}"\n'
        f"password_command = ['sh', '-c', 'touch {marker}; echo \"$0\"', '{sandbox.settings['XAPI_PASSWORD']}']\n"
    )
    return marker


@pytest.mark.parametrize("how", [*HOWS, "everyone's dotfiles"])
def test_an_unsafe_config_file_is_rejected(xapi: Xapi, sandbox: Sandbox, ran: Path, how: str) -> None:
    path = xapi.config / "config.toml"
    if how in UNSAFE:
        make_unsafe(path, how)
    else:
        (xapi.home / "dotfiles").mkdir()
        path.rename(xapi.home / "dotfiles" / "xapi.toml")
        path.symlink_to("../dotfiles/xapi.toml")
        (xapi.home / "dotfiles").chmod(0o777)
    for args in (ME, ("login",), ("profile", "list"), ("profile", "set", "timeout", "5")):
        outcome = xapi(*args)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert "set XAPI_CONFIG_DIR to a directory that only you can write to" in outcome.err
    assert xapi("--help").code == 0
    assert (ran.exists(), sandbox.login_attempts) == (False, 0)
    (new := xapi.home / "new").mkdir()
    new.chmod(0o777)
    assert xapi("profile", "set", "timeout", "5", env={"XAPI_CONFIG_DIR": str(new)}).code == 2


def test_everything_written_is_private_even_with_an_open_umask(xapi: Xapi, sandbox: Sandbox) -> None:
    argv = ("sh", "-c", 'umask 000; exec "$@"', "sh", str(PROGRAM))
    for args, env, code in (
        (("login",), sandbox.settings, 0),
        (("token", "show", "--fresh"), {**sandbox.settings, "XAPI_PASSWORD": "wrong"}, 10),
        (("logout",), {}, 0),
    ):
        process = xapi.start(*args, env=env, argv=argv)
        process.communicate()
        assert process.returncode == code
    paths = [path for root in (xapi.state, xapi.config) for path in (root, *root.rglob("*"))]
    assert {_mode(path) for path in paths if path.is_dir()} == {0o700}
    assert {_mode(path) for path in paths if path.is_file()} == {0o600}


@pytest.mark.parametrize("how", ["relative", "everyone's", pytest.param("another user's", marks=needs_root)])
def test_keyring_is_not_used_where_others_could_write_its_configuration(xapi: Xapi, how: str) -> None:
    path = xapi.home / "python_keyring" / "keyringrc.cfg"
    path.parent.mkdir()
    path.write_text("[backend]\ndefault-keyring = evil.Keyring\n")
    if how != "relative":
        make_unsafe(path, how)
    code = (
        "from xapi_cli.store.keyring.backends import Backends, NoBackend; from pathlib import Path; import os\n"
        "from xapi_cli.system.files import StateDirectory\n"
        "try: Backends(StateDirectory(Path('/x')), os.environ).known()\n"
        "except NoBackend as error: print(error)"
    )
    env = {"XDG_CONFIG_HOME": "." if how == "relative" else str(xapi.home)}
    out, err = xapi.start("-c", code, env=env, argv=(sys.executable,)).communicate()
    message = {"relative": b"current directory", "everyone's": b"other users can write", "another user's": b"belongs"}
    assert (out.count(message[how]), out.count(b"--storage file"), err) == (1, 1, b"")


@pytest.mark.parametrize("trap", [{"XDG_CONFIG_HOME": "."}, {"HOME": "."}, {"HOME": ""}], ids=repr)
def test_keyring_runs_no_code_from_the_current_directory(xapi: Xapi, sandbox: Sandbox, trap: dict[str, str]) -> None:
    repository = xapi.home / "repository"
    for name in ("python_keyring", ".config/python_keyring"):
        (repository / name).mkdir(parents=True)
        (repository / name / "keyringrc.cfg").write_text(
            f"[backend]\ndefault-keyring = evil.Keyring\nkeyring-path = {repository}\n"
        )
    (repository / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('sprung').touch()")
    env = {**sandbox.settings, "XAPI_STORAGE": "auto", "DBUS_SESSION_BUS_ADDRESS": "disabled:", **trap}
    assert xapi(*ME, env=env, cwd=repository).code == 0
    assert not (repository / "sprung").exists()


@pytest.mark.parametrize("storage, code", [("file", 13), ("none", 0)])
def test_a_missing_home_directory_is_not_created(xapi: Xapi, sandbox: Sandbox, storage: str, code: int) -> None:
    home = xapi.home / "homes" / "me"
    outcome = xapi(*ME, env={**sandbox.settings, **NOWHERE, "HOME": str(home), "XAPI_STORAGE": storage})
    assert (outcome.code, "no home directory:" in outcome.err, home.parent.exists()) == (code, True, False)


LOCATIONS: list[tuple[dict[str, str], int]] = [
    ({"HOME": "/dev/null"}, 13),
    ({"HOME": "/proc/nowhere"}, 13),
    ({"HOME": "/dev/null", "XDG_STATE_HOME": "{home}/xdg", "XDG_CONFIG_HOME": "{home}/xdg"}, 0),
    ({"XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}, 0),
    ({"XAPI_STATE_DIR": "{home}/a b/\u00e9/\udcff"}, 0),
    ({"XAPI_STATE_DIR": "/dev/null/state"}, 13),
    ({"XAPI_STATE_DIR": "{home}/" + "x" * 300}, 13),
]


@pytest.mark.parametrize("env, code", LOCATIONS, ids=repr)
def test_any_location_of_the_directories_works_or_is_one_error_line(
    xapi: Xapi, sandbox: Sandbox, env: dict[str, str], code: int
) -> None:
    given = {name: value.format(home=xapi.home) for name, value in env.items()}
    outcome = xapi("login", env={**sandbox.settings, **NOWHERE, **given})
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1), outcome


@pytest.mark.parametrize("storage, code", [("file", 13), ("keyring", 0), ("none", 0)])
def test_an_unwritable_state_directory_exits_with_13_with_file_and_causes_one_warning_otherwise(
    xapi: Xapi, sandbox: Sandbox, storage: str, code: int
) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring(), "XAPI_STORAGE": storage, "XAPI_STATE_DIR": "/sys/xapi"}
    for args in (("token", "show"), ("login",), ("token", "show", "--fresh"), ("logout",)):
        outcome = xapi(*args, env=env)
        lines = [line for line in outcome.err.splitlines() if "/sys/xapi" in line]
        start = "xapi: error: " if code else "xapi: warning: the state directory /sys/xapi/xapi cannot be "
        assert (outcome.code, len(lines), lines[0].startswith(start)) == (code, 1, True)
    assert sandbox.login_attempts == 0 or storage != "file"
