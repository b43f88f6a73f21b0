"""What `each` writes: the bodies of successes, CSV, or complete lines; and a line on stderr for each failed row."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xapi_cli import errors
from xapi_cli.errors import ExpectationFailed, XapiError
from xapi_cli.features.batch.results import Result, error_line, response_line
from xapi_cli.features.each.resolved import Resolved
from xapi_cli.http.urls import displayed_without_query
from xapi_cli.request.json_values import InvalidValue, dumps, loads
from xapi_cli.request.reason import reason

if TYPE_CHECKING:
    from xapi_cli.request.csv_table import CsvTable
    from xapi_cli.system.terminal import Terminal

_SHOWN = 20  # failed rows with a line of their own
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([\w.:+-]+)', re.ASCII | re.IGNORECASE)
_ONE_LINE = str.maketrans("\r\n", "  ")
_READING = ("GET", "HEAD", "OPTIONS")


class Output:
    """Write results with *write*, in a *table* if there is one, or as lines of `batch` if they are *full*.

    *reject* gets each row that failed and has a request.
    """

    def __init__(
        self,
        terminal: "Terminal",
        write: Callable[[bytes], object],
        reject: Callable[[Resolved], None],
        *,
        table: "CsvTable | None" = None,
        is_full: bool = False,
    ) -> None:
        self._terminal, self._write, self._reject = terminal, write, reject
        self._table, self._is_full = table, is_full
        self.rows = self.failed = self.code = self.without_request = 0
        self.others = 0  # successes whose body is not JSON

    def add(self, result: Result) -> None:
        """Write *result*, or report its failure."""
        resolved: Resolved = result.task.source
        if resolved.error is not None:
            self.add_invalid(resolved)
            return
        self.rows += 1
        if result.error is None and 200 <= result.status < 300:
            self._add_success(result, resolved)
            return
        if result.error is not None:
            error = result.error
            line = self._is_full and error_line(
                resolved.row.number, _ident(resolved), error, self._shown(str(error)), more=_row(resolved)
            )
        else:
            body, content_type = self._body(result)
            why = reason(body, content_type)
            failure = errors.of_status(result.status) or XapiError
            error = failure(f"responded with {result.status}" + (f": {why}" if why else ""))
            line = self._is_full and _full(result, resolved, body)
        if line:
            self._write(line + b"\n")
        self.fail(resolved, error)

    def add_invalid(self, resolved: Resolved) -> None:
        """Report that there is no request for the row of *resolved*."""
        assert resolved.error is not None  # noqa: S101 - see above
        self.rows += 1
        if self._is_full:
            message = self._shown(str(resolved.error))
            line = error_line(resolved.row.number, _ident(resolved), resolved.error, message, more=_row(resolved))
            self._write(line + b"\n")
        self.fail(resolved, resolved.error)

    def fail(self, resolved: Resolved, error: XapiError) -> None:
        """Report that the row of *resolved* has failed with *error*."""
        self.failed += 1
        self.code = max(self.code, error.exit_code)
        if resolved.call is None:
            self.without_request += 1
        else:
            self._reject(resolved)
        if self.failed <= _SHOWN:
            message = error.message
            if resolved.call is not None:
                where = f"{resolved.call.method} {displayed_without_query(resolved.call.url)}"
                message = f"{where} {message}" if message.startswith("responded with") else f"{where}: {message}"
            failure = type(error)(f"{resolved.where}: {message}", hint=error.hint)
            self._terminal.fail(failure.concerning(**{**error.context, "line": resolved.row.line}))

    def finish(self) -> ExpectationFailed | None:
        """Write what is left; return the error for a field that no row has."""
        if self.others:
            bodies = "1 response was" if self.others == 1 else f"{self.others:,} responses were"
            self._terminal.note(f"{bodies} not JSON, and left out; use --full to see them")
        try:
            if self._table is not None:
                self._table.finish()
        except ExpectationFailed as error:
            return error
        return None

    def _add_success(self, result: Result, resolved: Resolved) -> None:
        body, content_type = self._body(result)
        if self._is_full:
            self._write(_full(result, resolved, body) + b"\n")
        if not body.strip():
            return
        try:
            text = _decoded(body, content_type)
            value = loads(text)
        except (InvalidValue, LookupError, UnicodeDecodeError):
            assert resolved.call is not None  # noqa: S101 - it was sent
            if resolved.call.method in _READING:
                kind = content_type.partition(";")[0] or "of an unknown type"
                found = reason(body, content_type) if "html" in content_type else None
                title = f" ({found})" if found else ""
                self.fail(resolved, ExpectationFailed(f"the response is {kind}, not JSON{title}"))
            else:
                self.others += not self._is_full
            return
        try:
            self._add_value(text, value)
        except ExpectationFailed as error:
            self.fail(resolved, error)

    def _add_value(self, text: str, value: Any) -> None:
        if self._table is not None:
            self._table.add(value)
        elif not self._is_full:
            self._write(text.strip().translate(_ONE_LINE).encode("utf-8", "surrogatepass") + b"\n")

    @staticmethod
    def _body(result: Result) -> tuple[bytes, str]:
        headers = {name.lower(): value for name, value in result.headers}
        return result.read(), headers.get(b"content-type", b"").decode("latin-1").lower()

    def _shown(self, text: str) -> str:
        return self._terminal.redactor.redact(text)


def _decoded(body: bytes, content_type: str) -> str:
    found = _CHARSET.search(content_type)
    charset = found[1] if found else "utf-8"
    return body.decode("utf-8-sig" if charset.lower() in {"utf-8", "utf8"} else charset)


def _full(result: Result, resolved: Resolved, body: bytes) -> bytes:
    return response_line(result, _ident(resolved), body, more=_row(resolved))


def _ident(resolved: Resolved) -> str:
    return str(resolved.row.number)


def _row(resolved: Resolved) -> bytes:
    return f'"row": {dumps(resolved.row.value)}, '.encode("utf-8", "surrogatepass")
