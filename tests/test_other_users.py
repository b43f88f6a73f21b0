"""Files and directories of other users, of everyone, and of the user: what xapi obeys, follows, changes and deletes."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.commands.api import answer, bearing
from tests.program import PROGRAM, Outcome, Xapi, in_deleted_directory
from tests.servers import OK, Server, request, send
from tests.skips import IMPOSSIBLE
from xapi_cli.sandbox import Sandbox

ME = ("request", "/x-api/me")
SOMEBODY = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"{IMPOSSIBLE}only root can give files away")


def _give_away(path: Path) -> None:
    os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (_mode(path), path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("bits", [0o755, 0o1777])
def test_a_state_directory_that_holds_other_files_keeps_them_and_its_mode(
    xapi: Xapi, sandbox: Sandbox, bits: int
) -> None:
    theirs = xapi.state.parent
    for name in ("attempts/notes.txt", "known/old.json", "tokens/probe", "locks/config.lock", "doctor", "probe"):
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text("precious")
        os.utime(theirs / name, (0, 0))
    theirs.chmod(bits)
    before = _tree(theirs)

    for words in (("login",), ME, ("token", "status"), ("doctor",), ("logout", "--all")):
        assert xapi(*words, env=sandbox.settings).code == 0

    after = {name: found for name, found in _tree(theirs).items() if not name.startswith("xapi")}
    assert (after, _mode(theirs), _mode(xapi.state)) == (before, bits, 0o700)


def test_of_old_files_among_the_attempts_only_xapis_own_are_deleted(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env={**sandbox.settings, "XAPI_PASSWORD": "wrong"}).code == 10
    (own,) = (xapi.state / "attempts").iterdir()
    others = [own.with_name(name) for name in ("notes.txt", "x.refused", f"{own.name}.bak")]
    for path in others:
        path.write_text("precious")
    for path in (own, *others):
        os.utime(path, (0, 0))

    assert xapi("token", "status", env=sandbox.settings).code == 10
    assert sorted(own.parent.iterdir()) == sorted(others)


@needs_root
def test_a_link_of_another_user_in_place_of_a_state_directory_is_not_followed(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.state.mkdir(parents=True, mode=0o700)
    victim = xapi.home / "victim"
    victim.mkdir()
    (victim / f"{'0' * 32}.failed").write_text("precious")
    os.utime(victim / f"{'0' * 32}.failed", (0, 0))
    (xapi.state / "attempts").symlink_to(victim)
    _give_away(xapi.state / "attempts")

    outcome = xapi("token", "status", env=sandbox.settings)

    problem = f"the symbolic link {xapi.state / 'attempts'} belongs to another user"
    remedy = "set XAPI_STATE_DIR to a directory of your own"
    assert (outcome.code, outcome.err) == (2, f"xapi: error: {problem}; {remedy}\n")
    assert os.listdir(victim) == [f"{'0' * 32}.failed"]


UNSAFE = {
    "another user's": "belongs to another user; set {} to a directory of your own",
    "another user's, above": "belongs to another user; set {} to a directory of your own",
    "everyone's": ", or set {} to a directory of your own",
    "everyone's, above": ", or set {} to a directory of your own",
}


def _spoil(path: Path, how: str) -> None:
    path = path.parent if how.endswith("above") else path
    if how.startswith("another"):
        _give_away(path)
    else:
        path.chmod(path.stat().st_mode | stat.S_IWOTH)


@pytest.mark.parametrize("storage", ["file", "none"])
@pytest.mark.parametrize("how", UNSAFE)
def test_an_unsafe_state_directory_is_exit_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, how: str, storage: str
) -> None:
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    xapi.state.mkdir(parents=True)
    _spoil(xapi.state, how)

    for words in (("login",), ME, ("logout",), ("token", "status"), ("logout", "--all")):
        outcome = xapi(*words, env={**sandbox.settings, "XAPI_STORAGE": storage})
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert UNSAFE[how].format("XAPI_STATE_DIR") in outcome.err
    assert (sandbox.login_attempts, sandbox.requests, os.listdir(xapi.state)) == (0, 0, [])


@pytest.fixture
def ran(xapi: Xapi, sandbox: Sandbox) -> Path:
    """Let the config file have a password command, which makes the file that is returned."""
    marker = xapi.home / "ran"
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{sandbox.settings["XAPI_USERNAME"]}"\n'
        f"password_command = ['sh', '-c', 'touch {marker}; echo \"$0\"', '{sandbox.settings['XAPI_PASSWORD']}']\n"
    )
    (xapi.config / "config.toml").chmod(0o600)
    return marker


@pytest.mark.parametrize("how", [*UNSAFE, "another user's link", "everyone's dotfiles"])
def test_an_unsafe_config_file_is_not_obeyed(xapi: Xapi, sandbox: Sandbox, ran: Path, how: str) -> None:
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    path = xapi.config / "config.toml"
    if how in UNSAFE:
        _spoil(path, how)
    else:
        (xapi.home / "dotfiles").mkdir()
        path.rename(xapi.home / "dotfiles" / "xapi.toml")
        path.symlink_to("../dotfiles/xapi.toml")
        _give_away(path) if how.endswith("link") else (xapi.home / "dotfiles").chmod(0o777)

    for words in (ME, ("login",), ("profile", "list"), ("profile", "set", "timeout", "5")):
        outcome = xapi(*words)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert "set XAPI_CONFIG_DIR to a directory of your own" in outcome.err
    for words in (("--version",), ("--help",), ("request", "--help")):
        assert xapi(*words).code == 0
    asked = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi request --profile ", "COMP_CWORD": "3"}
    assert xapi(env=asked) == Outcome(0, "\n")
    assert (ran.exists(), sandbox.login_attempts) == (False, 0)


@pytest.mark.parametrize("bits", [0o644, 0o664])
def test_a_config_file_that_everyone_can_read_or_the_group_can_write_to_is_obeyed(
    xapi: Xapi, ran: Path, bits: int
) -> None:
    (xapi.config / "config.toml").chmod(bits)
    xapi.config.chmod(0o1777)  # as the secrets that Kubernetes mounts

    assert xapi(*ME).code == 0
    assert ran.exists()


@needs_root
def test_a_path_of_roots_is_good_for_other_users() -> None:
    code = (
        "import os, sys, tomllib; from pathlib import Path; b'x'.decode('utf-8-sig')\n"
        "from xapi_cli.settings import config_file\n"
        f"os.seteuid({SOMEBODY}); print(len(config_file.load(Path(sys.argv[1])).profiles))"
    )
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        real, link = Path(name, "real.toml"), Path(name, "config.toml")
        real.write_text('[profiles.default]\nusername = "me"\n')
        link.symlink_to(real)
        ended = subprocess.run([sys.executable, "-c", code, link], capture_output=True, check=False, text=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


OUTPUTS = {
    "-o": ("request", "/x", "-o"),
    "--meta": ("request", "/x", "--meta"),
    "--journal": ("batch", "--journal"),
}


@needs_root
@pytest.mark.parametrize("option", OUTPUTS)
@pytest.mark.parametrize("planted", ["the file", "a directory above", "a link that leads on", "a link to a FIFO"])
def test_a_link_that_another_user_planted_is_exit_14_and_nothing_is_sent(xapi: Xapi, option: str, planted: str) -> None:
    public = xapi.home / "public"
    public.mkdir()
    public.chmod(0o1777)
    victim = xapi.home / "victim"
    victim.mkdir()
    (victim / ".bashrc").write_text("precious")
    os.mkfifo(victim / "fifo")
    name = "public/out/.bashrc" if planted == "a directory above" else "public/out"
    target = {"a directory above": "../victim", "a link to a FIFO": "../victim/fifo"}.get(planted, "../victim/.bashrc")
    (public / "out").symlink_to(target)
    _give_away(public / "out")
    if planted == "a link that leads on":
        (xapi.home / "mine").symlink_to("public/out")
        name = "mine"

    with Server([request(), send(OK)]) as server:
        outcome = xapi(*OUTPUTS[option], name, env=bearing(server), input='{"path": "/x"}\n')

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (14, "", 1)
    assert "belongs to another user" in outcome.err
    assert (victim / ".bashrc").read_text() == "precious"
    assert server.received == []


@pytest.mark.parametrize("option", OUTPUTS)
def test_links_of_ones_own_are_followed_and_stay(xapi: Xapi, option: str) -> None:
    (xapi.home / "real").mkdir()
    (xapi.home / "directory").symlink_to("real")
    (xapi.home / "real" / "link").symlink_to("../file")
    with Server([request(), send(answer("200 OK", b"[1]", "Content-Type: application/json"))]) as server:
        assert xapi(*OUTPUTS[option], "directory/link", env=bearing(server), input='{"path": "/x"}\n').code == 0

    assert (xapi.home / "real" / "link").is_symlink()
    assert (xapi.home / "file").read_bytes().startswith({"-o": b"[1]", "--meta": b"{", "--journal": b"{"}[option])


@needs_root
def test_the_mode_of_another_users_file_is_not_taken_over(xapi: Xapi) -> None:
    (xapi.home / "out").write_text("theirs")
    (xapi.home / "out").chmod(0o666)
    _give_away(xapi.home / "out")
    with Server([request(), send(OK)]) as server:
        assert xapi("request", "/x", "-o", "out", env=bearing(server)).code == 0

    assert ((xapi.home / "out").read_bytes(), (xapi.home / "out").stat().st_uid) == (b"ok", 0)
    assert not _mode(xapi.home / "out") & stat.S_IWOTH


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
    """In a program that uses the library, and in one whose HOME is another user's."""
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    path = xapi.home / "python_keyring" / "keyringrc.cfg"
    path.parent.mkdir()
    path.write_text("[backend]\ndefault-keyring = evil.Keyring\n")
    if how != "relative":
        _spoil(path, how)
    code = (
        "from xapi_cli.store.keyring.backends import Backends, NoKeyring; from pathlib import Path; import os\n"
        "for search in ('without_asking', 'found'):\n"
        "    try: getattr(Backends(Path('/x'), os.environ), search)()\n"
        "    except NoKeyring as error: print(error)"
    )
    env = {"XDG_CONFIG_HOME": "." if how == "relative" else str(xapi.home)}
    process = xapi.start("-c", code, env=env, argv=(sys.executable,))
    out, err = process.communicate(timeout=30)

    said = {"relative": b"current directory", "everyone's": b"everyone can write", "another user's": b"another user"}
    assert (out.count(said[how]), out.count(b"--storage file"), err) == (2, 2, b"")


