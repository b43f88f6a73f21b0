"""Output of the final response body: as bytes to stdout, as text to a terminal, atomically to a file, or not at all."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from xapi_cli.errors import UNAUTHORIZED, ExpectationFailed
from xapi_cli.request.media_types import media_type
from xapi_cli.request.options import ErrorBody
from xapi_cli.request.status_errors import reason
from xapi_cli.system.render import printable, size
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from xapi_cli.http.messages import Response
    from xapi_cli.request.verbose import VerboseLog

_MAX_BEGINNING = 16 * 1024  # bytes
_EXCLUDED_FROM_FILE = frozenset({304, 401})  # 304 has no body, and 401 is always a failure: FILE is not changed


class File(Protocol):
    """The file of `-o`, which `commit` completes; *count* is the number of bytes of an earlier download in it."""

    name: str
    count: int

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


@dataclass
class ResponseOutput:
    """The output of one response: *file* receives the body of a success; *error_body* applies to failures."""

    terminal: Terminal
    file: "File | None" = None
    include: bool = False
    error_body: ErrorBody = "stdout"
    writes_errors_to_file: bool = False
    filter: "Filter | None" = None  # for the body of a success; with writes_errors_to_file, and of a failure
    record: "Callable[[Iterator[bytes], str], Iterator[bytes]] | None" = None  # copies the body of a success
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
            source = self.log.recorded(source, response.headers.get("Content-Type"))
        chunks = self._counted(source, is_failure=response.status >= 400)
        if self.record is not None and response.is_success:
            chunks = self.record(chunks, response.headers.get("Content-Type"))
        is_error = self._is_error(response.status)
        if self.filter is not None and not is_error:
            self._write_filtered(self.filter, response, chunks)
        elif self.file is not None and self._goes_to_file(response):
            self._write_to_file(self.file, response, chunks)
        elif is_error:
            self._write_error(response, chunks)
        else:
            self._write_to_stdout(response, chunks)

    def _write_error(self, response: "Response", chunks: Iterator[bytes]) -> None:
        if self.error_body == "stdout":
            self._write_to_stdout(response, chunks)
        elif self.error_body == "stderr":
            self._write_to_stderr(response, chunks)
        else:
            while len(self.beginning) < _MAX_BEGINNING and next(chunks, None) is not None:
                pass  # its reason is a part of the message

    def _write_filtered(self, jq: "Filter", response: "Response", chunks: Iterator[bytes]) -> None:
        file = self.file if self._goes_to_file(response) else None
        is_file = file is not None or self.terminal.stdout_is_file
        write, content_type = self.result_writer(file), response.headers.get("Content-Type")
        with self._progress(response, chunks, is_shown=is_file) as chunks:
            _check_not_html(content_type, chunks)
            jq.apply(chunks, write, content_type)
            jq.finish(write)
        if file is not None:
            file.commit()
            self.note_written(file, elapsed(response))

    def result_writer(self, file: "File | None") -> Callable[[bytes], None]:
        """Return a function that writes results of the filter to *file*, or else to stdout."""
        if file is not None or not self.terminal.stdout_is_terminal:
            return self.destination(file)
        if self.filter is None or not self.filter.makes_json:
            return self.terminal.write_text
        from xapi_cli.request.display import result_lines

        colors = self.terminal.style.enabled
        return lambda lines: self.terminal.write(_encoded("".join(result_lines(lines, colors=colors))))

    def destination(self, file: "File | None") -> Callable[[bytes], None]:
        """Return the function that writes to *file* or else to stdout."""
        if file is None:
            return self.terminal.write

        def write(data: bytes) -> None:
            file.write(data)
            self.written += len(data)

        return write

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
        if not self.terminal.stdout_is_terminal:
            self.terminal.write(b"".join(line + b"\r\n" for line in lines))
            return
        from xapi_cli.request.verbose import colored_header
        from xapi_cli.system.style import color_of_status

        style = self.terminal.style
        first, *others = (printable(line.decode("utf-8", "backslashreplace")) for line in lines)
        first = style(color_of_status(response.status), first)
        self.terminal.print("\n".join([first, *(colored_header(line, style) for line in others)]))

    def _write_to_stdout(self, response: "Response", chunks: Iterator[bytes]) -> None:
        if self.terminal.stdout_is_terminal:
            for text in self._displayed(response, chunks, colors=self.terminal.style.enabled):
                self.terminal.write(_encoded(text))
            return
        with self._progress(response, chunks, is_shown=self.terminal.stdout_is_file) as chunks:
            for chunk in chunks:
                self.terminal.write(chunk)

    def _write_to_stderr(self, response: "Response", chunks: Iterator[bytes]) -> None:
        """Write the body as it would be written to stdout; end its last line, because a message follows."""
        last = b"\n"
        if self.terminal.stderr_is_terminal:
            texts = self._displayed(response, chunks, colors=self.terminal.stderr_style.enabled)
            chunks = map(_encoded, texts)
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
        if self.record is not None:
            for _ in chunks:  # the rest of a binary body: it is checked as a whole
                pass

    def _write_to_file(self, file: "File", response: "Response", chunks: Iterator[bytes]) -> None:
        self.written = file.count
        write = self.destination(file)
        with self._progress(response, chunks, before=file.count) as chunks:
            for chunk in chunks:
                write(chunk)
        file.commit()
        self.note_written(file, elapsed(response))

    def note_written(self, file: "File", seconds: float, content: str = "") -> None:
        """Note on a terminal that *file* was written in *seconds*, with *content*."""
        if self.terminal.shows_progress:
            what = f"{content}, " if content else ""
            self.terminal.note(f"wrote {file.name}: {what}{size(self.written)} in {seconds:.1f} s")

    @contextmanager
    def _progress(
        self, response: "Response", chunks: Iterator[bytes], *, is_shown: bool = True, before: int = 0
    ) -> Iterator[Iterator[bytes]]:
        """Yield *chunks*, whose progress a terminal shows, after *before* bytes, for a `with` block."""
        if not (is_shown and self.terminal.shows_progress):
            yield chunks
            return
        from xapi_cli.system.progress import Transfer

        length = _decoded_length(response)
        with self.terminal.during(
            Transfer("received", None if length is None else before + length, before)
        ) as transfer:

            def received() -> Iterator[bytes]:
                for chunk in chunks:
                    yield chunk
                    transfer.advance(len(chunk))

            yield received()


def _check_not_html(content_type: str, chunks: Iterator[bytes]) -> None:
    """Raise ExpectationFailed, with its title, if the body is a page and not JSON."""
    if "html" in (kind := media_type(content_type)):
        title = reason(next(chunks, b""), content_type.lower())
        raise ExpectationFailed(
            f"the response is {kind}, not JSON" + (f" ({title})" if title else ""),
            hint="check the base URL and the path",
        )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


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
