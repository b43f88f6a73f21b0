"""Starts the agent: in the foreground, as a daemon, or with the sockets that a service manager passes."""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from xapi_cli import errors
from xapi_cli.agent import listener, master, protocol, services
from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.store.agent.client import KeeperClient, NotRunning
from xapi_cli.system import process_hardening
from xapi_cli.system.render import printable

_NAMES = (*master.Sockets._fields, *services.NAMES)
START_TIMEOUT = 60.0  # seconds until an agent must be ready, less than a login waits for it
_KILL_TIMEOUT = 1.0  # seconds
_KEEPER_TIMEOUT = 1.0  # seconds
_FIRST_PASSED = 3  # the first descriptor that a service manager passes, as in sd_listen_fds(3)


class Changed(XapiError):
    """The agent would have loaded the modules of two versions."""

    def __init__(self) -> None:
        super().__init__("xapi was upgraded while the agent started", hint="run `xapi agent start` again")


def check_platform() -> None:
    """Raise UsageError on systems other than Linux."""
    if sys.platform != "linux":
        raise UsageError("the agent is supported only on Linux", hint="commands work without it, but start more slowly")


def start(directory: str, idle: float) -> int:
    """Start an agent in the background that ends when it is idle for *idle* seconds; return its process id.

    Returns when its first worker and its services run. Raises AlreadyRunning, the other errors of the agent's start,
    XapiError if it takes longer than START_TIMEOUT, and OSError. No agent runs after an error.
    """
    deadline = time.monotonic() + START_TIMEOUT
    try:
        return _start(directory, idle, deadline)
    except Changed:  # for example, Python has created a directory for the modules that it has compiled
        return _start(directory, idle, deadline)


def _start(directory: str, idle: float, deadline: float) -> int:
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
                raise XapiError(
                    f"the agent did not start within {START_TIMEOUT:g} s",
                    hint="run `xapi agent start --foreground` to see why",
                )
        finally:
            process.returncode = 0  # it is not waited for
    if not message:
        raise XapiError("the agent failed to start", hint="run `xapi agent start --foreground` to see why")
    report: dict[str, Any] = json.loads(message)
    if "error" in report:
        if report["error"] == Changed.__name__:
            raise Changed
        kind = getattr(errors, report["error"], XapiError)
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
        with pipe:
            json.dump(message, pipe)

    try:
        run(directory, float(idle), ready=lambda: report({"pid": os.getpid()}), warn=lambda _: None)
    except (XapiError, OSError) as error:
        if not pipe.closed:
            report(_described(error))
    os._exit(0)


def run(directory: str, idle: float, *, ready: Callable[[], None], warn: Callable[[str], None]) -> None:
    """Run the agent in this process until it ends.

    *ready* is called when the first worker and the services run, *warn* with a message about each process that fails
    later. Raises AlreadyRunning, Changed, OSError, and XapiError if a process fails before.
    """
    process_hardening.apply()
    passed = _passed_sockets(os.environ)
    names = [name for name in _NAMES if name not in passed]
    held, new = _listen(directory, names)
    sockets = {**passed, **new}
    inodes = {name: listener.inode(f"{directory}/{name}") for name in names}

    def is_reachable() -> bool:
        return all(listener.inode(f"{directory}/{name}") == number for name, number in inodes.items())

    def release() -> None:
        if is_reachable():  # what is there otherwise may belong to another agent
            for name in names:
                listener.remove(f"{directory}/{name}")
            shutil.rmtree(Path(directory, preload.WARM_UP_DIRECTORY), ignore_errors=True)
        os.close(held)

    build = protocol.build()  # before the modules are loaded: an upgrade in the meantime must be noticed
    from xapi_cli.agent import preload

    preload.load(directory)
    if protocol.build() != build:
        release()
        raise Changed
    agent = master.Master(
        master.Sockets(*(sockets[name] for name in master.Sockets._fields)),
        {name: sockets[name] for name in services.NAMES},
        directory,
        build=build,
        ready=ready,
        warn=warn,
        idle=idle,
        is_needed=lambda: _holds_tokens(directory),
        is_reachable=is_reachable,
        lock=held,
        release=release,
    )
    agent.run()


def _listen(directory: str, names: Sequence[str]) -> tuple[int, dict[str, socket.socket]]:
    """Return the descriptor of the lock of *directory*, and the new sockets *names*.

    Raises AlreadyRunning, UsageError for files that cannot be replaced, and XapiError; no socket is left then.
    """
    made: dict[str, socket.socket] = {}
    try:
        held = listener.lock(Path(directory))
        for name in names:
            made[name] = listener.listen(f"{directory}/{name}")
    except BaseException as error:
        for name in made:
            listener.remove(f"{directory}/{name}")
        if not isinstance(error, OSError):
            raise
        raise XapiError(
            f"the agent cannot create its sockets in {printable(directory)}: {error.strerror}",
            hint="check the owner, the mode and the free space of the directory",
        ) from error
    return held, made


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
        kind = next(each for each in type(error).__mro__ if hasattr(errors, each.__name__) or each is Changed)
        return {"error": kind.__name__, "message": error.message, "hint": error.hint}
    hint = "run `xapi agent start --foreground` to see why"
    return {"error": "XapiError", "message": f"the agent failed to start: {error.strerror}", "hint": hint}
