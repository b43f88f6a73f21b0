"""Storage `helper` with helpers that misbehave, and with the real `docker-credential-pass`."""

import os
from pathlib import Path

import pytest

from tests.store.conftest import Open
from tests.support.credential_helpers import FakeHelper, PasswordStore, install, install_fake
from xapi_cli.errors import StoreError
from xapi_cli.store.protocol import Store
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test:8443/v1", "me@example.com")
SECRET = Record(Token("CANARY-TOKEN"), "CANARY-PASSWORD")
READ = "sys.stdin.read()\n"


def _open(opened: Open, helper: Path | str, timeout: float = 20.0) -> Store:
    """Return a store that waits for *helper* for *timeout* seconds; a long token takes many processes."""
    return opened("helper", settings={"credential_helper": str(helper)}, timeout=timeout)


def _failure(store: Store, action: str) -> StoreError:
    operations = {
        "get": lambda: store.read(ME),
        "store": lambda: store.write(ME, SECRET),
        "erase": lambda: store.delete(ME),
        "probe": store.probe,
    }
    with pytest.raises(StoreError) as caught:
        operations[action]()
    assert "CANARY" not in str(caught.value) + str(caught.value.hint)
    return caught.value


# what the helper gets


def test_the_helper_gets_the_account_and_the_record(opened: Open, fake_helper: FakeHelper) -> None:
    _open(opened, fake_helper.path).write(ME, SECRET)

    (stored,) = fake_helper.stored
    assert stored["ServerURL"] == f"https://api.test-8443.xapi.invalid/{ME.key}"
    assert stored["Username"] == "me@example.com"
    assert "CANARY-TOKEN" in stored["Secret"]


@pytest.mark.parametrize("username", ["../../etc/passwd", "-rf", "x" * 101, "me\n"])
def test_a_username_that_is_not_safe_in_a_file_name_is_only_in_the_record(
    opened: Open, fake_helper: FakeHelper, username: str
) -> None:
    identity = Identity("https://api.test", username)
    store = _open(opened, fake_helper.path)
    store.write(identity, SECRET)

    assert [one["Username"] for one in fake_helper.stored] == ["xapi"]
    assert store.read(identity) == SECRET


def test_no_secret_is_in_the_arguments_of_the_helper(opened: Open, fake_helper: FakeHelper) -> None:
    store = _open(opened, fake_helper.path)
    store.probe()
    store.write(ME, SECRET)
    store.read(ME)
    store.delete(ME)

    assert {word for call in fake_helper.calls for word in call["argv"]} == {"get", "store", "erase"}  # type: ignore[attr-defined]  # a list
    assert "CANARY" not in (fake_helper.directory / "log").read_text()
    assert fake_helper.stored == []


# which program runs


