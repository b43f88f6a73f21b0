"""Keep third-party code from using the standard streams: a backend that prints or logs may print secrets."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Redirect stdin, stdout and stderr to the null device, for this process and its children, during the body."""
    _flush()  # xapi's own output still reaches the original streams
    saved = [_duplicate(number) for number in range(3)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(null, number, inheritable=True)
        yield
    finally:
        os.close(null)
        _flush()  # output of the third-party code is discarded
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(copy, number, inheritable=True)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed or None
            stream.flush()


def _duplicate(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:
        return None  # it is closed, and stays closed
