"""`--expect`: jq filters that a successful response must meet, checked after its body has been written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from xapi_cli.errors import ExpectationFailed, FilterError
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.jq.filter import Filter
from xapi_cli.system.render import printable


class Expectations:
    """The filters *texts*, compiled before anything is sent, and a copy of the body that they are applied to.

    *environ* is that of the child processes, without secrets. Raises UsageError if a filter cannot be compiled, or if
    there is no libjq.
    """

    def __init__(self, texts: Sequence[str], environ: Mapping[str, str]) -> None:
        self._content_type: str | None = None  # of the recorded body
        self._body = Spool(())
        with ExitStack() as stack:
            stack.callback(self._body.close)
            self._filters: list[tuple[str, Filter]] = []
            for text in texts:
                found = Filter(text, environ, option="--expect", encode="tojson")
                stack.callback(found.close)
                self._filters.append((text, found))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
        for text, jq in self._filters:
            if (reason := self._failure(jq, self._content_type)) is not None:
                raise ExpectationFailed(
                    f"the response does not meet --expect '{printable(text)}': {reason}",
                    hint="check whether the API has changed",
                )

    def _failure(self, jq: Filter, content_type: str) -> str | None:
        """Return why the body does not meet the filter *jq*, or None if it does."""
        results: set[bytes] = set()

        def add(lines: bytes) -> None:
            found = lines.splitlines()
            results.update(each if each in (b"false", b"null") else b"" for each in found)

        try:
            jq.apply(jq.documents(iter(self._body), content_type), add)
        except FilterError as error:
            return error.message
        if not results:
            return "the filter yields nothing"
        failed = [each.decode() for each in (b"false", b"null") if each in results]
        return f"the filter yields {' and '.join(failed)}" if failed else None
