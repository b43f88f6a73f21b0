"""The process that listens, keeps idle workers ready and knows what they did; it runs no command itself.

It has one thread and no secrets, and never looks up a name or opens D-Bus, so its workers start as a new process does.

One loop waits for signals, for the reports of workers, for requests to its control socket and, only while no worker is
idle, for commands. The invariants:

- The loop never waits for a process or a peer for longer than `_CONTROL_TIMEOUT`. A client is not served meanwhile only
  if no worker is idle; after a moment, it runs its command itself.
- Reports are read before an ended process is forgotten. A worker may have sent one just before it ended, and the client
  whose connection is in it waits for the wait status.
- A new worker is started a moment after a command has begun, because forking and warming it up would slow down that
  command; immediately if a client waits. After each failure the next start waits twice as long, so that an agent that
  cannot start workers does not occupy the machine.
- Workers, services and master belong to one version. After an upgrade, the agent starts no worker but ends, and the
  commands that run complete.
- A process that is killed takes nothing along: the kernel releases the lock of the agent, ends the lifeline, at which
  services and idle workers end, and the next agent replaces the names of the sockets.
"""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from xapi_cli.agent import adoption, preload, protocol, worker
from xapi_cli.agent.activity import Activity, ProcessFailures, ending
from xapi_cli.agent.idle_workers import IdleWorkers, Permit
from xapi_cli.agent.listener import Presence
from xapi_cli.agent.services import Services
from xapi_cli.errors import AgentError
from xapi_cli.system import agent_socket, own_process
from xapi_cli.system.render import printable

_IDLE_WORKERS = 2
_MAX_WORKERS = 64
_REFILL_DELAY = 0.02  # seconds; a new worker would slow down the command that runs
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CONTROL_TIMEOUT = 1.0  # seconds
_POLL = 60.0  # seconds; the longest wait


class Sockets(NamedTuple):
    """The listening sockets of the master: for commands, and for `xapi agent status` and `stop`."""

    agent: socket.socket
    control: socket.socket


