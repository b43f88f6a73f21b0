"""A jq filter, which runs in a child process: libjq ignores signals, and a filter may never end or use all memory."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from xapi_cli.errors import FilterError, UsageError
from xapi_cli.features.jq.child import DONE, FAILED, LENGTH, MEMORY, NOT_COMPILED, RESULTS
from xapi_cli.features.jq.records import documents
from xapi_cli.request.media_types import utf8
from xapi_cli.settings.table import without_secrets
from xapi_cli.system.encoding import is_utf8
from xapi_cli.system.render import printable, shortened

_CHILD = Path(__file__).with_name("child.py")
_MAX_REASON = 200  # characters
_COMPILER, _PARSER = "jq: error: ", "parse error: "  # what errors of the compiler and of the parser begin with
_NOT_FOR_ITEM = ("Cannot iterate over", "Cannot index")  # the beginnings of messages of jq
_OF_PAGE = re.compile(r"\s*\.\[\]\s*(?:\|\s*)?(.{0,60})")  # the beginning of a filter for an array
_OPTION_OF_JQ = re.compile(
    r"-[CMRScehjnrs]{1,3}|--(?:(?:raw|compact|join|ascii|color|monochrome)-[a-z0-9]+|null-input|slurp|exit-status"
    r"|sort-keys|tab|indent|arg|argjson|args|jsonargs|slurpfile|rawfile|from-file|stream|seq)"
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # they may contain passwords


def check_text(text: str, option: str) -> None:
    """Raise UsageError if the filter *text*, the value of *option*, is an option of jq, such as `-r`, or not UTF-8.

    An empty filter yields its input, which meets every condition: a shell variable may be unset.
    """
    if option != "--jq" and not text.strip():
        raise UsageError(f"{option} is empty", hint="give a filter, or omit the option")
    if not is_utf8(text):
        raise UsageError(f"{option} is not valid UTF-8", hint="write the filter in UTF-8")
    if _OPTION_OF_JQ.fullmatch(text):
        what = f"{option} takes a filter, not an option of jq such as {text}"
        raise UsageError(what, hint=f"omit {text}: each result is one line, and strings are printed without quotes")


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
        check_text(text, option)
        self._text, self._option, self._for_items = text, option, for_items
        self._lifeline = -1
        public = {name: value for name, value in without_secrets(environ).items() if name.lower() not in _PROXIES}
        source, self._lifeline = os.pipe()  # it ends with this process, however that ends
        command = [sys.executable, "-I", "-S", str(_CHILD), _library_directory(option), text, encode, str(source)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=public,
                pass_fds=() if os.name == "nt" else (source,),
                process_group=None if os.name == "nt" else 0,  # Ctrl-C reaches xapi only, which ends it
            )
        except OSError as error:
            os.close(self._lifeline)
            what = f"the process of {option} cannot be started: {error.strerror}"
            raise UsageError(what, hint="check the limits of memory and processes") from error
        finally:
            os.close(source)
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
            if part.strip():
                for kind, data in self._answers(part):
                    if kind == FAILED:
                        raise self._failure(_reason(data))
                    write(data)

    def finish(self, write: Callable[[bytes], None]) -> None:
        """Do nothing: each document is filtered as soon as it has arrived."""

    def close(self) -> None:
        """End the process of the filter."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            os.close(self._lifeline)
        self._lifeline = -1
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
        how = f"with exit code {code}" if code >= 0 else f"possibly because it needs more than {MEMORY // 2**30} GiB"
        raise FilterError(f"the {self._option} filter failed: its process ended, {how}", hint="use a simpler filter")

    def _wait_until_compiled(self) -> None:
        kind, data = self._frame()
        if kind == DONE:
            return
        if kind != NOT_COMPILED:
            raise UsageError(f"libjq cannot be used: {_reason(data)}", hint=_how_to_install(self._option))
        lines = data.decode().splitlines()
        found = [line for line in lines if line.startswith(_COMPILER)] or lines or [""]
        reason = _reason(found[0].removeprefix(_COMPILER).encode())
        what = f"the {self._option} filter is not valid: {reason}"
        raise UsageError(what, hint="correct it, and put it in single quotes")

    def _failure(self, reason: str) -> FilterError:
        if reason.startswith(_PARSER):
            what = f"{self._option} cannot parse the body as JSON: {reason.removeprefix(_PARSER)}"
            return FilterError(what, hint=f"omit {self._option} to see it")
        hint = "correct the filter"
        if self._for_items and reason.startswith(_NOT_FOR_ITEM):
            found = _OF_PAGE.fullmatch(self._text)
            example = f"`{printable(found[1])}`" if found and found[1] else "a filter for an item"
            hint = f"write {example}, because with --paginate the filter is applied to each item, not to the page"
        return FilterError(f"the {self._option} filter failed: {reason}", hint=hint)


def _reason(message: bytes) -> str:
    """Return the *message* of a failure as a part of a line."""
    return shortened(message.decode().replace("\n", " "), _MAX_REASON).removesuffix(":") or "no reason given"


def _how_to_install(option: str) -> str:
    other = " and append `| jq`" if option == "--jq" else ""
    return f"install xapi with the extra jq, or omit {option}{other}"


def _library_directory(option: str) -> str:
    """Return the directory of libjq's module; raises UsageError. A directory `jq` without code is not the module."""
    spec = find_spec("jq")
    if spec is None or spec.origin is None or not spec.has_location:
        raise UsageError(f"{option} requires libjq, which is not installed", hint=_how_to_install(option))
    directory = Path(spec.origin).resolve().parent
    return str(directory.parent if spec.submodule_search_locations else directory)
