"""Send thousands of requests."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


@settings_flags(*LOCAL, *WIRE)
def batch(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="The lines to send; without it, or with -, stdin.", show_default=False),
    ] = None,
    *,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, max=500, help="How many requests are under way at once.")
    ] = 16,
    ordered: Annotated[bool, typer.Option("--ordered", help="Print answers in the order of the input.")] = False,
    retry: Annotated[
        int,
        typer.Option(
            "--retry",
            metavar="N",
            min=0,
            max=100,
            help="Try a line again up to N times after 429, 502 to 504 or a lost connection, but no POST or PATCH.",
        ),
    ] = 0,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Send nothing more after the first line that fails.")
    ] = False,
    journal: Annotated[
        str | None,
        typer.Option("--journal", metavar="FILE", help="Keep the answers in FILE, so that the batch can be resumed."),
    ] = None,
) -> None:
    """Send a request for each line of JSON, many at once.

    Each line is an object; only path is required:

    \b
      {"id": 7, "method": "POST", "path": "/x-api/echo",
       "query": {"a": "b"}, "headers": {"X-Run": "1"},
       "json": {"name": "Demo"}}

    "data" in place of "json" is the body as text. For each there is one line on
    stdout, as soon as it is there: id, line, status, headers, the body as json,
    text or base64, and elapsed_ms; or id, line and an error. Run again with the
    same --journal, it goes on where it was killed.

    Examples:

    \b
      seq 99 | jq -c '{path: "/x-api/echo", json: .}' |
        xapi batch
      xapi batch --ordered -j 32 --retry 3 requests.jsonl
      xapi batch --journal run.journal requests.jsonl
    """
    from xapi_cli.usecases.batch import Batch, BatchOptions

    runtime: Runtime = ctx.obj
    options = BatchOptions(file=file, jobs=jobs, ordered=ordered, retries=retry, fail_fast=fail_fast, journal=journal)
    Batch(runtime, options).run()
