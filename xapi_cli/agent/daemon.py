"""Starts the agent: in the foreground, as a daemon, or with the sockets that a service manager passes."""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from xapi_cli import errors
from xapi_cli.agent import control, listener, master, protocol, services
from xapi_cli.errors import AgentError, StoreError, XapiError
from xapi_cli.store.agent.client import KeeperClient, NotRunning
from xapi_cli.system import own_process
from xapi_cli.system.render import printable

_NAMES = (*services.NAMES, *master.Sockets._fields)  # in the order in which other processes can connect
START_TIMEOUT = 60.0  # seconds until an agent must be ready, less than a login waits for it
_KILL_TIMEOUT = 1.0  # seconds
_KEEPER_TIMEOUT = 1.0  # seconds
_FIRST_PASSED = 3  # the first descriptor that a service manager passes, as in sd_listen_fds(3)


class Changed(AgentError):
    """The agent would have loaded the modules of two versions."""

    def __init__(self) -> None:
        super().__init__("xapi was upgraded while the agent started", hint="run `xapi agent start` again")


_RETRIED = (Changed, listener.AlreadyRunning)


class Started(NamedTuple):
    """The *process* of the agent, and its status if it *was_running* already."""

    process: int
    was_running: dict[str, Any] | None = None


def start(environ: Mapping[str, str], directory: str, idle: float) -> Started:
    """Return an agent that is ready; start one in the background, unless it runs or another process starts one.

    The new one ends when it is idle for *idle* seconds. It is ready when its first worker and its services run. It
    becomes ready even if this process is killed. Raises the errors of the agent's start, AgentError if it takes longer
    than START_TIMEOUT, and OSError.
    """
    deadline = time.monotonic() + START_TIMEOUT
    has_changed = False
    while True:
        if (running := control.find_current(environ, deadline)) is not None:
            return Started(running["pid"], running)
        try:
            return Started(_start(directory, idle, deadline))
        except listener.AlreadyRunning:  # another process was faster
            pass
        except Changed:  # for example, Python has created a directory for the modules that it has compiled
            if has_changed:
                raise
            has_changed = True


def _start(directory: str, idle: float, deadline: float) -> int:
    """Start an agent and return its process id when it is ready; after an error, it does not run."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as pipe:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "xapi_cli.agent", str(writer), directory, str(idle)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[writer],
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(writer)
        try:
            message = _read_to_end(pipe.fileno(), deadline)
            if message is None:
                _kill(process)
                listener.remove_unfinished(Path(directory))
                raise AgentError(
                    f"the agent did not start within {START_TIMEOUT:g} s",
                    hint="run `xapi agent start --foreground` to see why",
                )
        finally:
            process.returncode = 0  # it is not waited for
    if not message:
        listener.remove_unfinished(Path(directory))
        raise AgentError("the agent failed to start", hint="run `xapi agent start --foreground` to see why")
    report: dict[str, Any] = json.loads(message)
    if "error" in report:
        for each in _RETRIED:
            if report["error"] == each.__name__:
                raise each
        kind = getattr(errors, report["error"], AgentError)
        raise kind(report["message"], hint=report["hint"])
    return int(report["pid"])


def _read_to_end(descriptor: int, deadline: float) -> bytes | None:
    """Return what can be read from *descriptor* up to its end; None if the end does not come before *deadline*."""
    message = b""
    while select.select([descriptor], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        if not (chunk := os.read(descriptor, 65536)):
            return message
        message += chunk
    return None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill *process*, which may be stopped; usually it has ended when this returns."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_TIMEOUT)


def run_in_background(arguments: list[str]) -> NoReturn:
    """Run the agent that `start` starts: *arguments* are the descriptor for its report, and those of `start`."""
    writer, directory, idle = arguments
    os.umask(0o077)

    pipe = open(int(writer), "w", encoding="utf-8")  # noqa: SIM115 - closed by the report, or the end of the process
    os.set_inheritable(pipe.fileno(), False)
    os.register_at_fork(after_in_child=pipe.close)  # `start` reads until the end

    def report(message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError), pipe:  # the process that started this one may have been killed
            json.dump(message, pipe)

    try:
        run(directory, float(idle), ready=lambda: report({"pid": os.getpid()}), warn=lambda _: None)
    except (XapiError, OSError) as error:
        if not pipe.closed:
            report(_described(error))
    os._exit(0)


def run(
    directory: str,
    idle: float,
    *,
    ready: Callable[[], None],
    warn: Callable[[str], None],
    wait: float = 0.0,
) -> None:
    """Run the agent in this process until it ends.

    Waits *wait* seconds for another one that is starting or ending. *ready* is called when the first worker and the
    services run and other processes can connect, *warn* with a message about each process that fails later. Raises
    AlreadyRunning, Changed, OSError, and AgentError if a process fails before.
    """
    own_process.protect()
    passed = _passed_sockets(os.environ)
    presence = _listen(directory, [name for name in _NAMES if name not in passed], wait)
    sockets = {**passed, **presence.sockets}
    build = protocol.build_id()  # before the modules are loaded: an upgrade in the meantime must be noticed
    from xapi_cli.agent import preload

    try:
        preload.load(directory)
        if protocol.build_id() != build:
            raise Changed
        agent = master.Master(
            master.Sockets(*(sockets[name] for name in master.Sockets._fields)),
            {name: sockets[name] for name in services.NAMES},
            directory,
            presence,
            build=build,
            ready=ready,
            warn=warn,
            idle=idle,
            is_needed=lambda: _holds_tokens(directory),
        )
    except BaseException:
        presence.release()
        raise
    agent.run()


def _listen(directory: str, names: Sequence[str], wait: float) -> listener.Presence:
    """Return the lock of *directory*, with the new sockets *names*.

    Raises AlreadyRunning, UsageError for files that cannot be replaced, and AgentError; no socket is left then.
    """
    try:
        held = listener.lock(Path(directory), timeout=wait)
        return listener.Presence(held, listener.Listeners(Path(directory), names))
    except OSError as error:
        raise AgentError(
            f"the agent cannot create its sockets in {printable(directory)}: {error.strerror}",
            hint="check the owner, the mode and the free space of the directory",
        ) from error


def _passed_sockets(environ: Mapping[str, str]) -> dict[str, socket.socket]:
    """Return the listening sockets that a service manager passed to this process, by the names of their files."""
    passed: dict[str, socket.socket] = {}
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return passed
    with suppress(ValueError):
        for number in range(_FIRST_PASSED, _FIRST_PASSED + int(environ.get("LISTEN_FDS", "0"))):
            given = socket.socket(fileno=number)
            given.setblocking(False)
            os.set_inheritable(number, False)
            passed[os.path.basename(os.fsdecode(given.getsockname()))] = given
    return {name: each for name, each in passed.items() if name in _NAMES}


def _holds_tokens(directory: str) -> bool:
    """Return whether the keeper holds a token that is stored nowhere else, or may hold one but does not respond."""
    try:
        held = KeeperClient.at(f"{directory}/keeper", _KEEPER_TIMEOUT).held()
    except NotRunning:
        return False
    except StoreError:
        return True
    return any(each.key.startswith(b"a") for each in held)


def _described(error: XapiError | OSError) -> dict[str, Any]:
    if isinstance(error, XapiError):
        kind = next(each for each in type(error).__mro__ if hasattr(errors, each.__name__) or each in _RETRIED)
        return {"error": kind.__name__, "message": error.message, "hint": error.hint}
    hint = "run `xapi agent start --foreground` to see why"
    return {"error": "AgentError", "message": f"the agent failed to start: {error.strerror}", "hint": hint}
