"""Wait for connections and threads in one thread."""

import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from xapi_cli.errors import NetworkError, XapiError


class Watched(Protocol):
    """What a selector can wait for."""

    @property
    def unread(self) -> Callable[[], int] | None:
        """Return the function that returns how many bytes arrived that a selector does not report; None if none do."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def close(self) -> None:
        """Close it."""


class EventLoop:
    """Watch connections, and run blocking functions in threads.

    A connection that is watched for data is yielded as long as there is some, even if only OpenSSL holds it, which the
    selector does not report. So the caller of `ready` may read a part of what has arrived.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeups, self._waker = socket.socketpair()
        self._wakeups.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wakeups, selectors.EVENT_READ)
        self._callbacks: SimpleQueue[tuple[Callable[[Any], None], Any]] = SimpleQueue()  # of threads
        self._watched: dict[Watched, int] = {}  # events of the selector; 0 if it is not registered there
        self._pipes = set[int]()
        self._is_closed = False
        self._partly_read = set[Watched]()  # those with `unread` data, perhaps

    def wake(self) -> None:
        """Make `ready` return; thread-safe."""
        with suppress(OSError):  # the socket buffer is full, so a wake-up is pending already
            self._waker.send(b"\0")

    def watch(self, connection: Watched, events: int) -> None:
        """Make `ready` yield *connection* after *events*; 0 pauses it."""
        current = self._watched.setdefault(connection, 0)
        if events == current:
            return
        if not current:
            self._selector.register(connection, events)
        elif not events:
            self._selector.unregister(connection)
        else:
            self._selector.modify(connection, events)
        self._watched[connection] = events

    def unwatch(self, connection: Watched) -> None:
        """Stop watching *connection*."""
        self._partly_read.discard(connection)
        if self._watched.pop(connection, 0):
            self._selector.unregister(connection)

    def watch_pipe(self, descriptor: int, events: int, on_ready: Callable[[], None]) -> None:
        """Make `ready` call *on_ready* after *events* of the pipe *descriptor*."""
        if descriptor not in self._pipes:
            self._pipes.add(descriptor)
            self._selector.register(descriptor, events, on_ready)

    def unwatch_pipe(self, descriptor: int) -> None:
        """Stop watching the pipe *descriptor*."""
        if descriptor in self._pipes:
            self._pipes.remove(descriptor)
            self._selector.unregister(descriptor)

    def ready(self, timeout: float, order: Callable[[Any], float] | None = None) -> Iterator[tuple[Any, int]]:
        """Wait at most *timeout* seconds for events; yield them, and call the callbacks of finished threads.

        The events are sorted by what *order* returns for the connection or pipe. The caller may leave some of them: the
        next call yields them again.
        """
        ready = self._select(timeout) if self._partly_read else self._selector.select(timeout)
        if order is not None:
            ready.sort(key=lambda each: order(each[0].fileobj))
        for key, events in ready:
            if key.fileobj in self._watched:
                if key.fileobj.unread is not None:
                    self._partly_read.add(key.fileobj)
                yield key.fileobj, events
            elif key.fileobj is self._wakeups:
                self._run_callbacks()
            elif key.fileobj in self._pipes:
                key.data()
            # otherwise, an earlier event has removed it

    def pending(self) -> set[Any]:
        """Return the connections that have events now."""
        return {key.fileobj for key, _ in self._select(0)}

    def run_in_thread(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run *work*, which blocks, in a thread; call *then* with its result or exception in the loop's thread."""

        def run() -> None:
            self._callbacks.put((then, result_of(work)))
            if self._is_closed:  # checked after the result is in the queue: `close` may have emptied it before
                self._close_results()
            else:
                self.wake()

        try:
            Thread(target=run, daemon=True).start()
        except RuntimeError:  # the thread limit is reached
            then(NetworkError("no more threads can be started", hint="use fewer --jobs"))

    def close(self) -> None:
        """Close all watched connections, and later those that threads are still opening."""
        self._is_closed = True
        self._close_results()
        for connection in list(self._watched):
            self.unwatch(connection)
            connection.close()
        self._selector.close()
        self._wakeups.close()
        self._waker.close()

    def _select(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what has events, and what has unread data and is watched for it; without any, wait for events."""
        self._partly_read = {each for each in self._partly_read if each.unread is not None and each.unread()}
        unread = {each for each in self._partly_read if self._watched[each] & selectors.EVENT_READ}
        ready = self._selector.select(0 if unread else timeout)
        if not unread:
            return ready
        others = [(key, events) for key, events in ready if key.fileobj not in unread]
        return [*others, *((self._selector.get_key(each), self._watched[each]) for each in unread)]

    def _run_callbacks(self) -> None:
        with suppress(OSError):
            self._wakeups.recv(65_536)
        for then, result in self._results():
            then(result)

    def _close_results(self) -> None:
        """Close the connections that threads have opened, and which nobody takes any longer."""
        for _, result in self._results():
            if hasattr(result, "close"):
                result.close()

    def _results(self) -> Iterator[tuple[Callable[[Any], None], Any]]:
        with suppress(Empty):
            while True:
                yield self._callbacks.get_nowait()


def result_of(work: Callable[[], Any]) -> Any:
    """Return the result of *work*, or the exception that it raises."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the caller raises it
        # its traceback would keep the frames of a login, with the password
        return error.with_traceback(None) if isinstance(error, XapiError) else error
