"""Files and directories of other users: what xapi reads, follows, changes and deletes."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.ownership import OTHER_USER, give_away, make_unsafe, needs_root
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send
from tests.support.skips import IMPOSSIBLE
from xapi_cli.sandbox import Sandbox

ME = ("request", "/x-api/me")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (_mode(path), path.read_bytes() if path.is_file() else b"")
        for path in directory.rglob("*")
    }


@pytest.mark.parametrize("bits", [0o755, 0o1777])
def test_other_files_in_a_state_directory_and_its_mode_are_unchanged(xapi: Xapi, sandbox: Sandbox, bits: int) -> None:
    theirs = xapi.state.parent
    for name in ("attempts/notes.txt", "known/old.json", "tokens/probe", "locks/config.lock", "doctor", "probe"):
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text("precious")
        os.utime(theirs / name, (0, 0))
    theirs.chmod(bits)
    before = _tree(theirs)

    for args in (("login",), ME, ("token", "status"), ("doctor",), ("logout", "--all")):
        assert xapi(*args, env=sandbox.settings).code == 0

    after = {name: found for name, found in _tree(theirs).items() if not name.startswith("xapi")}
    assert (after, _mode(theirs), _mode(xapi.state)) == (before, bits, 0o700)


def test_only_files_of_xapi_are_deleted_among_expired_login_failures(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env={**sandbox.settings, "XAPI_PASSWORD": "wrong"}).code == 10
    (own,) = (xapi.state / "attempts").iterdir()
    others = [own.with_name(name) for name in ("notes.txt", "x.refused", f"{own.name}.bak")]
    for path in others:
        path.write_text("precious")
    for path in others:
        os.utime(path, (0, 0))
    boot, seconds, wall = json.loads(own.read_text())["written"].split()
    earlier = f"{boot} {float(seconds) - 61} {wall}"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"written": earlier}))

    assert xapi("token", "show", env=sandbox.settings).code == 0
    assert sorted(own.parent.iterdir()) == sorted(others)


@needs_root
def test_a_link_of_another_user_in_place_of_a_state_directory_is_not_followed(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.state.mkdir(parents=True, mode=0o700)
    victim = xapi.home / "victim"
    victim.mkdir()
    (victim / f"{'0' * 32}.failed").write_text("precious")
    os.utime(victim / f"{'0' * 32}.failed", (0, 0))
    (xapi.state / "attempts").symlink_to(victim)
    give_away(xapi.state / "attempts")

    outcome = xapi("token", "show", env=sandbox.settings)

    problem = f"the symbolic link {xapi.state / 'attempts'} belongs to another user"
    remedy = "set XAPI_STATE_DIR to a directory that you own"
    assert (outcome.code, outcome.err) == (2, f"xapi: error: {problem}; {remedy}\n")
    assert os.listdir(victim) == [f"{'0' * 32}.failed"]


UNSAFE = {
    "another user's": "belongs to another user; set {} to a directory that you own",
    "another user's, above": "belongs to another user; set {} to a directory that you own",
    "everyone's": ", or set {} to a directory that you own",
    "everyone's, above": ", or set {} to a directory that you own",
}


@pytest.mark.parametrize("storage", ["file", "none"])
@pytest.mark.parametrize("how", UNSAFE)
def test_an_unsafe_state_directory_exits_with_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, how: str, storage: str
) -> None:
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    xapi.state.mkdir(parents=True)
    make_unsafe(xapi.state, how)

    for args in (("login",), ME, ("logout",), ("token", "status"), ("logout", "--all")):
        outcome = xapi(*args, env={**sandbox.settings, "XAPI_STORAGE": storage})
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert UNSAFE[how].format("XAPI_STATE_DIR") in outcome.err
    assert (sandbox.login_attempts, sandbox.requests, os.listdir(xapi.state)) == (0, 0, [])


@pytest.fixture
def ran(xapi: Xapi, sandbox: Sandbox) -> Path:
    """Write a config file with a password_command that creates the returned file."""
    marker = xapi.home / "ran"
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{sandbox.settings["XAPI_USERNAME"]}"\n'
        f"password_command = ['sh', '-c', 'touch {marker}; echo \"$0\"', '{sandbox.settings['XAPI_PASSWORD']}']\n"
    )
    (xapi.config / "config.toml").chmod(0o600)
    return marker


@pytest.mark.parametrize("how", [*UNSAFE, "another user's link", "everyone's dotfiles"])
def test_an_unsafe_config_file_is_rejected(xapi: Xapi, sandbox: Sandbox, ran: Path, how: str) -> None:
    if how.startswith("another") and os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can give files away")
    path = xapi.config / "config.toml"
    if how in UNSAFE:
        make_unsafe(path, how)
    else:
        (xapi.home / "dotfiles").mkdir()
        path.rename(xapi.home / "dotfiles" / "xapi.toml")
        path.symlink_to("../dotfiles/xapi.toml")
        give_away(path) if how.endswith("link") else (xapi.home / "dotfiles").chmod(0o777)

    for args in (ME, ("login",), ("profile", "list"), ("profile", "set", "timeout", "5")):
        outcome = xapi(*args)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert "set XAPI_CONFIG_DIR to a directory that you own" in outcome.err
    for args in (("--version",), ("--help",), ("request", "--help")):
        assert xapi(*args).code == 0
    completion = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi request --profile ", "COMP_CWORD": "3"}
    assert xapi(env=completion) == Outcome(0, ":nothing 0\n")
    assert (ran.exists(), sandbox.login_attempts) == (False, 0)


@pytest.mark.parametrize("bits", [0o644, 0o664])
def test_a_config_file_that_everyone_can_read_or_the_group_can_write_is_used(xapi: Xapi, ran: Path, bits: int) -> None:
    (xapi.config / "config.toml").chmod(bits)
    xapi.config.chmod(0o1777)  # as for secrets that Kubernetes mounts

    assert xapi(*ME).code == 0
    assert ran.exists()


@needs_root
def test_a_path_owned_by_root_is_trusted() -> None:
    code = (
        "import os, sys, tomllib; from pathlib import Path; b'x'.decode('utf-8-sig')\n"
        "from xapi_cli.settings import config_file\n"
        f"os.seteuid({OTHER_USER}); print(len(config_file.load(Path(sys.argv[1])).profiles))"
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
def test_a_link_of_another_user_exits_with_14_and_nothing_is_sent(xapi: Xapi, option: str, planted: str) -> None:
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
    give_away(public / "out")
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
def test_links_of_the_same_user_are_followed_and_kept(xapi: Xapi, option: str) -> None:
    (xapi.home / "real").mkdir()
    (xapi.home / "directory").symlink_to("real")
    (xapi.home / "real" / "link").symlink_to("../file")
    with Server([request(), send(response("200 OK", b"[1]", "Content-Type: application/json"))]) as server:
        assert xapi(*OUTPUTS[option], "directory/link", env=bearing(server), input='{"path": "/x"}\n').code == 0

    assert (xapi.home / "real" / "link").is_symlink()
    assert (xapi.home / "file").read_bytes().startswith({"-o": b"[1]", "--meta": b"{", "--journal": b"{"}[option])


@needs_root
def test_the_mode_of_another_users_file_is_not_copied(xapi: Xapi) -> None:
    (xapi.home / "out").write_text("theirs")
    (xapi.home / "out").chmod(0o666)
    give_away(xapi.home / "out")
    with Server([request(), send(OK)]) as server:
        assert xapi("request", "/x", "-o", "out", env=bearing(server)).code == 0

    assert ((xapi.home / "out").read_bytes(), (xapi.home / "out").stat().st_uid) == (b"ok", 0)
    assert not _mode(xapi.home / "out") & stat.S_IWOTH
