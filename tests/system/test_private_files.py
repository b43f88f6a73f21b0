import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.skips import IMPOSSIBLE
from xapi_cli.errors import UsageError
from xapi_cli.system import private_files
from xapi_cli.system.safe_paths import anchored_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_new_directories_are_private(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        assert private_files.make_directory(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


@pytest.mark.parametrize("bits", [0o755, 0o770])
def test_the_mode_of_an_existing_directory_is_never_changed(tmp_path: Path, notes: list[str], bits: int) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(bits)
    private_files.check_directory(directory)
    private_files.make_directory(directory, notify=notes.append)
    assert mode(directory) == bits
    assert notes == [f"the directory {directory} is accessible to other users; run `chmod 700 {directory}`"]


def test_a_directory_that_everyone_can_write_to_is_accepted_only_as_a_sticky_parent(tmp_path: Path) -> None:
    directory = tmp_path / "public" / "state"
    directory.mkdir(parents=True)
    directory.parent.chmod(0o1777)
    private_files.check_directory(directory)

    directory.chmod(0o1777)
    with pytest.raises(private_files.Unsafe, match="everyone can write to the state directory"):
        private_files.check_directory(directory)
    assert mode(directory) == 0o1777


def test_an_own_link_to_an_own_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    private_files.replace(private_files.make_directory(tmp_path / "link" / "sub") / "file", b"x")
    assert (tmp_path / "real" / "sub" / "file").read_bytes() == b"x"


ACCESSES: dict[str, Callable[[Path], object]] = {
    "check": lambda path: private_files.check_directory(path.parent),
    "private": lambda path: private_files.make_directory(path.parent),
    "read": lambda path: private_files.read(path, limit=9),
    "open_private": lambda path: private_files.open_private(path, os.O_RDWR | os.O_CREAT),
    "replace": lambda path: private_files.replace(path, b""),
    "remove": private_files.remove,
    "remove_old": lambda path: private_files.remove_old(path.parent, re.compile(".*"), lambda *_: True),
    "files": lambda path: private_files.files(path.parent, re.compile(".*")),
    "touch": private_files.touch,
    "touched": private_files.modified_at,
    "probe": lambda path: private_files.probe(path.parent),
}


@pytest.mark.parametrize("access", ACCESSES)
def test_a_world_writable_directory_is_rejected(tmp_path: Path, access: str) -> None:
    path = tmp_path / "directory" / "file"
    path.parent.mkdir()
    path.write_bytes(b"theirs")
    path.parent.chmod(0o777)
    with pytest.raises(UsageError, match="everyone can write to the state directory") as caught:
        ACCESSES[access](path)
    assert caught.value.hint == f"run `chmod o-w {path.parent}`, or set XAPI_STATE_DIR to a directory that you own"
    assert path.read_bytes() == b"theirs"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason=f"{IMPOSSIBLE}only root can give files away")
@pytest.mark.parametrize("foreign", ["the directory", "the link to it", "a link above it"])
@pytest.mark.parametrize("access", ACCESSES)
def test_a_directory_or_link_of_another_user_is_rejected(tmp_path: Path, access: str, foreign: str) -> None:
    (tmp_path / "above" / "directory").mkdir(parents=True)
    victim = tmp_path / "above" / "directory" / "file"
    victim.write_bytes(b"theirs")
    (tmp_path / "link").symlink_to("above/directory")
    (tmp_path / "up").symlink_to("above")
    given, owned = {
        "the directory": (victim.parent, victim.parent),
        "the link to it": (tmp_path / "link", tmp_path / "link"),
        "a link above it": (tmp_path / "up" / "directory", tmp_path / "up"),
    }[foreign]
    os.lchown(owned, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        ACCESSES[access](given / "file")
    assert victim.read_bytes() == b"theirs"
    assert os.listdir(victim.parent) == ["file"]


def test_the_home_directory_is_never_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "me"))
    with pytest.raises(FileNotFoundError, match="no home directory:"):
        private_files.make_directory(tmp_path / "homes" / "me" / ".local" / "state" / "xapi")
    assert os.listdir(tmp_path) == []


