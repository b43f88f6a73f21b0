"""Count the lines of a batch by outcome, for the progress line and the summary."""

import time
from collections import Counter

from xapi_cli.batch.output.results import Result
from xapi_cli.errors import InvalidLine


class Tally:
    """The number of *lines*, of *failed* ones and of *retries*; *exit_code* is the highest of all results.

    *message* and *hint* are those of the errors of all failed lines, each None if these differ.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.failed = 0
        self.retries = 0
        self.pauses = 0
        self.exit_code = 0
        self.message: str | None = None
        self.hint: str | None = None
        self._restored = 0
        self._notable: Counter[str] = Counter()
        self._started = time.monotonic()

    def count(self, result: Result, *, is_new: bool) -> None:
        """Count one line; *is_new* is False if its result is from the journal."""
        self.lines += 1
        self._restored += not is_new
        if result.code:
            self.failed += 1
            self.exit_code = max(self.exit_code, result.code)
            message, hint = result.cause or (None, None)
            is_first = self.failed == 1
            self.message = message if is_first or message == self.message else None
            self.hint = hint if is_first or hint == self.hint else None
        if result.is_notable:
            self._notable[result.kind] += 1

    @property
    def invalid(self) -> int:
        """The number of input lines that are not valid."""
        return self._notable[InvalidLine.kind]

    def summary(self) -> str:
        """Return the counts as text for the user."""
        seconds = max(0.001, time.monotonic() - self._started)
        text = f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}"
        if self.failed:
            text = f"{self.failed:,} of {text} failed"
        more = [f"{self._restored:,} from the journal"] if self._restored else []
        for count, singular, plural in ((self.retries, "retry", "retries"), (self.pauses, "pause", "pauses")):
            more += [f"{count:,} {singular if count == 1 else plural}"] if count else []
        rate = ", ".join([f"{(self.lines - self._restored) / seconds:,.0f}/s", *more])
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(self._notable.items()))
        return f"{text} in {seconds:.1f} s ({rate})" + (f": {kinds}" if kinds else "")
