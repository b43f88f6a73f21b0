"""The output of --verbose: request lines, status lines and headers, with secrets redacted.

Their colors are those of --include as well.
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from xapi_cli.http import authorization
from xapi_cli.system.redact import Redactor, redact_header, redact_url
from xapi_cli.system.render import printable
from xapi_cli.system.style import Style, color_of_status

if TYPE_CHECKING:
    from xapi_cli.http.messages import Request, Response


Color = Callable[[str, Style], str]


class VerboseLog:
    """Write requests and responses with *write_line*, in the colors of *style*.

    *redactor* holds the secrets to redact; the credentials of each request are added to it.
    """

    def __init__(self, write_line: Callable[[str], None], redactor: Redactor, style: Style) -> None:
        self._write_line = write_line
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
        self._write_message(">", line, colored_request_line, request.headers.raw)

    def log_response(self, response: "Response") -> None:
        """Write the status line and the headers of *response*, which has just arrived."""
        reason = response.reason.decode("utf-8", "backslashreplace")
        self._write_comment(f"* response after {round((time.monotonic() - self._started) * 1000)} ms")
        line = f"HTTP/{response.version.decode()} {response.status} {reason}".rstrip()
        self._write_message("<", line, colored_status_line, response.headers.raw)

    def _write_message(
        self, prefix: str, start_line: str, color: Color, headers: Iterable[tuple[bytes, bytes]]
    ) -> None:
        mark = self._style("faint", prefix)
        self._write_line(f"{mark} {color(self._shown(start_line), self._style)}")
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "backslashreplace")
            line = self._shown(f"{name}: {redact_header(name, value)}".rstrip())
            self._write_line(f"{mark} {colored_header(line, self._style)}")
        self._write_line(mark)

    def _write_comment(self, line: str) -> None:
        self._write_line(self._style("faint", self._shown(line)))

    def _shown(self, line: str) -> str:
        return printable(self._redactor.redact(line))


def colored_request_line(line: str, style: Style) -> str:
    """Return the request *line* in color."""
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    return f"{style('good', method)} {style('strong', target)} {_version(version, style)}"


def colored_status_line(line: str, style: Style) -> str:
    """Return the status *line* in color."""
    version, _, rest = line.partition(" ")
    status = rest[:3]
    return f"{_version(version, style)} {style(color_of_status(int(status)), rest) if status.isdecimal() else rest}"


def colored_header(line: str, style: Style) -> str:
    """Return the header *line* in color."""
    name, colon, value = line.partition(":")
    return f"{style('name', name)}{colon}{value}" if colon else line


def _version(text: str, style: Style) -> str:
    name, slash, number = text.partition("/")
    return f"{style('protocol', name)}{slash}{style('protocol', number)}"