@pytest.mark.parametrize("storage", ["file", "none"])
@pytest.mark.parametrize("words", ["login", "request /x-api/me"])
def test_a_home_directory_that_does_not_exist_is_not_made(
    xapi: Xapi, sandbox: Sandbox, storage: str, words: str
) -> None:
    (xapi.home / "real").mkdir()
    (xapi.home / "linked").symlink_to("real")  # as /home is on some systems
    for home in (xapi.home / "homes" / "me", xapi.home / "linked" / "me"):
        env = {"HOME": str(home), "XAPI_CONFIG_DIR": None, "XAPI_STATE_DIR": None, "XAPI_STORAGE": storage}

        outcome = xapi(*words.split(), env={**sandbox.settings, **env})

        assert outcome.code == (13 if storage == "file" else 0)
        assert (outcome.err.count("there is no home directory") > 0) or storage == "file"
        assert not home.exists()
    assert not (xapi.home / "homes").exists()


@pytest.mark.parametrize("name", ["XAPI_STATE_DIR", "XAPI_CONFIG_DIR"])
def test_a_relative_directory_in_a_deleted_one_is_exit_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, name: str
) -> None:
    outcome = in_deleted_directory(xapi, "login", env={**sandbox.settings, name: "relative"})

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"xapi: error: {name} is relative, and the current directory does not exist; set it to an absolute path\n"
    )
    assert sandbox.login_attempts == 0


