"""Files: complete or not at all, with owner, group and mode; what other users could have written is refused."""

import errno
import grp
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings.config_file import config_path
from xapi_cli.system.files import (
    Replacement,
    StateDirectory,
    StateFile,
    check_safe,
    put_in_place,
    state_directory,
)

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def replace(path: Path | str, data: bytes, **options: int | bool) -> None:
    with Replacement(path, **options) as new:  # type: ignore[arg-type]  # of both kinds
        new.write(data)
        new.commit()


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    "existing, options, expected",
    [
        (None, {}, 0o640),
        (None, {"mode": 0o600}, 0o600),
        (0o604, {}, 0o604),
        (0o604, {"mode": 0o600, "sync": True}, 0o604),
        (0o4755, {}, 0o755),
        (0o644, {"mode": 0o600, "is_own": True}, 0o600),
    ],
)
def test_a_replaced_file_keeps_its_mode_and_a_new_one_obeys_the_umask(
    tmp_path: Path, existing: int | None, options: dict[str, int | bool], expected: int
) -> None:
    target = tmp_path / "target"
    if existing is not None:
        target.write_bytes(b"old")
        target.chmod(existing)
    replace(target, b"new", **options)
    assert (target.read_bytes(), mode(target), os.listdir(tmp_path)) == (b"new", expected, ["target"])


