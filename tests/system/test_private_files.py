import errno
import os
import shutil
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
from xapi_cli.system.private_files import StateDirectory, StateFile
from xapi_cli.system.safe_paths import open_parent


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def file_at(path: Path) -> StateFile:
    return StateDirectory(path.parent).file(path.name)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_new_directories_are_private(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        StateDirectory(tmp_path / "a" / "b" / "c").open(make=True)
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


@pytest.mark.parametrize("bits", [0o755, 0o770])
def test_the_mode_of_an_existing_directory_is_never_changed(tmp_path: Path, notes: list[str], bits: int) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(bits)
    StateDirectory(directory).check()
    file_at(directory / "file").replace(b"", notify=notes.append)
    assert mode(directory) == bits
    assert notes == [f"the directory {directory} is accessible to other users; run `chmod 700 {directory}`"]


def test_a_directory_that_everyone_can_write_to_is_accepted_only_as_a_sticky_parent(tmp_path: Path) -> None:
    directory = tmp_path / "public" / "state"
    directory.mkdir(parents=True)
    directory.parent.chmod(0o1777)
    StateDirectory(directory).check()

    directory.chmod(0o1777)
    with pytest.raises(private_files.Unsafe, match="everyone can write to the state directory"):
        StateDirectory(directory).check()
    assert mode(directory) == 0o1777


def test_an_own_link_to_an_own_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    directory = StateDirectory(tmp_path / "link" / "sub")
    directory.open(make=True)
    directory.file("file").replace(b"x")
    assert (tmp_path / "real" / "sub" / "file").read_bytes() == b"x"


ACCESSES: dict[str, Callable[[Path], object]] = {
    "check": lambda path: StateDirectory(path.parent).check(),
    "private": lambda path: StateDirectory(path.parent).open(make=True),
    "read": lambda path: file_at(path).read(limit=9),
    "open": lambda path: file_at(path).open(os.O_RDWR | os.O_CREAT),
    "replace": lambda path: file_at(path).replace(b""),
    "remove": lambda path: file_at(path).remove(),
    "remove_old": lambda path: StateDirectory(path.parent).remove_old(".*", lambda *_: True),
    "files": lambda path: StateDirectory(path.parent).files(".*"),
    "touch": lambda path: file_at(path).touch(),
    "modified_at": lambda path: file_at(path).modified_at(),
    "probe": lambda path: StateDirectory(path.parent).probe(),
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
        StateDirectory(tmp_path / "homes" / "me" / ".local" / "state" / "xapi").open(make=True)
    assert os.listdir(tmp_path) == []


def test_many_processes_create_the_same_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from xapi_cli.system.private_files import StateDirectory\n"
        f"sys.stdin.readline(); directory = StateDirectory(Path({str(tmp_path / 'a' / 'b' / 'c')!r}))\n"
        "directory.open(make=True); directory.file('file').replace(b'x')"
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
            StateDirectory(path).open(make=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.binary(max_size=200_000), st.booleans())
def test_written_data_is_read_back(tmp_path: Path, data: bytes, sync: bool) -> None:
    path = tmp_path / "file"
    file_at(path).replace(data, sync=sync)
    assert file_at(path).read(limit=1_000_000) == data
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_reading_stops_one_byte_after_the_limit(tmp_path: Path) -> None:
    file_at(tmp_path / "file").replace(b"12345")
    assert file_at(tmp_path / "file").read(limit=3) == b"1234"
    assert file_at(tmp_path / "file").read(limit=5) == b"12345"


def test_a_missing_file_or_directory_reads_as_none(tmp_path: Path) -> None:
    assert file_at(tmp_path / "file").read(limit=3) is None
    assert file_at(tmp_path / "directory" / "file").read(limit=3) is None


def test_a_file_accessible_to_others_becomes_private(tmp_path: Path, notes: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o664)
    assert file_at(path).read(limit=3, notify=notes.append) == b"x"
    assert mode(path) == 0o600
    assert notes == [f"{path} was accessible to other users; xapi set its mode to 0600"]


def test_a_file_below_a_link_is_named_as_the_user_named_it(tmp_path: Path, notes: list[str]) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "file").write_bytes(b"x")
    (tmp_path / "real" / "file").chmod(0o664)
    assert file_at(tmp_path / "link" / "file").read(limit=3, notify=notes.append) == b"x"
    assert notes[-1].startswith(f"{tmp_path}/link/file was accessible to other users")


def test_a_link_in_place_of_a_private_file_is_replaced_and_never_read(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    file_at(link).replace(b"replaced")
    assert not link.is_symlink()
    assert real.read_bytes() == b"old"
    link.unlink()
    link.symlink_to(real)
    with pytest.raises(OSError, match="symbolic link") as caught:
        file_at(link).read(limit=3)
    assert caught.value.errno == errno.ELOOP


def test_remove_returns_whether_the_file_existed(tmp_path: Path) -> None:
    file_at(tmp_path / "file").replace(b"x")
    assert file_at(tmp_path / "file").remove() is True
    assert file_at(tmp_path / "file").remove() is False
    assert file_at(tmp_path / "directory" / "file").remove() is False


def test_only_abandoned_unfinished_files_are_removed(tmp_path: Path) -> None:
    import fcntl

    dead, living = tmp_path / f".file.{'0' * 16}.new", tmp_path / f".file.{'1' * 16}.new"
    others = [tmp_path / name for name in (".file.new", "file.0000000000000000.new", ".file.0123.new")]
    for path in (dead, living, *others):
        path.write_bytes(b"x")
    with living.open("r+b") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        file_at(tmp_path / "file").replace(b"new")
        assert sorted(tmp_path.iterdir()) == sorted([living, *others, tmp_path / "file"])
    file_at(tmp_path / "file").replace(b"newer")
    assert not living.exists()


def test_in_other_directories_only_unfinished_versions_of_the_same_file_are_removed(tmp_path: Path) -> None:
    own, others = tmp_path / f".file.{'0' * 16}.new", tmp_path / f".other.{'0' * 16}.new"
    for path in (own, others):
        path.write_bytes(b"x")
    directory, name = open_parent(tmp_path / "file")
    with directory:
        private_files.write(directory, name, b"x")
    assert sorted(os.listdir(tmp_path)) == sorted([others.name, "file"])


def test_a_link_named_like_an_unfinished_file_is_not_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{'0' * 16}.new").symlink_to(victim)
    file_at(tmp_path / "file").replace(b"x")
    assert victim.read_bytes() == b"precious"


def test_replacing_a_file_creates_its_directory(tmp_path: Path) -> None:
    file_at(tmp_path / "a" / "b" / "file").replace(b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"
    assert [mode(tmp_path / name) for name in ("a", "a/b")] == [0o700] * 2


def test_a_missing_directory_raises_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_at(tmp_path / "directory" / "file").touch()


@pytest.mark.parametrize("bits", [0o707, 0o702])
def test_a_directory_in_a_safe_one_is_rejected_if_everyone_can_write_to_it(tmp_path: Path, bits: int) -> None:
    state = StateDirectory(tmp_path / "state")
    state.open(make=True)
    state.check()
    state.directory("tokens").open(make=True)
    assert state.directory("tokens").file("file").read(limit=1) is None
    (tmp_path / "state" / "tokens").chmod(bits)
    for each in (state, StateDirectory(tmp_path / "state")):
        each.check()
        with pytest.raises(UsageError, match="everyone can write to the state directory"):
            each.directory("tokens").file("file").read(limit=1)


def test_probes_and_writers_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(100):
            if number % 2:
                StateDirectory(tmp_path).probe(10)
            else:
                file_at(tmp_path / "record").replace(b"content", sync=False)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write, range(4)))

    assert [path.name for path in tmp_path.iterdir()] == ["record"]


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_directory_that_takes_the_place_of_an_open_one_is_used(tmp_path: Path, how: str) -> None:
    state = StateDirectory(tmp_path / "state")
    file = state.directory("tokens").file("one")
    file.directory.open(make=True)
    file.replace(b"old")
    (tmp_path / "state").rename(tmp_path / "before")
    if how == "removed":
        shutil.rmtree(tmp_path / "before")
        assert file.read(limit=9) is None
        assert file.remove() is False
        with pytest.raises(FileNotFoundError):
            file.touch()
    elif how == "replaced":
        (tmp_path / "state" / "tokens").mkdir(parents=True)
        (tmp_path / "state" / "tokens" / "one").write_bytes(b"other")
        assert file.read(limit=9) == b"other"
    os.close(file.open(os.O_RDWR | os.O_CREAT))
    file.replace(b"new")
    assert (tmp_path / "state" / "tokens" / "one").read_bytes() == b"new"


def test_an_open_directory_that_becomes_unsafe_is_rejected(tmp_path: Path) -> None:
    file = file_at(tmp_path / "state" / "one")
    file.directory.open(make=True)
    file.replace(b"x")
    file.directory.path.chmod(0o777)
    with pytest.raises(UsageError, match="everyone can write to the state directory"):
        file.read(limit=9)


@pytest.mark.skipif(os.name != "posix", reason=f"{IMPOSSIBLE}Windows does not keep directories open")
def test_directories_are_opened_once_and_closed_when_they_are_not_used_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int]] = []
    closed: list[int] = []
    real_open, real_close = os.open, os.close

    def counted_open(path: str, flags: int, *args: int, **named: int) -> int:
        descriptor = real_open(path, flags, *args, **named)
        if flags & os.O_DIRECTORY:
            opened.append((str(path), descriptor))
        return descriptor

    def recorded_close(descriptor: int) -> None:
        closed.append(descriptor)
        real_close(descriptor)

    (tmp_path / "state" / "tokens").mkdir(parents=True)
    (tmp_path / "state" / "tokens" / "one").write_bytes(b"x")
    monkeypatch.setattr(os, "open", counted_open)
    monkeypatch.setattr(os, "close", recorded_close)
    file = StateDirectory(tmp_path / "state").directory("tokens").file("one")
    for _ in range(3):
        assert file.read(limit=9) == b"x"
        file.touch()
    names = [path for path, _ in opened]
    assert len(names) == len(tmp_path.parts) + 2, names
    assert names[-1] == "tokens"
    del file
    assert {descriptor for _, descriptor in opened} <= set(closed)


@pytest.mark.skipif(os.name != "posix", reason=f"{IMPOSSIBLE}Windows does not keep directories open")
def test_a_descriptor_that_the_program_has_closed_and_reused_is_not_closed(tmp_path: Path) -> None:
    """Daemons close all descriptors when they start."""
    file = file_at(tmp_path / "one")
    file.replace(b"x")
    opened = [int(name) for name in os.listdir("/proc/self/fd") if _leads_to(int(name), tmp_path)]
    assert len(opened) == 1
    with (tmp_path / "other").open("wb", buffering=0) as other:
        os.dup2(other.fileno(), opened[0])  # closes it first
        assert file.read(limit=9) == b"x"
        del file
        assert os.write(opened[0], b"y") == 1
    os.close(opened[0])


def _leads_to(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:  # of the listing
        return False
