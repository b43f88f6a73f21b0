"""The file store with failing disks and kill -9."""

from pathlib import Path

import pytest

from tests.store.conftest import Open, Run
from tests.support.program import Process
from xapi_cli.errors import StoreError
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
OLD, NEW = Record(Token("old")), Record(Token("new"))
WRITE = "failing(lambda: store('file').write(ME, Record(Token('new'))))"


def ended(process: Process) -> list[str]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.decode().splitlines()


@pytest.fixture
def file(state: Path) -> Path:
    return state / "tokens" / f"{ME.key}.json"


def test_a_file_that_cannot_be_read_is_an_error(opened: Open, file: Path) -> None:
    file.mkdir(0o700, parents=True)
    with pytest.raises(StoreError, match=f"cannot read the token file {file}: "):
        opened("file").read(ME)


@pytest.mark.parametrize("junk", [b"", b"{", b"\x00" * 100, b"\xff\xfe", b"[" * 100_000, b"x" * 10_000_000, b"null"])
def test_garbage_is_no_token_and_is_overwritten(opened: Open, file: Path, junk: bytes) -> None:
    store = opened("file")
    store.write(ME, OLD)
    file.write_bytes(junk)
    assert store.read(ME) is None
    store.write(ME, NEW)
    assert store.read(ME) == NEW


def test_an_unusable_state_directory_is_an_error_with_a_remedy(opened: Open, state: Path) -> None:
    state.write_text("")
    for access in (opened("file").probe, lambda: opened("file").write(ME, OLD)):
        with pytest.raises(StoreError, match=r"cannot write the token file .*: Not a directory") as caught:
            access()
        assert caught.value.alternative == "set XAPI_STATE_DIR to another local directory"


@pytest.mark.parametrize("fault", ["fsync:error=ENOSPC:when=1", "fsync:error=EIO:when=1", "/^rename:error=EROFS"])
def test_a_failing_disk_leaves_the_old_record(run: Run, opened: Open, file: Path, tmp_path: Path, fault: str) -> None:
    opened("file").write(ME, OLD)
    strace = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"inject={fault}")
    lines = ended(run(WRITE, prefix=strace))
    assert "EROFS" in fault or lines[0].startswith(f"StoreError: cannot write the token file {file}: ")
    assert opened("file").read(ME) == (NEW if "EROFS" in fault else OLD)  # without rename, it is written in place
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("call", ["fsync", "/^rename"])
def test_kill_9_leaves_the_old_record_or_the_new_one_and_a_logout_removes_the_rest(
    run: Run, opened: Open, file: Path, tmp_path: Path, call: str
) -> None:
    store = opened("file")
    store.write(ME, OLD)
    strace = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"inject={call}:signal=KILL")
    process = run(WRITE, prefix=strace)
    process.communicate()
    assert process.returncode != 0
    assert store.read(ME) in (OLD, NEW)
    assert store.delete(ME) is True
    assert list(file.parent.iterdir()) == []


def test_reading_and_deleting_create_no_files(opened: Open, state: Path) -> None:
    assert (opened("file").read(ME), opened("file").delete(ME)) == (None, False)
    assert not state.exists()
