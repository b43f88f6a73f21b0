"""Create the output line for each input line."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache

from xapi_cli import errors
from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.output import bodies
from xapi_cli.batch.responses import BufferedResponse
from xapi_cli.errors import InvalidLine, RedirectError, XapiError
from xapi_cli.system.render import json_line

_SHORT = 64 * 1024  # bytes
Chunks = Callable[[], Iterator[bytes]]
Steps = Generator[int | None, None, "Result"]


@dataclass(slots=True)
class Result:
    """An output line without its newline, and its exit code; *kind* is an error kind or a status code.

    A long line has *chunks* instead of *text*; they are generated on each write from *held* bytes in memory.
    *elapsed_ms* and *message* are parts of the line, for users.
    """

    number: int
    text: bytes
    code: int
    kind: str
    digest: bytes = b""
    is_stored: bool = True  # in a journal; a request without a response is sent again
    chunks: Chunks | None = None
    held: int = 0
    elapsed_ms: int | None = None  # None without a response, or if the result is from a journal
    message: str = ""  # of an error
    cause: tuple[str, str | None] | None = None  # message and hint of that error, unless it is from a journal
    source: bytes = b""  # the input line of a failure, for --failed

    @property
    def size(self) -> int:
        """Return the bytes in memory until the line is written."""
        return self.held + len(self.text) + len(self.source)


def response_line(entry: Entry, response: BufferedResponse, elapsed_ms: int) -> Result | Steps:
    """Return the line for a response or, if its body is long, a generator of the steps that return the line.

    Both raise NetworkError if the body cannot be decoded or is too large.
    """
    line = _ResponseLine(entry, response, elapsed_ms)
    member = bodies.short_member(response)
    return _long_line(line, response) if member is None else line.with_member(member)


def _long_line(line: "_ResponseLine", response: BufferedResponse) -> Steps:
    return line.with_chunks((yield from bodies.long_member(response)), len(response.body))


class _ResponseLine:
    """The line for *response* to the call of *entry*, apart from the member for its body."""

    def __init__(self, entry: Entry, response: BufferedResponse, elapsed_ms: int) -> None:
        head = response.head
        self._start = b'{"id": %s, "line": %d, "status": %d, "headers": %s, ' % (
            entry.id.encode(),
            entry.number,
            head.status,
            head.json,
        )
        self._end = b'"elapsed_ms": %d}' % elapsed_ms
        self._result = Result(
            entry.number, b"", _code(head.status), str(head.status), entry.digest, elapsed_ms=elapsed_ms
        )

    def with_member(self, member: bytes | None) -> Result:
        """Return the line with *member*, or without a body."""
        self._result.text = (
            self._start + self._end if member is None else b"%s%s, %s" % (self._start, member, self._end)
        )
        return self._result

    def with_chunks(self, member: Chunks, size: int) -> Result:
        """Return the line with the chunks of *member*, which are generated from *size* bytes in memory."""
        start, end = self._start, self._end

        def chunks() -> Iterator[bytes]:  # without self: a reference cycle would keep the body in memory
            yield start
            yield from filter(None, member())
            yield b", " + end

        self._result.chunks, self._result.held = chunks, len(self._start) + size
        return self._result


def error_line(entry: Entry, error: XapiError, message: str) -> Result:
    """Return the line for a call that failed with *error*; *message* describes it."""
    text = b'{"id": %s, "line": %d, "error": %s}' % (entry.id.encode(), entry.number, _error_member(error, message))
    return Result(
        entry.number,
        text,
        error.exit_code,
        error.kind,
        entry.digest,
        is_stored=error.is_stored,
        message=message,
        cause=(error.message, error.hint),
    )


def _error_member(error: XapiError, message: str) -> bytes:
    return json_line({"kind": error.kind, "message": message}).encode()


@cache
def _code(status: int) -> int:
    """Return the exit code for *status*; a redirect that was not followed is no failure of a line."""
    failure = errors.of_status(status)
    return 0 if failure is None or issubclass(failure, RedirectError) else failure.exit_code


class Tally:
    """The number of *lines*, of *failed* ones and of *retries*; *exit_code* is the highest of all results.

    *message* and *hint* are those of the errors of all failed lines, each None if these differ.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.failed = 0
        self.retries = 0
        self.pauses = 0
        self.exit_code = 0
        self.message: str | None = None
        self.hint: str | None = None
        self._restored = 0
        self._notable: Counter[str] = Counter()
        self._started = time.monotonic()

    def count(self, result: Result, *, is_new: bool) -> None:
        """Count one line; *is_new* is False if its result is from the journal."""
        self.lines += 1
        self._restored += not is_new
        if result.code:
            self.failed += 1
            self.exit_code = max(self.exit_code, result.code)
            message, hint = result.cause or (None, None)
            is_first = self.failed == 1
            self.message = message if is_first or message == self.message else None
            self.hint = hint if is_first or hint == self.hint else None
        if result.code or (result.kind.startswith("3") and result.kind != "304"):  # or a redirect that was not followed
            self._notable[result.kind] += 1

    @property
    def invalid(self) -> int:
        """The number of input lines that are not valid."""
        return self._notable[InvalidLine.kind]

    def summary(self) -> str:
        """Return the counts as text for the user."""
        seconds = max(0.001, time.monotonic() - self._started)
        text = f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}"
        if self.failed:
            text = f"{self.failed:,} of {text} failed"
        more = [f"{self._restored:,} from the journal"] if self._restored else []
        for count, singular, plural in ((self.retries, "retry", "retries"), (self.pauses, "pause", "pauses")):
            more += [f"{count:,} {singular if count == 1 else plural}"] if count else []
        rate = ", ".join([f"{(self.lines - self._restored) / seconds:,.0f}/s", *more])
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(self._notable.items()))
        return f"{text} in {seconds:.1f} s ({rate})" + (f": {kinds}" if kinds else "")
