"""The program and its storage: failing keyrings, full disks, directories of other users."""

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.keyring_session import KeyringSession
from tests.program import PROGRAM, Outcome, Xapi
from tests.servers import Server, Stopwatch, serve
from tests.skips import IMPOSSIBLE
from xapi_cli.sandbox import MASTER, Sandbox

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
REMEDY = "XAPI_STORAGE=file"
BROKEN = [
    pytest.param("Unresponsive", marks=pytest.mark.slow),
    pytest.param("sleeping_module.Keyring", marks=pytest.mark.slow),
    "Raising OSError",
    "Raising KeyringLocked",
    "Raising PanicException",
    "Missing",
    "missing_module.Keyring",
    "keyring.backends.null.Keyring",
    "keyring.backends.fail.Keyring",
    "nobody's",
]


def _in_time(xapi: Xapi, *args: str, env: Env, within: float = 4.5) -> Outcome:
    """Run the program until it ends in time, at most six times, because the machine may be busy."""
    took: list[float] = []
    while True:
        with Stopwatch() as watch:
            outcome = xapi(*args, env=env)
        took.append(watch.seconds)
        if took[-1] < within:
            return outcome
        assert len(took) < 6, took


def _keyring(xapi: Xapi, broken: str) -> Env:
    """Return the environment in which the keyring is one of BROKEN."""
    if broken == "nobody's":  # without a session bus there is no service
        return {"XAPI_STORAGE": "keyring"}
    backend, _, error = broken.partition(" ")
    return {**xapi.fake_keyring(backend), "FAKE_KEYRING_RAISES": error or None}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_keyring_exits_with_13_in_time_and_auto_falls_back_to_memory(
    xapi: Xapi, sandbox: Sandbox, broken: str
) -> None:
    env: Env = _keyring(xapi, broken)
    commands = [(("token", "show"), "keyring"), (("login",), "keyring"), (("logout",), "keyring")]
    commands += [(("login",), "auto"), (ME, "auto")]

    def run(number: int) -> Outcome:
        args, storage = commands[number]
        state = str(xapi.home / f"state{number}")  # separate state, so that none waits for another
        settings = sandbox.settings if args == ME else untouched.settings
        return _in_time(xapi, *args, env={**env, **settings, "XAPI_STORAGE": storage, "XAPI_STATE_DIR": state})

    with Sandbox() as untouched, ThreadPoolExecutor(len(commands)) as pool:
        *explicit, login, outcome = pool.map(run, range(len(commands)))

    for each in explicit:
        assert (each.code, each.out, each.err.count("\n")) == (13, "", 1)
        assert REMEDY in each.err
        assert "CANARY" not in each.err
    assert (login.code, REMEDY in login.err) == (13, True)
    assert not xapi.config.exists()
    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert (untouched.requests, untouched.login_attempts) == (0, 0)  # login probed the store before it sent anything
    warning, note = outcome.err.splitlines()
    assert warning.startswith("xapi: warning: ")
    assert "the token is not stored" in warning
    assert REMEDY in warning
    assert note.startswith("xapi: no stored token: logged in as ")


@pytest.mark.parametrize("storage", ["keyring", "auto"])
def test_a_keyring_that_stores_nothing_fails_login_with_13_and_causes_a_warning_in_other_commands(
    xapi: Xapi, sandbox: Sandbox, storage: str
) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring("NotPersistent"), "XAPI_STORAGE": storage}

    login = xapi("login", env=env)
    assert (login.code, login.out, sandbox.login_attempts) == (13, "", 0)
    assert login.err.startswith("xapi: error: the keyring accepts records but does not store them; ")
    outcome = xapi(*ME, env=env)
    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert "xapi: warning: the new token could not be stored: the keyring accepts records but" in outcome.err


def test_a_keyring_that_cannot_delete_stores_tokens_and_logout_reports_what_it_cannot_delete(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring("Undeletable")}

    login = xapi("login", env=env)
    assert (login.code, login.err.count("\n")) == (0, 2)
    assert login.err.startswith("xapi: warning: deleting from the keyring failed (PasswordDeleteError): `xapi logout`")
    assert xapi(*ME, "--no-login", env=env).code == 0
    logout = xapi("logout", env=env)
    assert (logout.code, logout.err.count("\n")) == (13, 1)
    assert ": deleting from the keyring failed" in logout.err
    doctor = xapi("doctor", "--json", env=env)
    assert "deleting from the keyring failed (PasswordDeleteError)" in doctor.out


@pytest.mark.slow
def test_a_slow_keyring_works(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring("Slow"), "FAKE_KEYRING_SECONDS": "0.5"}

    assert xapi("login", "--remember", env=env, timeout=60).code == 0
    assert xapi("token", "show", "--no-login", env=env).code == 0
    assert xapi("logout", env=env, timeout=60).code == 0
    assert (xapi.home / "items.json").read_text() == "[]"


