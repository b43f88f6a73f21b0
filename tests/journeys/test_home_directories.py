"""Home directories, the configuration of keyring, and file systems that xapi does not trust."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.ownership import OTHER_USER, give_away, make_unsafe, needs_root
from tests.support.program import PROGRAM, Environ, Xapi, in_deleted_directory
from tests.support.skips import IMPOSSIBLE
from xapi_cli.sandbox import Sandbox

ME = ("request", "/x-api/me")


TRAPS = {
    "XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": "."},
    "HOME": {"HOME": "."},
    "no HOME": {"HOME": ""},
}


@pytest.mark.parametrize("trap", TRAPS)
def test_keyring_runs_no_code_from_the_current_directory(xapi: Xapi, sandbox: Sandbox, trap: str) -> None:
    repository = xapi.home / "repository"
    for name in ("python_keyring", ".config/python_keyring"):
        (repository / name).mkdir(parents=True)
        (repository / name / "keyringrc.cfg").write_text(
            f"[backend]\ndefault-keyring = evil.Keyring\nkeyring-path = {repository}\n"
        )
    (repository / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('sprung').touch()")
    env = {**sandbox.settings, "XAPI_STORAGE": "auto", "DBUS_SESSION_BUS_ADDRESS": "disabled:", **TRAPS[trap]}

    outcome = xapi(*ME, env=env, cwd=repository)

    assert outcome.code == 0
    assert not (repository / "sprung").exists()
    shown = xapi("exec", "--", "sh", "-c", "echo $HOME $XDG_CONFIG_HOME", env=env, cwd=repository).out
    assert shown == f"{TRAPS[trap].get('HOME', xapi.home)} {TRAPS[trap].get('XDG_CONFIG_HOME', '')}".rstrip() + "\n"


@pytest.mark.parametrize("how", ["relative", "everyone's", "another user's"])
def test_keyring_is_not_used_where_others_could_write_its_configuration(xapi: Xapi, how: str) -> None:
    """Test a program that uses the library, and one whose HOME belongs to another user."""
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    path = xapi.home / "python_keyring" / "keyringrc.cfg"
    path.parent.mkdir()
    path.write_text("[backend]\ndefault-keyring = evil.Keyring\n")
    if how != "relative":
        make_unsafe(path, how)
    code = (
        "from xapi_cli.store.keyring.backends import Backends, NoKeyring; from pathlib import Path; import os\n"
        "from xapi_cli.system.private_files import StateDirectory\n"
        "for search in ('known', 'found'):\n"
        "    try: getattr(Backends(StateDirectory(Path('/x')), os.environ), search)()\n"
        "    except NoKeyring as error: print(error)"
    )
    env = {"XDG_CONFIG_HOME": "." if how == "relative" else str(xapi.home)}
    process = xapi.start("-c", code, env=env, argv=(sys.executable,))
    out, err = process.communicate(timeout=30)

    message = {"relative": b"current directory", "everyone's": b"everyone can write", "another user's": b"another user"}
    assert (out.count(message[how]), out.count(b"--storage file"), err) == (2, 2, b"")


@pytest.mark.parametrize("storage", ["file", "none"])
@pytest.mark.parametrize("args", ["login", "request /x-api/me"])
def test_a_missing_home_directory_is_not_created(xapi: Xapi, sandbox: Sandbox, storage: str, args: str) -> None:
    (xapi.home / "real").mkdir()
    (xapi.home / "linked").symlink_to("real")  # as /home is on some systems
    for home in (xapi.home / "homes" / "me", xapi.home / "linked" / "me"):
        env = {"HOME": str(home), "XAPI_CONFIG_DIR": None, "XAPI_STATE_DIR": None, "XAPI_STORAGE": storage}

        outcome = xapi(*args.split(), env={**sandbox.settings, **env})

        assert outcome.code == (13 if storage == "file" else 0)
        assert (outcome.err.count("no home directory:") > 0) or storage == "file"
        assert not home.exists()
    assert not (xapi.home / "homes").exists()


@needs_root
@pytest.mark.parametrize("args", ["login", "profile set base_url https://api.test"])
@pytest.mark.parametrize("existing", ["", ".config"])
def test_root_creates_nothing_in_the_home_directory_of_the_caller_of_sudo(
    xapi: Xapi, sandbox: Sandbox, args: str, existing: str
) -> None:
    env: Environ = {
        **sandbox.settings,
        **dict.fromkeys(("XAPI_CONFIG_DIR", "XAPI_STATE_DIR", "XDG_RUNTIME_DIR"), None),
        "HOME": str(xapi.home / "alice"),
        "SUDO_UID": str(OTHER_USER),
    }
    home = xapi.home / "alice"
    (home / existing).mkdir(parents=True)
    for each in (home, *home.rglob("*")):
        give_away(each)

    refused = xapi(*args.split(), env=env)
    left = {each.relative_to(home) for each in home.rglob("*")}
    accepted = xapi("login", env={**env, "SUDO_UID": None})  # as in a container with a volume

    assert refused.code == 2
    assert "home directory of the caller of sudo; run it without sudo, or with `sudo -H`, or set" in refused.err
    assert left <= {Path(existing)}
    assert sandbox.login_attempts == 1
    assert accepted.code == 0


@pytest.mark.parametrize("name", ["XAPI_STATE_DIR", "XAPI_CONFIG_DIR"])
def test_a_relative_directory_in_a_deleted_one_exits_with_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, name: str
) -> None:
    outcome = in_deleted_directory(xapi, "login", env={**sandbox.settings, name: "relative"})

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"xapi: error: {name} is relative, and the current directory does not exist; set it to an absolute path\n"
    )
    assert sandbox.login_attempts == 0


@pytest.mark.parametrize("given", ["missing", "another user's"])
def test_completion_is_installed_only_in_the_users_own_home(xapi: Xapi, given: str) -> None:
    if given.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    home = xapi.home / "another-home"
    if given != "missing":
        home.mkdir()
        give_away(home)

    outcome = xapi("--install-completion", "bash", env={"HOME": str(home)})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (14, "", 1)
    assert home.exists() == (given != "missing")
    assert not home.exists() or os.listdir(home) == []


@pytest.mark.parametrize(
    "storage, error",
    [  # the cases that are not slow have each error and each storage
        pytest.param(storage, error, marks=pytest.mark.slow if (row + column) % 2 else ())
        for row, storage in enumerate(["file", "none"])
        for column, error in enumerate(["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
    ],
)
def test_a_file_system_without_locks_is_reported(xapi: Xapi, sandbox: Sandbox, error: str, storage: str) -> None:
    prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=flock:error={error}", str(PROGRAM))
    process = xapi.start(*ME, env={**sandbox.settings, "XAPI_STORAGE": storage}, argv=prefix)
    out, err = process.communicate(timeout=60)

    result = f"the file system of the state directory {xapi.state} does not support locks (".encode()
    assert (process.returncode, err.count(result), err.count(b"cannot be written")) == (
        13 if storage == "file" else 0,
        1,
        0,
    )
    if storage == "file":
        assert b"; set XAPI_STATE_DIR to a directory on a local file system\n" in err
    else:
        assert json.loads(out)
        assert b"; continuing without locks\n" in err


def test_doctor_reports_an_unsafe_state_directory_once(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.state.parent.mkdir()
    xapi.state.parent.chmod(0o777)

    outcome = xapi("doctor", "--json", env=sandbox.settings)

    checks = {check["name"]: check for check in json.loads(outcome.out)["checks"]}
    assert [name for name, check in checks.items() if check["status"] == "fail"] == ["state"]
    assert checks["state"]["hint"].startswith(f"run `chmod o-w {xapi.state.parent}`")
    assert (checks["token"]["hint"], os.listdir(xapi.state.parent)) == ("see state", [])
