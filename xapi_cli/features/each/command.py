"""`xapi each`: one request for each row of a list."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, chosen, settings_flags
from xapi_cli.errors import Interrupted, UsageError, XapiError, of_exit_code
from xapi_cli.feature_table import Flag
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
from xapi_cli.request.options import rows_of
from xapi_cli.system.files import OutputFile
from xapi_cli.system.render import counted, pasteable

if TYPE_CHECKING:
    from xapi_cli.context import Context


class Options(NamedTuple):
    """The options of `xapi each`."""

    from_: Annotated[str | None, Flag(("--from",), "Read the rows from FILE; without it, stdin.", metavar="FILE")]
    list_: Annotated[str | None, Flag(("--list",), "GET the rows from PATH.", metavar="PATH")]
    since: Annotated[
        str | None,
        Flag(("--since",), "Add query parameter NAME to --list: the last run's time, from FILE.", metavar="NAME=FILE"),
    ]
    items: Annotated[str | None, Flag(("--items",), "The rows are the array in FIELD.", metavar="FIELD")]
    method: Annotated[str | None, Flag(("--request", "-X"), "METHOD, which can also precede PATH.", metavar="METHOD")]
    headers: Annotated[Sequence[str], Flag(("--header", "-H"), "Add a header.", metavar="NAME:VALUE", kind="texts")]
    data: Annotated[str | None, Flag(("--data", "-d"), "The JSON body: the row, or its '{field}'.", metavar="'{}'")]
    csv: Annotated[bool, Flag(("--csv",), "Print a CSV table.", kind="switch")]
    fields: Annotated[str | None, Flag(("--fields",), "The columns, such as id,owner.email.", metavar="LIST")]
    full: Annotated[bool, Flag(("--full",), "Print lines as `batch` does, including failures.", kind="switch")]
    output: Annotated[str | None, Flag(("--output", "-o"), "Replace FILE if every row succeeded.", metavar="FILE")]
    partial: Annotated[bool, Flag(("--partial",), "Replace FILE even if some rows failed.", kind="switch")]
    fail_fast: Annotated[bool, Flag(("--fail-fast",), "Send nothing more after a row that fails.", kind="switch")]
    failed: Annotated[str | None, Flag(("--failed",), "Write failed requests to FILE, for `batch`.", metavar="FILE")]
    rate: Annotated[str | None, Flag(("--rate",), "Send at most N per second or minute.", metavar="N[/s|/m]")]
    dry_run: Annotated[bool, Flag(("--dry-run",), "Print the requests; send only the one for the list.", kind="switch")]


_ROWS = rows_of(Options)
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[METHOD] PATH [ITEM]...", help="The request; {name} is a field.", show_default=False),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, max=500, help="Requests in flight: 16 for GET, otherwise 1."),
]
_INSTEAD = {
    "-I": "write {} or {name} where the value goes",
    "-P": "use -j N",
    "-f": "use --from FILE",
    "--input": "use --from FILE",
    "--jq": "pipe the output into jq",
}


@settings_flags(*ACCOUNT, *CALLS, "retry", rows=lambda: _ROWS, instead=_INSTEAD)
def each(ctx: typer.Context, words: Words = None, jobs: Jobs = None) -> None:
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
    options = _checked(Options(**chosen(ctx)))
    method, path, arguments = _request(words or [], options.method)
    template = templates.parse(method, path, arguments, options.headers, options.data, base_url=context.base_url)
    terminal.redactor.add(*template.secrets)
    if context.settings.read_only:
        read_only.check(template.method, (), remedy="add --write")
    resolve = lines.resolver(context)
    reads = template.method in read_only.SAFE
    per_second = None if options.rate is None else parse_rate(options.rate)
    stops_at = (lambda result: judge(result, reads=reads)[0]) if options.fail_fast else None
    with ExitStack() as stack:
        terminal.write(b"")  # raises if stdout is closed
        last_run = None
        if options.list_ is not None and options.since is not None:
            writes = not options.dry_run
            last_run = listing.last_run(context, options.since, options.list_, stack, writes=writes)
            if last_run is None:
                return
        file = None if options.output in (None, "-") else stack.enter_context(OutputFile(str(options.output)))
        failed = options.failed
        rejects = None if failed is None else stack.enter_context(OutputFile(failed, mode=0o600, is_own=True))
        jobs = jobs or (16 if reads else 1)
        runner = Runner(context, jobs=jobs, rate=per_second, ordered=True, stops_at=stops_at, is_one=True)
        stack.enter_context(runner)
        write = terminal.write_text if file is None else file.write
        table = CsvTable(parse_fields(options.fields or ""), terminal.warn) if options.csv else None
        result = Output(terminal, write, rejects, reads=reads, table=table, is_full=options.full)
        stack.callback(result.finish_rejects, stays=failed == options.from_)  # however the run ends
        if options.list_ is None:
            source = lines.blocks(lines.open_input(options.from_, terminal, stack))
            found, date = rows(source, needed=template.names, items=options.items), ""
        else:
            found, date = listing.fetched(context, runner, options.list_, last_run, options.items, stack)
        tasks = templates.resolved(found, template, resolve)
        if options.dry_run:
            tasks = (task._replace(call=None) for task in tasks)
        elif not reads:
            tasks = templates.all_first(tasks, result.add, stack)
        error = runner.consume(tasks, result.add)
        result.finish_rejects(runner.unsent())
        failures, count = result.tally.failed, result.tally.lines
        ending = result.finish()
        error = error or ending
        if error is None and (not failures or (options.partial and not options.fail_fast and failures < count)):
            if file is not None:
                file.commit()
            if last_run is not None and not options.dry_run:
                last_run.write(date)
    _report(result, error, failed, jobs)


# before anything is sent


def _request(words: Sequence[str], option: str | None) -> tuple[str | None, str, Sequence[str]]:
    """Return METHOD, PATH and the ITEMs; raises UsageError."""
    first = words[0].upper() if words and words[0].upper() in items.METHODS else None
    method = items.one_method(first, option)
    if not (words := words[1:] if first else words):
        raise UsageError("missing PATH", hint="write for example: xapi each --list /projects '/projects/{id}'")
    return method, words[0], words[1:]


def _checked(options: Options) -> Options:
    """Return *options*, with --dry-run without those for results; raises UsageError if they cannot be combined."""
    names = {name: row.names[0] for name, row in _ROWS.items() if getattr(options, name)}
    for one, other in [("from_", "list_"), ("csv", "full"), ("dry_run", "full")]:
        if one in names and other in names:
            raise UsageError(f"{names[one]} and {names[other]} cannot be combined", hint="omit one of them")
    for one, other in [("since", "list_"), ("fields", "csv"), ("partial", "output")]:
        if one in names and other not in names:
            required = _ROWS[other].names[0]
            raise UsageError(f"{names[one]} requires {required}", hint=f"add {required}")
    return options._replace(output=None, failed=None, csv=False) if options.dry_run else options


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
