"""Hands a command over to a worker, waits for its end, and ends this process in the same way.

Until the request has been sent, every failure means that this process runs the command itself. Afterwards it does so
only if the worker has not begun and no longer can: it declined, exited without reading the whole request, or hung and
was killed. So no command runs twice. The module is imported before anything else, so it imports only what the
interpreter has loaded already.
"""

import os
import sys

from xapi_cli.agent import protocol
from xapi_cli.system import agent_socket

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    import signal as _signal
    from _socket import socket
    from types import FrameType
    from typing import Any, NoReturn
else:
    import _signal  # `signal` takes 3 ms

READY_TIMEOUT = 0.4  # seconds until a worker must be ready
WORKER_TIMEOUT = 2  # seconds until a worker must begin with a command, or end with it after a signal
_TICK = 1.0  # seconds between two checks of a worker that sends nothing
_STOP_TIMEOUT = 0.05  # seconds until a worker is stopped
_REST_TIMEOUT = 10.0  # seconds for the rest of a message, or for a worker to read a reply
_MSG_PEEK, _SHUT_RD = 2, 0  # as in <sys/socket.h>
_LOST, _LOST_HINT = "the agent ended before the command completed", "the request may have been sent"
_STOP_SIGNALS = {_signal.SIGSTOP, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU}
_FAILED = 1  # the exit code of XapiError


def run(connection: "socket") -> None:
    """Run the command line in the agent at *connection* and end the process; return if this process has to run it."""
    worker, reason = -1, b""
    lifeline: tuple[int, ...] = ()
    try:
        if connection.fileno() < protocol.STREAMS or None in (sys.stdin, sys.stdout, sys.stderr):
            reason = protocol.CLOSED_STREAM
            return
        connection.settimeout(READY_TIMEOUT)
        reason = protocol.NOT_POSSIBLE
        own_build = protocol.build_id()  # this and the request while a worker accepts the connection
        request = protocol.request(sys.argv, os.environb, has_terminal=_has_terminal(), errors=sys.stdout.errors or "")
        reason = protocol.NO_WORKER
        process, namespace, build = protocol.receive_greeting(connection)
        if build != own_build:
            reason = protocol.OTHER_BUILD  # or it is older than this one
            return
        reason = protocol.NOT_VISIBLE
        worker = _open_process(connection, process, namespace)
        lifeline = os.pipe()
        reason = b""  # anything that follows a part of a request could complete it
    except (OSError, ValueError, EOFError, protocol.ProtocolError):
        return
    else:
        _RunningCommand(connection, worker).run(request, lifeline[0])
    finally:
        if reason:
            protocol.decline(connection, reason)
        connection.close()
        if reason == protocol.NO_WORKER:
            _report_no_worker()
        for descriptor in (worker, *lifeline):
            if descriptor >= 0:
                os.close(descriptor)


def _report_no_worker() -> None:
    """Let the master replace the workers that are stopped; no worker reads why this client has left then."""
    path = agent_socket.path(os.environ, "control")
    if path is not None and (control := agent_socket.connect(path)) is not None:
        try:
            protocol.send(control, b"W")
        except OSError:
            pass  # the agent has ended
        control.close()


