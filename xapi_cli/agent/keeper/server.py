"""The keeper: a process that holds tokens in memory only, and serves the processes of its user.

Processes that share a token share the login lock and the login failures of its account, so these are here too.

It is one thread that waits for many clients. Each client has a time limit and limited memory, so that one that hangs
or floods does not delay the others. A record is received into locked memory and sent from there, and is never parsed.
"""

import resource
import selectors
import signal
import socket
import time
from contextlib import suppress
from os import read

from xapi_cli.agent.keeper.records import HeldFailures, HeldRecords, LockedMemory, Locks
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.messages import Request, Response
from xapi_cli.system import agent_socket, own_process

TIME_LIMIT = 5.0  # seconds for one request and its response; a lock can be held and awaited for longer
MAX_CONNECTIONS = 512
MAX_RECEIVING = 8 * 1024 * 1024  # bytes of incomplete bodies
_SPARE_DESCRIPTORS = 32


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve clients of *listener* until a client requests the end, or the pipe *lifeline* is closed at its other end.

    The process MUST have no other purpose: its memory is protected, and its records end with it.
    """
    own_process.protect()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C in a terminal, the agent closes the lifeline
    Keeper(listener, lifeline).run()


class Keeper:
    """The loop that serves the clients of *listener*; see `serve`."""

    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self.records = HeldRecords()
        self.failures = HeldFailures()
        self.locks: Locks[KeeperConnection] = Locks()
        self.ends = False
        self._listener, self._lifeline = listener, lifeline
        self._selector = selectors.DefaultSelector()
        self._connections: dict[KeeperConnection, None] = {}  # in order of arrival
        self._limit = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_DESCRIPTORS)

    def run(self) -> None:
        """Serve until the end, then erase all records and close all connections."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._lifeline, selectors.EVENT_READ, self._check_lifeline)
        while not self.ends:
            for key, _ in self._selector.select(self._seconds_to_wait()):
                key.data()
            self._close_overdue()
        self.records.clear()
        for connection in list(self._connections):
            connection.close()
        self._selector.close()
        self._listener.close()

    def may_wait_for_lock(self) -> bool:
        """Return whether one more connection can hold a lock or wait for it, so that others remain possible."""
        return len(self.locks) < self._limit // 2

    def reserve(self, size: int) -> LockedMemory:
        """Return memory for a body of *size* bytes; for that, the oldest incomplete bodies may be dropped."""
        receiving = [each for each in self._connections if each.body is not None]
        total = size + sum(len(each.body.view) for each in receiving if each.body)
        for each in receiving:
            if total <= MAX_RECEIVING:
                break
            total -= len(each.body.view) if each.body else 0
            each.close()
        return LockedMemory(size)

    def watch(self, connection: "KeeperConnection", event: int) -> None:
        """Call the method of *connection* for *event* whenever it can be performed."""
        action = connection.receive if event == selectors.EVENT_READ else connection.send
        self._selector.modify(connection.sock, event, action)

    def forget(self, connection: "KeeperConnection") -> None:
        """Stop watching the *connection*, and release its lock."""
        del self._connections[connection]
        self._selector.unregister(connection.sock)
        if connection.lock is not None and (successor := self.locks.release(connection.lock, connection)):
            successor.respond(Response(messages.OK))

    def _accept(self) -> None:
        with suppress(OSError):  # the client has given up, or there are too many descriptors in the system
            sock = agent_socket.accept(self._listener)
            if sock is None:
                return
            if not self._make_place():
                sock.close()
                return
            sock.setblocking(False)
            connection = KeeperConnection(self, sock)
            self._connections[connection] = None
            self._selector.register(sock, selectors.EVENT_READ, connection.receive)
            connection.receive()

    def _make_place(self) -> bool:
        """Return whether there is place for another client; disconnects the oldest one if the limit is reached."""
        if len(self._connections) >= self._limit:
            oldest = next((each for each in self._connections if each.lock is None), None)
            if oldest is None:
                return False
            oldest.close()
        return True

    def _check_lifeline(self) -> None:
        self.ends = self.ends or not read(self._lifeline, 1)

    def _seconds_to_wait(self) -> float | None:
        now = time.monotonic()
        waits = [each.deadline - now for each in self._connections if each.deadline is not None]
        if (left := self.failures.seconds_left(now)) is not None:
            waits.append(left)
        return max(0.0, min(waits)) if waits else None

    def _close_overdue(self) -> None:
        now = time.monotonic()
        for each in list(self._connections):
            if each.deadline is not None and each.deadline <= now:
                each.close()


