"""Protect the memory of this process from core dumps (CWE-528) and other processes, and limit garbage collection.

The process can end when no memory is left, not even for an import.
"""

import gc
import os
import sys

from xapi_cli.system import message_format

TYPE_CHECKING = False  # importing `typing` needs memory
if TYPE_CHECKING:
    from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4  # prctl(2)
_COLLECT_AFTER = 50_000  # objects; those loaded at startup stay alive, and collecting them repeatedly costs 8 ms
_ENOMEM = 12
_MESSAGE = b"xapi: error: not enough memory; check the limits with `ulimit -a`\n"
_JSON_MESSAGE = (
    b'{"level": "error", "code": 1, "kind": "unexpected", "message": "not enough memory",'
    b' "hint": "check the limits with `ulimit -a`"}\n'
)
_EXIT_CODE = 1
_previous_limit: tuple[int, int] | None = None


def protect() -> None:
    """Disable core dumps of xapi and of a password_command, and access to the memory of xapi by other processes."""
    global _previous_limit  # noqa: PLW0603  # the limit belongs to the process, and so does its previous value
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        _previous_limit = soft, hard
    if sys.platform == "linux":
        # Denies other processes of the user access to /proc/PID/environ and the memory, as ssh-agent does; execve()
        # reverts it. It also prevents core dumps that are piped to a program, to which RLIMIT_CORE does not apply.
        _prctl(_PR_SET_DUMPABLE, 0)


def resume_when_parent_exits() -> None:
    """Resume this process, if it is stopped, when its parent exits, so that it can exit too; Linux only."""
    if sys.platform == "linux":
        import signal

        _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


if sys.platform == "linux":

    def _prctl(option: int, value: int) -> None:
        try:
            import _ctypes  # takes 0.5 ms; ctypes, which imports it, takes 2 ms

            prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None is the program itself
            _ctypes.call_function(prctl, (option, value, 0, 0, 0))
        except (ImportError, OSError):
            pass  # without ctypes, measures that need prctl are skipped


def restore_core_limit() -> None:
    """Restore the previous RLIMIT_CORE, for a program that replaces xapi with execve()."""
    if sys.platform != "win32" and _previous_limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, _previous_limit)


def delay_garbage_collection() -> None:
    """Collect after 50,000 new objects instead of 700, because a command ends soon."""
    gc.set_threshold(_COLLECT_AFTER)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether *error* is how Python reports that an allocation failed; C code raises SystemError then."""
    return isinstance(error, MemoryError | SystemError) or (isinstance(error, OSError) and error.errno == _ENOMEM)


def report_out_of_memory() -> None:
    """Write the error message to stderr, with no allocation but a few small ones."""
    try:
        os.write(2, _JSON_MESSAGE if message_format.is_json(sys.argv[1:], os.environ) else _MESSAGE)
    except OSError:
        pass  # stderr may be closed


def end_out_of_memory() -> "NoReturn":
    """Write the error message to stderr and end the process."""
    report_out_of_memory()
    os._exit(_EXIT_CODE)
