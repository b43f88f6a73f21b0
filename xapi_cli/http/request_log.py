"""The log of requests: one line of JSON in a file for each request that was sent, never a secret, a body or a header.

Many processes can share the file: each line is one write(2) in append mode, which a local file system does not
interleave with others. If the file is renamed or removed, as by logrotate, the next line goes to a new one.
"""

import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import OutputError
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import json_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.exchange import Exchange

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO that nobody reads would block
_PLAIN = re.compile(r"[!#-;=@-\[\]^_a-z{|}~]*")  # a target without a query that JSON writes as it is
_QUERY = re.compile(r"([?&][^=&]*=)[^&]*")
_ORIGIN = re.compile(rb"https?://[^/?]*")


class RequestLog:
    """The log in the file *path*; *common* are the members that all lines of this process have.

    *origin* is the scheme, host and port of the API; for a request to another one, `path` is the whole URL. *redact*
    removes known secrets from a path. *warn* reports, once, that a line could not be written. Raises OutputError if the
    file cannot be opened.
    """

    _file = -1  # its descriptor

    def __init__(
        self,
        path: str,
        common: Mapping[str, object],
        origin: tuple[str, str, int],
        redact: "Callable[[str], str]",
        warn: "Callable[[str], None]",
    ) -> None:
        self._path, self._origin, self._redact, self._warn = path, origin, redact, warn
        self._common = b", " + json_line(common)[1:-1].encode() + b", "
        self._second = (0, b"")  # the last one in seconds since the epoch, and as it is written
        self._has_failed = False
        self._open_exchanges: set[Exchange] = set()
        try:
            self._open()
        except OSError as error:
            reason = error.strerror or "it is not a regular file"
            raise OutputError(
                f"the log {printable(path)} cannot be opened: {reason}", hint="choose another file"
            ) from error

    def begin(self, exchange: "Exchange") -> None:
        """Take *exchange*, whose request is about to be sent; `close` records it if `end` does not."""
        self._open_exchanges.add(exchange)

    def end(self, exchange: "Exchange") -> None:
        """Append the line for *exchange*, which has ended, if any part of its request was sent."""
        self._open_exchanges.discard(exchange)
        if exchange.bytes_sent:
            self._write(self._line(exchange))

    def close(self) -> None:
        """Append the lines for the exchanges that nobody has ended, and close the file."""
        for exchange in list(self._open_exchanges):
            self.end(exchange)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        """Open the file, which must be a regular one; raises OSError."""
        self._file = os.open(self._path, _FLAGS | _NON_BLOCKING, 0o600)
        self._status = os.fstat(self._file)
        if not stat.S_ISREG(self._status.st_mode):
            os.close(self._file)
            self._file = -1
            raise OSError

    def _write(self, line: bytes) -> None:
        try:
            self._reopen_if_moved()
            os.write(self._file, line)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._warn(f"the log {printable(self._path)} cannot be written: {error.strerror or 'not a file'}")

    def _reopen_if_moved(self) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), self._status):
                return
        previous = self._file
        self._open()
        if previous >= 0:
            os.close(previous)

    def _line(self, exchange: "Exchange") -> bytes:
        elapsed = time.monotonic() - exchange.started
        head, failure = exchange.head, exchange.failure
        result = b'"status": %d' % head.status if head is not None else b'"status": null'
        if failure is not None or not (head is not None and exchange.has_response):
            kind = failure.kind if failure is not None else "interrupted"
            result = (b"" if head is None else result + b", ") + b'"error": "%s"' % kind.encode()
        return b'{"time": "%s"%s"method": "%s", "path": "%s", %s, "elapsed_ms": %d%s, %s}\n' % (
            self._time(time.time() - elapsed),
            self._common,
            exchange.method.encode(),
            self._shown(exchange),
            result,
            round(elapsed * 1000),
            b', "attempts": %d' % exchange.attempt,
            b'"login": %s, "request_bytes": %d, "response_bytes": %d'
            % (b"true" if exchange.is_login else b"false", exchange.request_size(), exchange.response_bytes),
        )

    def _time(self, moment: float) -> bytes:
        """Return *moment*, in seconds since the epoch, as in RFC 3339, with milliseconds."""
        seconds, fraction = divmod(moment, 1)
        second, text = self._second
        if second != seconds:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode()
            self._second = (int(seconds), text)
        return b"%s.%03dZ" % (text, int(fraction * 1000))

    def _shown(self, exchange: "Exchange") -> bytes:
        """Return the target of the request as the text of a JSON string, without the values of its query."""
        target = exchange.target()
        if found := _ORIGIN.match(target):  # as sent to a proxy
            target = target[found.end() :] or b"/"
        route = exchange.route
        is_to_api = (route.scheme, route.host, route.port) == self._origin
        text = self._redact(target.decode("ascii", "replace"))
        if is_to_api and _PLAIN.fullmatch(text):
            return text.encode()
        text = _QUERY.sub(r"\1…", redact_url(text))
        if not is_to_api:
            text = f"{route.scheme}://{route.host}:{route.port}{text}"
        return json_line(printable(text))[1:-1].encode()
