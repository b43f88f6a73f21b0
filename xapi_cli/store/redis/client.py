"""Commands to a Redis server: one connection, opened when it is needed, and a time limit that the commands share.

Each command can be repeated: scripts that change something check whether they already have. A connection that breaks,
or a server that is just starting, is therefore tried again until the time limit.
"""

import errno
import socket
import time
import weakref
from collections.abc import Callable
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis

from xapi_cli.errors import StoreError, TimeoutExpired
from xapi_cli.store.redis.address import Address
from xapi_cli.store.redis.replies import Redirect, ServerError, T, as_is, checked, store_error
from xapi_cli.system import forks
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    import ssl

Argument = str | bytes | int

_PAUSE = 0.05  # seconds before another attempt
_MAX_REPLY = 1024 * 1024  # bytes
_MAX_ARRAY = 4096  # bytes; those that this store expects have two short elements
_MAX_REDIRECTS = 5
_MIN_LIMIT = 0.5  # seconds that a command may take if earlier ones have used up the time
_MOMENT = 0.02  # seconds
_FAILURE_LIFETIME = 2.0  # seconds without another attempt after a server could not be reached


class _ConnectionFailed(Exception):
    """The connection cannot be opened or was lost; another attempt may succeed."""


class _Failure(NamedTuple):
    """Why a server could not be used; it is not tried again before the monotonic time *expires*."""

    error: StoreError
    expires: float


