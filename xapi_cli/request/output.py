"""Output of the final response body: as bytes to stdout, as text to a terminal, atomically to a file, or not at all."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from xapi_cli.errors import UNAUTHORIZED, ExpectationFailed
from xapi_cli.request.options import ErrorBody
from xapi_cli.request.reason import reason
from xapi_cli.system.render import printable, size
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers, Response
    from xapi_cli.request.verbose import VerboseLog

_MIN_TIME_FOR_RATE = 0.1  # seconds that the body takes; the rate of a shorter transfer says nothing
_MAX_BEGINNING = 16 * 1024  # bytes
_WRITTEN_AT_ONCE = 64 * 1024  # characters
_EXCLUDED_FROM_FILE = frozenset({304, 401})  # 304 has no body, and 401 is always a failure: FILE is not changed


class File(Protocol):
    """The file of `-o`, which `commit` completes; *count* is the number of bytes of an earlier download in it."""

    name: str
    count: int

    def accepts(self, status: int) -> bool:
        """Return whether the file receives the body of a response with *status*."""

    def begin(self, status: int, fields: "Headers") -> None:
        """Prepare for the body of a response with the header *fields*."""

    def write(self, data: bytes) -> None:
        """Append *data*."""

    def commit(self) -> None:
        """Complete the file."""


class Filter(Protocol):
    """A filter for the body."""

    makes_json: bool  # lines of JSON, which a terminal shows indented

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None], content_type: str = "") -> None:
        """Filter the body in *chunks*, and pass the results to *write*."""

    def finish(self, write: Callable[[bytes], None]) -> None:
        """Pass what is left to *write*, after the last body."""


class Recorder(Protocol):
    """What needs a copy of the body of a success."""

    def recorded(self, chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
        """Yield *chunks*, and keep a copy."""


@dataclass
class ResponseOutput:
    """The output of one response: *file* receives the body of a success; *error_body* applies to failures."""

    terminal: Terminal
    file: "File | None" = None
    include: bool = False
    error_body: ErrorBody = "stdout"
    writes_errors_to_file: bool = False
    filter: "Filter | None" = None  # for the body of a success; with writes_errors_to_file, and of a failure
    expectations: "Recorder | None" = None  # of the body of a success
    log: "VerboseLog | None" = None  # of -vv, which shows bodies
    beginning: bytes = b""  # of the body of a failure, for its message
    size: int = 0  # bytes of the body after content decoding; of a resumed one, in all responses
    written: int = 0  # bytes of them, as they are shown, that were written to the file

    def write(self, response: "Response", body: Iterable[bytes] | None = None) -> None:
        """Write the headers of *response*, if they are included, and its body; see `write_body`."""
        self.write_headers(response)
        self.write_body(response, body)

    def write_body(self, response: "Response", body: Iterable[bytes] | None = None) -> None:
        """Read the body of *response* to its end, or take *body* if that was done, and write it to its destination.

        Raises NetworkError if the body is truncated, and ClosedPipe or OutputError if it cannot be written.
        """
        if response.status != 206 or self.file is None or not self.file.count:  # it does not continue the file
            self.size = 0
        self.beginning = b""
        source = decoded(response) if body is None else body
        if self.log is not None:
            source = self.log.recorded(source)
        chunks = self._counted(source, is_failure=response.status >= 400)
        if self.expectations is not None and 200 <= response.status < 300:
            chunks = self.expectations.recorded(chunks, response.headers.get("Content-Type"))
        is_error = self._is_error(response.status)
        if self.filter is not None and not is_error:
            self._write_filtered(self.filter, response, chunks)
        elif self.file is not None and self._goes_to_file(response) and self.file.accepts(response.status):
            self._write_to_file(self.file, response, chunks)
        elif not is_error or self.error_body == "stdout":
            self._write_to_stdout(response, chunks)
        elif self.error_body == "stderr":
            self._write_to_stderr(response, chunks)
        else:
            while len(self.beginning) < _MAX_BEGINNING and next(chunks, None) is not None:
                pass  # its reason is a part of the message

    def _write_filtered(self, jq: "Filter", response: "Response", chunks: Iterator[bytes]) -> None:
        file = self.file if self._goes_to_file(response) else None
        is_file = file is not None or self.terminal.stdout_is_file
        with self._receiving(response, shows_progress=is_file) as advance:
            write, content_type = self.result_writer(file), response.headers.get("Content-Type")
            _check_not_html(content_type, chunks)
            jq.apply(_recorded(chunks, advance), write, content_type)
            jq.finish(write)
        if file is not None:
            file.commit()
            self.note_written(file, elapsed(response))

    def result_writer(self, file: "File | None") -> Callable[[bytes], None]:
        """Return a function that writes results of the filter to *file*, or else to stdout."""
        write = self.destination(file)
        if file is not None or not self.terminal.stdout_is_terminal or not (self.filter and self.filter.makes_json):
            return write
        from xapi_cli.request.display import result_lines

        def write_shown(lines: bytes) -> None:
            for part in _joined(result_lines(lines, colors=self.stdout_colors)):
                write(part)

        return write_shown

    def destination(self, file: "File | None") -> Callable[[bytes], None]:
        """Return the function that writes to *file* or else to stdout."""
        if file is None:
            return self.terminal.write

        def write(data: bytes) -> None:
            file.write(data)
            self.written += len(data)

        return write

    @property
    def stdout_colors(self) -> bool:
        """Whether a body and headers on stdout are colored."""
        return self.terminal.stdout_is_terminal and self.terminal.style.enabled

    def _is_error(self, status: int) -> bool:
        """Return whether the body of a response is that of an error, or of a redirect that was not followed."""
        if 200 <= status < 300:
            return False
        return self.filter is None or status < 400 or status == UNAUTHORIZED or not self.writes_errors_to_file

    def _goes_to_file(self, response: "Response") -> bool:
        status = response.status
        if response.request.method == "HEAD" or status in _EXCLUDED_FROM_FILE:
            return False
        return not self._is_error(status) or (self.writes_errors_to_file and self.filter is None)

    def _counted(self, chunks: Iterable[bytes], *, is_failure: bool) -> Iterator[bytes]:
        for chunk in chunks:
            self.size += len(chunk)
            if is_failure and len(self.beginning) < _MAX_BEGINNING:
                self.beginning += chunk[: _MAX_BEGINNING - len(self.beginning)]
            yield chunk

    def write_headers(self, response: "Response") -> None:
        """Write the status line and the headers of *response* to stdout, if they are included."""
        if not self.include:
            return
        status_line = b"HTTP/%s %d %s" % (response.version, response.status, response.reason)
        lines = [status_line.rstrip(), *(name + b": " + value for name, value in response.headers.raw), b""]
        if self.terminal.stdout_is_terminal:
            self.terminal.print("\n".join(self._colored(lines)))
        else:
            self.terminal.write(b"".join(line + b"\r\n" for line in lines))

    def _colored(self, lines: Sequence[bytes]) -> Iterator[str]:
        from xapi_cli.request.verbose import colored_header, colored_status_line
        from xapi_cli.system.style import Style

        style = Style(enabled=self.stdout_colors)
        for index, line in enumerate(lines):
            color = colored_header if index else colored_status_line
            yield color(printable(line.decode("utf-8", "backslashreplace")), style)

    def _write_to_stdout(self, response: "Response", chunks: Iterator[bytes]) -> None:
        if self.terminal.stdout_is_terminal:
            for text in self._displayed(response, chunks, colors=self.stdout_colors):
                self.terminal.write(text.encode("utf-8", "backslashreplace"))
            return
        with self._receiving(response, shows_progress=self.terminal.stdout_is_file) as advance:
            for chunk in _recorded(chunks, advance):
                self.terminal.write(chunk)

    def _write_to_stderr(self, response: "Response", chunks: Iterator[bytes]) -> None:
        """Write the body as it would be written to stdout; end its last line, because a message follows."""
        last = b"\n"
        if self.terminal.stderr_is_terminal:
            texts = self._displayed(response, chunks, colors=self.terminal.stderr_style.enabled)
            chunks = (text.encode("utf-8", "backslashreplace") for text in texts)
        for chunk in chunks:
            self.terminal.write_result_to_stderr(chunk)
            last = chunk[-1:] or last
        if last != b"\n":
            self.terminal.write_result_to_stderr(b"\n")

    def _displayed(self, response: "Response", chunks: Iterator[bytes], *, colors: bool) -> Iterator[str]:
        from xapi_cli.request.display import displayed

        yield from displayed(
            chunks,
            colors=colors,
            note=self.terminal.note,
            content_type=response.headers.get("Content-Type"),
            length=_decoded_length(response),
        )
        if self.expectations is not None:
            for _ in chunks:  # the rest of a binary body: it is checked as a whole
                pass

    def _write_to_file(self, file: "File", response: "Response", chunks: Iterator[bytes]) -> None:
        file.begin(response.status, response.headers)
        before, size_before, self.written = file.count, self.size, 0
        write = self.destination(file)
        started = time.monotonic()
        with self._receiving(response, shows_progress=True, before=before) as advance:
            for chunk in _recorded(chunks, advance):
                write(chunk)
        seconds = time.monotonic() - started
        file.commit()
        received = self.size - size_before if seconds >= _MIN_TIME_FOR_RATE else None
        self.note_written(file, elapsed(response), before=before, received=received)

    def note_written(
        self,
        file: "File",
        seconds: float,
        *,
        before: int = 0,
        received: int | None = None,
        content: str = "",
    ) -> None:
        """Note on a terminal that *file* was written in *seconds*: *content*, and *before* bytes by an earlier call.

        The rate is that of the bytes *received*, unless it is None.
        """
        if not self.terminal.shows_progress:
            return
        rate = "" if received is None or not seconds else f", {size(round(received / seconds))}/s"
        resumed = f" (resumed at {size(before)})" if before else ""
        what = f"{content}, " if content else ""
        self.terminal.note(f"wrote {file.name}: {what}{size(before + self.written)}{resumed} in {seconds:.1f} s{rate}")

    @contextmanager
    def _receiving(
        self, response: "Response", *, shows_progress: bool, before: int = 0
    ) -> Iterator[Callable[[int], None]]:
        """Show the progress of the body on a terminal, after *before* bytes; yield what takes the size of each part."""
        if not (shows_progress and self.terminal.shows_progress):
            yield _ignore_size
            return
        from xapi_cli.system.progress import Transfer

        length = _decoded_length(response)
        total = None if length is None else before + length
        with self.terminal.during(Transfer("received", total, before)) as transfer:
            yield transfer.advance


def _check_not_html(content_type: str, chunks: Iterator[bytes]) -> None:
    """Raise ExpectationFailed, with its title, if the body is a page and no JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if "html" not in kind:
        return
    beginning = b""
    for chunk in chunks:
        beginning += chunk
        if len(beginning) >= _MAX_BEGINNING:
            break
    title = reason(beginning, kind)
    raise ExpectationFailed(
        f"the response is {kind}, not JSON" + (f" ({title})" if title else ""), hint="check the base URL and the path"
    )


