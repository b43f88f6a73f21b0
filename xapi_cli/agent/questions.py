"""Prompts, programs and some files of a warm command: the worker asks, and the client responds.

The client has the terminal, and runs the code that a cold command runs. It opens the paths that denote something else
in each process. A signal that interrupts it there interrupts
the worker too.
"""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

from xapi_cli import errors
from xapi_cli.agent import protocol
from xapi_cli.system import own_process, prompts, safe_paths, signals

if TYPE_CHECKING:
    from _socket import socket

    from xapi_cli.system.programs import Invocation, TimeLimit

_POLL_INTERVAL = 0.05  # seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# in the worker


class Questions:
    """Sends questions of a worker on *connection*.

    It has the interfaces of `prompts`, `password_command`, `programs` and `safe_paths.Opener`.
    *client* is the process id of the client. *has_terminal* is whether the client can open its terminal.
    """

    def __init__(self, connection: "socket", client: int, *, has_terminal: bool) -> None:
        self._connection = connection
        self._client = client
        self._has_terminal = has_terminal
        self._lock = Lock()  # a thread may open a path

    def are_possible(self) -> bool:
        """Return whether the client has a terminal for prompts."""
        return self._has_terminal

    def is_in_foreground(self, descriptor: int) -> bool:
        """Return whether the client is not a background job; its terminal is not that of this process."""
        try:
            with open(f"/proc/{self._client}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            return True
        group, foreground = int(fields[2]), int(fields[5])
        return foreground in (group, -1)  # -1: it has no terminal

    def read_hidden(self, question: str) -> str:
        """Return the reply to *question*, typed without echo; raises EOFError or OSError if there is none."""
        return str(self._ask(b"Q", {"question": question, "hidden": True}).get("text", ""))

    def read(self, question: str) -> str:
        """Return the reply to *question* with its newline; raises EOFError or OSError if there is none."""
        return str(self._ask(b"Q", {"question": question, "hidden": False}).get("text", ""))

    def run_command(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        setting: str = "password_command",
        deadline: float | None,
        show_stderr: bool,
    ) -> str:
        """Return what *command*, the value of *setting*, prints; raises what `password_command.from_command` raises."""
        question = {"command": list(command), "setting": setting, "deadline": deadline, "show_stderr": show_stderr}
        return str(self._ask(b"P", question).get("text", ""))

    def run_program(self, program: "Invocation", limit: "TimeLimit") -> tuple[bytes, int]:
        """Return what *program* prints, and its exit code; raises what `programs.run` raises.

        One that runs in the background needs no terminal, so that this process runs it.
        """
        import base64
        import subprocess

        from xapi_cli.system import programs

        if program.in_background:
            return programs.run(program, limit)
        left = limit if callable(limit) else lambda: limit
        question = {
            "command": list(program.command),
            "max_output": program.max_output,
            "data": program.data.decode(),
            "limit": left(),
        }
        reply = self._ask(b"G", question, inherited=program.lifeline, meanwhile=left)
        if "expired" in reply:
            raise subprocess.TimeoutExpired(program.command, 0)
        if "number" in reply:
            raise OSError(reply["number"], os.strerror(reply["number"]))
        if "invalid" in reply:
            raise ValueError(reply["invalid"])
        return base64.b64decode(reply["output"]), reply["code"]

    def open(self, path: str, flags: int, mode: int) -> int:
        """Return the descriptor of the file *path* of the client; raises OSError and ValueError."""
        return int(self._ask_for_path({"path": path, "flags": flags, "mode": mode})["descriptor"])

    def open_parent(self, path: str, *, follow: bool, make: bool) -> tuple[str, str, int]:
        """Return what `safe_paths.open_parent` returns in the client, and raise what it raises.

        The directory is returned as its path and a descriptor.
        """
        reply = self._ask_for_path({"path": path, "follow": follow, "make": make})
        return reply["directory"], reply["name"], reply["descriptor"]

    def _ask_for_path(self, question: dict[str, Any]) -> dict[str, Any]:
        reply = self._ask(b"O", question)
        if "unsafe" in reply:
            raise getattr(safe_paths, reply["unsafe"])(Path(reply["path"]))
        if "number" in reply:
            raise OSError(reply["number"], reply["reason"], question["path"])
        if "invalid" in reply:
            raise ValueError(reply["invalid"])
        return reply

    def _ask(
        self,
        kind: bytes,
        question: dict[str, Any],
        *,
        inherited: int | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        with self._lock:
            return self._reply_to(kind, question, inherited, meanwhile)

    def _reply_to(
        self, kind: bytes, question: dict[str, Any], inherited: int | None, meanwhile: Callable[[], object]
    ) -> dict[str, Any]:
        alarm = signal.setitimer(signal.ITIMER_REAL, 0)  # the client waits for it, so that it can restore the terminal
        try:
            has_descriptor = inherited is not None
            content = json.dumps({**question, "alarm": alarm[0], "has_descriptor": has_descriptor}).encode()
            protocol.send(self._connection, kind, content)
            if inherited is not None:
                protocol.send_descriptor(self._connection, inherited)
            while not select.select([self._connection], [], [], _POLL_INTERVAL)[0]:
                meanwhile()
            kind, content = protocol.receive(self._connection, protocol.MAX_REPLY)
            reply = json.loads(content)
            if reply.pop("has_descriptor", False):
                reply["descriptor"] = protocol.receive_descriptor(self._connection)
        except (EOFError, OSError, protocol.ProtocolError):
            os._exit(1)  # the client was killed
        if "signal" in reply:
            os.kill(os.getpid(), reply["signal"])
        elif alarm[0]:
            signal.setitimer(signal.ITIMER_REAL, max(reply["alarm"], 0.001), alarm[1])
        if "error" in reply:
            error: type[errors.XapiError] = getattr(errors, reply["error"])
            raise error(reply["message"], hint=reply["hint"])
        if "end" in reply:
            raise EOFError
        return dict(reply)


# in the client


class _Alarm(BaseException):
    """The timer of the worker, which limits the whole command, has expired."""


def respond(connection: "socket", kind: bytes, content: bytes) -> None:
    """Respond to the question in *content* of a worker, unless it has ended.

    Raises ValueError if it is not a question, TimeoutError if the worker does not read the reply.
    """
    question = json.loads(content)
    ends = time.monotonic() + question["alarm"]
    own_process.protect()
    with _Interruptible():
        try:
            reply = _reply(connection, kind, question)
        except errors.XapiError as error:
            reply = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        except (KeyboardInterrupt, signals.Terminated, _Alarm) as error:
            reply = {"signal": _number(error)}
        except (EOFError, OSError):
            reply = {"end": True}
        reply["alarm"] = ends - time.monotonic()
    descriptor = reply.pop("descriptor", None)
    with suppress(ConnectionError):  # the worker was killed; the next message is how it ended
        protocol.send(connection, b"A", json.dumps({**reply, "has_descriptor": descriptor is not None}).encode())
        if descriptor is not None:
            protocol.send_descriptor(connection, descriptor)
    if descriptor is not None:
        os.close(descriptor)


def _reply(connection: "socket", kind: bytes, question: dict[str, Any]) -> dict[str, Any]:
    if question["alarm"]:
        signals.start_timer(_raise_alarm, question["alarm"])
    if kind == b"Q":
        read = prompts.read_hidden if question["hidden"] else prompts.read
        return {"text": read(question["question"])}
    if kind == b"G":
        return _run(connection, question)
    if kind == b"O":
        return _open(question)
    from xapi_cli.auth import password_command

    return {
        "text": password_command.from_command(
            question["command"],
            os.environ,
            setting=question["setting"],
            deadline=question["deadline"],
            show_stderr=question["show_stderr"],
        )
    }


def _open(question: dict[str, Any]) -> dict[str, Any]:
    """Return a descriptor of the path in *question*, or of the directory that contains what it denotes."""
    path = question["path"]
    try:
        if "flags" in question:
            return {"descriptor": safe_paths.open_file(path, question["flags"], question["mode"])}
        directory, name = safe_paths.open_parent(path, follow=question["follow"], make=question["make"])
    except safe_paths.UnsafePath as error:
        return {"unsafe": type(error).__name__, "path": error.filename}
    except OSError as error:
        return {"number": error.errno, "reason": error.strerror}
    except ValueError as error:
        return {"invalid": str(error)}
    return {"directory": str(directory.path), "name": name, "descriptor": directory.detach()}


def _run(connection: "socket", question: dict[str, Any]) -> dict[str, Any]:
    """Run the program in *question*, which inherits a pipe that ends with the worker."""
    import base64
    import errno
    import math
    import subprocess

    from xapi_cli.settings.table import without_secrets
    from xapi_cli.store.watchdog import Watchdog
    from xapi_cli.system import programs

    inherited = protocol.receive_descriptor(connection) if question["has_descriptor"] else None
    try:
        left = Watchdog(question["limit"], max_total=math.inf).left  # Ctrl-Z suspends it
        program = programs.Invocation(
            question["command"],
            without_secrets(os.environ),
            question["max_output"],
            data=question["data"].encode(),
            lifeline=inherited,
        )
        output, code = programs.run(program, left)
    except subprocess.TimeoutExpired:
        return {"expired": True}
    except OSError as error:
        return {"number": error.errno or errno.EIO}
    except ValueError as error:
        return {"invalid": str(error)}
    finally:
        if inherited is not None:
            os.close(inherited)
    return {"output": base64.b64encode(output[: question["max_output"] + 1]).decode(), "code": code}


def _number(error: BaseException) -> int:
    """Return the number of the signal that raised *error*."""
    if isinstance(error, signals.Terminated):
        return error.failure.exit_code - 128
    return signal.SIGALRM if isinstance(error, _Alarm) else signal.SIGINT


class _Interruptible:
    """Signals interrupt the client, as they interrupt a cold command, instead of being forwarded to the worker."""

    def __enter__(self) -> None:
        numbers = (*_SIGNALS, signal.SIGTSTP)
        self._previous = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            if self._previous[number] != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signals.install_handlers()

    def __exit__(self, *_: object) -> None:
        signals.restore()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _raise_alarm(*_: object) -> NoReturn:
    raise _Alarm
