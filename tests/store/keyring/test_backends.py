"""Which backend is used: named, remembered, found by a search, or none."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.keyring_session import KeyringSession

Run = Callable[..., subprocess.Popen[str]]

BACKEND = """
s = store()
try: s.read(ME)
except StoreError as error: print(f"{type(error).__name__}: {error}")
print(s.backend)
"""
SECRET_SERVICE = "keyring.backends.SecretService.Keyring"


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert err == ""
    return out.splitlines()


@pytest.fixture
def install(tmp_path: Path) -> Callable[[str, str, str], dict[str, str]]:
    """Install a distribution with a backend; return the environment that has it."""

    def install_one(module: str, code: str, name: str = "other") -> dict[str, str]:
        site = tmp_path / "site-packages"
        path = site / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        info = site / f"{name}-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[keyring.backends]\n{name} = {module}\n")
        return {"PYTHONPATH_MORE": str(site)}

    return install_one


def with_more(env: dict[str, str], run: Run, code: str) -> list[str]:
    """Run *code* with the installed distributions on the path."""
    site = env.pop("PYTHONPATH_MORE")
    return lines_of(run(f"sys.path.append({site!r})\n{code}", env))


KEPT = """
from keyring.backend import KeyringBackend
class {name}(KeyringBackend):
    priority = {priority}
    def get_password(self, service, username): return None
    def set_password(self, service, username, password): pass
    def delete_password(self, service, username): pass
