"""The controlling terminal: prompts, independent of the standard streams, and whether this process may use it."""

import os
import sys

from xapi_cli.errors import UsageError


def are_possible() -> bool:
    """Return whether the controlling terminal can be opened."""
    if sys.platform == "win32":
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def is_in_foreground(descriptor: int) -> bool:
    """Return whether this process is not a background job of a shell on the terminal *descriptor*."""
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # not the controlling terminal
        return True


def read_hidden(question: str) -> str:
    """Return the reply to *question*, typed without echo; raises EOFError or OSError if there is none."""
    from getpass import getpass

    try:
        return getpass(question)  # uses /dev/tty; `are_possible` has checked that it can be opened
    except UnicodeDecodeError:
        raise UsageError(  # from None, because the original error contains the input
            "the input is not valid in the terminal's character set", hint="check LANG, or use --password-stdin"
        ) from None


def read(question: str) -> str:
    """Return the reply to *question* with its newline; raises EOFError or OSError if there is none."""
    if sys.platform == "win32":
        return input(question)
    with open("/dev/tty", "r+b", buffering=0) as raw:
        raw.write(question.encode("utf-8", "backslashreplace"))
        line = raw.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape")
