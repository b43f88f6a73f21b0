"""`xapi batch`: turns the command line into BatchOptions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, settings_flags

if TYPE_CHECKING:
    from xapi_cli.batch.options import BatchOptions
    from xapi_cli.runtime import Runtime

File = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="The input; without it, or with -, stdin.", show_default=False)
]


def _options() -> "type[BatchOptions]":
    from xapi_cli.batch.options import BatchOptions

    return BatchOptions


@settings_flags(*ACCOUNT, *CALLS, options=_options)
def batch(ctx: typer.Context, file: File = None, **flags: Any) -> None:
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
    from xapi_cli.usecases import batch as usecase

    runtime: Runtime = ctx.obj
    usecase.run(runtime, _options()(file, **flags))