class _Signals:
    """The signals to the master: those that stop it, and the ends of its child processes."""

    def __init__(self) -> None:
        self.stop_requested = False
        self._wakeup, self._sender = socket.socketpair()
        for each in (self._wakeup, self._sender):
            each.setblocking(False)

    def fileno(self) -> int:
        """Return what becomes readable when a signal arrives."""
        return self._wakeup.fileno()

    def catch(self) -> None:
        """Handle the signals from now on."""
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for number in _STOP_SIGNALS:
            signal.signal(number, self._request_stop)

    def clear(self) -> None:
        """Wait for the next ones."""
        with suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def leave(self) -> None:
        """Let a child process receive its own signals."""
        signal.set_wakeup_fd(-1)
        for number in (*_STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._wakeup.close()
        self._sender.close()

    def _request_stop(self, *_: object) -> None:
        self.stop_requested = True


class Master:
    """Serves *sockets* until it is idle for *idle* seconds, or its *presence*, which shows it to others, was removed.

    *build* is that of the modules that this process has loaded. *ready* is called when the first worker and all
    services run, and others can connect; *warn* with a message about each process that fails afterwards.
    *services* are the listening sockets of the services, by their names; *directory* has their paths.
    The agent does not end while it *is_needed*.
    """

    def __init__(
        self,
        sockets: Sockets,
        services: Mapping[str, socket.socket],
        directory: str,
        presence: Presence,
        *,
        build: bytes,
        ready: Callable[[], None],
        warn: Callable[[str], None],
        idle: float,
        is_needed: Callable[[], bool],
    ) -> None:
        self._sockets, self._presence = sockets, presence
        self._announce: Callable[[], None] | None = ready
        self._warn = warn
        self._is_needed = is_needed
        self._lifeline, self._lifeline_end = os.pipe()
        self._services = Services(services, self._lifeline)
        self._reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reports.setblocking(False)
        self._signals = _Signals()
        self._station = worker.Station(sockets.agent, self._lifeline, theirs, adoption.Start.now(), build, directory)
        self._idle_workers = IdleWorkers()
        self._busy: dict[int, socket.socket | None] = {}  # the connection of each worker that runs a command
        self._failures = ProcessFailures()
        self._reasons: dict[int, str] = {}  # why processes failed that have not been reaped yet
        self._activity = Activity(idle)
        self._refill_at = 0.0
        self._stopping = False

    def run(self) -> None:
        """Serve until the end: `stop`, a signal, an upgrade, or idleness; running commands end first.

        Raises AgentError if a process fails before the agent is ready.
        """
        self._signals.catch()
        try:
            self._start_missing(is_wanted=False)
            while not self._stopping or self._busy:
                self._step()
        finally:
            self._stop()
        if self._announce is not None and self._failures.last is not None:
            raise AgentError(f"the agent failed to start: {self._failures.last}")

    def _step(self) -> None:
        ready = self._wait()
        if self._signals.fileno() in ready:
            self._signals.clear()
        self._read_reports()
        self._reap()
        if self._signals.stop_requested or not self._presence.is_visible():
            self._stop()
        if not self._stopping and self._sockets.control.fileno() in ready:
            self._serve_control()
        if not self._stopping and not self._busy and self._activity.seconds_until_idle() <= 0:
            self._stop_unless_needed()
        if not self._stopping:
            self._start_missing(is_wanted=self._sockets.agent.fileno() in ready)

    def _start_missing(self, *, is_wanted: bool) -> None:
        """Start the services and workers that do not run; *is_wanted* is whether a client waits for a worker."""
        self._services.start(self._start_service)
        self._refill(is_wanted=is_wanted)

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        poll.register(self._reports, select.POLLIN)
        if not self._stopping:
            poll.register(self._sockets.control, select.POLLIN)
            if not self._idle_workers and self._may_start_worker:
                poll.register(self._sockets.agent, select.POLLIN)
        return {number for number, _ in poll.poll(self._timeout() * 1000)}

    def _timeout(self) -> float:
        now = time.monotonic()
        waits = [_POLL, self._activity.seconds_until_idle() + 0.001]
        if not self._stopping:
            if (delay := self._services.seconds_to_wait()) is not None:
                waits.append(delay + 0.001)
            if len(self._idle_workers) < _IDLE_WORKERS and self._has_room:
                waits.append(max(self._refill_at - now, self._failures.seconds_to_wait()))
        return max(min(waits), 0.0)

    # processes

    @property
    def _has_room(self) -> bool:
        return len(self._idle_workers) + len(self._busy) < _MAX_WORKERS

    @property
    def _may_start_worker(self) -> bool:
        return self._has_room and not self._stopping and not self._failures.seconds_to_wait()

    def _refill(self, *, is_wanted: bool) -> None:
        """Start workers: immediately if no command runs or a client waits, otherwise after a delay.

        After an upgrade of the package, the agent ends instead.
        """
        if len(self._idle_workers) >= _IDLE_WORKERS or not self._may_start_worker:
            return
        if protocol.build_id() != self._station.build:
            self._stop()  # new workers would mix the modules of two versions
        elif is_wanted and not self._idle_workers:
            self._start_worker(warm_up=False)
        elif not self._busy or time.monotonic() >= self._refill_at:
            while len(self._idle_workers) < _IDLE_WORKERS and self._may_start_worker:
                self._start_worker(warm_up=True)

    def _start_worker(self, *, warm_up: bool) -> None:
        try:
            permit = Permit()
        except OSError as error:
            self._fail_to_start("worker", error)
            return

        def serve() -> None:
            self._services.close()
            worker.serve(self._station, permit, warm_up=warm_up)

        if (pid := self._fork("worker", serve)) is None:
            permit.close()
        else:
            self._idle_workers.add(pid, permit)

    def _start_service(self, name: str, serve: Callable[[], None]) -> int | None:
        def leave_and_serve() -> None:
            self._sockets.agent.close()
            serve()

        return self._fork(name, leave_and_serve)

    def _fork(self, name: str, run: Callable[[], None]) -> int | None:
        """Return the process id of a new process that runs *run*; None if it cannot be started."""
        if self._stopping:
            return None
        try:
            pid = os.fork()
        except OSError as error:
            self._fail_to_start(name, error)
            return None
        if pid:
            return pid
        try:
            os.setsid()  # Ctrl-C in the terminal of the agent must not interrupt the commands of others
            own_process.resume_when_parent_exits()
            self._leave()
            run()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - no exception may reach the loop of the master
            worker.report(self._station, b"F", reason=f"{name}: {type(error).__name__}: {error}")
        finally:
            os._exit(1)

    def _fail_to_start(self, name: str, error: OSError) -> None:
        self._fail(f"no process for the {name} ({error.strerror})")
        self._failures.back_off()

    def _fail(self, reason: str) -> None:
        """Record the failure of a process; the agent ends if it is not ready yet."""
        if self._stopping:
            return
        self._failures.add(printable(reason))
        if self._announce is not None:
            self._stop()
        else:
            self._warn(f"a process of the agent failed: {self._failures.last}")

    def _leave(self) -> None:
        """Close in a new process what belongs to the master."""
        self._signals.leave()
        os.close(self._lifeline_end)
        self._presence.leave()
        self._idle_workers.close()
        self._reports.close()
        self._sockets.control.close()
        for connection in self._busy.values():
            if connection is not None:
                connection.close()

    def _read_reports(self) -> None:
        for report in worker.reports(self._reports):
            self._note(*report)

    def _note(self, kind: bytes, pid: int, connection: socket.socket | None, reason: str) -> None:
        if kind == b"U":
            self._stop()
        elif kind == b"F":
            self._reasons[pid] = reason
        elif kind == b"R":
            self._announce_if_ready()
        elif kind in {b"C", b"N"}:
            self._activity.bypass(reason, has_begun=kind == b"C")
        elif kind == b"B":
            self._begin(pid, connection)

    def _announce_if_ready(self) -> None:
        is_ending = self._signals.stop_requested or self._stopping
        if self._announce is not None and self._services.all_run and not is_ending:
            self._presence.publish()
            self._announce()
            self._announce = None
            self._activity.ready()

    def _begin(self, pid: int, connection: socket.socket | None) -> None:
        self._activity.begin_command()
        self._idle_workers.remove(pid)
        self._busy[pid] = connection
        self._refill_at = time.monotonic() + _REFILL_DELAY
        self._failures.succeed()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._read_reports()  # before it is forgotten: it can have sent one just before it ended
                self._forget(*ended)

    def _forget(self, pid: int, status: int) -> None:
        """Handle the end of the process *pid*, and send its wait *status* to its client."""
        reason = self._reasons.pop(pid, None)
        if status:
            preload.remove_account_files(self._station.directory, pid)
        if (name := self._services.reap(pid)) is not None:
            self._fail(reason or f"{name}: {ending(status)}")
        elif pid in self._idle_workers:
            self._idle_workers.remove(pid)
            if status:
                self._fail(reason or f"worker: {ending(status)}")
                self._failures.back_off()
        elif (connection := self._busy.pop(pid, None)) is not None:
            connection.setblocking(False)
            with connection, suppress(OSError):  # usually the client has ended
                protocol.send(connection, b"S", b"%d" % status)
            self._activity.use()

    # control

    def _stop_unless_needed(self) -> None:
        if self._is_needed():
            self._activity.use()
        else:
            self._stop()

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._presence.release()
            self._sockets.agent.close()
            self._sockets.control.close()
            self._services.close()
            os.close(self._lifeline_end)

    def _serve_control(self) -> None:
        with suppress(OSError, EOFError, protocol.ProtocolError):
            connection = agent_socket.accept(self._sockets.control)
            if connection is None:
                return
            with connection:
                connection.settimeout(_CONTROL_TIMEOUT)
                kind, _ = protocol.receive(connection, 0)
                if kind == b"I":
                    protocol.send(connection, b"A", json.dumps(self._status()).encode())
                elif kind == b"W":
                    for _ in range(self._idle_workers.kill_stopped()):  # `_start_missing` replaces them
                        self._fail("worker: it was stopped")
                elif kind == b"E":
                    self._stop()
                    reply = {"pid": os.getpid(), "running_commands": len(self._busy)}
                    protocol.send(connection, b"A", json.dumps(reply).encode())

    def _status(self) -> Mapping[str, Any]:
        processes = [os.getpid(), *self._idle_workers, *self._busy, *self._services.processes.values()]
        return {
            "pid": os.getpid(),
            **self._activity.status(),
            "running_commands": len(self._busy),
            "services": self._services.processes,
            "failures": self._failures.count,
            "last_failure": self._failures.last,
            "processes": len(processes),
            "memory": sum(map(_memory_of, processes)),
        }


def _memory_of(pid: int) -> int:
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
