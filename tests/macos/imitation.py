"""Makes Python on Linux look as on macOS: removes what Darwin lacks, and adds what it has instead.

It is copied into the environment of the program, where each interpreter that starts without /proc imports it first.
What it cannot imitate is listed in `differences`.
"""

import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import resource
import select
import selectors
import signal
import socket
import sys
import sysconfig
import time
import types
from collections.abc import Iterator
from typing import Any

_F_FULLFSYNC = 51  # <sys/fcntl.h> of macOS
_MAX_SOCKET_PATH = 103  # bytes, without the final zero (unix(4) of macOS)
_MISSING: dict[Any, str] = {
    os: """O_TMPFILE O_PATH O_NOATIME O_DIRECT O_RSYNC O_LARGEFILE accept4 copy_file_range eventfd eventfd_read
        eventfd_write fdatasync getrandom getresgid getresuid getxattr listxattr setxattr removexattr memfd_create
        pidfd_open pipe2
        posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity sched_setscheduler sched_getscheduler
        setns setresgid setresuid splice timerfd_create unshare""",
    socket: """AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_ERRQUEUE MSG_MORE SOCK_CLOEXEC SOCK_NONBLOCK
        SO_BINDTODEVICE SO_DOMAIN SO_MARK SO_PASSCRED SO_PEERCRED SO_PROTOCOL TCP_CORK TCP_DEFER_ACCEPT TCP_KEEPIDLE
        TCP_QUICKACK TCP_USER_TIMEOUT""",
    select: "epoll EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP EPOLLRDHUP EPOLLET EPOLLONESHOT EPOLLEXCLUSIVE",
    resource: "prlimit",
    fcntl: """F_SETPIPE_SZ F_GETPIPE_SZ F_SETSIG F_GETSIG F_ADD_SEALS F_GET_SEALS F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW
        F_SETLEASE F_GETLEASE F_NOTIFY""",
    mmap: "MADV_DONTDUMP MADV_DONTFORK MADV_DOFORK MADV_DODUMP MADV_HUGEPAGE MAP_POPULATE",
    signal: "SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT pidfd_send_signal sigtimedwait sigwaitinfo",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
_MISSING_FUNCTIONS = frozenset({"prctl", "memfd_create", "gettid", "close_range"})  # of the C library


def imitate() -> None:
    """Change the interpreter; must run before other modules look for what is missing."""
    sysconfig.get_config_vars()  # read once, from a file whose name has the name of the platform
    sys.platform = "darwin"
    for module, names in _MISSING.items():
        for name in names.split():
            vars(module).pop(name, None)
    for name in ("eventfd", "pidfd_open"):  # `posix` is what os takes them from
        vars(sys.modules["posix"]).pop(name, None)
    os.uname = _uname
    _add_full_sync()
    _add_kqueue()
    _limit_socket_paths()
    _remove_functions_of_libraries()
    sys.modules["_scproxy"] = _system_settings()
    if "FAKE_KEYCHAIN" in os.environ:
        sys.meta_path.insert(0, _KeychainFinder())


def _uname() -> os.uname_result:
    real = sys.modules["posix"].uname()
    return os.uname_result(("Darwin", real.nodename, "22.6.0", "Darwin Kernel Version 22.6.0", real.machine))


def _system_settings() -> types.ModuleType:
    """Return the module with the proxies of the system's settings, which xapi must not use: nothing listens there."""
    module = types.ModuleType("_scproxy")
    vars(module).update(
        _get_proxy_settings=lambda: {"exclude_simple": False, "exceptions": []},
        _get_proxies=lambda: {"http": "http://127.0.0.1:1", "https": "http://127.0.0.1:1"},
    )
    return module


def _add_full_sync() -> None:
    real = fcntl.fcntl

    def with_full_sync(descriptor: Any, command: int, argument: Any = 0) -> Any:
        if command == _F_FULLFSYNC:
            if log := os.environ.get("FULL_SYNCS"):
                with open(log, "a") as file:
                    file.write("1\n")
            return os.fsync(descriptor)
        return real(descriptor, command, argument)

    vars(fcntl).update(F_FULLFSYNC=_F_FULLFSYNC, fcntl=with_full_sync)


def _limit_socket_paths() -> None:
    for name in ("bind", "connect"):
        real = getattr(socket.socket, name)

        def checked(self: socket.socket, address: Any, real: Any = real) -> Any:
            if self.family == socket.AF_UNIX and len(os.fsencode(address)) > _MAX_SOCKET_PATH:
                raise OSError("AF_UNIX path too long")
            return real(self, address)

        setattr(socket.socket, name, checked)


def _remove_functions_of_libraries() -> None:
    real = ctypes.CDLL.__getattr__

    def present(self: ctypes.CDLL, name: str) -> Any:
        if name in _MISSING_FUNCTIONS:
            raise AttributeError(name)
        return real(self, name)

    ctypes.CDLL.__getattr__ = present  # type: ignore[method-assign]  # this is what the imitation does


class _KEvent:
    """An event, or what to watch, as `select.kevent`."""

    def __init__(self, ident: Any, filter: int = -1, flags: int = 1) -> None:  # noqa: A002 - the name in the library
        self.ident = ident if isinstance(ident, int) else ident.fileno()
        self.filter = filter
        self.flags = flags


class _KQueue:
    """`select.kqueue` for descriptors, by poll()."""

    def __init__(self) -> None:
        self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._watched: dict[int, int] = {}

    def fileno(self) -> int:
        """Return the descriptor of the queue."""
        return self._descriptor

    def close(self) -> None:
        """Close the queue."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def control(self, changes: Any, max_events: int, timeout: float | None = None) -> list[_KEvent]:
        """Apply *changes*; then wait at most *timeout* seconds for at most *max_events* events."""
        for change in changes or ():
            self._apply(change)
        if not max_events:
            return []
        poll = select.poll()
        for descriptor, mask in self._watched.items():
            poll.register(descriptor, mask)
        found = poll.poll(None if timeout is None else max(0, timeout) * 1000)
        return [event for descriptor, bits in found for event in self._events(descriptor, bits)][:max_events]

    def _apply(self, change: _KEvent) -> None:
        mask = select.POLLIN if change.filter == _KQ_FILTER_READ else select.POLLOUT
        watched = self._watched.get(change.ident, 0)
        if change.flags & _KQ_EV_ADD:
            os.fstat(change.ident)  # OSError if it is not open
            self._watched[change.ident] = watched | mask
        elif not watched & mask:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        elif watched == mask:
            del self._watched[change.ident]
        else:
            self._watched[change.ident] = watched & ~mask

    def _events(self, descriptor: int, found: int) -> Iterator[_KEvent]:
        if found & select.POLLNVAL:  # it was closed: kqueue forgets such descriptors itself
            self._watched.pop(descriptor, None)
            return
        for bit, name in ((select.POLLIN, _KQ_FILTER_READ), (select.POLLOUT, _KQ_FILTER_WRITE)):
            if self._watched[descriptor] & bit and found & (bit | select.POLLHUP | select.POLLERR):
                yield _KEvent(descriptor, name)


_KQ_FILTER_READ, _KQ_FILTER_WRITE, _KQ_EV_ADD = -1, -2, 1


def _add_kqueue() -> None:
    constants = {"KQ_FILTER_READ": -1, "KQ_FILTER_WRITE": -2, "KQ_EV_ADD": 1, "KQ_EV_DELETE": 2, "KQ_EV_ONESHOT": 16}
    vars(select).update(constants, kqueue=_KQueue, kevent=_KEvent)
    vars(selectors).pop("EpollSelector", None)
    importlib.reload(selectors)  # socket has imported it


class _KeychainFinder:
    """Finds `keyring.backends.macOS.api`, the binding of Apple's libraries, in `keychain` beside this file."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Return the specification of the module *name* if it is the binding."""
        if name != "keyring.backends.macOS.api":
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, os.path.join(os.path.dirname(__file__), "darwin_keychain.py"))


imitate()
