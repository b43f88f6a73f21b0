"""`xapi each`: one request for each row of a list."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial as partial_
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, settings_flags
from xapi_cli.errors import (
    ClosedPipe,
    ExpectationFailed,
    Interrupted,
    OutputError,
    UsageError,
    XapiError,
    of_exit_code,
)
from xapi_cli.system.render import printable
from xapi_cli.system.signals import Terminated

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.features.batch.lines import Members
    from xapi_cli.features.batch.runner import Runner
    from xapi_cli.features.each.output import Output
    from xapi_cli.features.each.resolved import Resolved
    from xapi_cli.features.each.rows import Rows
    from xapi_cli.features.each.since import Since
    from xapi_cli.features.each.template import Template
    from xapi_cli.http.send import Call
    from xapi_cli.request.body.spool import Spool
    from xapi_cli.system.files import Replacement
    from xapi_cli.system.terminal import Terminal

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_READING = ("GET", "HEAD", "OPTIONS")
_BLOCK = 65_536
_IN_MEMORY = 10 * 2**20  # bytes of the list

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[METHOD] PATH [ITEM]...", help="The request; {name} is a field.", show_default=False),
]
From = Annotated[str | None, typer.Option("--from", metavar="FILE", help="Read the rows from FILE; without it, stdin.")]
List = Annotated[str | None, typer.Option("--list", metavar="PATH", help="GET the rows from PATH.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="NAME=FILE", help="Add query parameter NAME to --list: the time of the last run."),
]
Items = Annotated[str | None, typer.Option("--items", metavar="FIELD", help="The rows are the array in FIELD.")]
Header = Annotated[list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Add a header.")]
Data = Annotated[str | None, typer.Option("--data", "-d", metavar="'{}'", help="The JSON body: the row, or '{field}'.")]
Method = Annotated[str | None, typer.Option("--request", "-X", metavar="METHOD", help="The METHOD.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a CSV table.")]
Fields = Annotated[str | None, typer.Option("--fields", metavar="LIST", help="The columns, such as id,owner.email.")]
Full = Annotated[bool, typer.Option("--full", help="Print the lines of `batch`, including those for failures.")]
OutputFile = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Replace FILE if every row succeeded.")
]
Partial = Annotated[bool, typer.Option("--partial", help="Replace FILE even if some rows failed.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, max=500, help="Requests in flight: 16 for GET, otherwise 1."),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Send nothing more after a row that fails.")]
FailedFile = Annotated[
    str | None, typer.Option("--failed", metavar="FILE", help="Write the requests that failed to FILE, for `batch`.")
]
Rate = Annotated[str | None, typer.Option("--rate", metavar="N[/s|/m]", help="Send at most N per second or minute.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the requests; send only the one for the list.")]


class _Request(NamedTuple):
    method: str | None
    path: str
    arguments: Sequence[str]


@settings_flags(*ACCOUNT, *CALLS, "retry")
def each(
    ctx: typer.Context,
    words: Words = None,
    from_: From = None,
    list_: List = None,
    since: SinceOption = None,
    items: Items = None,
    header: Header = None,
    data: Data = None,
    method: Method = None,
    csv: Csv = False,
    fields: Fields = None,
    full: Full = False,
    output: OutputFile = None,
    partial: Partial = False,
    jobs: Jobs = None,
    fail_fast: FailFast = False,
    failed: FailedFile = None,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> None:
    """Send one request for each row of a list.

    Rows are a JSON array, JSON objects, CSV with a header row, or lines, from
    stdin, a file or the API itself. {name} stands for a field of the row, {}
    for a row that is not an object. A placeholder at the start of PATH is a link.
    Prints the JSON of each success in the order of the rows, or a CSV table.

    Examples:

    \b
      xapi each --list /x-api/projects '/x-api/projects/{id}' \\
        --csv --fields id,name -o projects.csv
      xapi each --from rows.csv POST '/x-api/projects/{id}' \\
        name='{name}' teams:='{teams}' --failed rest.jsonl
      seq 3 | xapi each '/x-api/projects/{}'
    """
    from xapi_cli.features.batch.rate import parse_rate
    from xapi_cli.features.batch.runner import Runner
    from xapi_cli.features.each import resolved
    from xapi_cli.features.each.output import Output, judge
    from xapi_cli.features.each.rows import Rows
    from xapi_cli.features.each.template import Template
    from xapi_cli.request.csv_table import CsvTable, parse_fields

    context: Context = ctx.obj
    terminal = context.terminal
    request = _request(words or (), method)
    _check_combinations(locals())
    template = Template(request.method, request.path, request.arguments, header or (), data, base_url=context.base_url)
    make_call = _resolver(context, template)
    reads = template.method in _READING
    per_second = None if rate is None else parse_rate(rate)
    with ExitStack() as stack:
        terminal.write(b"")  # raises if stdout is closed
        last_run = None
        if since is not None and (last_run := _last_run(context, since, f"{context.base_url} {list_}", stack)) is None:
            return
        file = None if output in (None, "-") or dry_run else _opened(str(output), stack)
        rejects = _Rejects(None if failed is None or dry_run else _opened(failed, stack, is_private=True))
        jobs = jobs or (16 if reads else 1)
        stops_at = (lambda result: judge(result, reads=reads).error) if fail_fast else None
        runner = Runner(context, jobs=jobs, rate=per_second, ordered=True, stops_at=stops_at, is_one=True)
        stack.enter_context(runner)
        rows, date = _rows(
            context,
            runner,
            from_,
            list_,
            last_run,
            partial_(Rows, takes_lines=template.takes_lines, items=items, needed=template.names),
            stack,
        )
        requests = resolved.resolved(rows, template, make_call)
        write = terminal.write if file is None else file.write
        table = CsvTable(parse_fields(fields or ""), terminal.warn) if csv else None
        if table is not None:
            table.write_with = write
        result = Output(terminal, write, rejects.add, reads=reads, table=table, is_full=full)
        if dry_run:
            _print(terminal, requests, result)
            return
        if not reads:
            requests = resolved.all_first(requests, make_call, result.add_failure)
        error = _run(runner, requests, result)
        rejects.finish(runner, requests)
        error = error or result.finish()
        if error is None and not (result.failed and (fail_fast or not partial)):
            if file is not None:
                _commit(file)
            if last_run is not None:
                last_run.write(date)
    _report(result, error, failed, rejects.count)


# before anything is sent


def _request(words: Sequence[str], method: str | None) -> _Request:
    """Return METHOD, PATH and the ITEMs; raises UsageError."""
    from xapi_cli.request import items

    given = None if method is None else items.method(method)
    if words and words[0].upper() in _METHODS:
        first = words[0].upper()
        if given not in (None, first):
            raise UsageError(f"METHOD is {first}, but -X is {given}", hint="omit one of them")
        given, words = first, words[1:]
    if not words:
        raise UsageError("missing PATH", hint="write for example: xapi each --list /projects '/projects/{id}'")
    return _Request(given, words[0], words[1:])


def _check_combinations(given: "dict[str, Any]") -> None:
    for one, other in [("from_", "list_"), ("csv", "full"), ("dry_run", "full")]:
        if given[one] and given[other]:
            raise UsageError(f"{_flag(one)} and {_flag(other)} cannot be combined", hint="omit one of them")
    for one, other in [("since", "list_"), ("fields", "csv"), ("partial", "output")]:
        if given[one] and not given[other]:
            raise UsageError(f"{_flag(one)} requires {_flag(other)}", hint=f"add {_flag(other)}")


def _flag(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


def _resolver(context: "Context", template: "Template") -> "Callable[[Members], Call]":
    """Return the function that makes the call of a line; raises UsageError if read-only mode refuses the method."""
    from xapi_cli.features.batch.lines import resolver
    from xapi_cli.request import read_only

    if context.settings.read_only:
        read_only.check(template.method, (), remedy="add --write")
    return resolver(context)


def _last_run(context: "Context", option: str, subject: str, stack: ExitStack) -> "Since | None":
    """Return the time of the last run, and lock its file; after a note, return None while another run has the lock."""
    from xapi_cli.features.each import since

    found = since.read(option, subject)
    other = stack.enter_context(since.locked(found.file, context.state_directory))
    if other is not None:
        where = f"{printable(found.file)} (process {other})"
        context.terminal.note(f"another run is in progress for {where}; nothing was sent")
        return None
    return since.read(option, subject)  # another run may have ended just now


def _opened(name: str, stack: ExitStack, *, is_private: bool = False) -> "Replacement":
    from xapi_cli.system.files import Replacement, writing

    with writing(name):
        return stack.enter_context(Replacement(name, mode=0o600 if is_private else 0o666, is_own=is_private))


def _rows(
    context: "Context",
    runner: "Runner",
    file: str | None,
    list_: str | None,
    last_run: "Since | None",
    make: "Callable[[Iterable[bytes]], Rows]",
    stack: ExitStack,
) -> "tuple[Rows, str]":
    """Return the rows, and the server's time when the list was asked for, "" without --since."""
    from xapi_cli.features.batch.lines import open_input
    from xapi_cli.request.reason import reason

    if list_ is None:
        return make(_blocks(open_input(file, context.terminal, stack))), ""
    body, date = _list(context, runner, list_, last_run, stack)
    try:
        for _ in make(body).elements():
            pass
    except UsageError as error:
        kind = body.content_type or "of an unknown type"
        title = reason(body.read(0), kind) if "html" in kind else None
        note = "" if "json" in kind else f" ({printable(kind.partition(';')[0])}{f': {title}' if title else ''})"
        hint = error.hint if body.length else "check the path"
        raise ExpectationFailed(f"the list{note} is not usable: {error.message}", hint=hint) from None
    return make(body), date


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    read = getattr(source, "raw", source).read  # returns what has arrived
    try:
        while block := read(_BLOCK):
            yield block
    except OSError as error:
        raise UsageError(f"the input cannot be read: {error.strerror}") from error


