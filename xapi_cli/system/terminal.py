"""The one place that writes to people and scripts, and that asks people."""

import errno
import os
import select
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from io import FileIO, TextIOWrapper
from typing import BinaryIO
from urllib.parse import quote

from xapi_cli.errors import ClosedPipe, LoginNeeded, OutputError, UsageError, XapiError
from xapi_cli.system.render import inert_json, inert_shell, json_line, printable


class Terminal:
    """stdin, stdout, stderr and the person at the keyboard, as far as there is one.

    stdout carries answers and nothing else; everything said about them goes to
    stderr, where a failing write is never a reason to fail.
    """

    def __init__(self, environ: Mapping[str, str], *, no_input: bool = False, has_streams: bool = True) -> None:
        self._environ = environ
        self.no_input = no_input
        self.has_streams = has_streams  # else they are not ours to use
        self._stdout: BinaryIO | None = _open_descriptor(1) if has_streams else None
        self._stderr = _duplicate_of_stderr() if has_streams else -1
        self._warned: set[str] = set()
        self._secrets: set[str] = set()

    # what a script reads

    def out(self, text: str) -> None:
        """Write *text* and a newline to stdout."""
        self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def out_json(self, value: object) -> None:
        """Write *value* to stdout as one line of JSON, on a terminal with escapes for what that would obey."""
        line = json_line(value)
        self.out(inert_json(line) if self.stdout_is_terminal else line)

    def out_command(self, command: str) -> None:
        """Write the shell *command* to stdout, on a terminal with `printf` for what that would obey."""
        self.out(inert_shell(command) if self.stdout_is_terminal else command)

    def write(self, data: bytes | memoryview) -> None:
        """Write *data* to stdout, at once and whole.

        Raises ClosedPipe when the reader has gone, OutputError when it cannot be written.
        """
        if self._stdout is None:
            raise OutputError("stdout is closed", hint="redirect it to a file or to /dev/null")
        rest = memoryview(data)
        try:
            while rest:
                written = self._stdout.write(rest)
                if written is None:  # a non-blocking pipe that is full: wait for its reader
                    select.select([], [self._stdout], [])
                    continue
                rest = rest[written:]
        except OSError as error:
            if error.errno in _NO_READER:
                raise ClosedPipe("the reader of stdout has gone") from error
            raise OutputError(
                f"stdout cannot be written: {error.strerror}", hint="the output above is incomplete"
            ) from error

    def writes_to(self, file: os.stat_result) -> bool:
        """Tell whether stdout is the regular *file*."""
        if self._stdout is None:
            return False
        ours = os.fstat(self._stdout.fileno())
        return stat.S_ISREG(ours.st_mode) and os.path.samestat(ours, file)

    # what a person reads

    def say(self, text: str) -> None:
        """Write *text* and a newline to stderr."""
        self.say_bytes(text.encode("utf-8", "backslashreplace") + b"\n")

    def say_bytes(self, data: bytes) -> None:
        """Write *data* to stderr as it is."""
        with suppress(OSError):  # nobody listens; the exit code still tells
            self._write_stderr(data)

    def answer_aside(self, data: bytes) -> None:
        """Write to stderr *data* that was asked for there; raises what `write` raises."""
        try:
            self._write_stderr(data)
        except OSError as error:
            if error.errno in _NO_READER:
                raise ClosedPipe("the reader of stderr has gone") from error
            reason = "stderr is closed" if 2 in _CLOSED else f"stderr cannot be written: {error.strerror}"
            raise OutputError(reason, hint="redirect it elsewhere") from error

    def note(self, text: str) -> None:
        """Tell what xapi did: one line on stderr."""
        self.say(f"xapi: {printable(self.without_secrets(text))}")

    def warn(self, text: str) -> None:
        """Tell what needs attention, though the command goes on: one line on stderr, once."""
        if text not in self._warned:
            self._warned.add(text)
            self.say(f"xapi: warning: {printable(self.without_secrets(text))}")

    def fail(self, error: XapiError) -> None:
        """Tell why the command failed: one line on stderr."""
        self.say(f"xapi: error: {printable(self.without_secrets(str(error)))}")

    def hide(self, secret: str | None) -> None:
        """Never show *secret* in what is told, as it is or percent-encoded: servers repeat what they got."""
        if secret and len(secret) >= _SHORTEST_SECRET:
            self._secrets |= {secret, quote(secret.encode("utf-8", "surrogateescape"), safe="")}

    def without_secrets(self, text: str) -> str:
        """Return *text* with what `hide` was told covered."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _write_stderr(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stderr, rest) :]
            except BlockingIOError:
                select.select([], [self._stderr], [])

    # what kind of terminal it is

    @cached_property
    def interactive(self) -> bool:
        """Whether there is a person to ask: /dev/tty opens, and stdin or stderr is a terminal."""
        return self.has_streams and not self.no_input and (_isatty(0) or _isatty(2)) and _can_open_tty()

    @cached_property
    def stdout_is_terminal(self) -> bool:
        """Whether a person reads stdout."""
        return _isatty(1)

    @cached_property
    def stderr_is_terminal(self) -> bool:
        """Whether a person reads stderr."""
        return _isatty(2)

    @cached_property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal that can write a line over."""
        return self.stderr_is_terminal and self._environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        """How wide stderr is at the moment."""
        try:
            return os.get_terminal_size(self._stderr).columns or 80
        except OSError:
            return 80

    @cached_property
    def colours(self) -> bool:
        """Whether stdout shows colours: a terminal that can, and no NO_COLOR (https://no-color.org)."""
        return self.stdout_is_terminal and not self._environ.get("NO_COLOR") and self._environ.get("TERM") != "dumb"

    # asking

    def ask(self, question: str, *, hidden: bool = False) -> str:
        """Return what the person answers to *question*, typed unseen when *hidden*.

        Asks on /dev/tty only: stdin may carry the body of a request, which
        must never be taken for a password. Raises LoginNeeded when the
        terminal closes instead of answering.
        """
        try:
            answer = _ask_hidden(question) if hidden else _ask_aloud(question)
        except (EOFError, OSError) as error:
            self.say("")  # Ctrl-D leaves the cursor behind the question
            raise LoginNeeded(
                "there was no answer at the prompt", hint="run it again and answer, or see `xapi help environment`"
            ) from error
        except BaseException:
            self.say("")  # Ctrl-C leaves the cursor behind the question
            raise
        return answer.rstrip("\r\n")

    def confirm(self, question: str, *, default: bool = True) -> bool:
        """Return whether the user agrees to *question*; Enter alone means *default*."""
        choices = "[Y/n]" if default else "[y/N]"
        while True:
            answer = self.ask(f"{question} {choices} ").strip().lower()
            if answer in ("y", "yes", "n", "no", ""):
                return answer.startswith("y") if answer else default

    def stdin(self) -> BinaryIO | None:
        """Return stdin as bytes, None when it is closed."""
        return None if 0 in _CLOSED else _Patient(os.dup(0), closefd=False)


