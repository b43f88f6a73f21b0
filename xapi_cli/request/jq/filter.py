"""`--jq`: a jq filter for the response, or for the items of each page, in one process."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from xapi_cli.errors import FilterError, NetworkError, XapiError
from xapi_cli.request.jq.child import (
    BLOCK,
    END,
    INVALID,
    LENGTH,
    LINES,
    MAX_DOCUMENT,
    RESULTS,
    TOO_LARGE,
    TRUNCATED,
    UNMET,
)
from xapi_cli.request.jq.engine import compile_filter, reason_of, unmet_condition
from xapi_cli.request.jq.event_stream import EVENT_STREAM, is_record_stream, media_type
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

    def apply(
        self,
        chunks: Iterable[bytes],
        write: Callable[[bytes], None],
        content_type: str = "",
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        If the body is a stream by its *content_type*, each record is filtered when it arrives: the data of an event, or
        a line. Results are written as they arrive, from another thread, which calls *on_failure* if the filter or
        *write* fails; *chunks* may be waiting for more then, and must end. Raises FilterError if the filter fails,
        NetworkError if a document is too large, and the errors of *chunks* and *write*; the filter cannot be applied
        again then. What *chunks* yield before an error is filtered too.
        """
        is_whole = not is_record_stream(content_type)
        reader = _Reader(self._process, write, on_failure, waits_if_invalid=is_whole)
        try:
            error = self._feed(chunks, content_type)
            kind, message = reader.finish()
            is_truncated = is_whole and kind == INVALID and error is not None  # such a body is often not valid
            if kind != END and not is_truncated:
                raise self._failure(kind, message)
            if error is not None:
                raise error
            self.unmet = unmet_condition(reader.unmet)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process of the filter."""
        self._process.end()

    def _feed(self, chunks: Iterable[bytes], content_type: str) -> XapiError | None:
        """Write a body, the text in *chunks*, to the process, as far as it reads it; return the error of *chunks*."""
        if media_type(content_type) == EVENT_STREAM:
            from xapi_cli.request.jq import event_stream

            chunks = event_stream.documents(chunks)
        error = None
        if is_record_stream(content_type):
            self._send(LINES)
        try:
            for chunk in chunks:
                for start in range(0, len(chunk), BLOCK):
                    block = chunk[start : start + BLOCK]
                    if not self._send(len(block).to_bytes(LENGTH, "big") + block):
                        return None
        except XapiError as caught:
            error = caught
            self._send(TRUNCATED)
        self._send(bytes(LENGTH))
        return error

    def _send(self, data: bytes) -> bool:
        """Write *data* to the process; return whether it still reads."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it is a pipe
        try:
            stdin.write(data)
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
        return FilterError(f"the {self._option} filter failed: {reason}", hint=self._hint(reason))

    def _hint(self, reason: str) -> str:
        if not self._for_items or not reason.startswith(_NOT_FOR_ITEM):
            return "correct the filter"
        found = _OF_PAGE.fullmatch(self._text)
        example = f"`{printable(found[1])}`" if found and found[1] else "a filter for an item"
        return f"write {example}, because with --paginate the filter is applied to each item, not to the page"


class _Reader:
    """Pass the results for a body that *process* writes to *write*, in a thread.

    After a failure, kill the process and call *on_failure*, except, if it *waits_if_invalid*, for a body that is not
    valid JSON: the rest of it shows whether it is truncated.
    """

    def __init__(
        self,
        process: FilterProcess,
        write: Callable[[bytes], None],
        on_failure: Callable[[], None],
        *,
        waits_if_invalid: bool,
    ) -> None:
        self._process, self._write, self._on_failure = process, write, on_failure
        self._waits_if_invalid = waits_if_invalid
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
            if not (self._waits_if_invalid and self._last[0] == INVALID):
                self._on_failure()
