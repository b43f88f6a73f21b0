import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.census import IMPOSSIBLE
from xapi_cli import folders


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_new_folder_and_those_above_it_are_the_owners_alone(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        assert folders.private(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_an_open_folder_is_closed_and_those_above_it_are_left_alone(tmp_path: Path, notes: list[str]) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    folder.parent.chmod(0o755)
    folders.private(folder, notify=notes.append)
    folders.private(folder, notify=notes.append)
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o755)
    assert notes == [f"{folder} was open to other users; closed it"]


def test_a_link_of_ones_own_to_a_folder_of_ones_own_will_do(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("real")
    folders.private(tmp_path / "link")
    assert mode(tmp_path / "real") == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason=f"{IMPOSSIBLE}only root can give files away")
@pytest.mark.parametrize("given", ["folder", "link", "target"])
def test_another_users_folder_or_link_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.lchown(tmp_path / ("link" if given == "link" else "folder"), 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        folders.private(tmp_path / ("folder" if given == "folder" else "link"))


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            folders.private(path)
    with pytest.raises(FileNotFoundError):
        folders.private(tmp_path / "dangling")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.binary(max_size=200_000), st.booleans())
def test_what_is_written_is_read(tmp_path: Path, data: bytes, sync: bool) -> None:
    path = tmp_path / "file"
    folders.replace(path, data, sync=sync)
    assert folders.read(path, limit=1_000_000) == data
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_reading_stops_one_byte_after_the_limit(tmp_path: Path) -> None:
    folders.replace(tmp_path / "file", b"12345")
    assert folders.read(tmp_path / "file", limit=3) == b"1234"
    assert folders.read(tmp_path / "file", limit=5) == b"12345"


def test_a_missing_file_is_none_and_a_missing_folder_too(tmp_path: Path) -> None:
    assert folders.read(tmp_path / "file", limit=3) is None
    assert folders.read(tmp_path / "folder" / "file", limit=3) is None


def test_an_open_file_is_closed(tmp_path: Path, notes: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o664)
    assert folders.read(path, limit=3, notify=notes.append) == b"x"
    assert mode(path) == 0o600
    assert notes == [f"{path} was open to other users; closed it"]


def test_a_link_is_replaced_or_followed_as_asked(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    folders.replace(link, b"followed", follow=True)
    assert link.is_symlink()
    assert real.read_bytes() == b"followed"
    folders.replace(link, b"replaced")
    assert not link.is_symlink()
    assert real.read_bytes() == b"followed"
    link.unlink()
    link.symlink_to(real)
    with pytest.raises(OSError, match="symbolic link") as caught:
        folders.read(link, limit=3)
    assert caught.value.errno == errno.ELOOP


def test_removing_tells_whether_there_was_a_file(tmp_path: Path) -> None:
    folders.replace(tmp_path / "file", b"x")
    assert folders.remove(tmp_path / "file") is True
    assert folders.remove(tmp_path / "file") is False
    assert folders.remove(tmp_path / "folder" / "file") is False


def test_what_a_dead_writer_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    import fcntl

    dead, living = tmp_path / f".file.{'0' * 16}.new", tmp_path / f".file.{'1' * 16}.new"
    others = [tmp_path / name for name in (".file.new", "file.0000000000000000.new", ".file.0123.new")]
    for path in (dead, living, *others):
        path.write_bytes(b"x")
    with living.open("r+b") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        folders.replace(tmp_path / "file", b"new")
        assert sorted(tmp_path.iterdir()) == sorted([living, *others, tmp_path / "file"])
    folders.sweep(tmp_path)
    assert not living.exists()


def test_a_link_that_looks_like_litter_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{'0' * 16}.new").symlink_to(victim)
    folders.sweep(tmp_path)
    assert victim.read_bytes() == b"precious"


def test_a_missing_folder_passes_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        folders.replace(tmp_path / "folder" / "file", b"")