class KeeperConnection:
    """One client: a request is received, a response is sent."""

    def __init__(self, keeper: Keeper, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline: float | None = time.monotonic() + TIME_LIMIT
        self.body: LockedMemory | None = None  # of the request, while it is received
        self.lock: bytes | None = None  # the key of the lock that the client holds or waits for
        self._keeper = keeper
        self._header, self._received = bytearray(messages.REQUEST_SIZE), 0
        self._request: Request | None = None
        self._unsent: list[memoryview] = []
        self._sent_record: LockedMemory | None = None  # kept until it has been sent, even if it is erased meanwhile
        self._is_closed = False

    def receive(self) -> None:
        """Receive what has arrived; act on the request when it is complete."""
        target = self.body.view if self.body is not None else memoryview(self._header)
        try:
            # a client that holds or awaits a lock has nothing to send, and ends by closing its connection
            count = self.sock.recv_into(target[self._received :]) if self.lock is None else 0
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        self._received += count
        if self._received == len(target):
            self._advance()

    def respond(self, response: Response, body: "LockedMemory | bytes | None" = None) -> None:
        """Send *response* with *body*; the connection is then closed, unless it holds a lock."""
        view = body.view if isinstance(body, LockedMemory) else memoryview(body or b"")
        self._sent_record = body if isinstance(body, LockedMemory) else None
        self._unsent = [memoryview(messages.pack_response(response._replace(length=len(view)))), view]
        self.send()

    def send(self) -> None:
        """Send as much as the client can receive."""
        try:
            while self._unsent:
                count = self.sock.send(self._unsent[0]) if self._unsent[0] else 0
                self._unsent[0] = self._unsent[0][count:]
                if not self._unsent[0]:
                    self._unsent.pop(0)
        except BlockingIOError:
            self._keeper.watch(self, selectors.EVENT_WRITE)
            return
        except OSError:
            self.close()
            return
        if self.lock is None:
            self.close()
        else:
            self._keeper.watch(self, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._unsent, self._sent_record, self.body = [], None, None
            self._keeper.forget(self)
            self.sock.close()

    def _advance(self) -> None:
        """Act on a complete header, or on a complete body."""
        if self._request is not None:
            self._put(self._request)
            return
        try:
            self._request = request = messages.parse_request(self._header)
        except messages.Malformed:
            self.respond(Response(messages.INVALID))
            return
        match request.operation:
            case messages.PUT:
                self._begin_body(request)
            case messages.GET:
                self._get(request)
            case messages.ERASE:
                self._erase(request)
            case messages.LIST:
                self._list()
            case messages.TIME:
                self.respond(Response(messages.OK), messages.pack_time(time.monotonic()))
            case messages.LOCK:
                self._acquire(request)
            case _:
                self._stop()

    def _begin_body(self, request: Request) -> None:
        if not self._has_space_for(request.key):
            self.respond(Response(messages.FULL))
            return
        try:
            self.body, self._received = self._keeper.reserve(request.length), 0
        except (OSError, MemoryError):
            self.respond(Response(messages.FULL))

    def _has_space_for(self, key: bytes) -> bool:
        return messages.is_failure(key) or self._keeper.records.has_space_for(key)

    def _put(self, request: Request) -> None:
        keeper, body, now = self._keeper, self.body, time.monotonic()
        if body is None or not self._has_space_for(request.key):  # another record has taken the last space
            self.respond(Response(messages.FULL))
            return
        is_stored = True
        if messages.is_failure(request.key):
            keeper.failures.put(request.key, bytes(body.view), now)
        else:
            is_stored = keeper.records.put(request.key, body, request.generation, now)
        self.respond(Response(messages.OK if is_stored else messages.CONFLICT))

    def _get(self, request: Request) -> None:
        found: LockedMemory | bytes | None
        if messages.is_failure(request.key):
            found, generation = self._keeper.failures.get(request.key, time.monotonic()), messages.ANY
        else:
            found, generation = self._keeper.records.get(request.key)
        self.respond(Response(messages.ABSENT if found is None else messages.OK, generation), found)

    def _erase(self, request: Request) -> None:
        held = self._keeper.failures if messages.is_failure(request.key) else self._keeper.records
        self.respond(Response(messages.OK if held.erase(request.key) else messages.ABSENT))

    def _list(self) -> None:
        self.respond(Response(messages.OK), messages.pack_held(self._keeper.records.held(time.monotonic())))

    def _acquire(self, request: Request) -> None:
        if not self._keeper.may_wait_for_lock():
            self.respond(Response(messages.FULL))
            return
        self.lock, self.deadline = request.key, None
        if self._keeper.locks.acquire(request.key, self):
            self.respond(Response(messages.OK))

    def _stop(self) -> None:
        self._keeper.records.clear()
        self._keeper.ends = True
        self.respond(Response(messages.OK))