@pytest.mark.parametrize("given", ["missing", "another user's"])
def test_completion_is_installed_in_a_home_of_ones_own_only(xapi: Xapi, given: str) -> None:
    if given.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    home = xapi.home / "another-home"
    if given != "missing":
        home.mkdir()
        _give_away(home)

    outcome = xapi("--install-completion", "bash", env={"HOME": str(home)})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (14, "", 1)
    assert home.exists() == (given != "missing")
    assert not home.exists() or os.listdir(home) == []


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
@pytest.mark.parametrize("storage", ["file", "none"])
def test_a_file_system_without_locks_is_called_so(xapi: Xapi, sandbox: Sandbox, error: str, storage: str) -> None:
    prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=flock:error={error}", str(PROGRAM))
    process = xapi.start(*ME, env={**sandbox.settings, "XAPI_STORAGE": storage}, argv=prefix)
    out, err = process.communicate(timeout=60)

    told = f"the file system of the state directory {xapi.state} does not support locks (".encode()
    assert (process.returncode, err.count(told), err.count(b"cannot be written")) == (
        13 if storage == "file" else 0,
        1,
        0,
    )
    if storage == "file":
        assert b"; set XAPI_STATE_DIR to a directory on a local file system\n" in err
    else:
        assert json.loads(out)
        assert b"; going on without locks\n" in err


def test_doctor_calls_an_unsafe_state_directory_once(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.state.parent.mkdir()
    xapi.state.parent.chmod(0o777)

    outcome = xapi("doctor", "--json", env=sandbox.settings)

    checks = {check["name"]: check for check in json.loads(outcome.out)["checks"]}
    assert [name for name, check in checks.items() if check["status"] == "fail"] == ["state"]
    assert checks["state"]["hint"].startswith(f"run `chmod o-w {xapi.state.parent}`")
    assert (checks["token"]["hint"], os.listdir(xapi.state.parent)) == ("see state", [])