def test_many_processes_create_the_same_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from xapi_cli.system import private_files; sys.stdin.readline();"
        f"private_files.replace(private_files.make_directory(Path({str(tmp_path / 'a' / 'b' / 'c')!r})) / 'file', b'x')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    ended = [process.communicate(b"\n", timeout=30) for process in processes]
    assert [(process.returncode, err) for process, (_, err) in zip(processes, ended, strict=True)] == [(0, b"")] * 4
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_path_that_is_not_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            private_files.make_directory(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.binary(max_size=200_000), st.booleans())
def test_written_data_is_read_back(tmp_path: Path, data: bytes, sync: bool) -> None:
    path = tmp_path / "file"
    private_files.replace(path, data, sync=sync)
    assert private_files.read(path, limit=1_000_000) == data
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_reading_stops_one_byte_after_the_limit(tmp_path: Path) -> None:
    private_files.replace(tmp_path / "file", b"12345")
    assert private_files.read(tmp_path / "file", limit=3) == b"1234"
    assert private_files.read(tmp_path / "file", limit=5) == b"12345"


def test_a_missing_file_or_directory_reads_as_none(tmp_path: Path) -> None:
    assert private_files.read(tmp_path / "file", limit=3) is None
    assert private_files.read(tmp_path / "directory" / "file", limit=3) is None


def test_a_file_accessible_to_others_becomes_private(tmp_path: Path, notes: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o664)
    assert private_files.read(path, limit=3, notify=notes.append) == b"x"
    assert mode(path) == 0o600
    assert notes == [f"{path} was accessible to other users; set its mode to 0600"]


def test_a_link_in_place_of_a_private_file_is_replaced_and_never_read(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    private_files.replace(link, b"replaced")
    assert not link.is_symlink()
    assert real.read_bytes() == b"old"
    link.unlink()
    link.symlink_to(real)
    with pytest.raises(OSError, match="symbolic link") as caught:
        private_files.read(link, limit=3)
    assert caught.value.errno == errno.ELOOP


def test_remove_returns_whether_the_file_existed(tmp_path: Path) -> None:
    private_files.replace(tmp_path / "file", b"x")
    assert private_files.remove(tmp_path / "file") is True
    assert private_files.remove(tmp_path / "file") is False
    assert private_files.remove(tmp_path / "directory" / "file") is False


def test_only_abandoned_unfinished_files_are_removed(tmp_path: Path) -> None:
    import fcntl

    dead, living = tmp_path / f".file.{'0' * 16}.new", tmp_path / f".file.{'1' * 16}.new"
    others = [tmp_path / name for name in (".file.new", "file.0000000000000000.new", ".file.0123.new")]
    for path in (dead, living, *others):
        path.write_bytes(b"x")
    with living.open("r+b") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        private_files.replace(tmp_path / "file", b"new")
        assert sorted(tmp_path.iterdir()) == sorted([living, *others, tmp_path / "file"])
    private_files.replace(tmp_path / "file", b"newer")
    assert not living.exists()


def test_in_other_directories_only_unfinished_versions_of_the_same_file_are_removed(tmp_path: Path) -> None:
    own, others = tmp_path / f".file.{'0' * 16}.new", tmp_path / f".other.{'0' * 16}.new"
    for path in (own, others):
        path.write_bytes(b"x")
    with anchored_path(tmp_path / "file") as file:
        private_files.write(file, b"x")
    assert sorted(os.listdir(tmp_path)) == sorted([others.name, "file"])


def test_a_link_named_like_an_unfinished_file_is_not_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{'0' * 16}.new").symlink_to(victim)
    private_files.replace(tmp_path / "file", b"x")
    assert victim.read_bytes() == b"precious"


def test_a_missing_directory_raises_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        private_files.replace(tmp_path / "directory" / "file", b"")


def test_probes_and_writers_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(100):
            if number % 2:
                private_files.probe(tmp_path, 10)
            else:
                private_files.replace(tmp_path / "record", b"content", sync=False)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write, range(4)))

    assert [path.name for path in tmp_path.iterdir()] == ["record"]
