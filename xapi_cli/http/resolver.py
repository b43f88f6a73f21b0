"""DNS lookups with a timeout, which getaddrinfo() does not support."""

import errno
import socket
from itertools import chain, zip_longest
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from xapi_cli.system import forks

if TYPE_CHECKING:
    from xapi_cli.http.timeouts import Wait

Address = tuple[int, Any]  # the family and the argument of connect()

_TCP = socket.SOCK_STREAM


class Resolver:
    """Resolve names; each name is looked up by at most one thread, regardless of the number of waiting callers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lookups: dict[tuple[str, int], _Lookup] = {}
        forks.register(self)

    def after_fork(self) -> None:
        """Reset the state: the threads of the parent process do not run in the child process."""
        self._lock = Lock()
        self._lookups.clear()

    def addresses(self, host: str, port: int, wait: "Wait") -> list[Address]:
        """Return the addresses of *host* in the order in which to try them.

        Raises OSError if the lookup fails, TimeoutExpired when *wait* has expired.
        """
        try:
            return _interleaved(socket.getaddrinfo(host.encode("ascii"), port, type=_TCP, flags=socket.AI_NUMERICHOST))
        except socket.gaierror:  # *host* is a name, not an address
            return self._lookup(host, port).result(wait)

    def _lookup(self, host: str, port: int) -> "_Lookup":
        with self._lock:
            lookup = self._lookups.get((host, port))
            if lookup is None or lookup.is_done:
                lookup = _Lookup(host, port)
                try:
                    lookup.start()
                except RuntimeError as error:
                    raise OSError(errno.EAGAIN, "no more threads can be started") from error
                self._lookups[host, port] = lookup
        return lookup


class _Lookup(Thread):
    """A DNS lookup in a daemon thread, so that a lookup that hangs does not prevent the process from exiting."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name=f"lookup of {host}", daemon=True)
        self._host, self._port = host, port
        self._done = Event()
        self._addresses: list[Address] = []
        self._error: OSError | None = None

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def run(self) -> None:
        try:
            # Bytes, because with str the socket module loads the idna codec, which takes 4 ms.
            self._addresses = _interleaved(socket.getaddrinfo(self._host.encode("ascii"), self._port, type=_TCP))
        except OSError as error:
            self._error = error
        except UnicodeError:
            self._error = socket.gaierror(socket.EAI_NONAME, "not a host name")
        finally:
            self._done.set()

    def result(self, wait: "Wait") -> list[Address]:
        while not self._done.is_set():
            self._done.wait(wait.poll_interval())
        if self._error:
            raise self._error
        return self._addresses


def _interleaved(infos: list[tuple[Any, ...]]) -> list[Address]:
    """Return the addresses with IPv4 and IPv6 interleaved (RFC 8305, 4), because one family may be unreachable."""
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in infos))
    first = [entry for entry in addresses if entry[0] == addresses[0][0]]
    others = [entry for entry in addresses if entry[0] != addresses[0][0]]
    return [entry for entry in chain.from_iterable(zip_longest(first, others)) if entry]
