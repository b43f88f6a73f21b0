"""A real gnome-keyring on a separate D-Bus, unlocked and without a user."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.support.threads import wait_until

if TYPE_CHECKING:
    import secretstorage
    from jeepney.io.blocking import DBusConnection

_PASSWORD = b"login password"  # stdin is the password, including a newline
_NEEDED = ("dbus-daemon", "gnome-keyring-daemon")


class KeyringSession:
    """A session bus and a keyring daemon; *environ* is the environment of a program in that session."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="xapi-keyring-"))  # short, as names of sockets must be
        context = self.home / "run"
        context.mkdir(mode=0o700)
        self._base = {"HOME": str(self.home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(context)}
        self._bus = subprocess.Popen(
            ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1"],
            env=self._base,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._bus.stdout is not None
        address = self._bus.stdout.readline().decode().strip()
        self.environ = {"DBUS_SESSION_BUS_ADDRESS": address, "XDG_RUNTIME_DIR": str(context)}
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._daemon, self._bus):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(30)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id of the keyring daemon."""
        return self._daemon.pid

    @property
    def lives(self) -> bool:
        """Whether the keyring daemon is still running."""
        return self._daemon.poll() is None

    def freeze(self) -> None:
        """Stop the daemon, which then accepts connections but does not respond."""
        self._daemon.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the stopped daemon."""
        self._daemon.send_signal(signal.SIGCONT)

    def lock(self) -> None:
        """Lock the keyring; without a display, no dialog can prompt to unlock it."""
        with self._collection() as collection:
            collection.lock()

    def restart(self) -> None:
        """Kill the daemon and start another, which is unlocked."""
        self._daemon.kill()
        self._daemon.wait()
        self._start()

    def clear(self) -> bool:
        """Delete all items; return False if the daemon is not running or is locked."""
        # If no daemon responds, the bus, jeepney and secretstorage each raise their own errors.
        with suppress(Exception), self._collection() as collection:
            if self.lives and not collection.is_locked():
                for item in collection.get_all_items():
                    item.delete()
                return True
        return False

    def count(self, text: str = "") -> int:
        """Return the number of items whose label contains *text*."""
        return len([label for label in self.labels() if text in label])

    def labels(self) -> list[str]:
        """Return the labels of all items."""
        with self._collection() as collection:
            return [item.get_label() for item in collection.get_all_items()]

    def add(self, service: str, username: str) -> None:
        """Create an item as another program does, which the backend of keyring finds too."""
        with self._collection() as collection:
            collection.create_item("xapi elsewhere", {"service": service, "username": username}, b"junk")

    @contextmanager
    def _collection(self) -> "Iterator[secretstorage.Collection]":
        import secretstorage

        with self._connection() as connection:
            yield secretstorage.get_default_collection(connection)

    @contextmanager
    def _connection(self) -> "Iterator[DBusConnection]":
        from jeepney.io.blocking import open_dbus_connection

        with open_dbus_connection(self.environ["DBUS_SESSION_BUS_ADDRESS"]) as connection:
            connection.send_and_get_reply = partial(connection.send_and_get_reply, timeout=30)
            yield connection

    def _start(self) -> None:
        self._daemon = subprocess.Popen(
            ["gnome-keyring-daemon", "--unlock", "--components=secrets", "--foreground"],
            env=self._base | self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert self._daemon.stdin is not None
        self._daemon.stdin.write(_PASSWORD)
        self._daemon.stdin.close()
        wait_until(lambda: not self.lives or self._is_unlocked(), "gnome-keyring is unlocked")
        assert self.lives

    def _is_unlocked(self) -> bool:
        import jeepney

        bus = jeepney.DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        owner = jeepney.new_method_call(bus, "GetConnectionUnixProcessID", "s", ("org.freedesktop.secrets",))
        # Wait for the owner of the name first: before that, any other call makes the bus start a second daemon.
        with suppress(Exception), self._connection() as connection:
            if connection.send_and_get_reply(owner).body[0] == self.pid:
                with self._collection() as collection:
                    return not collection.is_locked()
        return False


@pytest.fixture(scope="session")
def _sessions() -> Iterator[list[KeyringSession]]:
    """The keyring that tests share, and those that it replaced."""
    _skip_where_missing()
    sessions: list[KeyringSession] = []
    yield sessions
    for session in sessions:
        session.__exit__()


@pytest.fixture
def shared_gnome_keyring(_sessions: list[KeyringSession]) -> KeyringSession:
    """An empty keyring for all tests that leave it running, unlocked and responsive.

    gnome-keyring may abort spontaneously, and then comes back locked. Those tests that watch it for that have one of
    their own; for the others there is a new one.
    """
    if not _sessions or not _sessions[-1].clear():
        _sessions.append(KeyringSession())
    return _sessions[-1]


@pytest.fixture
def gnome_keyring() -> Iterator[KeyringSession]:
    """A keyring for one test, which may kill, freeze or lock it."""
    _skip_where_missing()
    with KeyringSession() as session:
        yield session


def _skip_where_missing() -> None:
    if missing := [name for name in _NEEDED if shutil.which(name) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
