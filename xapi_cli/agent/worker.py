"""A process that waits for one client, becomes like it, runs its command, and ends.

A command runs once, here or in its client, and never in both. These are the steps, and what follows if one fails:

    accept    one of the idle workers gets the connection, and checks that this is still the installed version
    permit    the worker takes it, so that the master no longer replaces the worker; without it, it ends
    greet     the client opens this process, so that it can signal exactly this one
    receive   the request with the streams; a client that leaves before runs the command itself, and the worker serves
              the next one, unless an incomplete request may mean that the client is about to kill this process
    report    the master gets the connection too: if this process is killed, it sends the wait status to the client
    tie       from now on the kernel kills this process when the client ends, even if this is stopped
    adopt     limits, directory, signals and more; if something cannot be adopted, the client runs the command: nothing
              has happened yet
    begin     the client learns that the command begins; after that, no failure makes it run the command
    end       all that the command had open is closed before the client gets the exit code, and ends in turn

The worker serves one command only: what a command leaves in its process cannot affect another one.
"""

import fcntl
import os
import select
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

from xapi_cli.agent import adoption, preload, protocol
from xapi_cli.agent.idle_workers import Permit
from xapi_cli.agent.questions import Questions
from xapi_cli.cli import main
from xapi_cli.http.pool import OpenLender
from xapi_cli.http.relay import loans
from xapi_cli.runtime import Runtime
from xapi_cli.settings.table import SECRET_VARIABLES
from xapi_cli.system import agent_socket, own_process, safe_paths
from xapi_cli.system.lifeline import kill_by_kernel
from xapi_cli.system.terminal import Terminal

_REQUEST_TIMEOUT = 1.0  # seconds for a client to send its request
_MORE_THAN_ARE_OPEN = 2**16
_MAX_REPORT = 256  # bytes


class Station(NamedTuple):
    """What a worker gets from the master.

    *listener* is the socket for clients. *lifeline* is a pipe that ends with the master. *reports* is the socket for
    messages to the master: `R`, the worker is ready; `B`, a command begins, with the connection; `C`, the client runs
    it, and why; `N`, a client runs a command that has not begun, and why; `U`, the program was upgraded; `F`, the
    process failed, and why. Each contains the process id. *directory* is that of the agent's sockets.
    """

    listener: socket.socket
    lifeline: int
    reports: socket.socket
    start: adoption.Start
    build: bytes
    directory: str


class _ClientCall(NamedTuple):
    connection: socket.socket
    client: int
    state: adoption.Process | None  # of the client
    argv: list[str]
    environ: dict[bytes, bytes]
    has_terminal: bool
    errors: str
    streams: list[int]
    lifeline: int  # a pipe that reaches end of file when the client exits


def serve(station: Station, permit: Permit, *, warm_up: bool) -> NoReturn:
    """Run one command of a client, with *permit*, and end this process."""
    own_process.delay_garbage_collection()
    if warm_up:
        preload.warm_up(station.directory)
        adoption.warm_up(station.start)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    report(station, b"R")
    while (call := _next_call(station, permit)) is None:
        pass
    report(station, b"B", call.connection)
    _end_with(call.lifeline)
    try:
        adoption.check_command(call.argv, call.environ, station.start)
        adoption.check_streams(call.argv, call.streams)
        adoption.adopt(call.client, call.state or adoption.examine(call.client, station.start))
        adoption.check_settings(call.environ)
    except Exception as error:  # noqa: BLE001 - nothing has happened yet, so the client can run the command
        _refuse(station, call, error)
    for resource in (station.listener, station.reports, permit):
        resource.close()
    os.close(station.lifeline)
    _run(call, loans.lenders(lambda: agent_socket.connect_stream(f"{station.directory}/relay")))


def _refuse(station: Station, call: _ClientCall, error: Exception) -> NoReturn:
    reason = str(error) if isinstance(error, adoption.Cold) else f"failure ({type(error).__name__})"
    report(station, b"C", reason=reason)
    _do_not_end_with(call.lifeline)
    protocol.send(call.connection, b"C", reason.encode())
    os._exit(0)


def _next_call(station: Station, permit: Permit) -> _ClientCall | None:
    """Return the next call, None if its client left.

    Ends this process when the master ends or is outdated, or has taken *permit*.
    """
    connection = _accept(station)
    pid, _ = agent_socket.peer(connection)
    if pid == 0:
        report(station, b"N", reason=protocol.OTHER_NAMESPACE)
        connection.close()
        return None
    if protocol.build_id() != station.build:
        report(station, b"U")
        os._exit(0)
    if not permit.take():
        os._exit(0)
    call = _receive_call(connection, station, pid)
    if call is None:
        connection.close()
        permit.give_back()
    return call