def reserve_standard_streams() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed, so that no socket or file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _CLOSED.add(number)
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free number: this one; writing to it still fails
    if sys.stdout is None:  # Typer would print a help or a version to nobody, and call that a success
        raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115 - for the life of the process
        sys.stdout = TextIOWrapper(raw, encoding="utf-8", write_through=True)


def abandon_stdout() -> None:
    """Let what Python still holds for stdout go nowhere: it would fail once more when the program ends."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # too many open files
        os.close(1)
        os.open(os.devnull, os.O_WRONLY)  # takes the lowest free number, which is the one just closed
        return
    os.dup2(null, 1)
    os.close(null)


_CLOSED: set[int] = set()
_NO_READER = frozenset({errno.EPIPE, errno.ECONNRESET})
_SHORTEST_SECRET = 4  # characters; hiding less would garble every message, and tell it by doing so


class _Patient(FileIO):
    """A stream whose `read` waits, also where whoever shares it made it non-blocking: nothing yet is not the end."""

    def read(self, size: int | None = -1, /) -> bytes:
        while (data := super().read(-1 if size is None else size)) is None:
            select.select([self], [], [])
        return data


def _open_descriptor(number: int) -> BinaryIO | None:
    """Return a duplicate of standard stream *number*, unbuffered; None when that was closed before we started.

    A duplicate stays what it is while `store.quiet` points the standard one elsewhere, for all threads.
    """
    if number in _CLOSED:
        return None
    return open(os.dup(number), "rb" if number == 0 else "wb", buffering=0, closefd=False)


def _duplicate_of_stderr() -> int:
    """Return a descriptor that stays stderr's while `store.quiet` points the standard one elsewhere."""
    try:
        return os.dup(2)
    except OSError:
        return 2


def _isatty(number: int) -> bool:
    return number not in _CLOSED and os.isatty(number)


def _can_open_tty() -> bool:
    if sys.platform == "win32":
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _ask_hidden(question: str) -> str:
    from getpass import getpass

    try:
        return getpass(printable(question))  # on /dev/tty, which `interactive` has opened before
    except UnicodeDecodeError:
        raise UsageError(  # from None: the error has what was typed
            "what was typed is not in the terminal's character set", hint="check LANG, or use --password-stdin"
        ) from None


def _ask_aloud(question: str) -> str:
    if sys.platform == "win32":
        return input(printable(question))
    with open("/dev/tty", "r+b", buffering=0) as raw:
        raw.write(printable(question).encode("utf-8", "backslashreplace"))
        line = raw.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape")