def _list(
    context: "Context", runner: "Runner", path: str, last_run: "Since | None", stack: ExitStack
) -> "tuple[Spool, str]":
    """Return the body of the list at *path*, and the server's time when it was asked for, "" without --since."""
    from xapi_cli.features.each.since import server_time
    from xapi_cli.http import urls
    from xapi_cli.http.send import Call
    from xapi_cli.request.body.spool import Spool
    from xapi_cli.request.status_errors import status_error

    query = [(last_run.name, last_run.text)] if last_run is not None and last_run.text else []
    asked = time.monotonic()
    outcome = runner.send(Call("GET", urls.resolve(context.base_url, path, query), context.default_headers))
    response, came = outcome.response, time.monotonic()
    body = Spool(response.decoded(), response.headers.get("Content-Type"), keep=_IN_MEMORY)
    stack.callback(body.close)
    error = status_error(outcome, runner.tokens, body=body.read(0))
    if error is not None:
        raise error
    if not body.length and response.status == 204:
        body.append(b"[]")
    return body, "" if last_run is None else server_time(response.headers.get("Date"), asked, came)


# the run


def _run(runner: "Runner", requests: "Iterator[Resolved]", result: "Output") -> XapiError | None:
    """Send *requests* and write the results; return the error that has ended the run early, if any."""
    from xapi_cli.features.batch.results import Task

    tasks = (Task(found.row.number, found.call, found.error, source=found) for found in requests)
    try:
        for results in runner.run(tasks):
            for found in results:
                result.add(found)
    except (ClosedPipe, OutputError):
        raise
    except (XapiError, Terminated, KeyboardInterrupt) as error:  # the latter two at the second signal
        for found in runner.rest():
            result.add(found)
        return error if isinstance(error, XapiError) else getattr(error, "failure", None) or Interrupted()
    return None


