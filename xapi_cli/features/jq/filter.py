"""A jq filter, which runs in a child process: libjq ignores signals while it works, and a filter may never end.

So Ctrl-C and --max-time end a command also then, and files are cleaned up.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from xapi_cli.errors import FilterError, UsageError
from xapi_cli.features.jq.child import DONE, FAILED, LENGTH, NO_LIBRARY, NOT_COMPILED, RESULTS
from xapi_cli.features.jq.records import documents
from xapi_cli.request.media_types import utf8
from xapi_cli.settings.table import without_secrets
from xapi_cli.system.render import shortened

_CHILD = Path(__file__).with_name("child.py")
_MAX_REASON = 200  # characters
_COMPILER, _PARSER = "jq: error: ", "parse error: "  # what errors of the compiler and of the parser begin with
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # they may contain passwords


class Filter:
    """The jq filter *text*, the value of *option*, ready to be applied; *environ* is that of the child process.

    If it is *for_items*, an error says that it is not for pages. The function *encode* of jq makes each result a line.
    Raises UsageError if the filter is not valid, or if there is no libjq.
    """

    makes_json = True

    def __init__(
        self,
        text: str,
        environ: Mapping[str, str],
        *,
        option: str = "--jq",
        for_items: bool = False,
        encode: Literal["tostring", "tojson"] = "tostring",
    ) -> None:
        self._option, self._for_items = option, for_items
        public = {name: value for name, value in without_secrets(environ).items() if name.lower() not in _PROXIES}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-S", str(_CHILD), text, encode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=public | {"PYTHONPATH": os.pathsep.join(sys.path)},
                process_group=None if os.name == "nt" else 0,  # Ctrl-C reaches xapi only, which ends it
            )
        except OSError as error:
            what = f"the process of {option} cannot be started: {error.strerror}"
            raise UsageError(what, hint="check the limits of memory and processes") from error
        try:
            self._wait_until_compiled()
        except BaseException:
            self.close()
            raise

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None], content_type: str = "") -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        In a stream of events or lines, each of them is filtered as soon as it has arrived. Raises FilterError if the
        body is not JSON or the filter fails, and the errors of *chunks* and *write*; what came before is filtered.
        """
        text = utf8(chunks, content_type, reader=self._option)
        for part in documents(text, content_type, self._option):
            for kind, data in self._answers(part) if part.strip() else ():
                if kind == FAILED:
                    raise self._failure(_reason(data))
                write(data)

    def finish(self, write: Callable[[bytes], None]) -> None:
        """Do nothing: each document is filtered as soon as it has arrived."""

    def close(self) -> None:
        """End the process of the filter."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # it did not read the rest
                pipe.close()  # type: ignore[union-attr]  # it is a pipe

    def _answers(self, part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Send *part* to the process, and yield the frames for it up to the last one."""
        with suppress(BrokenPipeError):  # the next frame tells
            self._process.stdin.write(len(part).to_bytes(LENGTH, "big") + part)  # type: ignore[union-attr]  # a pipe
            self._process.stdin.flush()  # type: ignore[union-attr]  # the same
        while (frame := self._frame())[0] == RESULTS:
            yield frame
        if frame[0] != DONE:
            yield frame

    def _frame(self) -> tuple[bytes, bytes]:
        """Return the kind and the data of the next frame; raises FilterError if the process has ended."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it is a pipe
        head = stdout.read(1 + LENGTH)
        data = stdout.read(int.from_bytes(head[1:], "big"))
        if len(head) == 1 + LENGTH:
            return head[:1], data
        code = self._process.wait()
        what = f"the {self._option} filter failed: its process ended with code {code}"
        raise FilterError(what, hint="use a simpler filter, which may need less memory")

    def _wait_until_compiled(self) -> None:
        kind, data = self._frame()
        if kind == NO_LIBRARY:
            hint = f"install xapi with the extra jq, or omit {self._option}"
            raise UsageError(f"{self._option} requires libjq, which cannot be used: {_reason(data)}", hint=hint)
        if kind == NOT_COMPILED:
            lines = data.decode().splitlines()
            found = [line for line in lines if line.startswith(_COMPILER)] or lines or [""]
            reason = _reason(found[0].removeprefix(_COMPILER).encode())
            hint = "correct it, put it in single quotes, and omit options of jq: strings are printed without quotes"
            raise UsageError(f"the {self._option} filter is not valid: {reason}", hint=hint)

    def _failure(self, reason: str) -> FilterError:
        if reason.startswith(_PARSER):
            what = f"{self._option} cannot parse the body as JSON: {reason.removeprefix(_PARSER)}"
            return FilterError(what, hint=f"omit {self._option} to see it")
        hint = "correct the filter"
        if self._for_items:
            hint = "with --paginate, write a filter for an item, not for the page"
        return FilterError(f"the {self._option} filter failed: {reason}", hint=hint)


def _reason(message: bytes) -> str:
    """Return the *message* of a failure as a part of a line."""
    return shortened(message.decode().replace("\n", " "), _MAX_REASON).removesuffix(":") or "no reason given"
