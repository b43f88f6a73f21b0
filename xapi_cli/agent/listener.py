"""The directory of an agent: its lock, by which others see in which state the agent is, and the sockets of the agent.

    the lock is free                        no agent runs
    it is held, `control` does not listen   the agent is starting or ending: both are short, so others wait
    it is held, `control` listens           the agent is ready

The sockets get their names, `control` last, when the first worker and the services run. The lock ends with the agent,
however that ends. Of an agent that was killed, the names of sockets remain, at which no process listens.
"""

import fcntl
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from xapi_cli.errors import AgentError, UsageError, XapiError
from xapi_cli.system import agent_socket
from xapi_cli.system.private_files import StateDirectory
from xapi_cli.system.render import printable

STARTING, READY, ENDING = "starting", "ready", "ending"
POLL_INTERVAL = 0.01  # seconds between two looks at the state
_KILL_TIMEOUT = 1.0  # seconds until the kernel has released the lock of a process that was killed
_LOCK = "lock"  # the name of the lock file
_FLOCK = Struct("hhqqi0q")  # struct flock in fcntl(2): type, whence, start, length and process
_BACKLOG = 128  # calls that wait for a worker; further ones run without the agent
_UNFINISHED = re.compile(r"\.[a-z-]+\.[0-9a-f]{16}\.new")  # what is replaced or removed soon


class AlreadyRunning(AgentError):
    """Another process holds the lock of the agent."""

    def __init__(self) -> None:
        super().__init__("the agent is already running", hint="run `xapi agent status`, or `xapi agent stop`")


class Holder(NamedTuple):
    """The process that holds the lock, None if its ID is unknown, and the *state* that it has noted."""

    process: int | None
    state: str


class Lock:
    """The lock of an agent, held until *descriptor* and its duplicates are closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.note(STARTING)

    def note(self, state: str) -> None:
        """Note the *state* of this agent in the file, if possible, for messages."""
        with suppress(OSError):
            os.pwrite(self._descriptor, f"{os.getpid()} {state:<8}\n".encode(), 0)

    def close(self) -> None:
        """Release the lock; in a child process, leave it to the parent."""
        os.close(self._descriptor)


def lock(directory: Path, *, timeout: float = 0.0) -> Lock:
    """Return the lock of *directory*; creates the directory.

    Waits *timeout* seconds for an agent that is starting or ending. Raises AlreadyRunning if another process still
    holds the lock then, or is ready; Unsafe if the directory belongs to another user; and OSError.
    """
    end = time.monotonic() + timeout
    descriptor = StateDirectory(directory).file(_LOCK).open(os.O_RDWR | os.O_CREAT)
    try:
        while not _try_lock(descriptor):
            if time.monotonic() >= end or agent_socket.is_listening(str(directory / "control")):
                raise AlreadyRunning
            time.sleep(POLL_INTERVAL)
        return Lock(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def holder(directory: Path) -> Holder | None:
    """Return what holds the lock of *directory*, None if it is free, or that of another user."""
    try:
        with (directory / _LOCK).open(encoding="ascii", errors="replace") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid() or not _is_locked(file.fileno()):
                return None
            process, _, state = file.readline().strip().partition(" ")
    except OSError:
        return None
    return Holder(int(process) if process.isdigit() else None, state)


def remove_unfinished(directory: Path) -> None:
    """Remove what an agent that was just killed has left in *directory*, unless another one runs, which has done so."""
    with suppress(XapiError, OSError):
        held = lock(directory, timeout=_KILL_TIMEOUT)
        try:
            _remove_unfinished(directory)
        finally:
            held.close()


class Listeners:
    """The sockets *names* in *directory*, which the caller has locked; others can connect when they are published.

    They are non-blocking, and replace sockets that were there. Other users can never connect to them. Raises Unsafe if
    the directory belongs to another user or everyone can write to it, UsageError for a file of another user or a file
    that is not a socket, and OSError.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.sockets: dict[str, socket.socket] = {}
        self._directory = directory
        self._paths: dict[str, Path] = {}  # where each socket is
        self._inodes: dict[str, tuple[int, int] | None] = {}
        StateDirectory(directory).open(make=True)
        _remove_unfinished(directory)
        for name in names:
            _check_replaceable(directory / name)
        try:
            for name in names:
                self._paths[name] = directory / f".{name}.{os.urandom(8).hex()}.new"
                self.sockets[name] = _listen(self._paths[name])
                self._inodes[name] = _inode(self._paths[name])
        except BaseException:
            self.remove()
            raise

    def publish(self) -> None:
        """Give the sockets their names, one after another."""
        for name, path in self._paths.items():
            os.replace(path, self._directory / name)
            self._paths[name] = self._directory / name

    def are_reachable(self) -> bool:
        """Return whether they are still where they were created or published."""
        return all(_inode(path) == self._inodes[name] for name, path in self._paths.items())

    def remove(self) -> None:
        """Remove those that are still there; what else is there may belong to another agent."""
        for name, path in self._paths.items():
            if name in self._inodes and _inode(path) == self._inodes[name]:
                with suppress(OSError):
                    os.unlink(path)


class Presence:
    """What shows an agent to others: the lock *held* and the sockets *listeners* in its directory."""

    def __init__(self, held: Lock, listeners: Listeners) -> None:
        self._held, self._listeners = held, listeners

    @property
    def sockets(self) -> Mapping[str, socket.socket]:
        """The listening sockets, by their names."""
        return self._listeners.sockets

    def publish(self) -> None:
        """Show that the agent is ready: others can connect."""
        self._listeners.publish()
        self._held.note(READY)

    def is_visible(self) -> bool:
        """Return whether the sockets are still there."""
        return self._listeners.are_reachable()

    def leave(self) -> None:
        """Close the lock in a child process, which does not hold it."""
        self._held.close()

    def release(self) -> None:
        """Show that the agent is ending, remove the sockets, and release the lock."""
        self._held.note(ENDING)
        self._listeners.remove()
        self._held.close()


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*; after a failure, nothing is there."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")  # the full path could be longer than an address
        os.chmod(path.name, 0o600, dir_fd=directory)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        with suppress(OSError):
            os.unlink(path.name, dir_fd=directory)
        raise
    finally:
        os.close(directory)
    return listener


def _inode(path: Path) -> tuple[int, int] | None:
    """Return the device and the number of the inode at *path*, None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check_replaceable(place: Path) -> None:
    """Raise UsageError if *place* is a file of another user, or not a socket."""
    try:
        status = os.lstat(place)
    except FileNotFoundError:
        return
    path = printable(str(place))
    if status.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to another user (ID {status.st_uid})", hint="remove it")
    if not stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{path} is not a socket", hint="move or delete it")


def _remove_unfinished(directory: Path) -> None:
    for name in filter(_UNFINISHED.fullmatch, os.listdir(directory)):
        with suppress(OSError):
            os.unlink(directory / name)
        shutil.rmtree(directory / name, ignore_errors=True)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _write_lock())
    except BlockingIOError:
        return False
    return True


def _is_locked(descriptor: int) -> bool:
    """Return whether another process has locked the file; unlike an attempt to lock it, this disturbs no other one."""
    found: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _write_lock()))[0]
    return found != fcntl.F_UNLCK


def _write_lock() -> bytes:
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
