"""Credential helpers: one that stores files, hostile ones, and the real `docker-credential-pass`."""

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

# Follows the protocol as the helpers by Docker do; `log` gets a line for each call. Importing json and hashlib would
# double the time of a call; xapi sends JSON that is a Python literal too.
_FILES = """
import _blake2, os
def path(server):
    return os.path.join(HERE, _blake2.blake2s(server.encode()).hexdigest())
text = sys.stdin.read()
with open(os.path.join(HERE, "log"), "a") as log:
    log.write(repr({"argv": sys.argv[1:], "environ": dict(os.environ)}) + chr(10))
if action == "store":
    members = eval(text)
    assert list(members) == ["ServerURL", "Username", "Secret"] and all(members.values())
    if len(members["Secret"]) > LIMIT:
        print("The stub received bad data.")
        sys.exit(1)
    with open(path(members["ServerURL"]) + ".new", "w") as file:
        file.write(text)
    os.rename(file.name, path(members["ServerURL"]))
elif not os.path.exists(path(text)):
    print("credentials not found in native keychain")
    sys.exit(1)
elif action == "get":
    print(open(path(text)).read())
else:
    os.remove(path(text))
"""


class FakeHelper(NamedTuple):
    """A helper that stores files in *directory*, with its program at *path*."""

    path: Path
    directory: Path

    @property
    def calls(self) -> list[dict[str, object]]:
        """The arguments and the environment of each call."""
        return [ast.literal_eval(line) for line in (self.directory / "log").read_text().splitlines()]

    @property
    def stored(self) -> list[dict[str, str]]:
        """What is stored."""
        return [json.loads(file.read_text()) for file in self.directory.iterdir() if len(file.name) == 64]


def install(path: Path, code: str) -> Path:
    """Create the helper *path*, a Python program with *code*, to which `sys`, `time` and `action` are known."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\nimport sys, time\naction = sys.argv[1]\n{code}\n")
    path.chmod(0o700)
    return path


def install_fake(directory: Path, *, limit: int = 2560) -> FakeHelper:
    """Create a helper in *directory* that stores files of at most *limit* characters."""
    code = f"HERE = {str(directory / 'files')!r}\nLIMIT = {limit}\n{_FILES}"
    (directory / "files").mkdir(parents=True)
    return FakeHelper(install(directory / "docker-credential-fake", code), directory / "files")


@pytest.fixture
def fake_helper(tmp_path: Path) -> FakeHelper:
    """A working helper with the size limit of the Windows Credential Locker."""
    return install_fake(tmp_path / "helper")


class PasswordStore(NamedTuple):
    """A password store of `pass`, with its own key; *environ* selects it."""

    directory: Path
    environ: dict[str, str]

    def secrets(self) -> list[Path]:
        """Return the encrypted files of xapi."""
        return sorted((self.directory / "store" / "docker-credential-helpers").glob("*/*.gpg"))


@contextmanager
def password_store() -> Iterator[PasswordStore]:
    """Create a password store; end the agent of GnuPG afterwards."""
    with tempfile.TemporaryDirectory(prefix="xapi-pass-", ignore_cleanup_errors=True) as name:
        directory = Path(name)  # short, because the agent has a socket in it
        environ = {"GNUPGHOME": str(directory / "gnupg"), "PASSWORD_STORE_DIR": str(directory / "store")}
        (directory / "gnupg").mkdir(0o700)
        run = {"PATH": os.environ["PATH"], "HOME": name, **environ}
        key = ("--quick-generate-key", "test@example.com", "future-default", "default", "never")
        try:
            for command in (
                ("gpg", "--batch", "--quiet", "--passphrase", "", *key),
                ("pass", "init", "test@example.com"),
            ):
                subprocess.run(command, env=run, check=True, capture_output=True, timeout=60)
            yield PasswordStore(directory, environ)
        finally:
            subprocess.run(("gpgconf", "--kill", "all"), env=run, check=False, capture_output=True, timeout=20)


@pytest.fixture(scope="session")
def _shared_password_store() -> Iterator[PasswordStore]:
    with password_store() as store:
        yield store


@pytest.fixture
def shared_password_store(_shared_password_store: PasswordStore) -> PasswordStore:
    """The real `pass`, empty."""
    for file in _shared_password_store.secrets():
        file.unlink()
    return _shared_password_store