@ROOT
def test_a_replaced_file_keeps_its_owner_and_group(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    os.chown(target, 4242, 4243)
    target.chmod(0o640)
    replace(target, b"new")
    found = target.stat()
    assert (target.read_bytes(), found.st_uid, found.st_gid, mode(target)) == (b"new", 4242, 4243, 0o640)


def test_without_a_commit_nothing_changes(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with Replacement(target) as new:
        new.write(b"new")
        assert [mode(path) for path in tmp_path.glob(".target.*")] == [0o600]  # the target may be private
    assert (target.read_bytes(), os.listdir(tmp_path)) == (b"old", ["target"])


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    replace(tmp_path / "link", b"new")
    assert (os.readlink(tmp_path / "link"), (tmp_path / "real" / "file").read_bytes()) == ("real/file", b"new")


@pytest.fixture
def public() -> Iterator[Path]:
    with TemporaryDirectory() as name:  # other users can enter it, unlike what pytest makes
        Path(name).chmod(0o755)
        yield Path(name)


@ROOT
@pytest.mark.parametrize("denied", ["the directory", "the owner"])
def test_where_a_file_cannot_be_replaced_its_content_is(public: Path, denied: str) -> None:
    target = public / "target"
    target.write_bytes(b"old, and longer")
    target.chmod(0o666)
    if denied == "the owner":
        public.chmod(0o777)
    inode = target.stat().st_ino
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(4244)
            os.setuid(4244)
            with Replacement(str(target), sync=True) as new:
                new.write(b"new")
                new.commit()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert (target.read_bytes(), target.stat().st_ino, os.listdir(public)) == (b"new", inode, ["target"])


@pytest.mark.parametrize("name", ["", "missing/", "missing/file", "directory", "directory/", "nul\0"])
def test_a_name_that_no_file_can_have_is_refused_when_it_is_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises((OSError, ValueError)):
        Replacement(f"{tmp_path}/{name}" if name else "").open()
    assert os.listdir(tmp_path) == ["directory"]


def test_what_is_not_a_regular_file_is_written_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    data = bytes(1 << 20)
    with open(tmp_path / "read", "wb") as read:
        reader = subprocess.Popen(["cat", str(tmp_path / "fifo")], stdout=read)
        replace(tmp_path / "fifo", data)
        assert (reader.wait(), (tmp_path / "read").read_bytes()) == (0, data)

    source, sink = os.pipe()  # as of a process substitution
    replace(f"/dev/fd/{sink}", b"new")
    assert os.read(source, 9) == b"new"
    os.close(source)
    os.close(sink)

    code = "from xapi_cli.system.files import Replacement\nprint('before', flush=True)\n"
    code += "with Replacement('/dev/stdout') as new: new.write(b'new'); new.commit()\nprint('after')"
    with open(tmp_path / "out", "w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\nnewafter\n"


def test_a_complete_part_is_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "target").chmod(0o640)
    (tmp_path / "part").write_bytes(b"new")
    with open(tmp_path / "part", "rb") as part:
        put_in_place(part, str(tmp_path / "part"), str(tmp_path / "target"))
    assert ((tmp_path / "target").read_bytes(), mode(tmp_path / "target")) == (b"new", 0o640)
    assert os.listdir(tmp_path) == ["target"]


PLACES = {  # the modes of "public", "public/own" and "public/own/file", and the problem
    "private": ((0o755, 0o700, 0o600), None),
    "readable": ((0o755, 0o755, 0o644), None),
    "in a sticky directory": ((0o1777, 0o755, 0o644), None),
    "a public file": ((0o755, 0o755, 0o646), "other users can write to the file {}/public/own/file"),
    "a public directory": ((0o755, 0o777, 0o600), "other users can write to the directory {}/public/own"),
    "a public parent": ((0o777, 0o700, 0o600), "other users can write to the directory {}/public"),
}


@pytest.mark.parametrize("modes, problem", PLACES.values(), ids=PLACES)
def test_other_users_cannot_write_to_a_file_or_a_directory_above_it(
    tmp_path: Path, modes: tuple[int, int, int], problem: str | None
) -> None:
    places = [tmp_path / "public", tmp_path / "public" / "own", tmp_path / "public" / "own" / "file"]
    places[1].mkdir(parents=True)
    places[2].touch()
    for place, each in zip(places, modes, strict=True):
        place.chmod(each)
    if problem is None:
        check_safe(places[2], variable="XAPI_CONFIG_DIR")
        return
    with pytest.raises(UsageError) as caught:
        check_safe(places[2], variable="XAPI_CONFIG_DIR")
    shared = problem.format(tmp_path).rpartition(" ")[2]
    assert (caught.value.message, caught.value.hint) == (
        problem.format(tmp_path),
        f"run `chmod go-w {shared}`, or set XAPI_CONFIG_DIR to a directory that only you can write to",
    )
    Path(shared).chmod(0o700)  # the remedy helps the same process
    check_safe(places[2], variable="XAPI_CONFIG_DIR")


def test_the_state_directory_is_not_shared_even_if_it_is_sticky(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o1777)
    state = StateDirectory(tmp_path / "state")
    accesses: list[Callable[[], object]] = [
        state.check,
        state.make,
        lambda: state.files(".*"),
        lambda: state.directory("locks").file("x").read(limit=9),
        lambda: state.lock_file("x").open(os.O_RDWR | os.O_CREAT),
        lambda: state.file("x").replace(b""),
        lambda: state.file("x").remove(),
        state.probe,
    ]
    for access in accesses:
        with pytest.raises(UsageError, match="other users can write to the directory"):
            access()
    assert os.listdir(tmp_path / "state") == []


@ROOT
@pytest.mark.parametrize("foreign", ["file", "directory", "parent"])
def test_what_another_user_owns_is_refused(tmp_path: Path, foreign: str) -> None:
    path = tmp_path / "parent" / "directory" / "file"
    path.parent.mkdir(parents=True)
    path.touch()
    os.chown({"file": path, "directory": path.parent, "parent": path.parent.parent}[foreign], 4242, 4242)
    with pytest.raises(UsageError, match=f"the (file|directory) .*/{foreign} belongs to another user"):
        check_safe(path, variable="XAPI_CONFIG_DIR")


@ROOT
def test_a_group_is_shared_unless_it_is_that_of_root(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o770)
    check_safe(tmp_path / "state", variable="XAPI_STATE_DIR")
    check_safe.cache_clear()
    os.chown(tmp_path / "state", 0, 4242)
    with pytest.raises(UsageError, match="other users can write"):
        check_safe(tmp_path / "state", variable="XAPI_STATE_DIR")


@ROOT
@pytest.mark.parametrize(
    "group, name, members, is_shared",
    [(4251, "root", [], False), (4252, "root", ["root", "other"], True), (4253, "staff", [], True)],
)
def test_the_own_group_of_the_user_is_not_shared_unless_it_has_more_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, name: str, members: list[str], is_shared: bool
) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name, gr_mem=members))
    os.chown(tmp_path, 0, group)
    tmp_path.chmod(0o775)
    with pytest.raises(UsageError, match="other users can write") if is_shared else nullcontext():
        check_safe(tmp_path, variable="XAPI_STATE_DIR")


