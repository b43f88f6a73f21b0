"""What a worker adopts from its client's process, and why it may refuse, so that the client runs the command itself.

A warm command has the output, exit status, files and signals of a cold one. This module has what concerns the process:
what a worker must have in common with its client, what it adopts before the command begins (`adopt`), and what it
creates again, as the start of a process does (`start_with`). What the client sends is in `protocol`: its arguments and
environment in `request`, its streams in `send_request`; `worker` takes it over.
"""

import os
import re
import resource
import signal
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from xapi_cli.agent import protocol
from xapi_cli.errors import XapiError
from xapi_cli.settings import resolve
from xapi_cli.settings.values import AgentMode
from xapi_cli.system import own_process
from xapi_cli.system.agent_socket import COLD_COMMANDS, from_command

# What the interpreter, the C library, OpenSSL and libraries of Python read only at start.
# A client of another locale has the same encoding, or another build, and sends what else the locale determines.
_READ_AT_START = (b"GLIBC_", b"LD_", b"MALLOC_", b"OPENSSL_", b"PYTHON", b"TYPER_")
# Paths, including those from the working directory /, that denote something else in each process.
_OWN_PATHS = re.compile(rb"(?<![\w.-])(?:dev/[./]*(?:fd|std|tty)|proc/)")
_COLD_OPTIONS = frozenset({"--install-completion", "--show-completion"})  # they look at the parent process
_SAME_STATUS = (
    *("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters"),
    *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
)
# Limits that the C library reads at start, or that count memory, of which a worker uses more.
_FIXED_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK)
_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
_MIN_DESCRIPTORS = 128
_STREAMS = range(3)
_SIGNALS = frozenset(map(int, signal.valid_signals()))
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
# All kinds of Linux 6. The agent is not dumpable: it can read the links to its namespaces, but only as root list them.
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts")


class Cold(Exception):
    """The client has to run the command itself; the message is the reason, as `xapi agent status` shows it."""


class Process(NamedTuple):
    """What a worker and its client must have in common."""

    status: Mapping[str, str]
    places: tuple[object, ...]  # namespaces, root directory and security label

    @classmethod
    def of(cls, pid: int | str) -> "Process":
        """Return the process *pid*; raises OSError, for example if it is not accessible."""
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        return cls(status, _places(pid))


class Start(NamedTuple):
    """The process that the agent started as, and its environment."""

    process: Process
    environ: Mapping[bytes, bytes]

    @classmethod
    def now(cls) -> "Start":
        """Return that of this process."""
        return cls(Process.of("self"), at_start(os.environb))


