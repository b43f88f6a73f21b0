"""Sends requests to the keeper: one connection for each, within a time limit."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from xapi_cli.errors import StoreError
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.messages import Held, Malformed, Request, Response
from xapi_cli.store.protocol import NoBackend
from xapi_cli.system import agent_socket
from xapi_cli.system.lock import LockTimeout

if TYPE_CHECKING:
    from _socket import socket

_NAME = "keeper"
RESTART_HINT = "run `xapi agent stop`, which erases its tokens, then `xapi login`"
_RETRY_INTERVAL = 0.01  # seconds; a connection is refused while many others are waiting, and dropped in a flood


class NotRunning(NoBackend):
    """No agent is running."""

    def __init__(self) -> None:
        super().__init__("no agent is running", hint="run `xapi agent start`")


class _Dropped(Exception):
    """The connection was closed before the response was complete."""


class KeeperClient:
    """Requests to the keeper of the agent that *environ* leads to, each within *timeout* seconds.

    Each method raises NotRunning, or StoreError if the keeper does not respond as it should.
    """

    def __init__(self, environ: Mapping[str, str], timeout: float) -> None:
        self._path, self._timeout = agent_socket.path(environ, _NAME), timeout

    @classmethod
    def at(cls, path: str, timeout: float) -> Self:
        """Return a client of the keeper that listens at *path*."""
        client = cls({}, timeout)
        client._path = path
        return client

    def get(self, key: bytes) -> tuple[bytes | None, bytes]:
        """Return the record of *key*, None if there is none, and the generation of the key."""
        response, body = self._exchange(Request(messages.GET, key))
        return (body if response.status == messages.OK else None), response.generation

    def put(self, key: bytes, record: bytes, *, expected: bytes = messages.ANY) -> bool:
        """Store *record*; return False, without storing it, if the key has been erased since it was *expected*."""
        request = Request(messages.PUT, key, expected, len(record))
        return self._exchange(request, record)[0].status != messages.CONFLICT

    def erase(self, key: bytes) -> bool:
        """Erase the record of *key*; return whether there was one."""
        return self._exchange(Request(messages.ERASE, key))[0].status == messages.OK

    @property
    def is_ending(self) -> bool:
        """Whether the agent of a keeper that responds is ending: it no longer has the socket for its control.

        An agent elsewhere, whose keeper alone is forwarded, has no lock file here.
        """
        directory = os.path.dirname(self._path or "")
        return os.path.exists(f"{directory}/lock") and not os.path.exists(f"{directory}/control")

    def held(self) -> list[Held]:
        """Return what the keeper holds, without the records."""
        try:
            return messages.parse_held(self._exchange(Request(messages.LIST))[1])
        except Malformed as error:
            raise _other_version() from error

    def time(self) -> float:
        """Return the monotonic time of the keeper, which may run on another machine."""
        try:
            return messages.parse_time(self._exchange(Request(messages.TIME))[1])
        except Malformed as error:
            raise _other_version() from error

    def stop(self) -> None:
        """Erase all records and end the keeper."""
        self._exchange(Request(messages.STOP))

    @contextlib.contextmanager
    def locked(self, key: bytes, timeout: float) -> Iterator[None]:
        """Hold the keeper's lock on *key* for a `with` block; raises LockTimeout after *timeout* seconds."""
        end = time.monotonic() + timeout
        with contextlib.closing(self._connect(end)) as sock:
            try:
                _send(sock, messages.pack_request(Request(messages.LOCK, key)), end)
                response = _response(sock, end)
            except (TimeoutError, BlockingIOError) as error:
                raise LockTimeout("the agent's lock") from error
            except (OSError, _Dropped) as error:
                raise NotRunning from error
            if response.status == messages.FULL:
                raise StoreError("too many processes wait for the agent's lock", hint="try again later")
            _check(response)
            yield

    def _exchange(self, request: Request, body: bytes = b"") -> tuple[Response, bytes]:
        """Return the response to *request* and its body; a request whose connection is dropped is sent again."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                return self._exchange_once(request, body, end)
            except (TimeoutError, BlockingIOError) as error:
                raise self._timeout_error() from error
            except (OSError, _Dropped):
                if end - time.monotonic() < _RETRY_INTERVAL:
                    raise self._timeout_error() from None
                time.sleep(_RETRY_INTERVAL)

    def _exchange_once(self, request: Request, body: bytes, end: float) -> tuple[Response, bytes]:
        with contextlib.closing(self._connect(end)) as sock:
            # the response to a request that is refused comes before its body has been received
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _send(sock, messages.pack_request(request) + body, end)
            response = _response(sock, end)
            _check(response)
            return response, _received(sock, response.length, end)

    def _connect(self, end: float) -> "socket":
        """Return a connection to the keeper; raise NotRunning if there is none."""
        while True:
            try:
                sock = agent_socket.connect(self._path, raise_if_full=True) if self._path is not None else None
            except BlockingIOError:  # many other clients are waiting
                if end - time.monotonic() < _RETRY_INTERVAL:
                    raise
                time.sleep(_RETRY_INTERVAL)
                continue
            if sock is None:
                raise NotRunning
            return sock

    def _timeout_error(self) -> StoreError:
        return StoreError(f"the agent did not respond within {self._timeout:g} s", hint=RESTART_HINT)


def _send(sock: "socket", data: bytes, end: float) -> None:
    sock.settimeout(max(0.001, end - time.monotonic()))
    sock.sendall(data)


def _received(sock: "socket", length: int, end: float) -> bytes:
    """Return the next *length* bytes; raise _Dropped if the connection ends before."""
    data = bytearray(length)
    view = memoryview(data)
    while view:
        sock.settimeout(max(0.001, end - time.monotonic()))
        count = sock.recv_into(view)
        if count == 0:
            raise _Dropped
        view = view[count:]
    return bytes(data)


def _response(sock: "socket", end: float) -> Response:
    try:
        return messages.parse_response(_received(sock, messages.RESPONSE_SIZE, end))
    except Malformed as error:
        raise _other_version() from error


def _check(response: Response) -> None:
    """Raise StoreError if *response* is a refusal."""
    if response.status == messages.INVALID:
        raise _other_version()
    if response.status == messages.FULL:
        raise _full()


def _full() -> StoreError:
    return StoreError(
        f"the agent is full ({messages.MAX_RECORDS} records) or has no memory left",
        hint="log out of an account that you no longer use",
    )


def _other_version() -> StoreError:
    return StoreError("the agent runs another version of xapi", hint="run `xapi agent stop`, then `xapi login`")