def _ignore_size(count: int) -> None:
    pass


def _recorded(chunks: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield *chunks*, and pass the size of each to *advance* when the next one is requested."""
    if advance is _ignore_size:
        return chunks

    def recorded() -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            advance(len(chunk))

    return recorded()


def _joined(texts: Iterator[str]) -> Iterator[bytes]:
    """Yield *texts* as bytes, many at a time."""
    waiting: list[str] = []
    count = 0
    for text in texts:
        waiting.append(text)
        count += len(text)
        if count >= _WRITTEN_AT_ONCE:
            yield "".join(waiting).encode("utf-8", "backslashreplace")
            waiting, count = [], 0
    if waiting:
        yield "".join(waiting).encode("utf-8", "backslashreplace")


def elapsed(response: "Response") -> float:
    """Return the seconds that the request took, with its *response*, which this closes."""
    response.close()  # which sets the time that it took; a response that has no body has not been read
    return response.elapsed


def decoded(response: "Response") -> Iterator[bytes]:
    """Yield the body of *response*, without its content coding; raises NetworkError if it is truncated or corrupt."""
    if response.request.method != "HEAD" and response.status not in (204, 304):
        yield from filter(None, response.decoded())


def _decoded_length(response: "Response") -> int | None:
    """Return the length of the body after decoding, None if it is unknown."""
    length = response.headers.get("Content-Length")
    return int(length) if length.isdecimal() and "Content-Encoding" not in response.headers else None
