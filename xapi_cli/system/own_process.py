"""Protect the memory of this process from core dumps (CWE-528) and other processes, and limit garbage collection.

The process can end when no memory is left, not even for an import.
"""

import gc
import os
import sys

from xapi_cli.system import message_format

TYPE_CHECKING = False  # importing `typing` needs memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_PR_SET_DUMPABLE = 4  # prctl(2)
_COLLECT_AFTER = 50_000  # objects; those loaded at startup stay alive, and collecting them repeatedly costs 8 ms
_ENOMEM, _ENFILE, _EMFILE = 12, 23, 24
_MESSAGE = b"xapi: error: %b; check the limits with `ulimit -a`\n"
_JSON_MESSAGE = (
    b'{"level": "error", "code": 1, "kind": "unexpected", "message": "%b",'
    b' "hint": "check the limits with `ulimit -a`"}\n'
)
_NO_MEMORY, _NO_RESOURCES = b"not enough memory", b"not enough memory or file descriptors"
_EXIT_CODE = 1
_MOST_DESCRIPTORS = 10_240  # OPEN_MAX of macOS, where the hard limit may be higher than what can be set
_previous_limit: tuple[int, int] | None = None
_previous_descriptor_limit: tuple[int, int] | None = None


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


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit of open files to the hard limit, as far as allowed; return it, None if there is none.

    The soft limit exists for programs that use select(2), which fails for a descriptor above 1023; xapi does not.
    """
    global _previous_descriptor_limit  # noqa: PLW0603  # see above
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MOST_DESCRIPTORS):
        if soft == resource.RLIM_INFINITY or (soft >= wanted and wanted != resource.RLIM_INFINITY):
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the kernel has a lower limit
            continue
        if _previous_descriptor_limit is None:
            _previous_descriptor_limit = soft, hard
        break
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if raised == resource.RLIM_INFINITY else raised


def descriptor_limit_of_caller() -> "Callable[[], None] | None":
    """Return what a child process must call to get the previous limit of open files, None if it was not raised."""
    if sys.platform == "win32" or _previous_descriptor_limit is None:
        return None
    import resource

    previous = _previous_descriptor_limit
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, previous)


def delay_garbage_collection() -> None:
    """Collect after 50,000 new objects instead of 700, because a command ends soon."""
    gc.set_threshold(_COLLECT_AFTER)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether *error* is how Python reports that an allocation failed; C code raises SystemError then."""
    return isinstance(error, MemoryError | SystemError) or (isinstance(error, OSError) and error.errno == _ENOMEM)


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether *error* shows that no file can be opened, such as that of a module."""
    return isinstance(error, OSError) and error.errno in (_ENFILE, _EMFILE)


def report_out_of_memory(reason: bytes = _NO_MEMORY) -> None:
    """Write the error message with *reason* to stderr, with no allocation but a few small ones."""
    try:
        os.write(2, (_JSON_MESSAGE if message_format.is_json(sys.argv[1:], os.environ) else _MESSAGE) % reason)
    except OSError:
        pass  # stderr may be closed


def end_out_of_memory() -> "NoReturn":
    """Write the error message to stderr and end the process."""
    report_out_of_memory()
    os._exit(_EXIT_CODE)


def end_out_of_descriptors() -> "NoReturn":
    """Write the error message to stderr and end the process."""
    report_out_of_memory(_NO_RESOURCES)
    os._exit(_EXIT_CODE)