def _receive_call(connection: socket.socket, station: Station, pid: int) -> _ClientCall | None:
    """Return the call of the client *pid*, None if it left; end this process if that is not certain."""
    try:
        state = _greet(connection, station, pid)
        content, descriptors = protocol.receive_request(connection)
        argv, environ, has_terminal, errors = protocol.parse_request(content)
    except (EOFError, ConnectionError):  # the client has left
        return None
    except OSError:  # a client that still has the greeting may kill this process, which must serve no other one
        report(station, b"N", reason="no request in time")
        os._exit(0)
    except protocol.Declined as declined:
        report(station, b"N", reason=str(declined))
        return None
    except protocol.ProtocolError:
        report(station, b"N", reason="invalid request")
        os._exit(0)
    connection.settimeout(None)
    *streams, lifeline = descriptors
    return _ClientCall(connection, pid, state, argv, environ, has_terminal, errors, streams, lifeline)


def _greet(connection: socket.socket, station: Station, client: int) -> adoption.Process | None:
    """Report to the process *client* that this worker is ready; return its state, if a command can run for it.

    The state is read while the client sends its request.
    """
    connection.settimeout(_REQUEST_TIMEOUT)
    try:
        protocol.send(connection, b"R", protocol.greeting(station.build))
    except BrokenPipeError:  # it has left, but may have sent why
        return None
    with suppress(adoption.Cold):
        return adoption.examine(client, station.start)
    return None


def _accept(station: Station) -> socket.socket:
    poll = select.poll()
    poll.register(station.listener, select.POLLIN)
    poll.register(station.lifeline, 0)  # its end is always reported
    while True:
        ready = dict(poll.poll())
        if station.lifeline in ready:
            os._exit(0)
        with suppress(OSError):  # another worker has accepted it, or the client has left
            if (connection := agent_socket.accept(station.listener)) is not None:
                return connection


def _run(call: _ClientCall, open_lender: OpenLender) -> NoReturn:
    protocol.send(call.connection, b"B", b"s" if _has_secrets(call.environ) else b"")
    for number, stream in enumerate(call.streams):
        os.dup2(stream, number)
        os.close(stream)
    adoption.start_with(call.argv, call.environ, call.errors)
    questions = Questions(call.connection, call.client, has_terminal=call.has_terminal)
    safe_paths.set_opener(questions)

    def runtime(environ: Mapping[str, str]) -> Runtime:
        terminal = Terminal(environ, prompter=questions)
        return Runtime(
            environ,
            terminal=terminal,
            run_password_command=questions.run_command,
            run_program=questions.run_program,
            open_lender=open_lender,
            process_id=call.client,
        )

    _end(call, main.execute(runtime))


def _has_secrets(environ: Mapping[bytes, bytes]) -> bool:
    """Return whether *environ* contains xapi's secrets, or the URL of a proxy with a password."""
    return any(os.fsencode(name) in environ for name in SECRET_VARIABLES) or any(
        b"@" in value and name.lower().endswith(b"_proxy") for name, value in environ.items()
    )


def _end(call: _ClientCall, code: int) -> NoReturn:
    """Close everything that the command had open, as its end would, and report *code* to the client."""
    for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(handled, signal.SIG_IGN)  # the command has ended, and can no longer be interrupted
    _do_not_end_with(call.lifeline)
    number = call.connection.fileno()
    os.closerange(0, number)
    os.closerange(number + 1, _MORE_THAN_ARE_OPEN)
    os.chdir("/")
    try:
        protocol.send(call.connection, b"X", b"%d" % code)
    except OSError:
        pass  # the client was killed
    os._exit(code)


def _end_with(lifeline: int) -> None:
    """Have the kernel kill this process, even if it is stopped, when the client exits, which closes *lifeline*.

    The connection cannot be used for this: its signal can come after the data can be read, so the request itself could
    kill this process.
    """
    kill_by_kernel(lifeline, os.getpid())
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # it ended before
        os._exit(0)


def _do_not_end_with(lifeline: int) -> None:
    fcntl.fcntl(lifeline, fcntl.F_SETFL, 0)


def report(station: Station, kind: bytes, connection: socket.socket | None = None, reason: str = "") -> None:
    """Send a report to the master, which may have ended."""
    message = b"%s %d %s" % (kind, os.getpid(), reason.encode())
    try:
        if connection is None:
            station.reports.send(message)
        else:
            socket.send_fds(station.reports, [message], [connection.fileno()])
    except OSError:
        pass


def reports(receiver: socket.socket) -> Iterator[tuple[bytes, int, socket.socket | None, str]]:
    """Yield the reports that have arrived at the non-blocking *receiver*: kind, process id, connection and reason."""
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(receiver, _MAX_REPORT, 1)
        except BlockingIOError:
            return
        kind, pid, reason = message.split(b" ", 2)
        connection = socket.socket(fileno=descriptors[0]) if descriptors else None
        yield kind, int(pid), connection, reason.decode(errors="replace")
