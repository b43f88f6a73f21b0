"""The controlling terminal: prompts, independent of the standard streams, and whether this process may use it."""

import os
import sys

_KEYBOARD, _SCREEN = ("CONIN$", "CONOUT$") if sys.platform == "win32" else ("/dev/tty", "/dev/tty")


def are_possible() -> bool:
    """Return whether the controlling terminal can be opened; a service of Windows has no console."""
    try:
        open(_KEYBOARD, "r+b", buffering=0).close()
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
    """Return the reply to *question*, typed without echo; raises EOFError, OSError or ValueError if there is none."""
    from getpass import getpass

    if not are_possible():  # getpass would read stdin, which may carry the body of a request
        raise EOFError
    return getpass(question)


def read(question: str) -> str:
    """Return the reply to *question* with its newline; raises EOFError, OSError or ValueError if there is none."""
    with open(_SCREEN, "w", encoding="utf-8", errors="backslashreplace") as screen:
        print(question, end="", file=screen, flush=True)
    with open(_KEYBOARD, encoding="utf-8") as keyboard:
        if not (reply := keyboard.readline()):
            raise EOFError
        return reply
