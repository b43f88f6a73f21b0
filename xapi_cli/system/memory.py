"""Garbage collection, and the end of a process that has no memory left, not even for an import."""

import gc
import os

TYPE_CHECKING = False  # importing `typing` needs memory
if TYPE_CHECKING:
    from typing import NoReturn

_COLLECT_AFTER = 50_000  # objects; those loaded at startup stay alive, and collecting them repeatedly costs 8 ms
_ENOMEM = 12
_MESSAGE = b"xapi: error: not enough memory; check the limits with `ulimit -a`\n"
_EXIT_CODE = 1


def delay_garbage_collection() -> None:
    """Collect after 50,000 new objects instead of 700, because a command ends soon."""
    gc.set_threshold(_COLLECT_AFTER)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether *error* is how Python reports that an allocation failed; C code raises SystemError then."""
    return isinstance(error, MemoryError | SystemError) or (isinstance(error, OSError) and error.errno == _ENOMEM)


def report() -> None:
    """Write the error message to stderr, without an allocation."""
    try:
        os.write(2, _MESSAGE)
    except OSError:
        pass  # stderr may be closed


def end() -> "NoReturn":
    """Write the error message to stderr and end the process."""
    report()
    os._exit(_EXIT_CODE)
