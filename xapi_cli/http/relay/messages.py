"""The messages between a process that borrows a connection and the relay that lends it.

A message is a length in four bytes and a JSON object. A loan is one connection to the socket of the relay:

    borrower  lend   the route, the account, the sources of trusted certificates
    relay     phase  the relay opens a connection, and has reached this step
    relay     lent   with the descriptor of the connection
    relay     failed, miss
    relay     end    how the connection ended, before the end of the data is visible to the borrower
    borrower  keep   the response is complete, and the connection is reusable
    borrower  surplus  bytes arrived that belong to no response; not kept

The borrower ends the loan by closing the connection to the relay. Without `keep`, the relay closes what it lent.
"""

import json
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from xapi_cli.errors import NetworkError
from xapi_cli.http.connection import Route
from xapi_cli.http.proxies import Proxy
from xapi_cli.system import agent_socket

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SIZE = 64 * 1024  # bytes of one message
_LENGTH = struct.Struct("!I")

Message = dict[str, Any]


class ProtocolError(Exception):
    """A message is not valid."""


class LoanRequest(NamedTuple):
    """What is asked of the relay: a connection for *route*, as the credentials with the digest *account* use it.

    *sources* are the names of settings with trusted certificates, and absolute paths; none for the trust store of the
    operating system. It MUST be a connection without previous requests if it is to be *new*.
    """

    route: Route
    account: str
    sources: tuple[tuple[str, str], ...]
    new: bool = False

    def message(self) -> Message:
        """Return the request as a message."""
        proxy = self.route.proxy
        return {
            "type": "lend",
            "route": self.route[:3],
            "proxy": proxy
            and [
                proxy.scheme,
                proxy.host,
                proxy.port,
                proxy.authorization and proxy.authorization.decode("latin-1"),
                proxy.variable,
            ],
            "account": self.account,
            "sources": self.sources,
            "new": self.new,
        }

    @classmethod
    def of(cls, message: "Mapping[str, Any]") -> Self:
        """Return the request in *message*; raises ProtocolError if it is not valid."""
        try:
            scheme, host, port = message["route"]
            sources = tuple((_text(setting), _text(path)) for setting, path in message["sources"])
            proxy = _proxy(message["proxy"])
            route = Route(_text(scheme), _text(host), _port(port), proxy)
            return cls(route, _text(message["account"]), sources, bool(message["new"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError("not a valid request for a loan") from error


class Loan(NamedTuple):
    """A connection that is lent.

    *kind* is the method and status of the last response over it, None for a new one. With *is_relayed*, the relay
    passes on bytes. *peer* is the address of the server or proxy, *trace* the line about a new connection.
    """

    tls: str | None
    kind: tuple[str, int] | None
    is_relayed: bool
    peer: str
    trace: str

    def message(self) -> Message:
        """Return the loan as a message."""
        return {"type": "lent", **self._asdict()}

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the loan in *message*; raises ProtocolError if it is not valid."""
        try:
            tls, kind = message["tls"], message["kind"]
            return cls(
                None if tls is None else _text(tls),
                None if kind is None else _kind(message),
                message["is_relayed"] is True,
                _text(message["peer"]),
                _text(message["trace"]),
            )
        except (KeyError, TypeError) as error:
            raise ProtocolError("not a loan") from error


class LoanEnd(NamedTuple):
    """How a borrower ends a loan.

    *kind* is the method and status of a complete response, after which the connection is reusable, if exactly the bytes
    that were *received* and *sent* have been passed on. With *has_surplus*, bytes arrived that belong to no response.
    """

    kind: tuple[str, int] | None = None
    received: int | None = 0
    sent: int | None = 0
    has_surplus: bool = False

    def message(self) -> Message:
        """Return the end as a message."""
        if self.has_surplus:
            return {"type": "surplus"}
        return {"type": "keep", "kind": self.kind, "received": self.received, "sent": self.sent}

    @classmethod
    def of(cls, message: Message | None) -> Self:
        """Return the end in the last *message* of the borrower, None without one; raises ProtocolError."""
        if message is not None and message["type"] == "keep":
            return cls(_kind(message), message.get("received"), message.get("sent"))
        return cls(has_surplus=message is not None and message["type"] == "surplus")


def _kind(message: Message) -> tuple[str, int]:
    """Return the method and status in *message*; raises ProtocolError if they are not valid."""
    match message.get("kind"):
        case [str(method), int(status)]:
            return method, status
    raise ProtocolError("not a kind of response")


def failure(message: Message) -> NetworkError:
    """Return the error in *message*, which the relay would have raised in place of the borrower."""
    hint = message.get("hint")
    return NetworkError(str(message.get("message")), hint=None if hint is None else str(hint))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value < 65_536:
        raise TypeError
    return value


def _proxy(value: Any) -> Proxy | None:
    if value is None:
        return None
    scheme, host, port, authorization, variable = value
    secret = None if authorization is None else _text(authorization).encode("latin-1")
    return Proxy(_text(scheme), _text(host), _port(port), secret, _text(variable))


class MessageSocket:
    """Send and receive messages over the connected Unix socket *sock*, which it puts in non-blocking mode."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        self.has_ended = False

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, message: Message, descriptor: int | None = None) -> None:
        """Send *message* with *descriptor*; raises OSError if that is not possible without waiting."""
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > MAX_SIZE:
            raise OSError("a message is too long")
        rights = agent_socket.with_descriptors([] if descriptor is None else [descriptor])
        data = _LENGTH.pack(len(data)) + data
        if self._socket.sendmsg([data], rights) != len(data):
            raise OSError("the peer does not read its messages")

    def receive(self) -> Message | None:
        """Return the next message, None if it has not arrived completely or never will: see `has_ended`.

        Raises ProtocolError if the message is not valid, OSError if the connection failed.
        """
        if (message := self._next()) is None and not self.has_ended:
            self._fill()
            message = self._next()
        return message

    def wait(self, left: Callable[[], float | None] = lambda: None) -> Message | None:
        """Return the next message, None if the peer has left; wait for as many seconds as *left* returns.

        Raises what `receive` and *left* raise.
        """
        poll = select.poll()
        poll.register(self, select.POLLIN)
        while (message := self.receive()) is None and not self.has_ended:
            seconds = left()
            poll.poll(None if seconds is None else seconds * 1000)
        return message

    def take_descriptor(self) -> int | None:
        """Return the oldest descriptor that has arrived, None without one; the caller closes it."""
        return self._descriptors.pop(0) if self._descriptors else None

    def close(self) -> None:
        """Close the connection, and descriptors that have arrived and were not taken."""
        import os

        while (descriptor := self.take_descriptor()) is not None:
            os.close(descriptor)
        with suppress(OSError):
            self._socket.close()

    def _fill(self) -> None:
        try:
            data, descriptors = agent_socket.receive_with_descriptors(self._socket, MAX_SIZE, 1)
        except BlockingIOError:
            return
        self._descriptors += descriptors
        self._buffer += data
        self.has_ended = not data

    def _next(self) -> Message | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer)
        if size > MAX_SIZE:
            raise ProtocolError("a message is too long")
        end = _LENGTH.size + size
        if len(self._buffer) < end:
            return None
        content = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("not JSON") from error
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise ProtocolError("not a message")
        return message


def within(seconds: float) -> Callable[[], float]:
    """Return what returns the rest of the *seconds* that begin now, and raises TimeoutError when they have passed."""
    end = time.monotonic() + seconds

    def left() -> float:
        if (rest := end - time.monotonic()) <= 0:
            raise TimeoutError
        return rest

    return left


def end_message(error: OSError | None) -> Message:
    """Return the message about the end of a connection: regular if *error* is None, else it failed with *error*."""
    if error is None:
        return {"type": "end", "how": "closed"}
    if isinstance(error, ssl.SSLError):
        how = "tls-eof" if isinstance(error, ssl.SSLEOFError) else "tls"
        return {"type": "end", "how": how, "number": error.errno, "text": error.strerror, "reason": error.reason}
    return {"type": "end", "how": "failed", "number": error.errno, "text": error.strerror}


def end_error(message: Message) -> OSError | None:
    """Return the error in a message about the end of a connection, None for a regular end."""
    how, number, text = message.get("how"), message.get("number"), str(message.get("text"))
    number = number if isinstance(number, int) else None
    if how == "closed":
        return None
    if how == "failed":
        return OSError(number, text)
    error = (ssl.SSLEOFError if how == "tls-eof" else ssl.SSLError)(number, text)
    error.reason = str(message.get("reason"))
    return error
