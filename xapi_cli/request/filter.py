"""`--jq`: a jq filter for a response."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import IO

from xapi_cli.errors import FilterError, NetworkError, XapiError
from xapi_cli.request.filter_child import ENDED_EARLY, MAX_BODY, TOO_LARGE
from xapi_cli.request.filter_engine import MAX_ERRORS, FilterEngine, reason_of
from xapi_cli.request.filter_process import FilterProcess
from xapi_cli.system.render import printable

_BLOCK = 256 * 1024  # bytes
_NOT_FOR_ITEM = ("Cannot iterate over", "Cannot index")  # the beginnings of messages of jq
_PARSE_ERROR = re.compile(r"parse error: (.+)")  # of libjq
_UNMARKED_PARSE_ERROR = re.compile(r"(.+ at line \d+, column \d+)")  # of the program: errors of filters are marked
_OF_PAGE = re.compile(r"\s*\.\[\]\s*(?:\|\s*)?(.{0,60})")  # the beginning of a filter for an array


class Filter:
    """The jq filter *text*, ready to be applied; *environ* is that of the child process, without secrets.

    *warn* takes a line about numbers that the program jq changes, *note* what the filter prints on stderr. If it is
    *for_items*, an error says that it is not for pages. Raises UsageError if the filter cannot be compiled, or if there
    is neither libjq nor the program.
    """

    def __init__(
        self,
        text: str,
        environ: Mapping[str, str],
        *,
        warn: Callable[[str], None],
        note: Callable[[str], None],
        for_items: bool = False,
    ) -> None:
        self._text, self._for_items, self._note = text, for_items, note
        self._engine = FilterEngine(text, environ, warn=warn)

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        Results are written as they arrive, from another thread. Raises FilterError if the filter fails, NetworkError
        if a document is too large, and the errors of *chunks* and *write*.
        """
        process = self._engine.start()
        messages, results = _Messages(self._engine.failed), _Results(self._engine.end, write)
        try:
            output = _Reader(process, process.stdout, results.add)
            errors = _Reader(process, process.stderr, messages.add)
            self._feed(process, chunks)
            for reader in (output, errors):
                reader.finish()
            code = process.wait()
            if code or messages.error or not results.has_ended:
                results.add_rest()
                raise self._failure(code, messages)
        finally:
            process.end()
        for line in messages.first.decode("utf-8", "replace").splitlines():
            self._note(line)

    def close(self) -> None:
        """End the process of a filter that was not applied."""
        self._engine.close()

    def _failure(self, code: int, messages: "_Messages") -> XapiError:
        if code == TOO_LARGE and self._engine.is_library:
            return NetworkError(
                f"the body contains a document larger than {MAX_BODY // 2**20} MiB, the limit of --jq with libjq",
                hint="omit --jq, and pipe the body to the program jq",
                sent=True,
                headers_received=True,
            )
        reason = (
            reason_of(messages.error or messages.last, code, memory=self._engine.memory)
            if code or messages.error
            else ENDED_EARLY
        )
        if not messages.error and (found := self._parse_error.fullmatch(reason)):
            return FilterError(f"--jq cannot parse the body as JSON: {found[1]}", hint="omit --jq to see it")
        return FilterError(f"the filter of --jq failed: {reason}", hint=self._hint(reason))

    @property
    def _parse_error(self) -> re.Pattern[str]:
        return _PARSE_ERROR if self._engine.is_library else _UNMARKED_PARSE_ERROR

    def _hint(self, reason: str) -> str:
        if not self._for_items or not reason.startswith(_NOT_FOR_ITEM):
            return "check the filter"
        found = _OF_PAGE.fullmatch(self._text)
        example = f"; write `{printable(found[1])}`" if found and found[1] else ""
        return f"with --paginate, the filter is applied to each item, not to the page{example}"

    def _feed(self, process: FilterProcess, chunks: Iterable[bytes]) -> None:
        """Write *chunks* to stdin of *process*, as far as it reads them."""
        assert process.stdin is not None  # noqa: S101 - narrows the type
        numbers = self._engine.number_check()
        for chunk in chunks:
            numbers.add(chunk)
            try:
                process.stdin.write(chunk)
                process.stdin.flush()
            except BrokenPipeError:
                return
        with suppress(BrokenPipeError):
            process.stdin.close()


class _Results:
    """Pass what a process prints to *write*, up to the line *end*; *has_ended* is whether that was its last one."""

    def __init__(self, end: bytes, write: Callable[[bytes], None]) -> None:
        self._end, self._write, self._rest = end, write, b""

    @property
    def has_ended(self) -> bool:
        """Return whether the last line is that of the end."""
        return self._rest == self._end

    def add(self, data: bytes) -> None:
        """Write *data*, without a last part that may be that of the end."""
        data = self._rest + data
        start = data.rfind(self._end[:1])
        may_end = start >= 0 and self._end.startswith(data[start : start + len(self._end) + 1])
        self._rest = data[start:] if may_end else b""
        if results := data[: len(data) - len(self._rest)]:
            self._write(results)

    def add_rest(self) -> None:
        """Write what was not the end."""
        if self._rest and not self.has_ended:
            self._write(self._rest)


class _Messages:
    """The first and the last bytes of what a filter prints on stderr, and the *error* that begins with a mark."""

    def __init__(self, mark: bytes) -> None:
        self.first, self.last, self.error, self._mark = b"", b"", b"", mark

    def add(self, data: bytes) -> None:
        """Add *data* at the end."""
        self.first += data[: MAX_ERRORS - len(self.first)]
        if self.error:
            self.error += data[: MAX_ERRORS - len(self.error)]
            return
        self.last += data
        start = self.last.find(self._mark)
        if start >= 0:
            self.error = self.last[start : start + MAX_ERRORS]
        self.last = self.last[-MAX_ERRORS:]


class _Reader:
    """Pass what *process* writes to *pipe* to *write*, in a thread; if *write* fails, kill the process."""

    def __init__(self, process: FilterProcess, pipe: IO[bytes] | None, write: Callable[[bytes], None]) -> None:
        assert pipe is not None  # noqa: S101 - narrows the type
        self._process, self._pipe, self._write = process, pipe, write
        self._failure: XapiError | None = None
        self._thread = threading.Thread(target=self._read, name="xapi-filter", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything was passed on; raises the error of *write*."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        try:
            with suppress(ValueError):  # the pipe was closed
                while data := self._pipe.read1(_BLOCK):  # type: ignore[attr-defined]  # a BufferedReader
                    self._write(data)
        except XapiError as error:
            self._failure = error
            self._process.kill()
