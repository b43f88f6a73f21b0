"""The controlling terminal: prompts, independent of the standard streams, and whether this process may use it."""

import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import FileIO

_KEYBOARD, _SCREEN = ("CONIN$", "CONOUT$") if sys.platform == "win32" else ("/dev/tty", "/dev/tty")
_INTERVAL = 0.2  # seconds


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
    if sys.platform == "win32":
        from getpass import getpass

        if not are_possible():  # getpass would read stdin, which may carry the body of a request
            raise EOFError
        return getpass(question)

    import termios

    with open(_KEYBOARD, "r+b", buffering=0) as terminal:
        try:
            before = termios.tcgetattr(terminal)
            hidden = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
            try:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
                reply = _reply(terminal, question)
            finally:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        except termios.error as error:
            raise OSError(*error.args) from error
        terminal.write(b"\n")
    return reply


def read(question: str) -> str:
    """Return the reply to *question*; raises EOFError, OSError or ValueError if there is none."""
    if sys.platform == "win32":
        with open(_SCREEN, "w", encoding="utf-8") as screen, open(_KEYBOARD, encoding="utf-8") as keyboard:
            print(question, end="", file=screen, flush=True)
            if not (line := keyboard.readline()):
                raise EOFError
            return line
    with open(_KEYBOARD, "r+b", buffering=0) as terminal:
        return _reply(terminal, question)


def _reply(terminal: "FileIO", question: str) -> str:
    terminal.write(question.encode("utf-8", "backslashreplace"))
    # A signal that arrives just before a read does not end it, but this wait.
    while not select.select([terminal], [], [], _INTERVAL)[0]:
        pass
    if not (line := terminal.readline()):
        raise EOFError
    return os.fsdecode(line)
