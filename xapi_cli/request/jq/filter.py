"""`--jq`: a jq filter for the response, or for the items of each page, in one process."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from xapi_cli.errors import FilterError, NetworkError, XapiError
from xapi_cli.request.jq.child import BLOCK, END, INVALID, LENGTH, MAX_DOCUMENT, RESULTS, TOO_LARGE, UNMET
from xapi_cli.request.jq.engine import compile_filter, reason_of, unmet_condition
from xapi_cli.request.jq.process import FilterProcess
from xapi_cli.system.render import printable

_MEMORY = 2 * 1024**3  # bytes of the process; documents take about 20 times their size
_NOT_FOR_ITEM = ("Cannot iterate over", "Cannot index")  # the beginnings of messages of jq
_PARSE_ERROR = re.compile(r"parse error: (.+)")
_OF_PAGE = re.compile(r"\s*\.\[\]\s*(?:\|\s*)?(.{0,60})")  # the beginning of a filter for an array


class Filter:
    """The jq filter *text*, ready to be applied; *environ* is that of the child process, without secrets.

    It is the value of *option*. The function *encode* of jq makes each result a line. If it is *for_items*, an error
    says that it is not for pages. The filters *conditions*, values of --expect, are tested on the same documents.
    Raises UsageError if a filter cannot be compiled, or if there is no libjq.
    """

    def __init__(
        self,
        text: str,
        environ: Mapping[str, str],
        *,
        for_items: bool = False,
        option: str = "--jq",
        encode: Literal["tostring", "tojson"] = "tostring",
        conditions: Sequence[str] = (),
    ) -> None:
        self._text, self._for_items, self._option = text, for_items, option
        self.unmet: tuple[int, str] | None = None  # the first condition that the body does not meet, and why
        self._process = compile_filter(
            text, environ, encode=encode, memory=_MEMORY, option=option, conditions=conditions
        ).process

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        Results are written as they arrive, from another thread. Raises FilterError if the filter fails, NetworkError
        if a document is too large, and the errors of *chunks* and *write*; the filter cannot be applied again then.
        """
        reader = _Reader(self._process, write)
        try:
            self._feed(chunks)
            kind, message = reader.finish()
            if kind != END:
                raise self._failure(kind, message)
            self.unmet = unmet_condition(reader.unmet)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def documents(chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
        """Return what the filter is for in the body *chunks* of type *content_type*: of events, their data."""
        if "event-stream" in content_type.lower():
            from xapi_cli.request.jq import event_stream

            if event_stream.is_event_stream(content_type):
                return event_stream.documents(chunks)
        return chunks

    def close(self) -> None:
        """End the process of the filter."""
        self._process.end()

    def _feed(self, chunks: Iterable[bytes]) -> None:
        """Write a body, the text in *chunks*, to the process, as far as it reads it."""
        for chunk in chunks:
            for start in range(0, len(chunk), BLOCK):
                if not self._send(chunk[start : start + BLOCK]):
                    return
        self._send(b"")

    def _send(self, block: bytes) -> bool:
        """Write *block* to the process; return whether it still reads."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it is a pipe
        try:
            stdin.write(len(block).to_bytes(LENGTH, "big") + block)
            stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _failure(self, kind: bytes, message: bytes) -> XapiError:
        if kind == TOO_LARGE:
            return NetworkError(
                f"the body contains a document larger than {MAX_DOCUMENT // 2**20} MiB, the limit of {self._option}"
                " with libjq",
                hint=f"omit {self._option}, and pipe the body to the program jq",
                sent=True,
                headers_received=True,
            )
        reason = reason_of(message) if kind else self._process.reason_of_end()
        if kind == INVALID and (found := _PARSE_ERROR.fullmatch(reason)):
            return FilterError(
                f"{self._option} cannot parse the body as JSON: {found[1]}", hint=f"omit {self._option} to see it"
            )
        return FilterError(f"the filter of {self._option} failed: {reason}", hint=self._hint(reason))

    def _hint(self, reason: str) -> str:
        if not self._for_items or not reason.startswith(_NOT_FOR_ITEM):
            return "check the filter"
        found = _OF_PAGE.fullmatch(self._text)
        example = f"; write `{printable(found[1])}`" if found and found[1] else ""
        return f"with --paginate, the filter is applied to each item, not to the page{example}"


class _Reader:
    """Pass the results for a body that *process* writes to *write*, in a thread; kill the process if it fails."""

    def __init__(self, process: FilterProcess, write: Callable[[bytes], None]) -> None:
        self._process, self._write = process, write
        self._last = b"", b""  # the frame at the end; empty if the process has ended
        self.unmet = b""  # the content of a frame
        self._error: XapiError | None = None
        self._thread = threading.Thread(target=self._read, name="xapi-filter", daemon=True)
        self._thread.start()

    def finish(self) -> tuple[bytes, bytes]:
        """Wait until everything was passed on; return the last frame, or raise the error of *write*."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._last

    def _read(self) -> None:
        try:
            with suppress(ValueError):  # the pipe was closed
                for kind, data in self._process.read_frames():
                    if kind == RESULTS:
                        self._write(data)
                        continue
                    if kind == UNMET:
                        self.unmet = data
                        continue
                    self._last = kind, data
                    break
        except XapiError as error:
            self._error = error
        if self._last[0] != END:
            self._process.kill()  # nothing more is written to it
