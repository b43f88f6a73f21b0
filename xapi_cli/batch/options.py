"""The options of a batch; each field with a Flag is a flag of the command, as in `request.options`."""

from dataclasses import dataclass
from typing import Annotated

from xapi_cli.request.options import Flag
from xapi_cli.settings.table import MAX_RETRIES


@dataclass(frozen=True)
class BatchOptions:
    """The arguments and options of `xapi batch`."""

    file: str | None = None
    jobs: Annotated[
        int, Flag(("--jobs", "-j"), "Maximum number of requests in flight.", metavar="N", min=1, max=500)
    ] = 16
    ordered: Annotated[bool, Flag(("--ordered",), "Print the responses in the order of the input.")] = False
    retries: Annotated[int | None, Flag(("--retry",), "", metavar="N", min=0, max=MAX_RETRIES, setting="retry")] = None
    fail_fast: Annotated[bool, Flag(("--fail-fast",), "Stop sending after the first line that fails.")] = False
    journal: Annotated[
        str | None,
        Flag(("--journal",), "Store the responses in FILE, so that the batch can be resumed.", metavar="FILE"),
    ] = None
    failed: Annotated[
        str | None,
        Flag(("--failed",), "Write the input lines that failed to FILE, ready for another run.", metavar="FILE"),
    ] = None
    shard: Annotated[
        str | None,
        Flag(("--shard",), "Send only shard I of N; each line belongs to exactly one shard.", metavar="I/N"),
    ] = None
    rate: Annotated[
        str | None,
        Flag(("--rate",), "Send at most N requests per second or minute, retries included.", metavar="N[/s|/m]"),
    ] = None
