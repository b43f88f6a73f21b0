"""Output of the final response body: as bytes to stdout, as text to a terminal, atomically to a file, or not at all."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xapi_cli.http.content_coding import decoded
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    import httpx

    from xapi_cli.request.atomic_file import AtomicFile

ErrorBody = Literal["stdout", "stderr", "none"]
_NEVER_IN_FILE = frozenset({304, 401})  # 304 has no body, and 401 is always a failure: FILE is not changed


@dataclass
class ResponseOutput:
    """The output of one response: *file* receives the body of a success; *error_body* applies to failures."""

    terminal: Terminal
    file: "AtomicFile | None" = None
    include: bool = False
    error_body: ErrorBody = "stdout"
    file_takes_errors: bool = False
    delivered: int = 0  # bytes of the body after content decoding

    def deliver(self, response: "httpx.Response") -> None:
        """Read the body of *response* to its end and write it to its destination.

        Raises NetworkError if the body is truncated, and ClosedPipe or OutputError if it cannot be written.
        """
        if self.include:
            self._head(response)
        chunks = self._counted(response)
        if self.file is not None and self._belongs_to_file(response):
            self._to_file(self.file, response, chunks)
        elif response.status_code < 400 or self.error_body == "stdout":
            self._to_stdout(response, chunks)
        elif self.error_body == "stderr":
            self._to_stderr(response, chunks)

    def _belongs_to_file(self, response: "httpx.Response") -> bool:
        if response.request.method == "HEAD" or response.status_code in _NEVER_IN_FILE:
            return False
        return response.status_code < 400 or self.file_takes_errors

    def _counted(self, response: "httpx.Response") -> Iterator[bytes]:
        if response.request.method == "HEAD" or response.status_code in (204, 304):
            return
        for chunk in decoded(response.iter_raw(), response.headers.get("Content-Encoding")):
            self.delivered += len(chunk)
            yield chunk

    def _head(self, response: "httpx.Response") -> None:
        version = str(response.extensions.get("http_version", b"HTTP/1.1"), "ascii")
        reason = response.extensions.get("reason_phrase", b"")
        first = f"{version} {response.status_code} ".encode() + reason
        lines = [first.rstrip(), *(name + b": " + value for name, value in response.headers.raw), b""]
        if self.terminal.stdout_is_terminal:
            self.terminal.out("\n".join(printable(line.decode("utf-8", "backslashreplace")) for line in lines))
        else:
            self.terminal.write(b"".join(line + b"\r\n" for line in lines))

    def _to_stdout(self, response: "httpx.Response", chunks: Iterator[bytes]) -> None:
        if not self.terminal.stdout_is_terminal:
            for chunk in chunks:
                self.terminal.write(chunk)
            return
        for text in self._shown(response, chunks, colours=self.terminal.colours):
            self.terminal.write(text.encode("utf-8", "backslashreplace"))

    def _to_stderr(self, response: "httpx.Response", chunks: Iterator[bytes]) -> None:
        """Write the body as it would be written to stdout; end its last line, because a message follows."""
        last = b"\n"
        if self.terminal.stderr_is_terminal:
            chunks = (text.encode("utf-8", "backslashreplace") for text in self._shown(response, chunks, colours=False))
        for chunk in chunks:
            self.terminal.answer_aside(chunk)
            last = chunk[-1:] or last
        if last != b"\n":
            self.terminal.say("")

    def _shown(self, response: "httpx.Response", chunks: Iterator[bytes], *, colours: bool) -> Iterator[str]:
        from xapi_cli.request.display import shown

        content_type = response.headers.get("Content-Type", "")
        return shown(chunks, colours=colours, note=self.terminal.note, content_type=content_type)

    def _to_file(self, file: "AtomicFile", response: "httpx.Response", chunks: Iterator[bytes]) -> None:
        with self._progress(response) as advance:
            for chunk in chunks:
                file.write(chunk)
                advance(len(chunk))
        file.keep()

    def _progress(self, response: "httpx.Response") -> AbstractContextManager[Callable[[int], None]]:
        if not self.terminal.stderr_is_terminal:
            return nullcontext(_nothing)
        from xapi_cli.request.progress import bar

        coded = "Content-Encoding" in response.headers
        length = response.headers.get("Content-Length", "")
        return bar(int(length) if length.isdigit() and not coded else None)


def _nothing(count: int) -> None:
    """Ignore the progress."""
