"""Creates the sockets at which the agent listens: for this user only, and for one agent at a time."""

import fcntl
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.system import private_files
from xapi_cli.system.render import printable

_LOCK = "lock"  # the name of the lock file
_BACKLOG = 128  # calls that wait for a worker; further ones run without the agent
_UNFINISHED = re.compile(r"\.[a-z]+\.[0-9a-f]{16}\.new")  # the name of a socket that no process listens at yet


class AlreadyRunning(XapiError):
    """Another process holds the lock of the agent."""

    def __init__(self) -> None:
        super().__init__("the agent is already running", hint="run `xapi agent status`, or `xapi agent stop`")


def lock(directory: Path) -> int:
    """Return the descriptor of the lock file in *directory*, locked until it and its duplicates are closed.

    The file contains the id of this process, for `holder`. Creates the directory. Raises AlreadyRunning if another
    process holds the lock, Unsafe if the directory belongs to another user, and OSError.
    """
    descriptor = private_files.open_private(directory / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def holder(directory: Path) -> int | None:
    """Return the ID of the process that holds the lock of *directory*; None if there is none or its ID is unknown."""
    try:
        with (directory / _LOCK).open(encoding="ascii") as file:
            process = int(file.read())
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return process
    except (OSError, ValueError):
        pass
    return None


def listen(path: str) -> socket.socket:
    """Return a non-blocking socket that listens at *path*, in place of one that was there.

    The caller holds the lock of its directory. The socket gets its name when other users cannot connect to it any more.
    Raises Unsafe if the directory belongs to another user or everyone can write to it, UsageError for a file of another
    user or a file that is not a socket, and OSError.
    """
    place = Path(path)
    private_files.make_directory(place.parent)
    directory = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _remove_unfinished(directory)
        _check_replaceable(place, directory)
        return _listen(place.name, directory)
    finally:
        os.close(directory)


def remove(path: str) -> None:
    """Remove the socket at *path*, which the caller listens at; the caller holds the lock of its directory."""
    with suppress(OSError):
        os.unlink(path)


def inode(path: str) -> tuple[int, int] | None:
    """Return the device and the number of the inode at *path*, None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _listen(name: str, directory: int) -> socket.socket:
    new = f".{name}.{os.urandom(8).hex()}.new"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(f"/proc/self/fd/{directory}/{new}")  # the full path could be longer than an address
        os.chmod(new, 0o600, dir_fd=directory)
        listener.listen(_BACKLOG)
        os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        listener.close()
        with suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
    return listener


def _check_replaceable(place: Path, directory: int) -> None:
    """Raise UsageError if *place*, in *directory*, is a file of another user, or not a socket."""
    try:
        status = os.stat(place.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    path = printable(str(place))
    if status.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to another user (ID {status.st_uid})", hint="remove it")
    if not stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{path} is not a socket", hint="move or delete it")


def _remove_unfinished(directory: int) -> None:
    """Remove the sockets of processes that were killed in `_listen`."""
    for name in os.listdir(directory):
        if _UNFINISHED.fullmatch(name):
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
