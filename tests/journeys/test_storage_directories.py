"""Disks and directories in which tokens and settings are stored."""

import contextlib
import os
import re
import socket
import stat
import time
from pathlib import Path

import pytest

from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.servers import Server, serve
from tests.support.skips import IMPOSSIBLE
from tests.support.stores import ME, Env
from xapi_cli.sandbox import Sandbox

FULL = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh", str(PROGRAM))
FAULTS = {
    "no byte can be written": FULL,
    "no space is left": ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=ENOSPC", str(PROGRAM)),
    "nothing can be renamed": (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=renameat:error=EROFS",
        str(PROGRAM),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_fails_login_with_13_and_preserves_the_old_token(
    xapi: Xapi, sandbox: Sandbox, fault: str
) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    old = xapi("token", "show").out
    profile = (xapi.config / "config.toml").read_text()

    def run(*args: str) -> Outcome:
        process = xapi.start(*args, env={**sandbox.settings, "PYTHONDONTWRITEBYTECODE": "1"}, argv=FAULTS[fault])
        out, err = process.communicate(timeout=30)
        return Outcome(process.returncode, out.decode(), err.decode())

    attempts = sandbox.login_attempts
    login = run("login")
    assert (login.code, login.out, login.err.count("\n")) == (13, "", 1)
    assert re.match(r"xapi: error: the state directory \S+/xapi cannot be written: ", login.err)
    remedy = "free some space" if fault == "no space is left" else "make it writable"
    assert login.err.endswith(f"; {remedy}, or set XAPI_STATE_DIR to a writable directory\n")
    assert sandbox.login_attempts == attempts  # detected before the password was sent
    fresh = run("token", "show", "--fresh")
    assert fresh.code == 0
    assert fresh.out not in ("", old)
    assert "xapi: warning: the new token could not be stored: the state directory " in fresh.err
    assert xapi("token", "show", "--no-login").out == old
    assert (xapi.config / "config.toml").read_text() == profile
    assert [path.name for path in xapi.home.rglob("*.new")] == []


@pytest.mark.parametrize("storage, code", [("file", 13), ("keyring", 0), ("none", 0)])
def test_an_unwritable_state_directory_exits_with_13_with_file_and_causes_one_warning_otherwise(
    xapi: Xapi, sandbox: Sandbox, storage: str, code: int
) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring(), "XAPI_STORAGE": storage, "XAPI_STATE_DIR": "/sys/xapi"}

    for args in (("token", "show"), ("login",), ("token", "show", "--fresh"), ("logout",)):
        outcome = xapi(*args, env=env)
        assert outcome.code == code
        lines = [line for line in outcome.err.splitlines() if "/sys/xapi" in line]
        assert len(lines) == 1
        assert lines[0].startswith(
            "xapi: error: " if code else "xapi: warning: the state directory /sys/xapi/xapi cannot be "
        )
        if code and args == ("logout",):
            assert lines[0].endswith("; make it writable, then log out again")  # another directory contains nothing
    if storage == "file":
        assert sandbox.login_attempts == 0


@pytest.mark.parametrize("whose", ["tokens", "locks", "the record"])
def test_files_of_another_user_are_rejected(xapi: Xapi, sandbox: Sandbox, whose: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give a file away")
    assert xapi("login", env=sandbox.settings).code == 0
    (record,) = (xapi.state / "tokens").iterdir()
    before = record.read_bytes()
    foreign = record if whose == "the record" else xapi.state / whose
    os.chown(foreign, 12345, 12345)

    fresh = xapi("token", "show", "--fresh", env=sandbox.settings)

    assert (fresh.code, fresh.out, fresh.err.count("\n")) == (13 if whose == "the record" else 2, "", 1)
    assert "belongs to another user" in fresh.err
    assert record.read_bytes() == before
    assert foreign.stat().st_uid == 12345
    other = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "none"})
    assert (other.code, other.err.count("xapi: warning: ")) == (2 if whose == "locks" else 0, 0)


def test_state_and_config_directories_may_be_links_of_the_same_user(xapi: Xapi, sandbox: Sandbox) -> None:
    for name in ("state", "config"):
        (xapi.home / f"real-{name}").mkdir(mode=0o755)
        (xapi.home / name).symlink_to(f"real-{name}")
    (xapi.home / "tokens-elsewhere").mkdir(mode=0o700)
    (xapi.home / "real-state" / "xapi").mkdir(mode=0o700)
    (xapi.home / "real-state" / "xapi" / "tokens").symlink_to("../../tokens-elsewhere")

    assert xapi("login", env=sandbox.settings).code == 0
    assert xapi(*ME).code == 0

    (record,) = (xapi.home / "tokens-elsewhere").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert [stat.S_IMODE((xapi.home / f"real-{name}").stat().st_mode) for name in ("state", "config")] == [0o755] * 2


@pytest.mark.parametrize("umask", ["000", pytest.param("777", marks=pytest.mark.slow)])
def test_everything_written_is_private_with_any_umask(xapi: Xapi, sandbox: Sandbox, umask: str) -> None:
    argv = ("sh", "-c", f'umask {umask}; exec "$@"', "sh", str(PROGRAM))
    for args, env in (
        (("login",), sandbox.settings),
        (("token", "show", "--fresh"), {**sandbox.settings, "XAPI_PASSWORD": "wrong"}),
        (("logout",), {}),
        (("login", "--remember"), {**sandbox.settings, **xapi.fake_keyring()}),
    ):
        process = xapi.start(*args, env={**env, "PYTHONDONTWRITEBYTECODE": "1"}, argv=argv)
        process.communicate(timeout=30)
        assert process.returncode == (10 if env.get("XAPI_PASSWORD") == "wrong" else 0)

    paths = [path for root in (xapi.state, xapi.config) for path in (root, *root.rglob("*"))]
    wrong = {path: oct(path.stat().st_mode) for path in paths if stat.S_IMODE(path.stat().st_mode) != _private(path)}
    assert wrong == {}


