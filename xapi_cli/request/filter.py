"""`--jq`: a jq filter for a response."""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import IO

from xapi_cli.errors import FilterError, NetworkError, XapiError
from xapi_cli.request.filter_engine import MAX_ERRORS, FilterEngine, FilterProcess, reason_of

_BLOCK = 64 * 1024  # bytes
_MAX_BODY = 64 * 1024 * 1024  # bytes that libjq reads, all at once; the program reads one document after the other


class Filter:
    """The jq filter *text*, ready to be applied; *environ* is that of the child process, without secrets.

    *warn* takes a line about numbers that the program jq changes, *note* what the filter prints on stderr. Raises
    UsageError if the filter cannot be compiled, or if there is neither libjq nor the program.
    """

    def __init__(
        self, text: str, environ: Mapping[str, str], *, warn: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self._engine, self._note = FilterEngine(text, environ, warn=warn), note

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        Results are written as they arrive, from another thread. Raises FilterError if the filter fails, NetworkError
        if the documents are too large, and the errors of *chunks* and *write*.
        """
        process = self._engine.start()
        messages = _Messages(self._engine.failed)
        try:
            output = _Reader(process, process.stdout, write)
            errors = _Reader(process, process.stderr, messages.add)
            self._feed(process, chunks)
            for reader in (output, errors):
                reader.finish()
            code = process.wait()
        finally:
            process.end()
        if code or messages.error:
            reason = reason_of(messages.error or messages.last, code)
            raise FilterError(f"the filter of --jq failed: {reason}", hint="check the filter")
        for line in messages.first.decode("utf-8", "replace").splitlines():
            self._note(line)

    def _feed(self, process: FilterProcess, chunks: Iterable[bytes]) -> None:
        """Write *chunks* to stdin of *process*, as far as it reads them."""
        assert process.stdin is not None  # noqa: S101 - narrows the type
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > _MAX_BODY and self._engine.is_library:
                raise NetworkError(
                    f"the body is larger than the {_MAX_BODY // 2**20} MiB that --jq reads with libjq",
                    hint="omit --jq, and pipe the body to the program jq",
                    sent=True,
                    headers_received=True,
                )
            self._engine.check_numbers(chunk)
            try:
                process.stdin.write(chunk)
            except BrokenPipeError:
                return
        with suppress(BrokenPipeError):
            process.stdin.close()


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
