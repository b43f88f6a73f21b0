"""What `each` writes: the bodies of successes, CSV, or complete lines; and a line on stderr for each failed row."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xapi_cli import errors
from xapi_cli.errors import ExpectationFailed, UsageError, XapiError
from xapi_cli.features.batch.results import Result, Tally, Task, output_line
from xapi_cli.http.retry import retry_after_seconds
from xapi_cli.http.urls import displayed_without_query
from xapi_cli.request.csv_table import CsvTable
from xapi_cli.request.json_values import InvalidValue, dumps, loads
from xapi_cli.request.media_types import codec_of, media_type
from xapi_cli.request.status_errors import reason
from xapi_cli.system.files import OutputFile
from xapi_cli.system.render import counted

if TYPE_CHECKING:
    from xapi_cli.features.each.template import Source
    from xapi_cli.system.terminal import Terminal

_SHOWN = 20  # failed rows with their own line
_ONE_LINE = str.maketrans("\r\n", "  ")


def judge(result: Result, *, reads: bool) -> tuple[XapiError | None, str | None, Any]:
    """Return what *result* means for its row: its error if it has failed, the text and the value of its JSON.

    The text is "" if there was no body, and None if it is not JSON, which only requests that read must return. With
    --dry-run, it is the request.
    """
    if result.error is not None:
        return result.error, None, None
    if not result.status:
        return None, result.task.source.text, None
    body, content_type = b"".join(result.body or ()), result.headers.get("Content-Type").lower()
    if (failure := errors.of_status(result.status)) is not None:
        why = reason(body, content_type)
        return failure(f"responded with {result.status}" + (f": {why}" if why else "")), None, None
    if not body.strip():
        return None, "", None
    try:
        text = body.decode(codec_of(content_type) or "utf-8").removeprefix("\ufeff")
        return None, text, loads(text)
    except (InvalidValue, UnicodeDecodeError):
        what = "not valid JSON" if "json" in content_type else f"{described(body, content_type)}, not JSON"
        return ExpectationFailed(f"the response is {what}") if reads else None, None, None


def described(body: bytes, content_type: str) -> str:
    """Return the type of a *body* that should be JSON, with the title of a web page."""
    title = reason(body, content_type) if "html" in content_type else None
    return (media_type(content_type) or "of an unknown type") + (f" ({title})" if title else "")


class Output:
    """Write results with *write*, in a *table* if there is one, or as lines of `batch` if they are *full*.

    *reads* is whether a success must be JSON. The requests that failed are written to *rejects*, if there is such a
    file; `rejected` is their number, and `without_request` that of the rows that have failed without one.
    """

    def __init__(
        self,
        terminal: "Terminal",
        write: Callable[[bytes], object],
        rejects: OutputFile | None,
        *,
        reads: bool,
        table: CsvTable | None = None,
        is_full: bool = False,
    ) -> None:
        self._terminal, self._write, self._rejects = terminal, write, rejects
        self._reads, self._table, self._is_full = reads, table, is_full
        if table is not None:
            table.write_with = write
        self.tally = Tally()
        self.rejected = self.without_request = 0
        self._others = 0  # successes whose body is not JSON

    def add(self, results: list[Result]) -> None:
        """Write *results*, or report their failures."""
        for result in results:
            self._add(result)

    def _add(self, result: Result) -> None:
        error, text, value = judge(result, reads=self._reads)
        if self._is_full:
            row = dumps(result.task.source.row.value).encode("utf-8", "surrogatepass")
            redact, number = self._terminal.redactor.redact, str(result.task.number)
            self._write(output_line(result, number, redact, more=b'"row": %s, ' % row) + b"\n")
        elif text and self._table is not None:
            try:
                self._table.add(value)
            except ExpectationFailed as failure:
                error = failure
        elif text:
            self._write(text.strip().translate(_ONE_LINE).encode("utf-8", "surrogatepass") + b"\n")
        elif error is None and text is None:
            self._others += 1
        if result.body is not None:
            result.body.close()
        self.tally.count(0 if error is None else error.exit_code, "")
        if error is not None:
            if result.error is None:
                wait = retry_after_seconds(result.headers.get("Retry-After"))
                error.concerning(status=result.status, retry_after=wait)
            self._fail(result.task, error)

    def finish(self) -> ExpectationFailed | None:
        """Write what is left; return the error for a field that no row has."""
        if self._others:
            were = "was" if self._others == 1 else "were"
            responses = counted(self._others, "response")
            self._terminal.note(f"{responses} {were} not JSON, and left out; use --full to see them")
        try:
            if self._table is not None:
                self._table.finish()
        except ExpectationFailed as error:
            return error
        return None

    def finish_rejects(self, unsent: Iterable[Task] = (), *, stays: bool = False) -> None:
        """Add the requests *unsent* to the rejects, and put the file in place; without any, remove it.

        A second call is for runs that do not reach the first one: the requests of an earlier run must not stay in the
        file. It *stays* if it is the input, which the user may need to correct.
        """
        if self._rejects is None or stays:
            return
        with suppress(UsageError):  # of the rest of the input
            for task in unsent:
                self._reject(task)
        if self.rejected or self._rejects.is_direct:
            self._rejects.commit()
        else:
            self._rejects.close()
            with suppress(FileNotFoundError):
                os.unlink(self._rejects.name)
        self._rejects = None

    def _reject(self, task: Task) -> None:
        if self._rejects is not None and task.call is not None:
            self.rejected += 1
            self._rejects.write(task.source.text.encode() + b"\n")

    def _fail(self, task: Task, error: XapiError) -> None:
        self.without_request += task.call is None
        self._reject(task)
        if self.tally.failed > _SHOWN:
            return
        message, about = error.message, dict(error.context)
        if task.call is not None:
            method, url = task.call.method, displayed_without_query(task.call.url)
            about, where = {"method": method, "url": url, **about}, f"{method} {url}"
            rest = message.removeprefix(f"{where} ")  # a 401 is reported with it
            message = f"{where} {rest}" if rest.startswith("responded with") else f"{where}: {rest}"
        source: Source = task.source
        failure = type(error)(f"row {task.number:,} (line {source.row.line:,}): {message}", hint=error.hint)
        self._terminal.fail(failure.concerning(**{**about, "line": source.row.line}))