class _RunningCommand:
    """A command that the process *worker* runs, reported on *connection*."""

    def __init__(self, connection: "socket", worker: int) -> None:
        self._connection = connection
        self._worker = worker
        self._forwarded = 0  # the last signal
        self._is_sent = self._has_begun = False
        self._previous: dict[int, Any] = {}

    def run(self, request: bytes, lifeline: int) -> None:
        """Send *request*, wait for the end of the command and end this process; return if this process has to run it.

        The worker can ask for that, and does not begin within WORKER_TIMEOUT if it hangs. *lifeline* is a pipe that
        reaches end of file when this process exits.
        """
        self._forward_signals()  # first: the command may begin before `send_request` returns
        if self._has_sent(request, lifeline):
            try:
                while self._next_message() != b"C":
                    pass
            except Exception:  # noqa: BLE001 - the agent was killed, or sends something that no agent sends
                self._send(_signal.SIGKILL)
                _end_lost(self._forwarded)
        self._restore_signals()
        if self._forwarded:  # the worker has not run the command, and neither does this process
            _end_by_signal(self._forwarded)

    def _has_sent(self, request: bytes, lifeline: int) -> bool:
        """Send *request* with *lifeline*; return False if no worker can have received all of it."""
        try:
            protocol.send_request(self._connection, request, lifeline)
        except OSError:
            # the worker may hold copies of the streams, and their readers wait until all copies are closed
            self._send(_signal.SIGKILL)
            return False
        self._is_sent = True
        return True

    def _next_message(self) -> bytes:
        """Do what the next message requires, and return its kind; raises any exception if that is not possible."""
        if not self._await_message():
            return b"C"
        kind, content = protocol.receive(self._connection)
        if kind == b"X":
            os._exit(int(content))
        elif kind == b"S":
            _end_with_status(int(content))
        elif kind == b"B":
            if content:
                _harden()
        elif kind in {b"Q", b"P", b"G", b"O"}:
            from xapi_cli.agent import questions

            questions.respond(self._connection, kind, content)
        elif kind != b"C" or self._has_begun:
            raise protocol.ProtocolError("unexpected message")
        self._has_begun = True
        return kind

    def _await_message(self) -> bool:
        """Wait for the next message; return False if there will be none because the command has not begun.

        Raises EOFError if the worker was killed, and the master, which would report that, does not respond.
        """
        try:
            return self._has_message()
        except ConnectionResetError:  # the worker exited without reading everything that was sent
            return self._has_begun

    def _has_message(self) -> bool:
        since_signal = since_end = waited = 0  # ticks: a clock would count the time for which this process is stopped
        self._connection.settimeout(_TICK)
        while True:
            try:
                self._connection.recv(1, _MSG_PEEK)
            except TimeoutError:
                waited += 1
                since_signal += bool(self._forwarded)
                since_end += _has_ended(self._worker)
            else:
                self._connection.settimeout(_REST_TIMEOUT)
                return True
            if waited >= WORKER_TIMEOUT and not self._has_begun and not self._forwarded:
                return not self._withdraw()
            self._send(_signal.SIGCONT)  # a worker may be stopped only while its client is stopped
            if since_signal > WORKER_TIMEOUT:
                self._send(_signal.SIGKILL)
                os._exit(128 + self._forwarded)  # as a command whose cleanup timed out
            if since_end > WORKER_TIMEOUT:
                raise EOFError

    def _withdraw(self) -> bool:
        """Prevent the worker from running the command; return False if it has begun or refused to."""
        self._send(_signal.SIGSTOP)  # it may be about to begin
        self._connection.settimeout(_STOP_TIMEOUT)
        try:
            self._connection.recv(1, _MSG_PEEK)
        except TimeoutError:
            pass
        else:
            self._connection.settimeout(_REST_TIMEOUT)
            self._send(_signal.SIGCONT)
            return False
        self._connection.shutdown(_SHUT_RD)  # it can no longer report that it begins, and exits then
        self._send(_signal.SIGKILL)
        return not self._connection.recv(1, _MSG_PEEK)

    def _forward_signals(self) -> None:
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGTSTP):
            previous = _signal.getsignal(number)
            if previous != _signal.SIG_IGN:
                self._previous[number] = previous
                _signal.signal(number, self._stop if number == _signal.SIGTSTP else self._forward)

    def _restore_signals(self) -> None:
        for number, handler in self._previous.items():
            _signal.signal(number, handler)

    def _forward(self, number: int, frame: "FrameType | None") -> None:
        self._forwarded = number
        self._send(number)
        self._send(_signal.SIGCONT)  # it may be stopped

    def _stop(self, number: int, frame: "FrameType | None") -> None:
        """Stop the worker and then this process, as Ctrl-Z does; continue both when the shell continues this one."""
        if self._is_sent:  # otherwise, the worker gives up in time, and this process runs the command
            self._send(_signal.SIGSTOP)
        _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
        _signal.signal(number, self._stop)
        self._send(_signal.SIGCONT)

    def _send(self, number: int) -> None:
        _send_signal(self._worker, number)


def _open_process(connection: "socket", process: bytes, namespace: bytes) -> int:
    """Return the descriptor of the worker at *connection*, the process *process* in *namespace*.

    Raises OSError or ValueError, even if the worker has given up this client: the id may belong to another process.
    """
    if namespace != protocol.pid_namespace():
        raise ValueError(namespace)
    worker = os.pidfd_open(int(process))
    connection.setblocking(False)
    try:
        connection.recv(1, _MSG_PEEK)
    except BlockingIOError:
        connection.settimeout(READY_TIMEOUT)
        return worker
    except OSError:
        pass
    os.close(worker)
    raise ValueError(process)


def _send_signal(worker: int, number: int) -> None:
    """Send the signal *number* to the process with the descriptor *worker*, -1 without one."""
    try:
        _signal.pidfd_send_signal(worker, number)
    except OSError:
        pass  # it has ended


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal that it can open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _has_ended(worker: int) -> bool:
    import select

    poll = select.poll()
    poll.register(worker, select.POLLIN)
    return bool(poll.poll(0))


def _harden() -> None:
    """Protect the secrets in the environment of this process, now that the worker has read what it needs."""
    from xapi_cli.system import own_process

    own_process.protect()


def _end_with_status(status: int) -> "NoReturn":
    if os.WIFSIGNALED(status):
        _end_by_signal(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _end_lost(forwarded: int) -> "NoReturn":
    """End this process after the whole agent was killed; the worker may have died of the signal *forwarded*."""
    if forwarded:
        _end_by_signal(forwarded)
    from xapi_cli.system import message_format

    line = f"xapi: error: {_LOST}; {_LOST_HINT}"
    if message_format.is_json(sys.argv[1:], os.environ):
        line = message_format.line("error", "agent", _LOST, code=_FAILED, hint=_LOST_HINT)
    try:
        os.write(2, line.encode() + b"\n")
    except OSError:
        pass
    os._exit(_FAILED)


def _end_by_signal(number: int) -> "NoReturn":
    """End this process with the signal *number*, without a core dump."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number in _STOP_SIGNALS:  # these signals do not terminate a process
        os._exit(128 + number)
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)
