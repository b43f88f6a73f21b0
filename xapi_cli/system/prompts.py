"""The controlling terminal: prompts, independent of the standard streams, and whether this process may use it."""

import os
import sys

# The name of the controlling terminal, and the flags to open it; a service of Windows has no console.
if sys.platform == "win32":
    _TERMINAL = ("CONIN$", os.O_RDWR)
else:
    _TERMINAL = ("/dev/tty", os.O_RDWR | os.O_NOCTTY)


def are_possible() -> bool:
    """Return whether the controlling terminal can be opened."""
    try:
        os.close(os.open(*_TERMINAL))
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


if sys.platform == "win32":

    def read_hidden(question: str) -> str:
        """Return the reply to *question*, typed without echo; raises EOFError or OSError if there is none."""
        import getpass

        return getpass.getpass(question).encode("utf-16", "surrogatepass").decode("utf-16")

    def read(question: str) -> str:
        """Return the reply to *question* with its newline; raises EOFError or OSError if there is none."""
        with open("CONOUT$", "w", encoding="utf-8") as screen, open("CONIN$", encoding="utf-8") as keyboard:
            screen.write(question)
            screen.flush()
            if not (reply := keyboard.readline()):
                raise EOFError
            return reply

else:

    def read_hidden(question: str) -> str:
        """Return the reply to *question*, typed without echo; raises EOFError or OSError if there is none."""
        import termios

        with open("/dev/tty", "r+b", buffering=0) as terminal:
            try:
                before = termios.tcgetattr(terminal)
                hidden = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
                try:
                    termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
                    terminal.write(question.encode("utf-8", "backslashreplace"))
                    line = terminal.readline()
                finally:
                    termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
            except termios.error as error:
                raise OSError(*error.args) from error
            if not line:
                raise EOFError
            terminal.write(b"\n")
        return os.fsdecode(line)

    def read(question: str) -> str:
        """Return the reply to *question* with its newline; raises EOFError or OSError if there is none."""
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            terminal.write(question.encode("utf-8", "backslashreplace"))
            if not (line := terminal.readline()):
                raise EOFError
        return os.fsdecode(line)