def _private(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


@pytest.mark.parametrize(
    "env, code",
    [
        ({"HOME": "/dev/null"}, 13),
        ({"HOME": "/proc/nowhere"}, 13),
        ({"HOME": ""}, 0),  # the directories below determine it
        ({"HOME": "/dev/null", "XDG_STATE_HOME": "{home}/xdg", "XDG_CONFIG_HOME": "{home}/xdg"}, 0),
        ({"XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}, 0),
        ({"XAPI_STATE_DIR": "{home}/a b/\u00e9/\udcff"}, 0),
        ({"XAPI_STATE_DIR": "/dev/null/state"}, 13),
        ({"XAPI_STATE_DIR": "{home}/" + "x" * 300}, 13),
    ],
    ids=repr,
)
def test_any_location_of_the_directories_works_or_is_one_error_line(
    xapi: Xapi, sandbox: Sandbox, env: dict[str, str], code: int
) -> None:
    given = {name: value.format(home=xapi.home) for name, value in env.items()}
    nowhere = {} if given.get("HOME") == "" else {"XAPI_STATE_DIR": None, "XAPI_CONFIG_DIR": None}
    environ: Env = {**sandbox.settings, **nowhere, **given}

    outcome = xapi("login", env=environ)

    assert (outcome.code, outcome.out) == (code, ""), outcome
    assert "Traceback" not in outcome.err
    if code:
        assert outcome.err.count("\n") == 1
    else:
        assert xapi(*ME, "--no-login", env=environ).code == 0


@pytest.mark.parametrize(
    "storage, env",
    [
        pytest.param(storage, env, marks=pytest.mark.slow if (row + column) % 2 else ())
        for row, storage in enumerate(["file", "keyring"])
        for column, env in enumerate([{"LANG": "C", "LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}])
    ],
    ids=repr,
)
def test_names_that_the_locale_cannot_encode_are_stored(xapi: Xapi, env: dict[str, str], storage: str) -> None:
    granted = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"access_token": "abc"}'
    with Server([serve(granted)]) as server:
        me = "m\u00e9@\u6f22.test"
        environ: Env = {**xapi.fake_keyring(), "XAPI_STORAGE": storage, "XAPI_PASSWORD": "\u00e9\udcff", **env}
        where = ("--base-url", server.url, "-u", me)

        login = xapi("login", *where, env=environ)
        shown = xapi("token", "show", "--no-login", *where, env=environ)
        logout = xapi("logout", *where, env=environ)

    assert (login.code, shown, logout.code) == (0, Outcome(0, "abc\n"), 0), (login, shown, logout)
    assert b"password=%C3%A9%FF" in server.received[0]


@pytest.mark.parametrize("kind", ["directory", "named pipe", "symbolic link", "socket"])
def test_what_is_in_place_of_a_lock_file_is_named(xapi: Xapi, sandbox: Sandbox, kind: str) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    locks = list((xapi.state / "locks").glob("*.login.lock"))
    assert len(locks) == 1
    locks[0].unlink()
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(locks[0].parent):
            listener.bind(locks[0].name)  # a short path
    else:
        make = {"directory": os.mkdir, "named pipe": os.mkfifo, "symbolic link": lambda path: path.symlink_to("x")}
        make[kind](locks[0])

    with_file = xapi("token", "show", "--fresh", env=sandbox.settings)
    without = xapi("token", "show", env={**sandbox.settings, "XAPI_STORAGE": "none"})

    problem = f"the lock file {locks[0]} is a {kind}"
    assert with_file == Outcome(13, "", f"xapi: error: {problem}; remove it\n")
    assert (without.code, f"xapi: warning: {problem}; continuing without locks\n" in without.err) == (0, True)


def test_a_renewal_opens_few_directories(xapi: Xapi, sandbox: Sandbox) -> None:
    """Each directory is opened once, even on a long path; importing modules lists others."""
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("needs strace")
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "file"}
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()
    log = xapi.home / "trace"
    argv = ("strace", "-f", "-qq", "-o", str(log), "-e", "trace=openat", str(PROGRAM))
    process = xapi.start("request", "/x-api/me", env=env, argv=argv)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count(b"logged in")) == (0, 1), err

    opened = [line for line in log.read_text().splitlines() if "O_DIRECTORY" in line and "O_NONBLOCK" not in line]
    paths = [xapi.state, xapi.home / ".config"]
    assert len(opened) <= 12 + sum(len(path.parts) for path in paths), "\n".join(opened)


def test_any_use_of_the_token_removes_what_was_recorded_about_older_failed_logins(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    assert xapi("token", "show", "--fresh", env=sandbox.settings | {"XAPI_PASSWORD": "wrong"}).code == 10
    attempts = xapi.state / "attempts"
    (recorded,) = attempts.glob("*.refused")
    old = attempts / f"{'0' * 32}.refused"
    old.write_bytes(b"")
    os.utime(old, (time.time() - 100,) * 2)

    assert xapi("token", "status").code == 0
    assert list(attempts.iterdir()) == [recorded]
