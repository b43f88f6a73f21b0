"""The output of -v: request lines, status lines and headers, and with -vv the bodies, with secrets redacted."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from xapi_cli.http import authorization
from xapi_cli.request.media_types import codec_of
from xapi_cli.system.redact import Redactor, redact_header, redact_url
from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style, color_of_status

if TYPE_CHECKING:
    from xapi_cli.http.messages import Request, Response


_MAX_BODY = 64 * 1024  # bytes


class VerboseLog:
    """Write requests and responses with *write_line*, in the colors of *style*.

    *redactor* holds the secrets to redact; the credentials of each request are added to it. With *bodies*, those of
    requests other than logins are shown too, and `recorded` shows that of a response.
    """

    def __init__(
        self, write_line: Callable[[str], None], redactor: Redactor, style: Style, *, bodies: bool = False
    ) -> None:
        self._write_line, self._bodies = write_line, bodies
        self._redactor = redactor
        self._style = style
        self._started = 0.0

    def trace(self, line: str) -> None:
        """Write a *line* about the connection."""
        self._write_comment(line)

    def log_request(self, request: "Request") -> None:
        """Write the request line and the headers of *request*, which is about to be sent."""
        credentials = request.headers.get(authorization.NAME)
        self._redactor.add(credentials.partition(" ")[2] or credentials)
        target = request.target.decode("ascii", "replace")
        self._started = time.monotonic()
        line = f"{request.method} {redact_url(target)} HTTP/1.1"
        self._write_message(">", line, "strong", request.headers.raw)
        if self._bodies and not request.is_login and request.is_replayable:
            for _ in self.recorded(request.body, request.headers.get("Content-Type"), ">"):
                pass

    def recorded(self, chunks: Iterable[bytes], content_type: str, prefix: str = "<") -> Iterator[bytes]:
        """Yield *chunks*, a body of type *content_type*, and show them at the end: up to 64 KiB of text."""
        kept = bytearray()
        for chunk in chunks:
            kept += chunk[: _MAX_BODY + 1 - len(kept)]
            yield chunk
        try:
            errors = "strict" if len(kept) <= _MAX_BODY else "ignore"
            text = kept[:_MAX_BODY].decode(codec_of(content_type) or "utf-8", errors)
        except UnicodeDecodeError:
            text = "\0"
        if len(kept) > _MAX_BODY:
            text += "…"  # for the redactor, because a secret may be cut
        if "\0" in text:
            self._write_comment("* a body that is not text")
            return
        for line in text.splitlines():
            self._write_line(f"{self._style('faint', prefix)} {self._shown(line)}")
        if len(kept) > _MAX_BODY:
            self._write_comment(f"* the first {_MAX_BODY // 1024} KiB of the body")

    def log_response(self, response: "Response") -> None:
        """Write the status line and the headers of *response*, which has just arrived."""
        reason = response.reason.decode("utf-8", "backslashreplace")
        self._write_comment(f"* response after {round((time.monotonic() - self._started) * 1000)} ms")
        line = f"HTTP/{response.version.decode()} {response.status} {reason}".rstrip()
        self._write_message("<", line, color_of_status(response.status), response.headers.raw)

    def _write_message(self, prefix: str, start_line: str, color: Name, headers: Iterable[tuple[bytes, bytes]]) -> None:
        mark = self._style("faint", prefix)
        self._write_line(f"{mark} {self._style(color, self._shown(start_line))}")
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "backslashreplace")
            line = self._shown(f"{name}: {redact_header(name, value)}".rstrip())
            self._write_line(f"{mark} {colored_header(line, self._style)}")
        self._write_line(mark)

    def _write_comment(self, line: str) -> None:
        self._write_line(self._style("faint", self._shown(line)))

    def _shown(self, line: str) -> str:
        return printable(self._redactor.redact(line))


def colored_header(line: str, style: Style) -> str:
    """Return the header *line* in color."""
    name, colon, value = line.partition(":")
    return f"{style('name', name)}{colon}{value}"
