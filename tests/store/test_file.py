"""The file store with unusual umasks, failing disks, files of other users and kill -9."""

import functools
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.conftest import Open
from xapi_cli.errors import StoreError
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
OLD, NEW = Record(Token("old")), Record(Token("new"))

Run = Callable[..., subprocess.Popen[str]]


def ended(process: "subprocess.Popen[str]") -> list[str]:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out.splitlines()


@pytest.fixture
def file(state: Path) -> Path:
    return state / "tokens" / f"{ME.key}.json"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_file_and_directories_are_private_with_any_umask(run: Run, state: Path, file: Path, umask: int) -> None:
    ended(run(f"os.umask({umask}); store('file').write(ME, Record(Token('t'))); assert store('file').read(ME)"))
    modes = {path.relative_to(state.parent): stat.S_IMODE(path.stat().st_mode) for path in (state, file.parent, file)}
    assert list(modes.values()) == [0o700, 0o700, 0o600]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_file_is_private_from_its_first_byte(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ("strace", "-f", "-qq", "-e", "trace=openat,open,chmod,fchmod,rename", "-o", str(trace))
    ended(run("os.umask(0); store('file').write(ME, Record(Token('t')))", prefix=strace))
    made = [line for line in trace.read_text().splitlines() if ".new" in line and "O_CREAT" in line]
    assert len(made) == 1
    assert "O_EXCL" in made[0]
    assert ", 0600) = " in made[0]


def test_a_readable_file_becomes_private(opened: Open, file: Path) -> None:
    opened("file").write(ME, OLD)
    file.chmod(0o644)
    assert opened("file").read(ME) == OLD
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_directory_that_the_user_chose_keeps_its_mode(opened: Open, state: Path) -> None:
    state.mkdir(mode=0o755)
    opened("file").write(ME, OLD)
    assert stat.S_IMODE(state.stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_anything_but_a_regular_file_is_rejected(opened: Open, file: Path, kind: str) -> None:
    opened("file").write(OTHER, OLD)
    if kind == "directory":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="cannot read the token file"):
        opened("file").read(ME)


OTHER = Identity("https://api.test", "other")


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"\x00" * 100, b"\xff\xfe", b"[" * 100_000, b"x" * 10_000_000, b'{"version": 2}', b"null"]
)
def test_garbage_is_treated_as_no_token_and_overwritten(opened: Open, file: Path, junk: bytes) -> None:
    store = opened("file")
    store.write(ME, OLD)
    file.write_bytes(junk)
    assert store.read(ME) is None
    store.write(ME, NEW)
    assert store.read(ME) == NEW


def test_an_unusable_state_directory_is_a_store_error_with_a_remedy(opened: Open, state: Path) -> None:
    state.write_text("")
    store = opened("file")
    for access in (store.probe, functools.partial(store.write, ME, OLD)):
        with pytest.raises(StoreError, match=r"the state directory .* cannot be written: Not a directory") as caught:
            access()
        assert caught.value.hint is not None
        assert "XAPI_STATE_DIR" in caught.value.hint


FAULTS = ["fsync:error=ENOSPC:when=1", "fsync:error=EIO:when=1", "rename:error=EIO", "rename:error=ENOSPC"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_leaves_the_old_record_or_the_new_one(
    run: Run, opened: Open, file: Path, tmp_path: Path, fault: str
) -> None:
    opened("file").write(ME, OLD)
    strace = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"inject={fault}")
    code = "failing(lambda: store('file').write(ME, Record(Token('new'))))"
    lines = ended(run(code, prefix=strace))
    assert lines[0].startswith("StoreError: the state directory ")
    assert opened("file").read(ME) == OLD
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_full_disk_leaves_the_old_record(run: Run, opened: Open, file: Path) -> None:
    opened("file").write(ME, OLD)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    lines = ended(run(limit + "failing(lambda: store('file').write(ME, Record(Token('x' * 5000))))"))
    assert lines[0].startswith("StoreError: the state directory ")
    lines = ended(run(limit + "failing(lambda: store('file').probe())"))
    assert lines[0].startswith("StoreError: the state directory ")
    assert opened("file").read(ME) == OLD
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_kill_9_at_each_step_leaves_the_old_record_or_the_new_one(
    run: Run, opened: Open, file: Path, tmp_path: Path, call: str
) -> None:
    store = opened("file")
    store.write(ME, OLD)
    strace = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"inject={call}:signal=KILL")
    process = run("store('file').write(ME, Record(Token('new')))", prefix=strace)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert store.read(ME) in (OLD, NEW)


def test_logout_removes_the_unfinished_file_of_a_killed_writer(
    run: Run, opened: Open, file: Path, tmp_path: Path
) -> None:
    strace = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "inject=fsync:signal=KILL:when=1")
    process = run("store('file').write(ME, Record(Token('new')))", prefix=strace)
    process.communicate(timeout=30)
    assert [path.suffix for path in file.parent.iterdir()] == [".new"]
    assert opened("file").delete(ME) is False
    assert list(file.parent.iterdir()) == []


def test_concurrent_readers_get_complete_records(run: Run, opened: Open) -> None:
    store = opened("file")
    store.write(ME, Record(Token("0" * 5000)))
    code = "s = store('file')\nfor n in range(60): s.write(ME, Record(Token(str(n % 10) * 5000)))"
    writers = [run(code) for _ in range(3)]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        record = store.read(ME)
        assert record is not None
        assert len(record.token.access_token) == 5000
        assert len(set(record.token.access_token)) == 1
        reads += 1
    assert reads > 50
    assert [ended(writer) for writer in writers] == [[], [], []]


def test_threads_may_share_a_store(opened: Open, file: Path) -> None:
    store = opened("file")
    errors: list[BaseException] = []

    def work(letter: str) -> None:
        try:
            for _ in range(30):
                store.write(ME, Record(Token(letter * 100)))
                assert store.read(ME) is not None
        except BaseException as error:  # noqa: BLE001  # shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_reading_and_deleting_create_no_files(opened: Open, state: Path) -> None:
    assert opened("file").read(ME) is None
    assert opened("file").delete(ME) is False
    assert not state.exists()
