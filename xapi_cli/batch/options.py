"""The options of a batch; each field with a Flag is a flag of the command, as in `request.options`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from xapi_cli.errors import UsageError
from xapi_cli.http.retry import TOO_MANY_REQUESTS
from xapi_cli.request.options import Flag
from xapi_cli.settings.table import MAX_RETRIES

_OF_MERGE = ("files", "merge", "input")  # the fields that --merge uses


@dataclass(frozen=True)
class BatchOptions:
    """The arguments and options of `xapi batch`."""

    files: Sequence[str] = ()
    jobs: Annotated[
        int, Flag(("--jobs", "-j"), "Maximum number of requests in flight.", metavar="N", min=1, max=500)
    ] = 16
    ordered: Annotated[bool, Flag(("--ordered",), "Print the responses in the order of the input.")] = False
    retries: Annotated[int | None, Flag(("--retry",), "", metavar="N", min=0, max=MAX_RETRIES, setting="retry")] = None
    retry_unsafe: Annotated[
        bool,
        Flag(
            ("--retry-unsafe",),
            "With --retry: also retry POST and PATCH, with an Idempotency-Key that stays the same.",
        ),
    ] = False
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
    pauses: Annotated[
        bool,
        Flag(
            ("--no-pause",),
            f"With --retry: after a {TOO_MANY_REQUESTS} with Retry-After, delay only that line.",
        ),
    ] = True
    filter: Annotated[
        str | None,
        Flag(
            ("--jq",),
            "Apply a jq filter to the JSON body of each response with a status below 400.",
            metavar="FILTER",
        ),
    ] = None
    expect: Annotated[
        Sequence[str],
        Flag(
            ("--expect",),
            "Fail a successful line with code 6 if the jq filter yields false, null or nothing; repeatable.",
            metavar="FILTER",
        ),
    ] = ()
    merge: Annotated[bool, Flag(("--merge",), "Merge outputs: print the lines of all FILEs in input order.")] = False
    input: Annotated[
        str | None, Flag(("--input",), "With --merge: check the outputs against this input.", metavar="FILE")
    ] = None

    def check(self) -> None:
        """Raise UsageError if options are combined that exclude each other."""
        if not self.merge and len(self.files) > 1:
            hint = "use --merge to merge outputs, or cat to concatenate inputs"
            raise UsageError("only one FILE is allowed without --merge", hint=hint)
        if not self.merge and self.input is not None:
            raise UsageError("--input requires --merge", hint="add --merge, or pass the input as FILE")
        for name, annotation in BatchOptions.__annotations__.items() if self.merge else ():
            if name not in _OF_MERGE and getattr(self, name) not in (getattr(BatchOptions, name), []):
                option = annotation.__metadata__[0].names[0]
                raise UsageError(f"--merge and {option} cannot be combined", hint=f"omit {option}")