class Client:
    """A client of the server at *address*; all commands raise StoreError if they fail.

    *password* is called before the first connection, *tls* returns the TLS context. Commands may take *timeout* seconds
    together, including all attempts, and each at least half a second. Time in which no command runs is given back: a
    slow server can serve a long process, but a server that becomes slow and then hangs stops it as one that only hangs.
    """

    def __init__(
        self, address: Address, password: Callable[[], str], tls: "Callable[[], ssl.SSLContext]", timeout: float
    ) -> None:
        self._address, self._get_password, self._tls, self._timeout = address, password, tls, timeout
        self._node = address  # to which commands are sent: another one after a redirect
        self._asking = False  # the redirect to that node is for one command
        self._password: str | None = None
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader()
        self._limit, self._left, self._ended = timeout, timeout, time.monotonic()
        self._failures: dict[Address, _Failure] = {}  # the last one of each server
        self._peer = ""  # the address that the last connection led to, empty for a Unix socket
        self._lock = Lock()
        self._closer = weakref.finalize(self, lambda: None)
        forks.register(self)

    def after_fork(self) -> None:
        """Close the copy of the connection, which belongs to the parent process."""
        self._lock = Lock()
        self._close()

    @property
    def is_readable_by_others(self) -> bool:
        """Whether the last connection was neither encrypted nor within this machine."""
        from xapi_cli.http.connection import is_loopback

        return bool(self._peer) and not self._address.is_tls and not is_loopback(self._peer)

    def command(self, *arguments: Argument, form: Callable[[Any], T] = as_is) -> T:
        """Send a command and return form(reply); raise StoreError if the reply does not have that form."""
        with self._lock:
            self._raise_recent_failure(self._node)
            if self._password is None:
                self._password = self._get_password()
            start = time.monotonic()
            left = min(self._timeout, self._left + start - self._ended)
            self._limit = max(left, _MIN_LIMIT)
            try:
                return self._attempts(arguments, start + self._limit, form)
            finally:
                self._ended = time.monotonic()
                self._left = max(0.0, left - (self._ended - start))

    def script(self, text: str, key: str, *arguments: Argument, form: Callable[[Any], T] = as_is) -> T:
        """Run the Lua script *text*, which uses *key* only and which the server executes atomically; see `command`."""
        return self.command("EVAL", text, 1, key, *arguments, form=form)

    def _attempts(self, arguments: tuple[Argument, ...], end: float, form: Callable[[Any], T]) -> T:
        """Send the command until there is a reply, at most until the monotonic time *end*; return form(reply).

        After a failure, the next attempt is at the configured address: the node of a redirect may have failed, and
        another one has its keys. An attempt at that node therefore takes at most half of the time that is left.
        """
        if self._asking:
            self._use(self._address)
        redirects, elsewhere = 0, None
        while True:
            try:
                return checked(self._node, form, self._attempt(arguments, self._end_here(end)))
            except (ServerError, StoreError, _ConnectionFailed) as error:
                if isinstance(error, ServerError) and (redirect := error.redirect) and redirects < _MAX_REDIRECTS:
                    redirects += 1
                    self._follow(redirect)
                    continue
                failure, is_transient = self._described(error, arguments)
            node, is_outdated = self._node, self._node != self._address and not redirects  # of an earlier redirect
            if redirects and elsewhere is None:  # the configured server replies; later attempts have less time
                elsewhere = (node, failure)
            redirects = 0
            self._use(self._address)
            if is_outdated and time.monotonic() < end:
                continue
            if not is_transient:
                raise failure
            if time.monotonic() + _PAUSE >= end:
                node, failure = elsewhere or (node, failure)
                self._failures[node] = _Failure(failure, time.monotonic() + _FAILURE_LIFETIME)
                raise failure
            time.sleep(_PAUSE)

    def _end_here(self, end: float) -> float:
        """Return when an attempt ends that begins now: the node of a redirect leaves time to ask for another one."""
        now = time.monotonic()
        return end if self._node == self._address else now + (end - now) / 2

    def _follow(self, redirect: Redirect) -> None:
        node = self._node._replace(host=redirect.host or self._node.host, port=redirect.port)
        self._raise_recent_failure(node)
        self._use(node, asking=redirect.asking)

    def _raise_recent_failure(self, node: Address) -> None:
        """Raise the failure of an earlier command if *node* could not be reached a moment ago."""
        failure = self._failures.get(node)
        if failure is not None and time.monotonic() < failure.expires:
            raise copy(failure.error)

    def _described(
        self, error: "ServerError | StoreError | _ConnectionFailed", arguments: tuple[Argument, ...]
    ) -> tuple[StoreError, bool]:
        """Return *error* as an error of the store, and whether another attempt may succeed."""
        if isinstance(error, StoreError):
            return error, False
        if isinstance(error, ServerError):
            return store_error(self._node, error, _key(arguments)), error.is_transient
        return _unusable(f"Redis at {self._node} cannot be reached: {error}"), True

    def _attempt(self, arguments: tuple[Argument, ...], end: float) -> Any:
        try:
            if self._socket is None:
                self._connect(end)
            if self._asking:
                self._exchange(("ASKING",), end)
            return self._exchange(arguments, end)
        except ServerError:
            raise  # the reply was complete, so the connection can be used again
        except BaseException as error:
            self._close()  # it may be in the middle of a reply
            if isinstance(error, TimeoutError | TimeoutExpired):
                raise _ConnectionFailed(f"no reply within {self._limit:.2g} s") from None
            if isinstance(error, OSError):
                raise self._os_error(error) from None
            if isinstance(error, hiredis.ProtocolError):
                raise _unusable(f"the server at {self._node} does not use the Redis protocol") from None
            raise

    def _os_error(self, error: OSError) -> Exception:
        """Return *error* as _ConnectionFailed, or as StoreError if another attempt would fail too."""
        import ssl

        from xapi_cli.http.error_text import describe_error

        reason, _ = describe_error(error)
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            hint = "check redis_url, or set ca_bundle to the certificate of the CA"
            return StoreError(f"cannot establish a TLS connection to Redis at {self._node}: {reason}", hint=hint)
        if isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN:
            return _unusable(f"Redis at {self._node} cannot be reached: {reason}")
        return _ConnectionFailed(reason)

    def _exchange(self, arguments: tuple[Argument, ...], end: float) -> Any:
        """Send one command over the open connection; return its reply, or raise ServerError."""
        sock = self._socket
        assert sock is not None  # noqa: S101 - the caller has connected
        sock.settimeout(_wait(end))
        sock.sendall(_pack(tuple(map(_as_bytes, arguments))))
        received = bytearray()
        while (reply := self._reader.gets()) is False:
            sock.settimeout(_left(end) if received else _wait(end))
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "connection closed by the server")
            received += data
            _check_size(received)
            self._reader.feed(data)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def _connect(self, end: float) -> None:
        """Connect, authenticate and select the database."""
        address = self._node
        sock = _unix_socket(address.path, end) if address.path else _network_socket(address, end)
        try:
            self._peer = "" if address.path else sock.getpeername()[0]  # now: it fails after a reset
            if address.is_tls:
                sock = self._with_tls(sock, end)
        except BaseException:
            sock.close()
            raise
        self._socket, self._closer = sock, weakref.finalize(self, sock.close)
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=False)
        if address.username or self._password:
            self._exchange(("AUTH", *filter(None, (address.username,)), self._password or ""), end)
        if address.database:
            self._exchange(("SELECT", address.database), end)

    def _with_tls(self, sock: socket.socket, end: float) -> socket.socket:
        sock.settimeout(_wait(end))
        try:
            return self._tls().wrap_socket(sock, server_hostname=self._node.host)
        except TimeoutError:  # a server without TLS waits for the end of a line
            raise _ConnectionFailed(f"no reply to the TLS handshake within {self._limit:.2g} s") from None

    def _use(self, node: Address, *, asking: bool = False) -> None:
        """Close the connection; the next one leads to *node*."""
        self._close()
        self._node, self._asking = node, asking

    def _close(self) -> None:
        self._closer()
        self._socket = None