def file_at(path: Path) -> StateFile:
    return StateDirectory(path.parent).file(path.name)


@pytest.mark.parametrize("umask_", [0o000, 0o022])
def test_new_directories_and_files_of_xapi_are_private(tmp_path: Path, umask_: int) -> None:
    old = os.umask(umask_)
    try:
        file = StateDirectory(tmp_path / "a" / "b").directory("c").file("file")
        assert (file.read(limit=9), file.remove(), file.modified_at()) == (None, False, None)
        file.replace(b"0123456789")
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert (mode(file.path), file.read(limit=3), file.modified_at()) == (0o600, b"0123", file.path.stat().st_mtime_ns)
    file.path.chmod(0o644)
    assert (file.read(limit=99), mode(file.path)) == (b"0123456789", 0o600)
    for exists in (True, False):
        (file.path.parent / ".file.0123456789abcdef.new").touch()  # of a writer that was killed, perhaps the first one
        assert (file.remove(), os.listdir(file.path.parent)) == (exists, [])


def test_old_files_are_removed(tmp_path: Path) -> None:
    for name, age in (("a.old", 61), ("b.old", -10), ("c.old", 0), ("other", 61)):
        file_at(tmp_path / name).replace(b"")
        os.utime(tmp_path / name, times=(0, time.time() - age))
    StateDirectory(tmp_path).remove_old(r".*\.old", 60)
    assert [file.path.name for file in StateDirectory(tmp_path).files(".*")] == ["c.old", "other"]


def test_readers_and_writers_see_complete_files_only(tmp_path: Path) -> None:
    file, stop = file_at(tmp_path / "new" / "file"), threading.Event()
    file.replace(b"0" * 9999)

    def write(digit: bytes) -> None:
        while not stop.is_set():
            file.replace(digit * 9999, sync=False)

    threads = [threading.Thread(target=write, args=(digit,)) for digit in (b"1", b"2")]
    for thread in threads:
        thread.start()
    try:
        seen = {file.read(limit=9999) for _ in range(300)}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen <= {digit * 9999 for digit in (b"0", b"1", b"2")}


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    code = "import resource, sys; from pathlib import Path; from xapi_cli.system.files import StateDirectory\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9)); import signal; signal.signal(signal.SIGXFSZ, 1)\n"
    code += "StateDirectory(Path(sys.argv[1])).file('file').replace(bytes(99))"
    (tmp_path / "file").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, check=False)
    assert os.strerror(errno.EFBIG).encode() in done.stderr
    assert ((tmp_path / "file").read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


DIRECTORIES = [
    ({}, "/home/me/.config/xapi/config.toml", "/home/me/.local/state/xapi"),
    ({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/xapi/config.toml", "/s/xapi"),
    ({"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": ""}, "/home/me/.config/xapi/config.toml", "/home/me/.local/state/xapi"),
    ({"XAPI_CONFIG_DIR": "/x", "XAPI_STATE_DIR": "/y", "XDG_CONFIG_HOME": "/c"}, "/x/config.toml", "/y/xapi"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other directories")
@pytest.mark.parametrize("environ, config, state", DIRECTORIES)
def test_the_directories_follow_the_xdg_specification(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], config: str, state: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert (config_path(environ), state_directory(environ)) == (Path(config), Path(state))
