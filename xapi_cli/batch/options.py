"""The options of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from xapi_cli.errors import UsageError


@dataclass(frozen=True)
class BatchOptions:
    """The arguments and options of `xapi batch`."""

    files: Sequence[str] = ()
    jobs: int = 16
    ordered: bool = False
    retries: int = 0
    fail_fast: bool = False
    journal: str | None = None
    shard: str | None = None
    rate: str | None = None
    pauses: bool = True
    merge: bool = False
    input: str | None = None
    filter: str | None = None

    def check(self) -> None:
        """Raise UsageError if options are combined that exclude each other."""
        if not self.merge and len(self.files) > 1:
            hint = "use --merge to merge outputs, or cat to concatenate inputs"
            raise UsageError("only one FILE is allowed without --merge", hint=hint)
        if not self.merge and self.input is not None:
            raise UsageError("--input requires --merge", hint="write `xapi batch FILE`")
        refused = {"ordered": "--ordered", "retries": "--retry", "fail_fast": "--fail-fast", "journal": "--journal"}
        refused |= {"filter": "--jq", "shard": "--shard", "rate": "--rate", "pauses": "--no-pause", "jobs": "--jobs"}
        for field, option in refused.items() if self.merge else ():
            if getattr(self, field) != getattr(BatchOptions, field):
                raise UsageError(f"--merge and {option} cannot be combined", hint=f"omit {option}")