def test_a_name_is_searched_for_in_path(opened: Open, fake_helper: FakeHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{fake_helper.path.parent}{os.pathsep}{os.environ['PATH']}")
    _open(opened, "fake").write(ME, SECRET)

    assert len(fake_helper.stored) == 1


# helpers that misbehave

_SPAWN = "import subprocess\nsubprocess.Popen([sys.executable, '-ISc', 'import time; time.sleep(60)'])\n"


@pytest.mark.parametrize(
    ("action", "code"),
    [
        *((action, "time.sleep(60)") for action in ("get", "store", "erase", "probe")),
        ("get", READ + _SPAWN + "time.sleep(60)"),
    ],
)
def test_a_helper_that_hangs_is_killed_with_its_child_processes(
    opened: Open, tmp_path: Path, action: str, code: str
) -> None:
    helper = install(tmp_path / "docker-credential-slow", f"open({str(tmp_path / 'starts')!r}, 'a').write('.')\n{code}")
    store = _open(opened, helper, timeout=0.2)

    assert _failure(store, action).message == "docker-credential-slow did not respond in time"
    assert "did not respond" in _failure(store, action).message
    starts = tmp_path / "starts"  # none, if Python took longer than that to start
    assert not starts.exists() or len(starts.read_text()) <= 1  # after a timeout, it is not run again
    assert not _commands_with(str(helper))


def _commands_with(text: str) -> list[bytes]:
    """Return the command lines of running processes that contain *text*."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in command and int(directory.name) != os.getpid():
            found.append(command)
    return found


@pytest.mark.parametrize(
    "code, message",
    [
        ("while True: print('CANARY' * 9999)", "get` printed more than 1 MiB"),
        ("print('CANARY')", "get` did not print valid credentials"),
        ("print('[' * 100000)", "get` did not print valid credentials"),
        ("print('{\"Secret\": 7}')", "get` did not print valid credentials"),
        ("print('CANARY'); sys.exit(1)", "get` failed with exit code 1"),
        ("print('CANARY', file=sys.stderr); sys.exit(77)", "get` failed with exit code 77"),
        ("import os; os.kill(os.getpid(), 9)", "get` was terminated by SIGKILL"),
        ("print('pass not initialized: CANARY'); sys.exit(1)", "get` failed: the password store is not initialized"),
        ("print('User interaction is not allowed. CANARY'); sys.exit(1)", "get` failed: the keychain is locked"),
    ],
)
def test_each_failure_of_a_helper_is_an_error_without_what_it_printed(
    opened: Open, tmp_path: Path, code: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store = _open(opened, install(tmp_path / "docker-credential-bad", READ + code))

    assert _failure(store, "get").message == f"`docker-credential-bad {message}"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "code",
    [
        "print('credentials not found in native keychain'); sys.exit(1)",
        'print(\'{"ServerURL": "x", "Username": "", "Secret": ""}\')',
        'print(\'{"Secret": "CANARY, but not a record"}\')',
        "sys.stderr.write('CANARY' * 999999); print('credentials not found in native keychain'); sys.exit(1)",
    ],
)
def test_missing_and_unusable_credentials_are_no_record(
    opened: Open, tmp_path: Path, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _open(opened, install(tmp_path / "docker-credential-odd", READ + code)).read(ME) is None
    assert capfd.readouterr() == ("", "")


_NO_STORE = "if action == 'get': print('credentials not found in native keychain')\nsys.exit(3)"


def test_a_helper_that_cannot_store_is_an_error_of_the_store(opened: Open, tmp_path: Path) -> None:
    store = _open(opened, install(tmp_path / "docker-credential-bad", READ + _NO_STORE))

    assert _failure(store, "store").message == "`docker-credential-bad store` failed with exit code 3"


def test_a_helper_that_cannot_erase_is_detected_by_the_probe(opened: Open, tmp_path: Path) -> None:
    fake = install_fake(tmp_path / "helper")
    fake.path.write_text(fake.path.read_text().replace("os.remove(path(text))", "sys.exit(5)"))

    assert (
        _failure(_open(opened, fake.path), "probe").message == "`docker-credential-fake erase` failed with exit code 5"
    )


def test_what_a_helper_cannot_decrypt_is_erased(opened: Open, tmp_path: Path) -> None:
    fake = install_fake(tmp_path / "helper")
    fake.path.write_text(fake.path.read_text().replace("print(open(path(text)).read())", "sys.exit(5)"))
    store = _open(opened, fake.path)
    _failure(store, "probe")
    assert fake.stored == []
    _failure(store, "store")
    assert (len(fake.stored), store.delete(ME), fake.stored) == (1, True, [])


# the real program


def test_pass_stores_encrypted_records(
    opened: Open, shared_password_store: PasswordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in shared_password_store.environ.items():
        monkeypatch.setenv(name, value)
    store = _open(opened, "pass")
    store.probe()
    for record in (Record(Token("y" * 59_000)), SECRET):
        store.write(ME, record)
        assert _open(opened, "pass").read(ME) == record
    files = shared_password_store.secrets()
    assert len(files) == 1
    assert b"CANARY" not in files[0].read_bytes()

    assert store.delete(ME) is True
    assert (store.read(ME), shared_password_store.secrets()) == (None, [])


@pytest.mark.slow
def test_a_token_longer_than_pass_accepts_is_split(
    opened: Open, shared_password_store: PasswordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in shared_password_store.environ.items():
        monkeypatch.setenv(name, value)
    store = _open(opened, "pass")
    store.write(ME, Record(Token("z" * 65_536)))

    assert store.read(ME) == Record(Token("z" * 65_536))
    assert len(shared_password_store.secrets()) > 20
    assert store.delete(ME) is True
    assert shared_password_store.secrets() == []
