import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from xapi_cli.errors import OutputError
from xapi_cli.request.files.atomic_file import AtomicFile


def test_commit_publishes_the_complete_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    with AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"one ")
        file.write(memoryview(b"two").tobytes())
        assert not (tmp_path / "out").exists()
        file.commit()

    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"one two"


def test_without_commit_the_old_file_remains_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    with suppress(KeyboardInterrupt), AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"new" * 100_000)
        raise KeyboardInterrupt

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"old"}


def test_an_empty_body_creates_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    with AtomicFile(str(tmp_path / "out")) as file:
        file.commit()

    assert (tmp_path / "out").read_bytes() == b""


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The methods of writing an unfinished file: some platforms and file systems require a name."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this platform has no unnamed files")
    return str(request.param)


def test_other_users_cannot_read_an_unfinished_file(tmp_path: Path, kind: str) -> None:
    with AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"x")
        parts = list(tmp_path.iterdir())
        assert [stat.S_IMODE(part.stat().st_mode) for part in parts] == ([0o600] if kind == "named" else [])


@pytest.mark.parametrize("before", [None, b"old"])
def test_the_file_is_replaced_by_every_method(tmp_path: Path, kind: str, before: bytes | None) -> None:
    if before is not None:
        (tmp_path / "out").write_bytes(before)

    with AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"new")
        assert not (tmp_path / "out").exists() or (tmp_path / "out").read_bytes() == before
        file.commit()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"new"}


def test_a_file_created_meanwhile_is_replaced(tmp_path: Path, kind: str) -> None:
    with AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"new")
        (tmp_path / "out").write_bytes(b"another user's")
        file.commit()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"new"}


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_file_that_cannot_be_linked_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", forbidden)
    if before is not None:
        (tmp_path / "out").write_bytes(before)
        (tmp_path / "out").chmod(0o640)

    with AtomicFile(str(tmp_path / "out")) as file:
        file.write(b"new" * 100_000)
        file.commit()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"new" * 100_000}
    assert before is None or stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_only_the_unfinished_file_of_a_killed_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    (tmp_path / ".xapi-output.0123456789abcdef.new").write_bytes(b"left")
    (tmp_path / ".mine.0123456789abcdef.new").write_bytes(b"mine")

    with AtomicFile(str(tmp_path / "other")) as living:
        living.write(b"x")
        with AtomicFile(str(tmp_path / "out")) as file:
            file.commit()
        living.commit()

    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.0123456789abcdef.new", "other", "out"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with AtomicFile(str(tmp_path / "out")) as file:
            file.commit()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "out").chmod(0o640)

    with AtomicFile(str(tmp_path / "out")) as file:
        file.commit()

    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_a_symbolic_link_is_preserved_and_its_target_replaced(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("directory/real")

    with AtomicFile(str(tmp_path / "link")) as file:
        file.write(b"new")
        file.commit()

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "directory" / "real").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["漢" * 80, "a" * 255, "tab\tand\nnewline", "-o", ".hidden"])
def test_every_valid_file_name_is_accepted(tmp_path: Path, name: str) -> None:
    with AtomicFile(str(tmp_path / name)) as file:
        file.write(b"x")
        file.commit()

    assert (tmp_path / name).read_bytes() == b"x"


def test_a_relative_name_is_resolved_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with AtomicFile("out") as file:
        file.write(b"x")
        file.commit()

    assert (tmp_path / "out").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/out", "No such file or directory"),
        ("directory", "Is a directory"),
        ("new/", "Is a directory"),
        ("file/out", "Not a directory"),
        ("a" * 256, "File name too long"),
        ("nul\0", "the name is not valid"),
    ],
)
def test_an_unwritable_file_is_reported_immediately_by_name(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(OutputError) as caught, AtomicFile(f"{tmp_path}/{name}"):
        pass

    shown = f"{tmp_path}/{name}".replace("\0", "\\x00")
    assert str(caught.value) == f"{shown} cannot be written: {reason}; choose another file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "file"]


def test_the_empty_name_is_rejected() -> None:
    with pytest.raises(OutputError, match="a file without a name cannot be written: No such file"), AtomicFile(""):
        pass


def test_a_read_only_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda name, mode, **_: (name, mode) != ("out", os.W_OK))  # root may write

    with pytest.raises(OutputError, match="out cannot be written: the file is read-only"):
        AtomicFile(str(tmp_path / "out")).open()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"old"}


def test_a_device_is_written_directly() -> None:
    with AtomicFile("/dev/null") as file:
        file.write(b"x")
        file.commit()

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_full_device_is_reported_by_name() -> None:
    with (
        pytest.raises(OutputError, match="/dev/full cannot be written: No space left on device"),
        AtomicFile("/dev/full") as file,
    ):
        file.write(b"x")


def test_a_fifo_receives_every_byte(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "fifo").read_bytes()), daemon=True)
    reader.start()

    with AtomicFile(str(tmp_path / "fifo")) as file:
        file.write(b"x" * 1_000_000)
        file.commit()

    reader.join(10)
    assert got == [b"x" * 1_000_000]


def test_a_full_non_blocking_pipe_receives_every_byte() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    got: list[bytes] = []

    def read() -> None:
        with open(reader, "rb") as pipe:
            got.append(pipe.read())

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    with AtomicFile(f"/dev/fd/{writer}") as file:
        file.write(b"x" * 1_000_000)
        file.commit()
    os.close(writer)

    reading.join(10)
    assert got == [b"x" * 1_000_000]


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "held").open("wb") as held:
        yield held.fileno()


def test_a_descriptor_of_a_regular_file_is_written_directly(tmp_path: Path, descriptor: int) -> None:
    inode = (tmp_path / "held").stat().st_ino

    os.write(descriptor, b"before ")
    with AtomicFile(f"/dev/fd/{descriptor}") as file:
        file.write(b"x")
        file.commit()
    os.write(descriptor, b" after")

    assert (tmp_path / "held").read_bytes() == b"before x after"
    assert (tmp_path / "held").stat().st_ino == inode


def test_a_read_only_descriptor_is_rejected_immediately(tmp_path: Path) -> None:
    (tmp_path / "read").touch()
    with (
        (tmp_path / "read").open("rb") as held,
        pytest.raises(OutputError, match="cannot be written: Bad file descriptor"),
        AtomicFile(f"/dev/fd/{held.fileno()}"),
    ):
        pass
