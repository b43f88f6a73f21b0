"""`xapi batch`: turns the command line into BatchOptions."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, settings_flags
from xapi_cli.http.retry import STATUS_LIST, TOO_MANY_REQUESTS

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="The input file; without it, or with -, stdin. With --merge: the outputs.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=1, max=500, help="Maximum number of requests in flight.")
]
Ordered = Annotated[bool, typer.Option("--ordered", help="Print the responses in the order of the input.")]
Retry = Annotated[
    int,
    typer.Option(
        "--retry",
        metavar="N",
        min=0,
        max=100,
        help=f"Retry a line up to N times after {STATUS_LIST} or a lost connection; never POST or PATCH.",
    ),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop sending after the first line that fails.")]
Journal = Annotated[
    str | None,
    typer.Option("--journal", metavar="FILE", help="Store the responses in FILE, so that the batch can be resumed."),
]
Shard = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Send only shard I of N; each line belongs to exactly one shard."),
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N[/s|/m]", help="Send at most N requests per second or minute, retries included."),
]
NoPause = Annotated[
    bool,
    typer.Option(
        "--no-pause",
        help=f"With --retry: let a {TOO_MANY_REQUESTS} with Retry-After delay only its own line, not all lines.",
    ),
]
Filter = Annotated[
    str | None,
    typer.Option("--jq", metavar="FILTER", help="Apply a jq filter to each JSON body with a status below 400."),
]
Merge = Annotated[bool, typer.Option("--merge", help="Merge outputs: print the lines of all FILEs in input order.")]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="FILE", help="With --merge: the input, to detect every missing line."),
]


@settings_flags(*ACCOUNT, *NETWORK)
def batch(
    ctx: typer.Context,
    files: Files = None,
    *,
    jobs: Jobs = 16,
    ordered: Ordered = False,
    retry: Retry = 0,
    fail_fast: FailFast = False,
    journal: Journal = None,
    shard: Shard = None,
    rate: Rate = None,
    no_pause: NoPause = False,
    jq: Filter = None,
    merge: Merge = False,
    input_: Input = None,
) -> None:
    """Send many requests concurrently, one for each line of JSON.

    Each line is an object; only path is required:

    \b
      {"id": 7, "method": "POST", "path": "/x-api/echo",
       "query": {"a": "b"}, "headers": {"X-Run": "1"},
       "json": {"name": "Demo"}}

    Use "data" instead of "json" to send text. Each response is printed as one
    line as soon as it is complete: id, line, status, headers, the body as json,
    text or base64, and elapsed_ms; a failure as id, line and error. If
    stdout is a terminal, prints one line per call instead: line number, status,
    method, path and time, or the error. To resume an interrupted batch, run it
    again with the same --journal.

    With --merge, FILEs are the outputs of batches, for example of shards.
    Missing and duplicate lines are errors, reported after all lines have
    been printed.

    Examples:

    \b
      seq 99 | jq -c '{path: "/x-api/echo", json: .}' |
        xapi batch
      xapi batch --ordered -j 32 --retry 3 requests.jsonl
      xapi batch --journal run.journal requests.jsonl
      xapi batch --jq .items[0].id requests.jsonl
      xapi batch --shard 1/8 requests.jsonl >out-1.jsonl
      xapi batch --merge --input requests.jsonl out-*.jsonl
    """
    from xapi_cli.batch.options import BatchOptions

    runtime: Runtime = ctx.obj
    options = BatchOptions(
        files=files or (),
        jobs=jobs,
        ordered=ordered,
        retries=retry,
        fail_fast=fail_fast,
        journal=journal,
        shard=shard,
        rate=rate,
        pauses=not no_pause,
        merge=merge,
        input=input_,
        filter=jq,
    )
    options.check()
    if merge:
        from xapi_cli.usecases import merge as usecase

        usecase.run(runtime, options.files, options.input)
    else:
        from xapi_cli.usecases.batch import Batch

        Batch(runtime, options).run()
