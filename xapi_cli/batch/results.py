"""Create the output line for each input line."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from xapi_cli.batch import bodies
from xapi_cli.batch.entries import Entry
from xapi_cli.batch.responses import BodyTooLarge, BufferedResponse
from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.system.render import json_line

_CODES = {"input": 2, "network": 11, "timeout": 12, "auth": 10, "size": 11}
Chunks = Callable[[], Iterator[bytes]]


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

    @property
    def size(self) -> int:
        """Return the bytes in memory until the line is written."""
        return self.held + len(self.text)

    @property
    def is_notable(self) -> bool:
        """Return whether to report the result to the user: a failure, or a redirect that was not followed."""
        return bool(self.code) or (self.kind.startswith("3") and self.kind != "304")


def response_line(entry: Entry, response: BufferedResponse, elapsed_ms: int) -> Result | Generator[None, None, Result]:
    """Return the line for a response or, if its body is long, a generator of the steps that return the line.

    Both raise NetworkError if the body cannot be decoded or is too large.
    """
    head = response.head
    start = b'{"id": %s, "line": %d, "status": %d, "headers": %s, ' % (
        entry.id.encode(),
        entry.number,
        head.status,
        head.json(),
    )
    end = b', "elapsed_ms": %d}' % elapsed_ms
    result = Result(entry.number, b"", _code(head.status), str(head.status), entry.digest, elapsed_ms=elapsed_ms)
    member = bodies.short_member(response)
    if member is None:
        return _long(result, start, response, end)
    result.text = b"%s%s%s" % (start, member, end)
    return result


def _long(result: Result, start: bytes, response: BufferedResponse, end: bytes) -> Generator[None, None, Result]:
    member = yield from bodies.long_member(response)

    def chunks() -> Iterator[bytes]:
        yield start
        yield from filter(None, member())
        yield end

    result.chunks, result.held = chunks, len(start) + len(response.body)
    return result


def error_line(entry: Entry, error: XapiError, message: str) -> Result:
    """Return the line for a call that failed with *error*; *message* describes it."""
    return _error(entry, _kind(error), message)


def invalid_line(entry: Entry) -> Result:
    """Return the line for an invalid input line."""
    return _error(entry, "input", entry.error or "")


def _error(entry: Entry, kind: str, message: str) -> Result:
    error = json_line({"kind": kind, "message": message})
    text = f'{{"id": {entry.id}, "line": {entry.number}, "error": {error}}}'.encode()
    return Result(entry.number, text, _CODES[kind], kind, entry.digest, is_stored=kind == "size", message=message)


def _kind(error: XapiError) -> str:
    if isinstance(error, BodyTooLarge):
        return "size"
    if isinstance(error, NetworkError):
        return "network"
    return "timeout" if isinstance(error, TimeoutExpired) else "auth"


def _code(status: int) -> int:
    return 0 if status < 400 else 4 if status < 500 else 5
