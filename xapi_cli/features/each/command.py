"""`xapi each`: one request for each row of a list."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, settings_flags
from xapi_cli.errors import Interrupted, UsageError, XapiError, of_exit_code
from xapi_cli.features.batch import lines
from xapi_cli.features.batch.rate import parse_rate
from xapi_cli.features.batch.runner import Runner
from xapi_cli.features.each import listing
from xapi_cli.features.each import template as templates
from xapi_cli.features.each.output import Output, judge
from xapi_cli.features.each.rows import rows
from xapi_cli.hints import Hint, Run
from xapi_cli.request import items, read_only
from xapi_cli.request.csv_table import CsvTable, parse_fields
from xapi_cli.system.files import OutputFile
from xapi_cli.system.render import counted, pasteable

if TYPE_CHECKING:
    from xapi_cli.context import Context

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[METHOD] PATH [ITEM]...", help="The request; {name} is a field.", show_default=False),
]
From = Annotated[str | None, typer.Option("--from", metavar="FILE", help="Read the rows from FILE; without it, stdin.")]
List = Annotated[str | None, typer.Option("--list", metavar="PATH", help="GET the rows from PATH.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="NAME=FILE",
        help="Add query parameter NAME to --list: the time of the last run, kept in FILE.",
    ),
]
Items = Annotated[str | None, typer.Option("--items", metavar="FIELD", help="The rows are the array in FIELD.")]
Header = Annotated[list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Add a header.")]
Data = Annotated[
    str | None, typer.Option("--data", "-d", metavar="'{}'", help="The JSON body: the row, or its '{field}'.")
]
Method = Annotated[
    str | None, typer.Option("--request", "-X", metavar="METHOD", help="METHOD, which can also precede PATH.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print a CSV table.")]
Fields = Annotated[str | None, typer.Option("--fields", metavar="LIST", help="The columns, such as id,owner.email.")]
Full = Annotated[bool, typer.Option("--full", help="Print the lines of `batch`, including those for failures.")]
OutputName = Annotated[
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


_INSTEAD = {
    "-I": "write {} or {name} where the value goes",
    "-P": "use -j N",
    "-f": "use --from FILE",
    "--input": "use --from FILE",
    "--jq": "pipe the output into jq",
}


@settings_flags(*ACCOUNT, *CALLS, "retry", instead=_INSTEAD)
def each(
    ctx: typer.Context,
    words: Words = None,
    from_: From = None,
    list_: List = None,
    since: SinceOption = None,
    items_: Items = None,
    header: Header = None,
    data: Data = None,
    method: Method = None,
    csv: Csv = False,
    fields: Fields = None,
    full: Full = False,
    output: OutputName = None,
    partial: Partial = False,
    jobs: Jobs = None,
    fail_fast: FailFast = False,
    failed: FailedFile = None,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> None:
    """Send one request for each row of a list.

    Rows are a JSON array, JSON objects, CSV with a header row, or lines, from
    stdin, a file or the API itself. {name} stands for a field of the row, {} for
    a row that is not an object, in PATH and in the values of ITEMs, which are those
    of `xapi request`. A placeholder at the start of PATH stands for a link.
    Prints the JSON of each success in the order of the rows, or a CSV table.

    Examples:

    \b
      xapi each --list /x-api/projects '/x-api/projects/{id}' \\
        --csv --fields id,name -o projects.csv
      xapi each --from rows.csv POST '/x-api/projects/{id}' \\
        name='{name}' teams:='{teams}' --failed rest.jsonl
      seq 3 | xapi each '/x-api/projects/{}'
    """
    context: Context = ctx.obj
    terminal = context.terminal
    _check_combinations(locals())
    given, path, arguments = _request(words or (), method)
    template = templates.parse(given, path, arguments, header or (), data, base_url=context.base_url)
    terminal.redactor.add(*template.secrets)
    if context.settings.read_only:
        read_only.check(template.method, (), remedy="add --write")
    resolve = lines.resolver(context)
    reads = template.method in read_only.SAFE
    per_second = None if rate is None else parse_rate(rate)
    stops_at = (lambda result: judge(result, reads=reads)[0]) if fail_fast else None
    with ExitStack() as stack:
        terminal.write(b"")  # raises if stdout is closed
        last_run = None
        if list_ is not None and since is not None:
            last_run = listing.last_run(context, since, list_, stack)
            if last_run is None:
                return
        file = None if output in (None, "-") or dry_run else stack.enter_context(OutputFile(str(output)))
        rejects = (
            None if failed is None or dry_run else stack.enter_context(OutputFile(failed, mode=0o600, is_own=True))
        )
        jobs = jobs or (16 if reads else 1)
        runner = Runner(context, jobs=jobs, rate=per_second, ordered=True, stops_at=stops_at, is_one=True)
        stack.enter_context(runner)
        write = terminal.write_text if file is None else file.write
        table = CsvTable(parse_fields(fields or ""), terminal.warn) if csv and not dry_run else None
        result = Output(terminal, write, rejects, reads=reads, table=table, is_full=full)
        stack.callback(result.finish_rejects, stays=failed == from_)  # however the run ends
        if list_ is None:
            source = lines.blocks(lines.open_input(from_, terminal, stack))
            found, date = rows(source, needed=template.names, items=items_), ""
        else:
            found, date = listing.fetched(context, runner, list_, last_run, items_, stack)
        tasks = templates.resolved(found, template, resolve)
        if dry_run:
            tasks = (task._replace(call=None) for task in tasks)
        elif not reads:
            tasks = templates.all_first(tasks, result.add, stack)
        error = runner.consume(tasks, result.add)
        result.finish_rejects(runner.unsent())
        error = error or result.finish()
        failures, count = result.tally.failed, result.tally.lines
        if error is None and (not failures or (partial and not fail_fast and failures < count)):
            if file is not None:
                file.commit()
            if last_run is not None and not dry_run:
                last_run.write(date)
    _report(result, error, failed, jobs)


# before anything is sent


def _request(words: Sequence[str], method: str | None) -> tuple[str | None, str, Sequence[str]]:
    """Return METHOD, PATH and the ITEMs; raises UsageError."""
    given = None if method is None else items.method(method)
    if words and words[0].upper() in items.METHODS:
        first = words[0].upper()
        if given not in (None, first):
            raise UsageError(f"METHOD is {first}, but -X is {given}", hint="omit one of them")
        given, words = first, words[1:]
    if not words:
        raise UsageError("missing PATH", hint="write for example: xapi each --list /projects '/projects/{id}'")
    return given, words[0], words[1:]


def _check_combinations(given: dict[str, Any]) -> None:
    for one, other in [("from_", "list_"), ("csv", "full"), ("dry_run", "full")]:
        if given[one] and given[other]:
            raise UsageError(f"{_flag(one)} and {_flag(other)} cannot be combined", hint="omit one of them")
    for one, other in [("since", "list_"), ("fields", "csv"), ("partial", "output")]:
        if given[one] and not given[other]:
            raise UsageError(f"{_flag(one)} requires {_flag(other)}", hint=f"add {_flag(other)}")


def _flag(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


# the end


def _report(result: Output, error: XapiError | None, failed: str | None, jobs: int) -> None:
    """Raise the error of the run: what has ended it, or the number of rows that failed."""
    rows, failures = result.tally.lines, result.tally.failed
    if error is not None:
        if rows and not isinstance(error, Interrupted):
            error.message += f"; {counted(rows - failures, 'row')} succeeded, {failures:,} failed"
        raise error
    if not failures:
        return
    hint: Hint = "see the lines above"
    if failed is not None:
        hint = "correct the input"
        if result.rejected:
            hint = ("run ", Run(f"batch {'-j 1 ' if jobs == 1 else ''}{pasteable(failed)}"), " to send them again")
            if result.without_request:
                without = counted(result.without_request, "row")
                hint += (f", without {without} that cannot be sent: correct the input",)
    raise of_exit_code(result.tally.exit_code)(f"{failures:,} of {counted(rows, 'row')} failed", hint=hint)