class _Rejects:
    """The file of --failed, if there is one; `count` is the number of requests in it."""

    def __init__(self, file: "Replacement | None") -> None:
        self._file, self.count = file, 0

    def add(self, found: "Resolved") -> None:
        if self._file is not None and found.call is not None:
            self.count += 1
            self._file.write(found.text.encode() + b"\n")

    def finish(self, runner: "Runner", requests: "Iterator[Resolved]") -> None:
        """Add the requests that were not sent, and put the file in place; without any, remove it."""
        if self._file is None:
            return
        for task in runner.unfinished():
            self.add(task.source)
        try:
            for found in requests:
                self.add(found)
        except (ValueError, UsageError):  # a thread still waits for stdin, or the rest of the input is not valid
            pass
        if self.count:
            _commit(self._file)
        else:
            self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._file.name)


def _commit(file: "Replacement") -> None:
    from xapi_cli.system.files import writing

    with writing(file.name):
        file.commit()


def _print(terminal: "Terminal", requests: "Iterator[Resolved]", result: "Output") -> None:
    """Print the requests instead of sending them."""
    for found in requests:
        if found.error is not None:
            result.add_failure(found, found.error)
        else:
            result.rows += 1
            terminal.write(found.text.encode() + b"\n")
    _report(result, None, None, 0)


def _report(result: "Output", error: XapiError | None, failed: str | None, count: int) -> None:
    """Raise the error of the run: what has ended it, or the number of rows that failed."""
    if error is not None:
        if result.rows and not isinstance(error, Interrupted):
            error.message += f"; {_count(result.rows - result.failed, 'row')} succeeded, {result.failed:,} failed"
        raise error
    if not result.failed:
        return
    hint = "see the lines above"
    if failed is not None:
        hint = f"run `xapi batch {shlex.quote(failed)}` to send them again" if count else "correct the input"
        if count and result.without_request:
            hint += f", without {_count(result.without_request, 'row')} that cannot be sent: correct the input"
    raise of_exit_code(result.code)(f"{result.failed:,} of {_count(result.rows, 'row')} failed", hint=hint)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"
