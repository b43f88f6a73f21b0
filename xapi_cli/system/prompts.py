"""The controlling terminal: prompts, independent of the standard streams, and whether this process may use it."""

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError

if sys.platform == "win32":
    from xapi_cli.system import windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

# The name of the controlling terminal, and the flags to open it; a service of Windows has no console.
if sys.platform == "win32":
    _TERMINAL = ("CONIN$", os.O_RDWR)
else:
    _TERMINAL = ("/dev/tty", os.O_RDWR | os.O_NOCTTY)
_ECHO_CHECK_INTERVAL = 0.1  # seconds; a shell may turn the echo on after it has continued the process
_MAX_LINE = 65536  # bytes; a terminal delivers less


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


def read_hidden(question: str) -> str:
    """Return the reply to *question*, typed without echo; raises EOFError or OSError if there is none.

    A shell turns the echo on when it continues a stopped job. It is then turned off again, and *question* repeated.
    """
    try:
        if sys.platform == "win32":
            return windows.read_hidden(question)
        else:  # noqa: RET505 - for mypy, which examines what follows a return statement on each platform
            return _decoded(_read_hidden(question))
    except UnicodeDecodeError:
        raise UsageError(  # from None, because the original error contains the input
            "the input is not valid in the terminal's character set", hint="check LANG, or use --password-stdin"
        ) from None


def read(question: str) -> str:
    """Return the reply to *question* with its newline; raises EOFError or OSError if there is none."""
    if sys.platform == "win32":
        with open("CONOUT$", "w", encoding="utf-8") as screen, open("CONIN$", encoding="utf-8") as keyboard:
            screen.write(question)
            screen.flush()
            if not (reply := keyboard.readline()):
                raise EOFError
            return reply
    with open("/dev/tty", "r+b", buffering=0) as raw:
        raw.write(question.encode("utf-8", "backslashreplace"))
        line = raw.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape")


if sys.platform != "win32":

    def _read_hidden(question: str) -> bytes:
        """Return the line that is typed on the terminal without echo; /dev/tty can be opened, see `are_possible`."""
        import select
        import termios

        shown = question.encode("utf-8", "backslashreplace")
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            try:
                before = termios.tcgetattr(terminal)
                with _restored(terminal, before):
                    _turn_echo_off(terminal, before, termios.TCSAFLUSH)
                    terminal.write(shown)
                    line = b""
                    while not line.endswith(b"\n"):
                        if not select.select([terminal], [], [], _ECHO_CHECK_INTERVAL)[0]:
                            if (now := termios.tcgetattr(terminal))[3] & termios.ECHO:
                                _turn_echo_off(terminal, now, termios.TCSANOW)
                                terminal.write(b"\r\n" + shown)
                            continue
                        if not (data := terminal.read(_MAX_LINE)):
                            break
                        line += data
            except termios.error as error:
                raise OSError(*error.args) from error
            if not line:
                raise EOFError
            terminal.write(b"\n")
            return line

    @contextmanager
    def _restored(terminal: "BinaryIO", attributes: "list[Any]") -> "Iterator[None]":
        """Restore *attributes* at the end of a `with` block, and before Ctrl-\\ (SIGQUIT) ends the process in it."""
        import signal
        import termios
        import threading

        def restore() -> None:
            with suppress(termios.error):  # the terminal is closed; what ended the prompt is reported
                termios.tcsetattr(terminal, termios.TCSAFLUSH, attributes)

        def quit_process(number: int, _: object) -> None:
            restore()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

        is_main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler
        is_handled = is_main and signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL
        try:
            if is_handled:
                signal.signal(signal.SIGQUIT, quit_process)
            yield
        finally:
            restore()
            if is_handled:
                signal.signal(signal.SIGQUIT, signal.SIG_DFL)

    def _turn_echo_off(terminal: "BinaryIO", attributes: "list[Any]", when: int) -> None:
        import termios

        flags = attributes[3] & ~termios.ECHO
        termios.tcsetattr(terminal, when, [*attributes[:3], flags, *attributes[4:]])


def _decoded(line: bytes) -> str:
    """Return the text of *line* in the character set of the locale, without its newline."""
    import io

    return io.TextIOWrapper(io.BytesIO(line)).read().removesuffix("\n")
