"""`--jq`: a jq filter for a response, in a child process, which can be killed at any time (libjq ignores signals)."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from xapi_cli.errors import FilterError, UsageError, XapiError
from xapi_cli.request.filter_child import COMPILE_ERROR
from xapi_cli.settings.table import without_secrets
from xapi_cli.system import programs
from xapi_cli.system.render import printable

_CHILD = Path(__file__).with_name("filter_child.py")
_BLOCK = 64 * 1024  # bytes
_MAX_ERRORS = 16 * 1024  # bytes of stderr that are read
_MAX_REASON = 200  # characters
_PREFIX = re.compile(r"^jq: (?:error:? ?)?(?:\(at [^)]*\) ?)?(?:\(not a string\))?:? ?")
_ERROR_LINE = re.compile(rb"^jq: error", re.MULTILINE)
_LOSSY_BEFORE = (1, 7)  # earlier versions of the program convert all numbers to binary floating point
_VERSION = re.compile(rb"jq-(\d+)\.(\d+)")
_CHANGED_NUMBER = re.compile(rb"[\s:,\[]-?\d+(?:\.\d*0|\d{16,})[\s,\]}]")


class Filter:
    """The jq filter *text*, ready to be applied; *environ* is that of the child process, without secrets.

    *warn* takes a line about numbers that the program jq changes, *note* what the filter prints on stderr. Raises
    UsageError if the filter cannot be compiled, or if there is neither libjq nor the program.
    """

    def __init__(
        self, text: str, environ: Mapping[str, str], *, warn: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self._environ, self._warn, self._note = without_secrets(environ), warn, note
        program = None if find_spec("jq") is not None else _program(self._environ)
        self._lossy_version = self._old_version(program) if program else None
        if program is None:
            self._command = [sys.executable, "-E", "-P", str(_CHILD), text]
        else:
            self._command = [program, "-r", "-c", f" {text}"]  # the space: a filter may begin with a hyphen
        code, _, errors = self._run(self._command)
        if code == COMPILE_ERROR:
            raise UsageError(f"the filter of --jq cannot be compiled: {_reason(errors)}", hint="check the filter")
        if code:
            raise UsageError(f"jq cannot be run: {_reason(errors)}", hint="check the installation of jq")

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Pass the JSON documents in *chunks* to the filter, and its results, one per line, to *write*.

        Results are written as they arrive, from another thread. Raises FilterError if the filter fails, and the
        errors of *chunks* and *write*.
        """
        process = self._start(self._command, stdin=subprocess.PIPE)
        errors = bytearray()
        try:
            output = _Reader(process, process.stdout, write)
            messages = _Reader(process, process.stderr, lambda data: errors.extend(data[: _MAX_ERRORS - len(errors)]))
            self._feed(process, chunks)
            for reader in (output, messages):
                reader.finish()
            code = process.wait()
        finally:
            _end(process)
        if code or _ERROR_LINE.search(errors):  # the exit code of the program jq is that of the last document
            raise FilterError(f"the filter of --jq failed: {_reason(bytes(errors), code)}", hint="check the filter")
        for line in errors.decode("utf-8", "replace").splitlines():
            self._note(line)

    def _feed(self, process: "subprocess.Popen[bytes]", chunks: Iterable[bytes]) -> None:
        """Write *chunks* to stdin of *process*, as far as it reads them."""
        assert process.stdin is not None  # noqa: S101 - narrows the type
        for chunk in chunks:
            if self._lossy_version and _CHANGED_NUMBER.search(chunk):
                self._warn(
                    f"jq {self._lossy_version} changes numbers such as 1.10 and integers of more than 17 digits; "
                    "use jq 1.7, or `pip install 'xapi-cli[jq]'`"
                )
            try:
                process.stdin.write(chunk)
            except BrokenPipeError:
                return
        with suppress(BrokenPipeError):
            process.stdin.close()

    def _old_version(self, program: str) -> str | None:
        """Return the version of *program* if it changes numbers."""
        found = _VERSION.match(self._run([program, "--version"])[1])
        if found is None or (int(found[1]), int(found[2])) >= _LOSSY_BEFORE:
            return None
        return f"{int(found[1])}.{int(found[2])}"

    def _run(self, command: list[str]) -> tuple[int, bytes, bytes]:
        """Return the exit code, stdout and stderr of *command* with an empty stdin."""
        process = self._start(command, stdin=subprocess.DEVNULL)
        try:
            out, errors = process.communicate()
        finally:
            _end(process)
        return process.returncode, out, errors

    def _start(self, command: list[str], *, stdin: int) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ,
                process_group=0 if os.name != "nt" else None,  # Ctrl-C reaches xapi only, which kills it
            )
        except OSError as error:
            raise UsageError(f"jq cannot be run: {error.strerror}", hint="check the installation of jq") from error


class _Reader:
    """Pass what *process* writes to *pipe* to *write*, in a thread; if *write* fails, kill the process."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", pipe: IO[bytes] | None, write: Callable[[bytes], None]
    ) -> None:
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


def _program(environ: Mapping[str, str]) -> str:
    try:
        return programs.find("jq", environ)
    except FileNotFoundError:
        raise UsageError(
            "--jq requires libjq or the program jq", hint="run `pip install 'xapi-cli[jq]'`, or install jq"
        ) from None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill *process* if it is still running, and close its pipes."""
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdin is not None:
        with suppress(OSError):  # it did not read the rest
            process.stdin.close()


def _reason(errors: bytes, code: int = 0) -> str:
    """Return the first line of the *errors* that jq printed, without its prefix."""
    if code < 0:
        return "jq was killed"
    lines = errors.decode("utf-8", "replace").splitlines()
    found = [line for line in lines if line.startswith("jq: error")] or lines or ["no reason given"]
    return printable(_PREFIX.sub("", found[0])).removesuffix(":")[:_MAX_REASON]