def at_start(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables in *environ* that only the start of a process reads."""
    return {name: value for name, value in environ.items() if name.startswith(_READ_AT_START)}


def check_command(argv: Sequence[str], environ: Mapping[bytes, bytes], start: Start) -> None:
    """Raise Cold if the command *argv* in *environ* must not run in a worker of an agent with *start*."""
    for command in from_command(argv[1:])[:1]:
        if command in COLD_COMMANDS:
            raise Cold(command)
        if command == "--":
            raise Cold("command after --")
        if command.partition("=")[0] in _COLD_OPTIONS:
            raise Cold("completion script")
    if at_start(environ) != start.environ:
        raise Cold("different environment variables")
    text = b"\0".join([*map(os.fsencode, argv), *environ.values()])
    if _OWN_PATHS.search(text):
        raise Cold("argument under /dev/fd or /proc")


def check_streams(argv: Sequence[str], streams: Sequence[int]) -> None:
    """Raise Cold if the command may read a terminal, or a terminal would stop it if it wrote in the background.

    The kernel does so only for processes of the session of the terminal.
    """
    for number, stream in enumerate(streams):
        if not os.isatty(stream):
            continue
        if number == 0 and any(argument.endswith("-") or "stdin" in argument for argument in argv[1:]):
            raise Cold("stdin is a terminal")
        if number and termios.tcgetattr(stream)[3] & termios.TOSTOP:
            raise Cold("terminal with tostop")


def check_settings(environ: Mapping[bytes, bytes]) -> None:
    """Raise Cold if the config file switches the agent off, and no variable in *environ* selects something else.

    The client has not read the file. The command reports any error in it.
    """
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
    with suppress(XapiError, OSError):
        if resolve.outside_profiles("agent", variables) == AgentMode.OFF:
            raise Cold("agent = off")


def examine(pid: int, start: Start) -> Process:
    """Return the process *pid*; raise Cold if this process must not run a command for it."""
    try:
        client = Process.of(pid)
    except OSError as error:
        raise Cold(f"process state ({error.strerror})") from error
    _check_same(client, start.process)
    return client


def adopt(pid: int, client: Process) -> None:
    """Give this process the state of *client*, the process *pid*; raise Cold if that is not possible."""
    try:
        _adopt_limits(pid)
        _adopt_schedule(pid)
        _adopt_directory(f"/proc/{pid}/cwd")
    except OSError as error:
        raise Cold(f"process state ({error.strerror})") from error
    os.umask(int(client.status["Umask"], 8))
    _adopt_signals(client.status)


def start_with(argv: list[str], environ: Mapping[bytes, bytes], errors: str) -> None:
    """Do what the start of a process with *argv* and *environ* does, with its descriptors 0 to 2.

    *errors* is how stdin and stdout handle text that cannot be encoded.
    """
    _open_streams(errors)
    os.environb.clear()
    os.environb.update(environ)
    time.tzset()
    sys.argv = argv
    own_process.protect()


def warm_up(start: Start) -> None:
    """Adopt the state of this process, so that the pages that this changes are copied before a client waits."""
    content = protocol.request(["xapi", "token", "show"], os.environb, has_terminal=False, errors="strict")
    argv, environ, _, errors = protocol.parse_request(content)
    with suppress(Cold):
        check_command(argv, environ, start)
        check_streams(argv, _STREAMS)
        adopt(os.getpid(), examine(os.getpid(), start))
    start_with(argv, environ, errors)


def _check_same(client: Process, own: Process) -> None:
    if client.status.get("TracerPid") != "0":
        raise Cold("traced (strace, debugger)")
    for name in _SAME_STATUS:
        if client.status.get(name) != own.status.get(name):
            raise Cold(f"different privileges ({name})")
    if client.places != own.places:
        raise Cold(protocol.OTHER_NAMESPACE)


def _places(pid: int | str) -> tuple[object, ...]:
    namespaces = tuple(_namespace(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES)
    root = os.stat(f"/proc/{pid}/root")
    label = b""
    try:
        with open(f"/proc/{pid}/attr/current", "rb") as file:
            label = file.read()
    except OSError:
        pass  # the kernel has no security module
    return *namespaces, root.st_dev, root.st_ino, os.readlink(f"/proc/{pid}/root"), label


def _namespace(path: str) -> str | None:
    """Return the identity of the namespace at *path*, None if the kernel has none of that kind."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def _adopt_limits(pid: int) -> None:
    for kind in _LIMITS:
        theirs, own = resource.prlimit(pid, kind), resource.getrlimit(kind)
        if kind == resource.RLIMIT_NOFILE and 0 <= theirs[0] < _MIN_DESCRIPTORS:
            raise Cold("resource limit (open files)")
        if theirs == own:
            continue
        if kind in _FIXED_LIMITS:
            raise Cold("resource limit (memory)")
        try:
            resource.setrlimit(kind, theirs)
        except ValueError as error:  # the hard limit of this process is lower
            raise Cold("resource limit") from error


def _adopt_directory(link: str) -> None:
    directory = os.readlink(link)
    if directory == "/dev" or f"{directory}/".startswith("/proc/"):
        raise Cold("working directory /dev or /proc")
    os.chdir(link)


def _adopt_schedule(pid: int) -> None:
    if os.sched_getscheduler(pid) != os.sched_getscheduler(0):
        raise Cold("different scheduling policy")
    cpus = os.sched_getaffinity(pid)
    if cpus != os.sched_getaffinity(0):
        os.sched_setaffinity(0, cpus)
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    if nice != os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, nice)


def _adopt_signals(status: Mapping[str, str]) -> None:
    ignored, blocked = (_signals(status[name]) for name in ("SigIgn", "SigBlk"))
    for number in ignored - _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _signals(mask: str) -> set[int]:
    bits = int(mask, 16)
    return {number for number in _SIGNALS if bits >> (number - 1) & 1} if bits else set()


def _open_streams(errors: str) -> None:
    """Create Python's streams again: on a terminal or in another locale, they differ from those of the agent."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        is_stderr = name == "stderr"
        buffering = 1 if is_stderr else -1
        stream = open(number, mode, buffering, old.encoding, old.errors if is_stderr else errors, closefd=False)  # noqa: SIM115 - until the exit
        setattr(sys, name, stream)
