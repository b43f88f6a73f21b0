"""`--expect`: jq filters that a successful response must meet, checked after its body has been written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from xapi_cli.errors import ExpectationFailed, FilterError
from xapi_cli.features.jq.filter import Filter
from xapi_cli.request.body.spool import Spool
from xapi_cli.system.render import printable


class Expectations:
    """The filters *texts*, compiled before anything is sent, and a copy of the body that they are applied to.

    *environ* is that of the child processes; *stack* closes everything. Raises UsageError if a filter cannot be
    compiled, or if there is no libjq.
    """

    def __init__(self, texts: Sequence[str], environ: Mapping[str, str], stack: ExitStack) -> None:
        self._content_type: str | None = None  # of the recorded body
        self._body = Spool(())
        stack.callback(self._body.close)
        self._filters: list[tuple[str, Filter]] = []
        for text in texts:
            condition = Filter(text, environ, option="--expect", encode="tojson")
            stack.callback(condition.close)
            self._filters.append((text, condition))

    def recorded(self, chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
        """Yield *chunks*, a body of type *content_type*, and keep a copy; raises OutputError if there is no space."""
        self._content_type = content_type
        for chunk in chunks:
            self._body.append(chunk)
            yield chunk

    def check(self) -> None:
        """Raise ExpectationFailed for the first filter that fails, or that yields false, null or nothing.

        Without a recorded body, there was no success, and nothing is checked.
        """
        if self._content_type is None:
            return
        for text, condition in self._filters:
            try:
                reason = self._unmet(condition, self._content_type)
            except FilterError as error:
                reason = error.message
            if reason:
                what = f"the response does not meet --expect '{printable(text)}': {reason}"
                raise ExpectationFailed(what, hint="check whether the API has changed")

    def _unmet(self, condition: Filter, content_type: str) -> str:
        """Return why the body does not meet *condition*, which must yield something, and neither false nor null."""
        found: set[bytes] = set()

        def take(lines: bytes) -> None:
            found.update(line if line in (b"false", b"null") else b"" for line in lines.splitlines())

        condition.apply(iter(self._body), take, content_type)
        rejected = sorted(each.decode() for each in found if each)
        return f"the filter yields {' and '.join(rejected) or 'nothing'}" if rejected or not found else ""
