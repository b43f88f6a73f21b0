"""The log of requests: one line of JSON in a file for each request that was sent, never a secret, a body or a header.

Many processes can share the file: each line is one write in append mode, which a local file system does not interleave.
The file is opened for each line, so that one that was renamed, as by logrotate, is replaced by a new one.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from xapi_cli.errors import OutputError
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import json_line, printable

if TYPE_CHECKING:
    from xapi_cli.http.transport import Exchange

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would block
_QUERY = re.compile(r"([?&])(?:([^=&]*=)[^&]*|[^=&]+)")  # without an equals sign, all of it may be a value


class RequestLog:
    """The log in the file *path*; *common* are the members that all lines of this process have.

    *origin* is the scheme, host and port of the API; for a request to another one, `path` is the whole URL. *redact*
    removes known secrets from a path. *warn* reports, once, that a line could not be written. The threads of a program
    may share the log. Raises OutputError if the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        common: Mapping[str, object],
        origin: tuple[str, str, int],
        redact: Callable[[str], str],
        warn: Callable[[str], None],
    ) -> None:
        self._shown_path = printable(path)
        self._common, self._origin, self._redact, self._warn = common, origin, redact, warn
        self._lock = threading.Lock()
        self._open_exchanges: set[Exchange] = set()
        self._torn = b""  # a newline after a part of a line, which a full disk left
        self._has_failed = False
        try:
            self._path = os.path.abspath(path)  # the program may change its directory
            os.close(self._open())
        except OSError as error:
            raise OutputError(
                f"the log {self._shown_path} cannot be opened: {error.strerror}", hint="choose another file"
            ) from error

    def begin(self, exchange: "Exchange") -> None:
        """Take *exchange*, whose request is about to be sent; `close` records it if `end` does not."""
        self._open_exchanges.add(exchange)

    def end(self, exchange: "Exchange") -> None:
        """Append the line for *exchange*, which has ended, if any part of its request was sent and `close` has not."""
        try:
            self._open_exchanges.remove(exchange)
        except KeyError:
            return
        if exchange.is_sent:
            self._append(self._line(exchange))

    def close(self) -> None:
        """Append the lines for the exchanges that were not ended, at the end of the process."""
        for exchange in self._open_exchanges.copy():
            self.end(exchange)

    def _open(self) -> int:
        return os.open(self._path, _FLAGS, 0o600)

    def _append(self, line: bytes) -> None:
        with self._lock:
            try:
                descriptor = self._open()
                try:
                    is_torn = os.write(descriptor, self._torn + line) < len(self._torn + line)
                finally:
                    os.close(descriptor)
                self._torn, reason = (b"\n", "the disk is full") if is_torn else (b"", None)
            except OSError as error:
                reason = error.strerror
            if reason and not self._has_failed:
                self._has_failed = True
                self._warn(f"the log {self._shown_path} cannot be written: {reason}")

    def _line(self, exchange: "Exchange") -> bytes:
        elapsed, request, status = time.monotonic() - exchange.started, exchange.request, exchange.status
        started = datetime.fromtimestamp(time.time() - elapsed, UTC)
        members = {
            "time": f"{started:%Y-%m-%dT%H:%M:%S}.{started.microsecond // 1000:03}Z",
            **self._common,
            "method": request.method,
            "path": self._shown(request.url, request.target.decode("ascii", "replace"), request.server),
        }
        if status is not None:
            members["status"] = status
        if status is None or exchange.failure is not None or not exchange.has_response:
            members["error"] = exchange.failure or "interrupted"
        members["elapsed_ms"] = int(elapsed * 1000)
        return json_line(members).encode() + b"\n"

    def _shown(self, url: str, target: str, server: tuple[str, str, int]) -> str:
        """Return what is shown of a request: its target, or the URL at another server; without values of the query."""
        text = target if server == self._origin else url.partition("#")[0]
        return printable(_QUERY.sub(r"\1\2…", redact_url(self._redact(text))))
