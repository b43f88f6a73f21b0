"""`xapi batch`: send one request for each line of JSON."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from xapi_cli import errors
from xapi_cli.cli.options import ACCOUNT, CALLS, settings_flags
from xapi_cli.errors import Interrupted, NetworkError, UsageError, XapiError
from xapi_cli.features.batch import lines
from xapi_cli.features.batch.lines import Line, LineReader, Members
from xapi_cli.features.batch.rate import parse_rate
from xapi_cli.features.batch.results import Result, Tally, Task, output_line
from xapi_cli.features.batch.runner import Runner
from xapi_cli.http import retry
from xapi_cli.http.send import Call
from xapi_cli.request.media_types import media_type
from xapi_cli.request.status_errors import reason
from xapi_cli.system.files import OutputFile
from xapi_cli.system.progress import Activity
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import counted, printable
from xapi_cli.system.style import color_of_status, wrapped

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.features.batch.journal import Journal
    from xapi_cli.system.terminal import Terminal

_MAX_NAMED = 10  # lines
_MAX_READY = 2**16  # bytes of lines that are written at once
_NUMBER, _STATUS = 5, len(NetworkError.kind)  # widths of the first columns of the table
_INDENT = _NUMBER + 2 + _STATUS + 2

File = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="The input; without it, or with -, stdin.", show_default=False)
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=1, max=500, help="Maximum number of requests in flight.")
]
Ordered = Annotated[bool, typer.Option("--ordered", help="Print the responses in the order of the input.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop sending after the first line that fails.")]
JournalFile = Annotated[
    str | None,
    typer.Option("--journal", metavar="FILE", help="Store the responses in FILE, so that the batch can be resumed."),
]
FailedFile = Annotated[
    str | None,
    typer.Option("--failed", metavar="FILE", help="Write the input lines that failed to FILE, ready for another run."),
]
ShardOption = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Send only shard I of N; each line belongs to exactly one shard."),
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N[/s|/m]", help="Send at most N requests per second or minute, retries included."),
]


@settings_flags(*ACCOUNT, *CALLS, "retry")
def batch(
    ctx: typer.Context,
    file: File = None,
    jobs: Jobs = 16,
    ordered: Ordered = False,
    fail_fast: FailFast = False,
    journal: JournalFile = None,
    failed: FailedFile = None,
    shard: ShardOption = None,
    rate: Rate = None,
) -> None:
    """Send many requests concurrently, one for each line of JSON.

    Each line is an object; only path is required:

    \b
      {"id": 7, "method": "POST", "path": "/x-api/echo",
       "query": {"a": "b"}, "headers": {"X-Run": "1"},
       "json": {"name": "Demo"}}

    Use "data" instead of "json" to send text. Prints one line of JSON for each
    response, as soon as it is complete, with id, line, status, headers,
    elapsed_ms and the body (json, text or base64). A line that failed has id,
    line and error. If stdout is a terminal, prints one line per call instead:
    line number, status, method, path and time, or the error. To resume an
    interrupted batch, run it again with the same --journal.

    Examples:

    \b
      seq 99 | jq -c '{path: "/x-api/echo", json: .}' |
        xapi batch
      xapi batch --ordered -j 32 --retry 3 requests.jsonl
      xapi batch --journal run.journal requests.jsonl
      xapi batch --shard 1/8 requests.jsonl >out-1.jsonl
    """
    context: Context = ctx.obj
    terminal = context.terminal
    selected = (1, 1) if shard is None else lines.parse_shard(shard)
    per_second = None if rate is None else parse_rate(rate)
    resolve = lines.resolver(context)
    with ExitStack() as stack:
        terminal.write(b"")  # raises if stdout is closed
        source = lines.open_input(file, terminal, stack)
        stored = None if journal is None else _open_journal(journal, context, shard or "", source, stack)
        rejects = None if failed is None else stack.enter_context(OutputFile(failed))
        output = _Output(context, stored, rejects)
        progress = Lines(_size_of(source), output.tally)
        if terminal.shows_progress and not source.isatty():
            stack.enter_context(terminal.during(progress))
        reader = LineReader(source, selected)
        stops_at = (lambda result: result.code) if fail_fast else None
        runner = Runner(context, jobs=jobs, rate=per_second, ordered=ordered, stops_at=stops_at)
        stack.enter_context(runner)

        def write(results: list[Result]) -> None:
            output.write(results)
            count = output.tally.lines
            progress.done = reader.position * count // max(1, count + len(runner.unfinished()))

        try:
            error = runner.consume(_tasks(reader, stored, resolve), write)
        finally:
            if rejects is not None:
                rejects.commit()
    hint = f"; send {printable(failed)} again" if failed else ""
    stop = "no more lines were sent (--fail-fast)" if fail_fast else "see the lines with an error or a status above 399"
    resume = "run the same command again to resume" if journal else "use --journal to be able to resume a batch"
    _report(terminal, output.tally, error, len(runner.unfinished()), f"{stop}{hint}", resume)


# before anything is sent


def _open_journal(name: str, context: "Context", shard: str, source: BinaryIO, stack: ExitStack) -> "Journal":
    """Return the journal *name*; checks that *source* has not changed, if it is a file."""
    try:
        from xapi_cli.features.batch.journal import Journal  # imported here because it loads OpenSSL and SQLite
    except ImportError as error:  # a Python that was compiled without the headers of SQLite
        problem = "--journal needs SQLite, which this Python does not have"
        raise UsageError(problem, hint="install xapi with a Python that has the module sqlite3") from error

    journal = stack.enter_context(Journal(name, context.identity.key, shard))
    if _size_of(source) is not None:
        start = source.tell()
        for line in LineReader(source, lines.parse_shard(shard or "1/1")):
            journal.restore(line)
        source.seek(start)
        journal.end_input()
    if begun := journal.begun:
        requests = f"{counted(len(begun), 'request')} {'was' if len(begun) == 1 else 'were'}"
        numbers = ", ".join(map(str, begun[:_MAX_NAMED])) + (", …" if len(begun) > _MAX_NAMED else "")
        problem = f"{requests} in flight when an earlier run ended, and may have been processed"
        context.terminal.warn(f"{problem}; sending again: line {numbers}")
    return journal


def _size_of(source: BinaryIO) -> int | None:
    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class Lines(Activity):
    """The lines of an input of *total* bytes, of which `done` bytes have ended, as *tally* counts them."""

    def __init__(self, total: int | None, tally: Tally) -> None:
        super().__init__(total)
        self._tally = tally

    def text(self, now: float) -> str:
        """Return the numbers of lines, their rate and the remaining time."""
        lines, failed, retries = self._tally.lines, self._tally.failed, self._tally.retries
        retried = f", {retries:,} retried" if retries else ""
        numbers = f"{counted(lines, 'line')}, {self.rate(lines, now):,.0f}/s, {failed:,} failed"
        return f"{numbers}{retried}{self.remaining(now)}"


# the lines


class Source(NamedTuple):
    """What a result needs of its input line: the JSON text of its id, and the kind of a result in the journal."""

    line: Line
    ident: str
    method: str
    url: str
    restored: str


def _tasks(reader: LineReader, journal: "Journal | None", resolve: Callable[[Members], Call]) -> Iterator[Task]:
    """Yield the task of each line."""
    for line in reader:
        stored = None if journal is None else journal.restore(line)
        ident, method, url, call, failure = "null", "-", "-", None, None
        try:
            members = lines.members(line.data)
            ident = lines.ident(members)
            call = resolve(members)
            method, url = call.method, call.url
        except UsageError as error:
            failure = lines.as_invalid(error)
        if stored is not None:
            yield Task(line.number, code=stored[0], source=Source(line, ident, method, url, stored[1]))
        else:
            begins = journal is not None and method not in retry.IDEMPOTENT
            begin = partial(journal.begin, line.number) if journal is not None and begins else None
            yield Task(line.number, call, failure, begin=begin, source=Source(line, ident, method, url, ""))
    if journal is not None:
        journal.end_input()


class _Output:
    """Write the output lines of results, to the *journal* first, and the input lines that failed to *rejects*."""

    def __init__(self, context: "Context", journal: "Journal | None", rejects: OutputFile | None) -> None:
        self._terminal, self._base_url = context.terminal, context.base_url
        self._journal, self._rejects = journal, rejects
        self.tally = Tally()

    def write(self, results: list[Result]) -> None:
        """Write the line of each of *results*, several small ones at once."""
        ready = b""
        try:
            for result in results:
                ready += self._line(result)
                if len(ready) > _MAX_READY:
                    self._terminal.write(ready)
                    ready = b""
        finally:  # those before one that fails
            if ready:
                self._terminal.write(ready)

    def _line(self, result: Result) -> bytes:
        """Return the line of *result*, or its row in the table, after storing it."""
        source: Source = result.task.source
        code, kind = result.code, source.restored or result.kind
        if source.restored and self._journal is not None:
            line = self._journal.output(source.line.number)
            self.tally.restored += 1
        else:
            line = output_line(result, source.ident, self._terminal.redactor.redact)
        if self._journal is not None and not source.restored and _is_kept(result):
            self._journal.store(source.line, code, kind, line)
        self.tally.count(code, kind)
        self.tally.retries += result.retries
        if code and self._rejects is not None and (data := source.line.data) is not None:
            self._rejects.write(data if data.endswith(b"\n") else data + b"\n")
        if not self._terminal.stdout_is_terminal:
            return line + b"\n"
        return self._row(result, kind, str(result.error or "") or (_reason(line) if code else ""))

    def _row(self, result: Result, kind: str, message: str) -> bytes:
        """Return the row of *result*, with a *message* if it has failed."""
        source: Source = result.task.source
        style = self._terminal.style
        header = style("strong", _columns("LINE", "STATUS", "TIME", "METHOD", "PATH"))
        message, path = self._terminal.redactor.redact(message), redact_url(source.url).removeprefix(self._base_url)
        time = "journal" if source.restored else f"{result.elapsed_ms} ms"
        end = f"{printable(path)}  {printable(message)}".rstrip()
        text = _columns(str(source.line.number), kind, time, source.method, end)
        text = wrapped(text, self._terminal.stdout_columns, indent=" " * _INDENT)
        color = color_of_status(int(kind)) if kind.isdecimal() else "bad"
        start, status, rest = text[:_NUMBER], text[_NUMBER + 2 : _INDENT - 2], text[_INDENT - 2 :]
        row = f"{style('faint', start)}  {style(color, status)}{rest}\n"
        return (f"{header}\n{row}" if self.tally.lines == 1 else row).encode("utf-8", "backslashreplace")


def _columns(number: str, status: str, time: str, method: str, rest: str) -> str:
    return f"{number:>{_NUMBER}}  {status:<{_STATUS}}  {time:>8}  {method:<6}  {rest}"


def _is_kept(result: Result) -> bool:
    """Return whether a journal keeps *result*; what --retry repeats is sent again by the next run instead."""
    if result.error is not None:
        return result.error.is_stored
    return result.status not in retry.STATUSES or result.task.source.method not in retry.IDEMPOTENT


def _reason(line: bytes) -> str:
    """Return the reason of the API in the output *line* of a response."""
    members = json.loads(line)
    body = members["text"] if "text" in members else json.dumps(members.get("json", ""))
    content_type = members.get("headers", {}).get("content-type", "")
    return reason(body.encode("utf-8", "replace"), media_type(content_type)) or ""


# the end


def _report(
    terminal: "Terminal", tally: Tally, error: XapiError | None, unfinished: int, hint: str, resume: str
) -> None:
    """Report the outcome in one line; if the batch failed, raise an error with that line."""
    summary = tally.summary()
    if isinstance(error, Interrupted):
        have = "has" if unfinished == 1 else "have"
        missing = f"; {counted(unfinished, 'line')} {have} no result" if unfinished else ""
        terminal.note(f"stopped early: {summary}{missing}; {resume}")
        raise error
    if error is not None:
        raise type(error)(f"{error.message}; {summary}" if tally.lines else error.message, hint=error.hint)
    if tally.exit_code:
        raise errors.of_exit_code(tally.exit_code)(summary, hint=hint)
    terminal.note(summary)