_pack: Any = hiredis.pack_command  # annotated as if it took a single argument


def _unusable(problem: str) -> StoreError:
    return StoreError(problem, hint="check redis_url and the server", alternative="use another --storage")


def _key(arguments: tuple[Argument, ...]) -> str:
    """Return the key that a command uses, fit for messages, or an empty text."""
    place = 3 if arguments[0] == "EVAL" else 1
    return printable(str(arguments[place])) if len(arguments) > place else ""


def _check_size(received: bytearray) -> None:
    """Raise ProtocolError for a reply that no command here has: the parser would allocate what an array announces."""
    is_array = received[:1] == b"*"
    if len(received) > (_MAX_ARRAY if is_array else _MAX_REPLY) or received[0] not in b"+-:$*":
        raise hiredis.ProtocolError
    if is_array and ((received[1:3].isdigit() and len(received) > 2) or any(kind in received[1:] for kind in b"*%~>")):
        raise hiredis.ProtocolError


def _as_bytes(argument: Argument) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode("utf-8", "surrogateescape")


def _left(end: float) -> float:
    """Return the seconds until the monotonic time *end*; raise TimeoutError if there are none."""
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _wait(end: float) -> float:
    """Return the seconds until the monotonic time *end*, or a moment if there are none.

    On a busy machine, this process may have waited for the processor, and the server has long since replied.
    """
    return max(end - time.monotonic(), _MOMENT)


def _unix_socket(path: str, end: float) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise StoreError("this system has no Unix sockets", hint="use redis:// or rediss:// in redis_url")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(_wait(end))
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _network_socket(address: Address, end: float) -> socket.socket:
    """Return a socket that is connected to *address*; each of its addresses gets an equal share of the time."""
    from xapi_cli.http.dial import Resolver
    from xapi_cli.http.timeouts import Timeouts, Wait

    wait = Wait(Timeouts(), _wait(end), lambda: "no address")
    addresses = Resolver().addresses(address.host, address.port, wait)
    failure: OSError = OSError("no address")
    for number, (family, place) in enumerate(addresses):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(_wait(end) / (len(addresses) - number))
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
