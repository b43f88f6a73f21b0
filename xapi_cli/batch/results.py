"""Create the output line for each input line."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from xapi_cli.batch import bodies
from xapi_cli.batch.entries import Entry
from xapi_cli.batch.flow import Answer
from xapi_cli.batch.responses import BodyTooLarge, Reply
from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.system.render import json_line

_CODES = {"input": 2, "network": 11, "timeout": 12, "auth": 10, "size": 11}
Chunks = Callable[[], Iterator[bytes]]


@dataclass(slots=True)
class Result:
    """An output line without its newline, and its exit code; *kind* is an error kind or a status code.

    A long line has *pieces* instead of *text*; they are generated on each write from *held* bytes in memory.
    """

    number: int
    text: bytes
    code: int
    kind: str
    seen: bytes = b""
    is_kept: bool = True  # in a journal; a request without a response is sent again
    pieces: Chunks | None = None
    held: int = 0

    @property
    def size(self) -> int:
        """Return the bytes in memory until the line is written."""
        return self.held + len(self.text)

    @property
    def is_notable(self) -> bool:
        """Return whether to report the result to the user: a failure, or a redirect that was not followed."""
        return bool(self.code) or (self.kind.startswith("3") and self.kind != "304")


def answered(entry: Entry, answer: Answer, elapsed_ms: int) -> Result | Generator[None, None, Result]:
    """Return the line for a response or, if its body is long, a generator of the steps that return the line.

    Both raise NetworkError if the body cannot be decoded or is too large.
    """
    head = answer.reply.head
    start = b'{"id": %s, "line": %d, "status": %d, "headers": %s, ' % (
        entry.id.encode(),
        entry.number,
        head.status,
        head.json(),
    )
    end = b', "elapsed_ms": %d}' % elapsed_ms
    result = Result(entry.number, b"", _code(head.status), str(head.status), entry.seen)
    member = bodies.short_member(answer.reply)
    if member is None:
        return _long(result, start, answer.reply, end)
    result.text = b"%s%s%s" % (start, member, end)
    return result


def _long(result: Result, start: bytes, reply: Reply, end: bytes) -> Generator[None, None, Result]:
    member = yield from bodies.long_member(reply)

    def pieces() -> Iterator[bytes]:
        yield start
        yield from filter(None, member())
        yield end

    result.pieces, result.held = pieces, len(start) + len(reply.body)
    return result


def failed(entry: Entry, error: XapiError, message: str) -> Result:
    """Return the line for a call that failed with *error*; *message* describes it."""
    return _error(entry, _kind(error), message)


def refused(entry: Entry) -> Result:
    """Return the line for an invalid input line."""
    return _error(entry, "input", entry.flaw or "")


def _error(entry: Entry, kind: str, message: str) -> Result:
    error = json_line({"kind": kind, "message": message})
    text = f'{{"id": {entry.id}, "line": {entry.number}, "error": {error}}}'.encode()
    return Result(entry.number, text, _CODES[kind], kind, entry.seen, is_kept=kind == "size")


def _kind(error: XapiError) -> str:
    if isinstance(error, BodyTooLarge):
        return "size"
    if isinstance(error, NetworkError):
        return "network"
    return "timeout" if isinstance(error, TimeoutExpired) else "auth"


def _code(status: int) -> int:
    return 0 if status < 400 else 4 if status < 500 else 5