"""


def test_the_secret_service_is_found_and_remembered(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession
) -> None:
    assert lines_of(run(BACKEND, shared_gnome_keyring.environ)) == [SECRET_SERVICE]
    fingerprint, name = (state / "keyring-backend").read_text().split()
    assert name == SECRET_SERVICE
    assert len(fingerprint) == 64
    assert (state / "keyring-backend").stat().st_mode & 0o777 == 0o600
    traced = BACKEND + "print('keyring.backends.kwallet' in sys.modules)"
    assert lines_of(run(traced, shared_gnome_keyring.environ)) == [SECRET_SERVICE, "False"]  # there was no search


@pytest.mark.parametrize(
    "remembered",
    [
        "missing.Keyring",
        "keyring.backends.null.Keyring",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("json.Keyring", "keyring.backends.fail.Keyring", "os.getcwd")
        ),
    ],
)
def test_a_remembered_backend_that_is_not_usable_is_searched_for_again(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession, remembered: str
) -> None:
    lines_of(run(BACKEND, shared_gnome_keyring.environ))
    file = state / "keyring-backend"
    good = file.read_text()
    file.write_text(good.replace(SECRET_SERVICE, remembered))
    assert lines_of(run(BACKEND, shared_gnome_keyring.environ)) == [SECRET_SERVICE]
    assert file.read_text() == good


def test_a_remembered_backend_that_fails_is_replaced_in_the_same_access(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession
) -> None:
    lines_of(run(BACKEND, shared_gnome_keyring.environ))
    file = state / "keyring-backend"
    good = file.read_text()
    file.write_text(good.replace(SECRET_SERVICE, "fake_keyrings.Raising"))
    env = shared_gnome_keyring.environ | {"FAKE_KEYRING_RAISES": "RuntimeError"}
    assert lines_of(run(BACKEND, env)) == [SECRET_SERVICE]
    assert file.read_text() == good


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff\xfe\x00",
        b"a b\n" * 9,
        *(pytest.param(junk, marks=pytest.mark.slow) for junk in (b"", b"x" * 100_000)),
    ],
)
def test_garbage_in_the_remembered_backend_is_ignored(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession, junk: bytes
) -> None:
    state.mkdir()
    (state / "keyring-backend").write_bytes(junk)
    assert lines_of(run(BACKEND, shared_gnome_keyring.environ)) == [SECRET_SERVICE]


def test_each_session_has_its_own_remembered_backend(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession
) -> None:
    lines_of(run(BACKEND, shared_gnome_keyring.environ))
    assert lines_of(run(BACKEND))[0].startswith("NoKeyring: no usable keyring on this machine")
    lines_of(run(BACKEND, shared_gnome_keyring.environ | {"DISPLAY": ":7"}))
    assert len((state / "keyring-backend").read_text().splitlines()) == 2


def test_the_number_of_remembered_backends_is_limited(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession
) -> None:
    code = "".join(f"os.environ['DISPLAY'] = ':{number}'; store().read(ME)\n" for number in range(12))
    lines_of(run(code, shared_gnome_keyring.environ))
    assert len((state / "keyring-backend").read_text().splitlines()) == 8


def test_a_plaintext_backend_is_not_used_unless_the_user_named_it(
    run: Run, install: Callable[..., dict[str, str]]
) -> None:
    for module, name in (("keyrings.alt.file", "AnyKeyring"), ("other.files", "PlaintextKeyring")):
        env = install(module, KEPT.format(name=name, priority=0.5), name.lower())
        assert with_more(env, run, BACKEND)[-1] == "None"


def test_the_config_file_of_keyring_names_a_backend(run: Run, tmp_path: Path) -> None:
    config = tmp_path / ".config/python_keyring/keyringrc.cfg"
    config.parent.mkdir(parents=True)
    config.write_text("[backend]\ndefault-keyring=fake_keyrings.Plain\n")
    assert lines_of(run(BACKEND)) == ["fake_keyrings.Plain"]
    config.write_text("[backend]\ndefault-keyring=keyring.backends.null.Keyring\n")
    assert lines_of(run(BACKEND)) == ["keyring.backends.null.Keyring"]
    config.write_text("[backend]\ndefault-keyring=keyring.backends.fail.Keyring\n")
    assert lines_of(run(BACKEND))[0].startswith("NoKeyring: the keyring backend keyring.backends.fail.Keyring stores")
    config.write_text("[backend]\ndefault-keyring=missing.Keyring\n")
    assert "ModuleNotFoundError" in lines_of(run(BACKEND))[0]
    config.write_text("nonsense")
    assert "MissingSectionHeaderError" in lines_of(run(BACKEND))[0]


def test_the_backend_with_the_highest_priority_is_used_and_never_a_chain(
    run: Run, install: Callable[..., dict[str, str]], shared_gnome_keyring: KeyringSession
) -> None:
    install("weaker", KEPT.format(name="Weaker", priority=2), "weaker")
    env = install("keyrings.alt.better", KEPT.format(name="Plain", priority=9), "better")
    assert with_more(env | shared_gnome_keyring.environ, run, BACKEND) == [SECRET_SERVICE]
    env = install("stronger", KEPT.format(name="Stronger", priority=7), "stronger")
    assert with_more(env | shared_gnome_keyring.environ, run, BACKEND) == ["stronger.Stronger"]


def test_a_named_chain_selects_its_best_backend(run: Run, shared_gnome_keyring: KeyringSession) -> None:
    env = shared_gnome_keyring.environ | {"PYTHON_KEYRING_BACKEND": "keyring.backends.chainer.ChainerBackend"}
    assert lines_of(run(BACKEND, env)) == [SECRET_SERVICE]


def test_failing_plug_ins_are_ignored_without_output(
    run: Run, install: Callable[..., dict[str, str]], shared_gnome_keyring: KeyringSession
) -> None:
    install("broken", "raise RuntimeError('CANARY')", "broken")
    env = install("odd", KEPT.format(name="Odd", priority=7).replace("priority = 7", "priority = 'high'"), "odd")
    assert with_more(env | shared_gnome_keyring.environ, run, BACKEND) == [SECRET_SERVICE]


@pytest.mark.parametrize(
    "address",
    [
        "disabled:",
        "unix:path=/nonexistent",
        *(pytest.param(address, marks=pytest.mark.slow) for address in ("garbage", "autolaunch:")),
    ],
)
def test_an_unusable_session_bus_is_reported_quickly(run: Run, address: str) -> None:
    started = time.monotonic()
    assert lines_of(run(BACKEND, {"DBUS_SESSION_BUS_ADDRESS": address}))[0].startswith("NoKeyring: ")
    assert time.monotonic() - started < 4


def test_an_empty_variable_selects_no_backend(run: Run, shared_gnome_keyring: KeyringSession) -> None:
    assert lines_of(run(BACKEND, shared_gnome_keyring.environ | {"PYTHON_KEYRING_BACKEND": ""})) == [SECRET_SERVICE]


def test_the_remembered_backend_contains_no_secret(run: Run, state: Path, shared_gnome_keyring: KeyringSession) -> None:
    lines_of(run("store().write(ME, Record(Token('CANARY'), 'CANARY'))", shared_gnome_keyring.environ))
    files = [path for path in state.rglob("*") if path.is_file()]
    assert json.dumps(sorted(path.name for path in files)) == '["keyring-backend", "keyring.lock"]'
    assert all(b"CANARY" not in path.read_bytes() and b"me@" not in path.read_bytes() for path in files)
