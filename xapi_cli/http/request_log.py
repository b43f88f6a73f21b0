"""The log of requests: one line of JSON in a file for each request that was sent, never a secret, a body or a header.

Many processes can share the file: only whole lines are written, in append mode, and a local file system does not
interleave such writes. After a part of a line, which a full disk left, a newline is written first. If the file is
renamed or removed, as by logrotate, the next lines go to a new one.
"""

import os
import re
import stat
import time
from _thread import allocate_lock
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from xapi_cli.errors import OutputError
from xapi_cli.system import forks
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import json_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xapi_cli.http.connection import Route
    from xapi_cli.http.transport import Exchange

_FLAGS = os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO that nobody reads would block
# A target without a query and without secret parameters that JSON writes as it is.
_PLAIN = re.compile(rb"/[!#-:@-\[\]^_a-z{|}~]*")
_NOT_A_FILE = "it is not a regular file"
_QUERY = re.compile(r"([?&])(?:([^=&]*=)[^&]*|[^=&]+)")  # without an equals sign, all of it may be a value
_ORIGIN = re.compile(rb"https?://[^/?]*")


def _encoded(common: Mapping[str, object]) -> bytes:
    return json_line(common)[1:-1].encode().replace(b"%", b"%%")


class RequestLog:
    """The log in the file *path*; *common* are the members that all lines of this process have.

    *origin* is the scheme, host and port of the API; for a request to another one, `path` is the whole URL. *redact*
    removes known secrets from a path. *warn* reports, once, that a line could not be written. The threads of a program
    may share the log. Raises OutputError if the file cannot be opened.
    """

    _file = -1  # its descriptor
    _is_readable = True
    _ends_in_line = False  # after a part of a line of this process

    def __init__(
        self,
        path: str,
        common: Mapping[str, object],
        origin: tuple[str, str, int],
        redact: "Callable[[str], str]",
        warn: "Callable[[str], None]",
    ) -> None:
        self._shown_path = printable(path)
        with suppress(FileNotFoundError):  # the current directory was deleted
            path = os.path.abspath(path)  # the program may change its directory
        self._path, self._origin, self._redact, self._warn = path, origin, redact, warn
        self._lock = allocate_lock()
        self._api_route: Route | None = None
        self._members_of_process = common
        self._common = _encoded(common)
        self._second = -2.0  # of the last line: when its second began, by the monotonic clock
        self._members = b""  # of all lines of that second
        self._templates: dict[tuple[str, int | None, str | None, int, bool], bytes] = {}
        self._ended: list[tuple[Exchange, float]] = []  # and when, by the monotonic clock
        self._has_failed = False
        self._open_exchanges: set[Exchange] = set()
        forks.register(self)
        try:
            self._open()
        except OSError as error:
            raise OutputError(
                f"the log {self._shown_path} cannot be opened: {error.strerror or _NOT_A_FILE}",
                hint="choose another file",
            ) from error

    def after_fork(self) -> None:
        """Leave the exchanges of the parent process to it."""
        self._lock = allocate_lock()
        self._ended, self._open_exchanges = [], set()
        self._common = _encoded({**self._members_of_process, "pid": os.getpid()})
        self._second = -2.0

    def begin(self, exchange: "Exchange") -> None:
        """Take *exchange*, whose request is about to be sent; `close` records it if `end` does not."""
        self._open_exchanges.add(exchange)

    def end(self, exchange: "Exchange") -> None:
        """Append the line for *exchange*, which has ended, if any part of its request was sent."""
        self._open_exchanges.discard(exchange)
        with self._lock:
            self.add(exchange)
            self.flush()

    def add(self, exchange: "Exchange") -> None:
        """Take *exchange*, which has ended, for the next `flush`, if its request may have been sent."""
        if exchange.is_sent:
            self._ended.append((exchange, monotonic()))

    def flush(self) -> None:
        """Append the lines for the exchanges that were added."""
        if not self._ended:
            return
        lines = b"".join(self._lines())
        self._ended.clear()
        try:
            self._reopen_if_moved()
            if self._is_within_line():
                lines = b"\n" + lines
            self._ends_in_line = os.write(self._file, lines) < len(lines)
            reason = "the disk is full" if self._ends_in_line else None
        except OSError as error:
            reason = error.strerror or _NOT_A_FILE
        if reason and not self._has_failed:
            self._has_failed = True
            self._warn(f"the log {self._shown_path} cannot be written: {reason}")

    def close(self) -> None:
        """Append the lines for the exchanges that nobody has ended, which may have been sent, and close the file."""
        with self._lock:
            self._ended += [(each, monotonic()) for each in self._open_exchanges if each.is_sent]
            self._open_exchanges.clear()
            self.flush()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _open(self) -> None:
        """Open the file, which must be a regular one; raises OSError."""
        self._ends_in_line = False
        try:
            self._file = os.open(self._path, os.O_RDWR | _FLAGS | _NON_BLOCKING, 0o600)
            self._is_readable = True
        except PermissionError:
            self._file = os.open(self._path, os.O_WRONLY | _FLAGS | _NON_BLOCKING, 0o600)
            self._is_readable = False
        self._status = os.fstat(self._file)
        if not stat.S_ISREG(self._status.st_mode):
            os.close(self._file)
            self._file = -1
            raise OSError  # without a number or text

    def _reopen_if_moved(self) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), self._status):
                return
        previous = self._file
        self._open()
        if previous >= 0:
            os.close(previous)

    def _is_within_line(self) -> bool:
        """Return whether the file ends with a part of a line, perhaps of another process; raises OSError."""
        if not self._is_readable:
            return self._ends_in_line
        previous = -1
        while (end := os.lseek(self._file, 0, os.SEEK_END)) and end != previous:
            os.lseek(self._file, end - 1, os.SEEK_SET)
            if os.read(self._file, 1) in (b"\n", b""):  # nothing if a fork moved the offset, which it shares
                return False
            os.write(self._file, b"")  # waits for a write of another process, of which a part can be seen
            previous = end
        return end > 0

    def _lines(self) -> "Iterator[bytes]":
        """Yield the lines for the exchanges that have ended; a batch needs 20,000 per second, so most is prepared."""
        for exchange, end in self._ended:
            since = exchange.started - self._second
            if not 0 <= since < 1:
                since = self._begin_second(exchange.started)
            request, route, status, failure = exchange.first_part, exchange.route, exchange.status, exchange.failure
            start = request.find(b" ") + 1
            target = request[start : request.find(b" ", start)]
            if (
                not (route is self._api_route or self._is_to_api(route))
                or not _PLAIN.fullmatch(target)
                or self._redact(text := target.decode()) != text
            ):
                target = self._shown(target, route)
            error = None
            if status is None or failure is not None or not exchange.has_response:
                error = failure or "interrupted"
            key = (exchange.method, status, error, exchange.attempt, exchange.is_login)
            template = self._templates.get(key) or self._template(*key)
            size = exchange.bytes_sent - (exchange.head_size or request.find(b"\r\n\r\n") + len(b"\r\n\r\n"))
            elapsed = end - exchange.started
            yield template % (since * 1000, target, elapsed * 1000, max(0, size), exchange.response_bytes)

    def _begin_second(self, started: float) -> float:
        """Begin the second of the monotonic time *started*; return the time since then."""
        moment = time.time() - (monotonic() - started)
        self._second = started - moment % 1
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
        self._members = f'"time": "{text}.%03dZ", '.encode() + self._common
        self._templates.clear()
        return moment % 1

    def _template(self, method: str, status: int | None, error: str | None, attempt: int, is_login: bool) -> bytes:
        """Return the lines of this second that have these values: the response and why it is not complete."""
        result: dict[str, object] = {} if status is None else {"status": status}
        if error is not None:
            result["error"] = error
        template = b'{%s, "method": "%s", "path": "%%s", %s, "elapsed_ms": %%d, %s, %s}\n' % (
            self._members,
            method.encode().replace(b"%", b"%%"),
            json_line(result)[1:-1].encode(),
            json_line({"attempts": attempt, "login": is_login})[1:-1].encode(),
            b'"request_bytes": %d, "response_bytes": %d',
        )
        self._templates[method, status, error, attempt, is_login] = template
        return template

    def _is_to_api(self, route: "Route") -> bool:
        if (route.scheme, route.host, route.port) != self._origin:
            return False
        self._api_route = route  # usually, the next request has the same
        return True

    def _shown(self, target: bytes, route: "Route") -> bytes:
        """Return *target* as the text of a JSON string, without secrets and without the values of its query."""
        if found := _ORIGIN.match(target):  # as sent to a proxy
            target = target[found.end() :] or b"/"
        text = _QUERY.sub(r"\1\2…", redact_url(self._redact(target.decode("ascii", "replace"))))
        if not self._is_to_api(route):
            text = f"{route.scheme}://{route.server}{text}"
        return json_line(printable(text))[1:-1].encode()