@pytest.mark.parametrize("args", [ME, ("token", "show"), ("exec", "--", "true")])
def test_with_a_supplied_token_keyring_is_not_imported(xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    token = xapi("token", "show").out.strip()
    env: Env = {**sandbox.settings, **xapi.fake_keyring("sleeping_module.Keyring"), "PYTHONPROFILEIMPORTTIME": "1"}

    outcome = xapi(*args, env={**env, "XAPI_TOKEN": token})

    imported = {line.rpartition("|")[2].strip() for line in outcome.err.splitlines()}
    assert outcome.code == 0
    assert "xapi_cli.runtime" in imported
    assert {name for name in imported if name.partition(".")[0] in {"keyring", "filelock", "secretstorage"}} == set()


# the user is present to unlock it


@pytest.mark.slow
def test_on_a_terminal_a_note_precedes_the_wait_for_a_keyring(xapi: Xapi, gnome_keyring: KeyringSession) -> None:
    args = ("token", "show", "--no-login", "--base-url", "api.test", "-u", "me")
    env: Env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring"}
    assert xapi(*args, env=env).code == 10  # the keyring responds: it holds no token
    gnome_keyring.freeze()
    with xapi.on_terminal(*args, env=env) as terminal:
        terminal.expect("xapi: warning: waiting for the keyring; it may be waiting for you to unlock it", timeout=30)
        with pytest.raises(AssertionError, match="still running"):
            terminal.wait(4)
        gnome_keyring.thaw()
        assert terminal.wait() == 10
    gnome_keyring.freeze()
    with xapi.on_terminal(*args, env=env) as terminal:
        terminal.expect("waiting for the keyring", timeout=30)
        terminal.interrupt()
        assert terminal.wait(5) == 130
    gnome_keyring.thaw()


def test_with_no_input_the_wait_for_a_keyring_is_as_short_as_in_a_script(xapi: Xapi) -> None:
    args = ("token", "show", "--no-input", "--base-url", "api.test", "-u", "me")
    with xapi.on_terminal(*args, env=xapi.fake_keyring("Unresponsive")) as terminal:
        assert terminal.wait(15) == 13
    assert b"waiting" not in terminal.seen


@pytest.mark.soak
def test_on_a_terminal_a_command_waits_at_most_a_minute(xapi: Xapi) -> None:
    args = ("token", "show", "--base-url", "api.test", "-u", "me")
    with Stopwatch() as watch, xapi.on_terminal(*args, env=xapi.fake_keyring("Unresponsive")) as terminal:
        terminal.expect("waiting for the keyring")
        assert terminal.wait(75) == 13
    assert 59 < watch.seconds < 66


# a package with a plaintext backend


@pytest.fixture
def plain_files(tmp_path: Path) -> str:
    """A directory for PYTHONPATH that contains only the package keyrings.alt."""
    found = distribution("keyrings.alt")
    directory = tmp_path / "site-packages"
    directory.mkdir()
    for name in {Path(str(file)).parts[0] for file in found.files or ()}:
        if name != "..":
            shutil.copytree(str(found.locate_file(name)), directory / name)
    return str(directory)


def test_a_plaintext_backend_is_not_used(xapi: Xapi, sandbox: Sandbox, plain_files: str) -> None:
    env: Env = {**sandbox.settings, "PYTHONPATH": plain_files}

    for storage, code in (("keyring", 13), ("auto", 0)):
        outcome = xapi(*ME, env={**env, "XAPI_STORAGE": storage})
        assert (outcome.code, "no usable keyring on this machine" in outcome.err) == (code, True)
        assert xapi("login", env={**env, "XAPI_STORAGE": storage}).code == 13
    assert list(xapi.home.rglob("*python_keyring*")) == []


@pytest.mark.parametrize("named", ["in the environment", "in a file"])
def test_a_plaintext_backend_is_used_if_it_is_named(xapi: Xapi, sandbox: Sandbox, plain_files: str, named: str) -> None:
    env: Env = {**sandbox.settings, "PYTHONPATH": plain_files, "XAPI_STORAGE": "keyring"}
    backend = "keyrings.alt.file.PlaintextKeyring"
    if named == "in a file":
        config = xapi.home / ".config/python_keyring/keyringrc.cfg"
        config.parent.mkdir(parents=True)
        config.write_text(f"[backend]\ndefault-keyring={backend}\n")
    else:
        env["PYTHON_KEYRING_BACKEND"] = backend

    assert xapi("login", env=env).code == 0
    assert xapi(*ME, "--no-login", env=env).code == 0
    assert xapi("logout", env=env).code == 0
    assert xapi(*ME, "--no-login", env=env).code == 10


# disks and directories


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
    assert login.err.startswith("xapi: error: cannot write the token file ")
    assert "XAPI_STATE_DIR" in login.err
    assert sandbox.login_attempts == attempts  # detected before the password was sent
    fresh = run("token", "show", "--fresh")
    assert fresh.code == 0
    assert fresh.out not in ("", old)
    assert "xapi: warning: the new token could not be stored: cannot write the token file " in fresh.err
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


@pytest.mark.parametrize("umask", ["000", "777"])
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
    "env",
    [{"LANG": "C", "LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}],
    ids=repr,
)
@pytest.mark.parametrize("storage", ["file", "keyring"])
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
