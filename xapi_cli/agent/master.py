"""The process that listens, keeps idle workers ready and knows what they did; it runs no command itself.

It has one thread and no secrets, and never looks up a name or opens D-Bus, so its workers start as a new process does.
"""

import json
import os
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from xapi_cli.agent import fidelity, protocol, worker
from xapi_cli.agent.services import Services
from xapi_cli.system import agent_socket

_IDLE_WORKERS = 2
_MAX_WORKERS = 64
_REFILL_DELAY = 0.02  # seconds; a new worker would slow down the command that runs
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MAX_REPORT = 256  # bytes
_CONTROL_TIMEOUT = 1.0  # seconds
_POLL = 60.0  # seconds; the longest wait


class Sockets(NamedTuple):
    """The listening sockets of the master: for commands, and for `xapi agent status` and `stop`."""

    agent: socket.socket
    control: socket.socket


class Master:
    """Serves *sockets* until it is idle for *idle* seconds; *release* removes the sockets.

    *services* are the listening sockets of the services, by their names; *relay* is the path of one.
    The agent does not end while it *is_needed*.
    *lock* is the descriptor of its lock, which no other process may hold.
    """

    def __init__(
        self,
        sockets: Sockets,
        services: Mapping[str, socket.socket],
        relay: str,
        *,
        idle: float,
        is_needed: Callable[[], bool],
        lock: int,
        release: Callable[[], None],
    ) -> None:
        self._sockets = sockets
        self._idle = idle
        self._is_needed = is_needed
        self._lock = lock
        self._release = release
        self._lifeline, self._lifeline_end = os.pipe()
        self._services = Services(services, self._lifeline)
        self._reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reports.setblocking(False)
        self._wakeup, signal_end = socket.socketpair()
        for each in (self._wakeup, signal_end):
            each.setblocking(False)
        self._signal_end = signal_end
        self._station = worker.Station(
            sockets.agent, self._lifeline, theirs, fidelity.Start.now(), protocol.build(), relay
        )
        self._idle_workers: set[int] = set()
        self._busy: dict[int, socket.socket | None] = {}  # the connection of each worker that runs a command
        self._cold: Counter[str] = Counter()
        self._warm = 0
        self._since = time.time()
        self._used = time.monotonic()
        self._refill_at = 0.0
        self._stop_requested = self._stopping = False

    def run(self) -> None:
        """Serve until the end: `stop`, a signal, an upgrade, or idleness; running commands end first."""
        signal.set_wakeup_fd(self._signal_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._request_stop)
        self._services.start(self._leave_for_service)
        while not self._stopping or self._busy:
            self._step()

    def _request_stop(self, *_: object) -> None:
        self._stop_requested = True

    def _step(self) -> None:
        ready = self._wait()
        if self._wakeup.fileno() in ready:
            with suppress(BlockingIOError):
                self._wakeup.recv(4096)
        self._read_reports()
        self._reap()
        if self._stop_requested:
            self._stop()
        if self._stopping:
            return
        if self._sockets.control.fileno() in ready:
            self._serve_control()
        self._services.start(self._leave_for_service)
        if time.monotonic() - self._used > self._idle and not self._busy:
            self._stop_unless_needed()
        self._refill(is_wanted=self._sockets.agent.fileno() in ready)

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._reports, select.POLLIN)
        if not self._stopping:
            poll.register(self._sockets.control, select.POLLIN)
            if not self._idle_workers and len(self._busy) < _MAX_WORKERS:
                poll.register(self._sockets.agent, select.POLLIN)
        return {number for number, _ in poll.poll(self._timeout() * 1000)}

    def _timeout(self) -> float:
        now = time.monotonic()
        waits = [_POLL, self._used + self._idle - now + 0.001]
        if not self._stopping and (delay := self._services.seconds_to_wait()) is not None:
            waits.append(delay + 0.001)
        if len(self._idle_workers) < _IDLE_WORKERS and not self._stopping:
            waits.append(self._refill_at - now)
        return max(min(waits), 0.0)

    # workers

    def _refill(self, *, is_wanted: bool) -> None:
        """Start workers: at once if no command runs or a client waits, otherwise after a delay."""
        if self._stopping or len(self._idle_workers) + len(self._busy) >= _MAX_WORKERS:
            return
        if is_wanted and not self._idle_workers:
            self._start_worker(rehearse=False)
        elif not self._busy or time.monotonic() >= self._refill_at:
            while len(self._idle_workers) < _IDLE_WORKERS:
                self._start_worker(rehearse=True)

    def _start_worker(self, *, rehearse: bool) -> None:
        if (pid := os.fork()) == 0:
            try:
                self._leave()
                self._services.close()
                worker.serve(self._station, rehearse=rehearse)
            finally:
                os._exit(1)  # no exception may reach the loop of the master
        self._idle_workers.add(pid)

    def _leave(self) -> None:
        """Close in a new worker what belongs to the master."""
        signal.set_wakeup_fd(-1)
        for number in (*_STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._lifeline_end)
        os.close(self._lock)
        for each in (self._reports, self._wakeup, self._signal_end, self._sockets.control):
            each.close()
        for connection in self._busy.values():
            if connection is not None:
                connection.close()

    def _leave_for_service(self) -> None:
        self._leave()
        self._sockets.agent.close()

    def _read_reports(self) -> None:
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._reports, _MAX_REPORT, 1)
            except BlockingIOError:
                return
            kind, pid, reason = message.split(b" ", 2)
            connection = socket.socket(fileno=descriptors[0]) if descriptors else None
            self._note(kind, int(pid), connection, reason.decode())

    def _note(self, kind: bytes, pid: int, connection: socket.socket | None, reason: str) -> None:
        self._used = time.monotonic()
        if kind == b"U":
            self._stop()
        elif kind == b"C":
            self._cold[reason] += 1
            self._warm -= 1
        elif kind == b"B":
            self._idle_workers.discard(pid)
            self._busy[pid] = connection
            self._warm += 1
            self._refill_at = self._used + _REFILL_DELAY

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                self._services.reap(pid)
                self._idle_workers.discard(pid)
                connection = self._busy.pop(pid, None)
                if connection is not None:
                    connection.setblocking(False)
                    with connection, suppress(OSError):  # usually the client has ended
                        protocol.send(connection, b"S", b"%d" % status)
                    self._used = time.monotonic()

    # control

    def _stop_unless_needed(self) -> None:
        if self._is_needed():
            self._used = time.monotonic()
        else:
            self._stop()

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._release()
            self._sockets.agent.close()
            self._sockets.control.close()
            self._services.close()
            os.close(self._lifeline_end)

    def _serve_control(self) -> None:
        with suppress(OSError, EOFError, protocol.ProtocolError):
            connection, _ = self._sockets.control.accept()
            with connection:
                if agent_socket.peer(connection)[1] != os.geteuid():
                    return
                connection.settimeout(_CONTROL_TIMEOUT)
                kind, _ = protocol.receive(connection, 0)
                if kind == b"I":
                    protocol.send(connection, b"A", json.dumps(self._status()).encode())
                elif kind == b"E":
                    self._stop()
                    reply = {"pid": os.getpid(), "running_commands": len(self._busy)}
                    protocol.send(connection, b"A", json.dumps(reply).encode())

    def _status(self) -> Mapping[str, Any]:
        processes = [os.getpid(), *self._idle_workers, *self._busy, *self._services.processes.values()]
        return {
            "pid": os.getpid(),
            "since": self._since,
            "idle": self._idle,
            "warm": self._warm,
            "cold": dict(self._cold.most_common()),
            "running_commands": len(self._busy),
            "services": self._services.processes,
            "processes": len(processes),
            "memory": sum(map(_memory, processes)),
        }


def _memory(pid: int) -> int:
    """Return the memory of the process *pid* in bytes: its share of the pages that it shares; 0 if it has ended.

    If the kernel does not show the share, which takes the right to trace the process, shared pages count in full.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except OSError:
        return _resident(pid)


def _resident(pid: int) -> int:
    """Return the resident memory of the process *pid* in bytes; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
