"""Keep somebody else's code from speaking on our streams: a backend that prints or logs may print secrets."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Point stdin, stdout and stderr at nothing, for this process and what it starts, while the body runs."""
    _flush()  # what is ours still goes where it belongs
    saved = [_duplicate(number) for number in range(3)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(null, number, inheritable=True)
        yield
    finally:
        os.close(null)
        _flush()  # what is theirs goes nowhere
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(copy, number, inheritable=True)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or not be there at all
            stream.flush()


def _duplicate(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:
        return None  # it is closed, and stays so
