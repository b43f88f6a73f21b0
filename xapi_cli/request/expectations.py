"""`--expect`: jq filters that a successful response must meet, checked after its body has been written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from xapi_cli.errors import ExpectationFailed, FilterError
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.jq.filter import Filter
from xapi_cli.system.render import printable


class Expectations:
    """The filters *texts*, compiled before anything is sent, and a copy of the body that they are applied to.

    *environ* is that of the child process, without secrets. Raises UsageError if a filter cannot be compiled, or if
    there is no libjq.
    """

    def __init__(self, texts: Sequence[str], environ: Mapping[str, str]) -> None:
        self._texts = texts
        self._content_type: str | None = None  # of the recorded body
        self._filter = Filter("empty", environ, option="--expect", conditions=texts)
        self._body = Spool(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._filter.close()
        self._body.close()

    def recorded(self, chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
        """Yield *chunks*, a body of type *content_type*, and keep a copy; raises OutputError if there is no space."""
        self._content_type = content_type
        for chunk in chunks:
            self._body.append(chunk)
            yield chunk

    def check(self) -> None:
        """Raise ExpectationFailed for the first filter that fails, or that yields false, null or nothing.

        Without a recorded body, there was no success, and nothing is checked. Raises NetworkError if the body contains
        a document that is too large for libjq.
        """
        if self._content_type is None:
            return
        try:
            self._filter.apply(iter(self._body), lambda _: None, self._content_type)
        except FilterError as error:
            raise failure(self._texts[0], error.message) from error
        if self._filter.unmet is not None:
            number, reason = self._filter.unmet
            raise failure(self._texts[number], reason)


def failure(text: str, reason: str) -> ExpectationFailed:
    """Return the error for a response that does not satisfy the filter *text*."""
    return ExpectationFailed(
        f"the response does not meet --expect '{printable(text)}': {reason}", hint="check whether the API has changed"
    )
