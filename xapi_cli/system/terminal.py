"""Terminal input and output: all writes to stdout and stderr, and all prompts."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from xapi_cli import hints
from xapi_cli.errors import ClosedPipe, LoginNeeded, OutputError, XapiError
from xapi_cli.hints import Hint, Option, Run
from xapi_cli.system import message_format, prompts, standard_streams
from xapi_cli.system.redact import Redactor
from xapi_cli.system.render import escape_json, json_line, printable
from xapi_cli.system.style import Name, Style, wrapped

if TYPE_CHECKING:
    from xapi_cli.system.progress import AnyActivity, Progress

_MAX_MESSAGE = 65_536  # characters; a longer text of a server is truncated before the search for secrets


class Terminal:
    """Standard streams and prompts.

    stdout carries only results. Messages go to stderr, where a failed write
    does not make the command fail.
    """

    def __init__(self, environ: Mapping[str, str], *, no_input: bool = False, has_streams: bool = True) -> None:
        self._environ = environ
        self.no_input = no_input
        self.has_streams = has_streams  # False in the Python API, where the streams belong to the caller
        self.is_quiet = False  # whether stderr gets only warnings, errors and prompts
        self.has_json_messages = False  # whether stderr gets a line of JSON for each message, and nothing else
        self._stdout = standard_streams.duplicate(1) if has_streams else None
        self._stderr = standard_streams.duplicate(2) if has_streams else None
        self._open_line: int | None = None  # the stream on which the next message would continue a line
        self._warned: set[str] = set()
        self._progress: Progress | None = None
        self.shown: Callable[[Run | Option], str] = str  # of a command or a flag in a hint
        self.redactor = Redactor()  # removes secrets from all messages

    # stdout

    def print(self, text: str) -> None:
        """Write *text* and a newline to stdout."""
        self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def print_json(self, value: object) -> None:
        """Write *value* to stdout as one line of JSON; on a terminal, control characters are escaped."""
        line = json_line(value)
        self.print(escape_json(line) if self.stdout_is_terminal else line)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of *data* to stdout, unbuffered.

        Raises ClosedPipe if the pipe is closed, OutputError if writing fails for another reason.
        """
        with _write_errors("stdout"), self._without_progress():
            standard_streams.write_all(_opened(self._stdout), data)
        if data:
            self._open_line = 1 if bytes(data[-1:]) != b"\n" and self._shares_stdout else None

    def write_text(self, lines: bytes) -> None:
        """Write *lines* of text to stdout; on a terminal, control characters are made visible."""
        if self.stdout_is_terminal:
            text = printable(lines.decode("utf-8", "backslashreplace"), keep="\n\t")
            lines = text.encode("utf-8", "backslashreplace")
        self.write(lines)

    # stderr

    def text(self, hint: Hint) -> str:
        """Return *hint* as this terminal prints it; see `shown`."""
        return hints.text(hint, self.shown)

    def print_stderr(self, text: str) -> None:
        """Write *text* and a newline to stderr."""
        self.write_stderr(text.encode("utf-8", "backslashreplace") + b"\n")

    def log(self, line: str) -> None:
        """Write a *line* of a log, such as that of --verbose, to stderr; it is printable and contains no secret."""
        self.print_stderr(message_format.line("note", "log", line) if self.has_json_messages else line)

    def write_stderr(self, data: bytes) -> None:
        """Write *data* to stderr unchanged."""
        with suppress(OSError):  # stderr may be closed; the exit code still reports the failure
            self._write_stderr(data)

    def write_result_to_stderr(self, data: bytes) -> None:
        """Write *data*, a result for stderr, to stderr; raises the exceptions of `write`."""
        with _write_errors("stderr"):
            self._write_stderr(data, is_result=True)

    def note(self, message: Hint) -> None:
        """Write a message about what xapi did to stderr; a quiet terminal omits it."""
        if not self.is_quiet:
            self._message("note", self.text(message), "faint")

    def warn(self, message: Hint, *, repeats: bool = False) -> None:
        """Write a warning to stderr; the same warning is written only once, unless it *repeats*, as at a prompt."""
        text = self.text(message)
        if repeats or text not in self._warned:
            self._warned.add(text)
            self._message("warning", text, "warning")

    def fail(self, error: XapiError) -> None:
        """Write the error message to stderr."""
        if not self.has_json_messages:
            self._message("error", self.text(error.advice), "error")
            return
        hint = error.hint or error.default_hint
        found = {"hint": None if hint is None else self.text(hint), **error.context}
        members = {name: self._shown(each) if isinstance(each, str) else each for name, each in found.items()}
        message = self._shown(error.message)
        self.print_stderr(message_format.line("error", error.kind, message, code=error.exit_code, **members))

    def end_interruption(self) -> None:
        """Erase the `^C` that a terminal has echoed."""
        if self.stderr_is_terminal and not self.has_json_messages and self._environ.get("TERM") != "dumb":
            self.write_stderr(b"\r\x1b[K")

    def _message(self, level: str, text: str, color: Name) -> None:
        """Write *text* as one line, on a terminal as a paragraph; *color* is that of its label or of the whole."""
        if self.has_json_messages:
            self.print_stderr(message_format.line(level, level, self._shown(text)))
            return
        label = "" if level == "note" else f"{level}:"
        line = " ".join(filter(None, ("xapi:", label, self._shown(text))))
        if self.stderr_is_terminal:
            line = wrapped(line, _columns_of(2))
        style = self.stderr_style
        if style.enabled:
            line = style.commands(line).replace(label, style(color, label), 1) if label else style(color, line)
        self.print_stderr(line)
        if level != "note" and message_format.is_github_runner(self._environ):
            self.print_stderr(message_format.workflow_command(f"{level} title=xapi", self._shown(text)))

    def _shown(self, text: str) -> str:
        if len(text) > _MAX_MESSAGE:
            text = text[:_MAX_MESSAGE] + "…"
        return printable(self.redactor.redact(text))

    def _write_stderr(self, data: bytes, *, is_result: bool = False) -> None:
        """Write *data* to stderr, in place of the progress, and on a separate line, unless a result continues."""
        if self._open_line == 1 or (self._open_line == 2 and not is_result):
            data = b"\n" + data
        self._open_line = 2 if is_result and data[-1:] != b"\n" else None
        with self._without_progress():
            standard_streams.write_all(_opened(self._stderr), data)

    def _without_progress(self) -> "AbstractContextManager[None]":
        return nullcontext() if self._progress is None else self._progress.interrupted()

    # progress

    def during(self, activity: "AnyActivity") -> "AbstractContextManager[AnyActivity]":
        """Show the progress of *activity*, if this terminal shows progress, for a `with` block."""
        if not self.shows_progress:
            return nullcontext(activity)
        if self._progress is None:
            from xapi_cli.system.progress import Progress

            self._progress = Progress(self._write_progress, lambda: _columns_of(2), lambda: self._open_line is None)
        return self._progress.during(activity)

    def waiting(self, host: str) -> "AbstractContextManager[object]":
        """Show how long the `with` block has been waiting for *host*, if this terminal shows progress."""
        if not self.shows_progress:
            return nullcontext()
        from xapi_cli.system.progress import Waiting

        return self.during(Waiting(host))

    def _write_progress(self, data: bytes) -> None:
        if prompts.is_in_foreground(2):  # a job can be moved to the background and back
            with suppress(OSError):  # the terminal may have been closed
                standard_streams.write_all(2 if self._stderr is None else self._stderr, data)

    # terminal properties

    @cached_property
    def interactive(self) -> bool:
        """Whether prompts are possible: /dev/tty can be opened, and stdin or stderr is a terminal."""
        if not self.has_streams or self.no_input:
            return False
        return (standard_streams.is_terminal(0) or self.stderr_is_terminal) and prompts.are_possible()

    @cached_property
    def stdout_is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return standard_streams.is_terminal(1)

    @cached_property
    def stderr_is_terminal(self) -> bool:
        """Whether stderr is a terminal."""
        return standard_streams.is_terminal(2)

    @cached_property
    def _shares_stdout(self) -> bool:
        """Whether stdout and stderr are the same file, pipe or terminal, as in a log of both."""
        if self._stdout is None or self._stderr is None:
            return False
        out, err = os.fstat(self._stdout), os.fstat(self._stderr)
        is_same = out.st_ino != 0 and os.path.samestat(out, err)  # Windows has no such number for a pipe
        return is_same or (self.stdout_is_terminal and self.stderr_is_terminal)

    @cached_property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal that can overwrite a line, and gets more than messages."""
        can_overwrite = self.has_streams and self.stderr_is_terminal and self._environ.get("TERM") != "dumb"
        return can_overwrite and not self.is_quiet and not self.has_json_messages

    @cached_property
    def stdout_is_file(self) -> bool:
        """Whether stdout is a regular file."""
        return self._stdout is not None and stat.S_ISREG(os.fstat(self._stdout).st_mode)

    @property
    def stdout_columns(self) -> int:
        """The current width of stdout in columns, 80 if it is unknown."""
        return _columns_of(1)

    @cached_property
    def style(self) -> Style:
        """The colors of text for users on stdout; results for programs never have colors."""
        return self._style(is_terminal=self.stdout_is_terminal)

    @cached_property
    def stderr_style(self) -> Style:
        """The colors of text on stderr."""
        return self._style(is_terminal=self.stderr_is_terminal and not self.has_json_messages)

    def _style(self, *, is_terminal: bool) -> Style:
        return Style(enabled=is_terminal and not self._environ.get("NO_COLOR") and self._environ.get("TERM") != "dumb")

    # prompts

    def prompt(self, question: str, *, hidden: bool = False) -> str:
        """Prompt with *question* and return the input of the user, read without echo if *hidden*.

        Prompts on /dev/tty only, because stdin may carry the body of a request,
        which must never be used as a password. Raises LoginNeeded at end of file
        or if the terminal is closed.
        """
        style = self._style(is_terminal=True)  # /dev/tty, even if stderr is not a terminal
        columns = _columns_of(2 if self.stderr_is_terminal else 0)
        shown = style("strong", wrapped(printable(question.rstrip()), columns)) + " "
        try:
            with self._without_progress():
                reply = prompts.read_hidden(shown) if hidden else prompts.read(shown)
        except BaseException as error:
            if not self.has_json_messages:
                self.print_stderr("")  # Ctrl-C and Ctrl-D leave the cursor on the line of the prompt
            if isinstance(error, EOFError | OSError | ValueError):
                hint = "run the command again and answer the prompt, or set XAPI_PASSWORD"
                raise LoginNeeded("the prompt was not answered", hint=hint) from error
            raise
        return reply.rstrip("\r\n")

    def confirm(self, question: str, *, default: bool = True) -> bool:
        """Return whether the user confirms *question*; an empty input means *default*."""
        choices = "[Y/n]" if default else "[y/N]"
        while True:
            reply = self.prompt(f"{question} {choices} ").strip().lower()
            if reply in ("y", "yes", "n", "no", ""):
                return reply.startswith("y") if reply else default

    def noted_stdin(self, what: str) -> BinaryIO | None:
        """Return stdin, None if it is closed; if it is a terminal, note that *what* is read from it."""
        stream = standard_streams.open_stdin()
        if stream is not None and stream.isatty():
            self.note(f"reading {what} from the terminal; press Ctrl-D to end the input")
        return stream


def _opened(descriptor: int | None) -> int:
    if descriptor is None:
        raise OSError(errno.EBADF, "it is closed")
    return descriptor


@contextmanager
def _write_errors(stream: str) -> Iterator[None]:
    """Raise ClosedPipe or OutputError for a failure to write to *stream*."""
    try:
        yield
    except OSError as error:
        if error.errno in standard_streams.CLOSED_PIPE_ERRORS:
            raise ClosedPipe(f"{stream} was closed early") from error
        raise OutputError(f"{stream} cannot be written: {error.strerror}", hint="redirect it elsewhere") from error


def _columns_of(descriptor: int) -> int:
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80
