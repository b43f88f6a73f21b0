"""Choose an engine for a jq filter, libjq or the program jq, and run it in a child process.

A child process can be killed at any time, while libjq ignores signals.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from xapi_cli.errors import FilterError, UsageError, XapiError
from xapi_cli.request.filter_child import COMPILE_ERROR, TUNABLES
from xapi_cli.request.filter_process import FilterProcess
from xapi_cli.settings.table import without_secrets
from xapi_cli.system import programs
from xapi_cli.system.render import printable

MAX_ERRORS = 16 * 1024  # bytes of stderr
_CHILD = Path(__file__).with_name("filter_child.py")
_TIME_LIMIT = 10  # seconds, to compile the filter
_MAX_REASON = 200  # characters
_NO_PROGRAM = b"Top-level program not given"  # the filter is empty, a comment, or only defines functions
_ERROR = "jq: error"
_PREFIX = re.compile(r"^jq: (?:error(?: [0-9a-f]{32})?:? ?)?(?:\(at [^)]*\) ?)?(?:\(not a string\))?:? ?")
_REASONS = {"": "no reason given", "break": "no more input"}  # jq 1.6 calls the end of the input `break`
_LOSSY_BEFORE = (1, 7)  # earlier versions of the program convert all numbers to binary floating point
_VERSION = re.compile(rb"jq-(\d{1,4})\.(\d{1,4})")
_OPTION_OF_JQ = re.compile(
    r"-[CMRScehjnrs]{1,3}|--(?:(?:raw|compact|join|ascii|color|monochrome)-[a-z0-9]+|null-input|slurp|exit-status"
    r"|sort-keys|tab|indent|arg|argjson|args|jsonargs|slurpfile|rawfile|from-file|stream|seq)"
)
_DIRECTIVES = re.compile(
    r'(?:\s|#[^\n]*(?:\n|\Z)|(?:module|import|include)\b(?:"(?:[^"\\]|\\.)*"|#[^\n]*\n|[^";#])*;)*', re.DOTALL
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # they may contain passwords
# halt and halt_error would end libjq without an error, and the program with exit code 0
_NO_HALT = """def halt_error($code): error(if type == "string" then . else tojson end); \
def halt_error: halt_error(5); def halt: error("halt is not supported"); """
# the text %s on stderr marks an error, which is one line, whatever the exit code is
_FAIL = """def xapi_fail: if type == "string" then split("\\n") | join(" ") else tojson end \
| "\\n%s: " + . + "\\n" | halt_error(5); """

# Numbers that jq before 1.7 changes: with a zero at the end of the fraction, or 17 digits. Two are faster than one.
_CHANGED_NUMBERS = (re.compile(rb"\d\.\d*0(?![\d.])"), re.compile(rb"\d{17}"))
_LONGEST_NUMBER = 64  # bytes that are searched again, with the next chunk
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NO_INPUT = 'def input: error("No more inputs"); def inputs: empty; '
_ONE_RESULT = """
)] | [length, if length == 1 then .[0] else . end]) catch {error: (if type == "string" then . else tojson end)})"""
_MEMORY = 2 * 1024**3  # bytes of a process; documents take about 20 times their size
_MEMORY_BY_LINE = 1024**3


class FilterEngine:
    """The engine for the jq filter *text*; *environ* is that of its processes, without secrets.

    A process reads JSON documents and prints their results, one per line, strings raw, and then the line `end`. If the
    filter fails, that line is missing, or a line on stderr begins with `failed`. On Linux, the memory of a process is
    limited to `memory` bytes. *warn* takes a line about numbers that the program changes.

    With *by_line*, each line that a process reads is a document, and it prints one line for it: `[N,RESULT]`, in which
    RESULT is an array unless N, the number of results, is 1, or `{"error":TEXT}`.

    Raises UsageError if the filter cannot be compiled, or if there is neither libjq nor the program.
    """

    def __init__(
        self, text: str, environ: Mapping[str, str], *, warn: Callable[[str], None], by_line: bool = False
    ) -> None:
        if by_line and os.name == "nt":  # the engine of a batch can wait for sockets only
            raise UsageError("batch --jq is not available on Windows", hint="pass the output to the program jq")
        check_text(text)
        self._warn, self._is_by_line = warn, by_line
        self._environ = {
            name: value for name, value in without_secrets(environ).items() if name.lower() not in _PROXIES
        }
        self._library_environ = {"GLIBC_TUNABLES": TUNABLES, **self._environ}
        mark = os.urandom(16).hex()  # documents cannot contain it
        self.end, self.failed = f"\x1e{mark}\n".encode(), f"{_ERROR} {mark}".encode()
        self.memory = _MEMORY_BY_LINE if by_line else _MEMORY
        self._compiled: FilterProcess | None = None  # it waits for documents
        self._lossy_version: str | None = None
        directory = _library_directory()
        self.is_library = directory is not None
        if directory is not None:
            try:
                self._use_library(text, directory)
            except _Unusable as error:
                self.is_library = False
                self._use_program(text, f"libjq cannot be used: {error.message}")
        else:
            self._use_program(text, "--jq requires libjq or the program jq")

    def start(self) -> FilterProcess:
        """Start a process; raises FilterError if that fails, because a request may have been sent."""
        process, self._compiled = self._compiled, None
        try:
            return process or self._process(self._command, stdin=subprocess.PIPE)
        except OSError as error:
            message = f"jq cannot be run: {error.strerror}"
            raise FilterError(message, hint="check the installation of jq") from error

    def close(self) -> None:
        """End the process that was started to compile the filter, unless `start` has returned it."""
        if self._compiled is not None:
            self._compiled.end()
            _close_outputs(self._compiled)

    def number_check(self) -> "NumberCheck":
        """Return a check for a document, or for several that follow each other."""
        return NumberCheck(self._lossy_version, self._warn)

    def _use_program(self, text: str, otherwise: str) -> None:
        try:
            program = programs.find("jq", self._environ)
        except FileNotFoundError:
            hint = "run `pip install 'xapi-cli[jq]'`, or install jq"
            raise UsageError(otherwise, hint=hint) from None
        try:
            self._command = self._program_command(text, program)
            self._lossy_version = self._old_version(program)
        except (_Unusable, OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = error.message if isinstance(error, _Unusable) else "it does not print its version"
            raise UsageError(f"jq cannot be run: {reason}", hint="check the installation of jq") from error

    def _use_library(self, text: str, directory: str) -> None:
        """Start a process for the filter *text*; raises UsageError, or _Unusable."""
        code, errors = self._start_library(text, directory)
        if _NO_PROGRAM in errors:
            code, errors = self._start_library(f"{text}\n.", directory)
        self._check(code or 0, errors)

    def _start_library(self, text: str, directory: str) -> tuple[int | None, bytes]:
        """Start a process for the filter *text*; return what `_outcome` does."""
        self._command = self._library_command(text, directory)
        try:
            process = self._process([*self._command, "ready"], stdin=subprocess.PIPE)
        except OSError as error:
            raise _Unusable(str(error.strerror)) from error
        code, errors = self._outcome(process)
        if code is None:
            self._compiled = process
        return code, errors

    def _program_command(self, text: str, program: str) -> list[str]:
        """Return the command that applies the filter *text* with *program*; raises UsageError, or _Unusable."""
        # the first one is for the error messages; a filter can begin with a hyphen
        alone, full = ([program, "-rc", f" {text}"], self._full_command(text, program))
        code, errors = self._run(alone)
        has_no_expression = _NO_PROGRAM in errors or (not code and self._run(full)[0] == COMPILE_ERROR)
        if has_no_expression:
            full = self._full_command(f"{text}\n.", program)
            code, errors = self._run(full)
        self._check(code, errors)
        return full

    def _check(self, code: int, errors: bytes) -> None:
        reason = reason_of(errors, code, memory=self.memory)
        if code == COMPILE_ERROR:
            raise UsageError(f"the filter of --jq cannot be compiled: {reason}", hint="check the filter")
        if code:
            raise _Unusable(reason)

    def _library_command(self, text: str, directory: str) -> list[str]:
        # Python objects would lose the notation of numbers, which `tostring` preserves. Strings stay as they are.
        if self._is_by_line:
            arguments = [_placed(text, f"{_NO_INPUT}{_NO_HALT}(try ([(", f"{_ONE_RESULT} | tostring"), ""]
        else:
            full = _placed(text, f"{_NO_HALT}0, ((", "\n) | tostring), null")
            arguments = [full, self.end.decode()[:-1]]
        return [sys.executable, "-I", "-S", str(_CHILD), directory, text, *arguments]

    def _full_command(self, text: str, program: str) -> list[str]:
        if self._is_by_line:
            full = _placed(text, f"{_NO_INPUT}{_NO_HALT}(try ([(", _ONE_RESULT)
            return [program, "-c", "--unbuffered", f" {full}"]
        fail, end = _FAIL % self.failed.decode(), self.end.decode()[1:-1]
        full = _placed(text, f"{fail}{_NO_HALT}(inputs | try (", f'\n) catch xapi_fail), "\\u001e{end}"')
        return [program, "-n", "-rc", f" {full}"]

    def _old_version(self, program: str) -> str | None:
        """Return the version of *program* if it changes numbers."""
        version_query = programs.Invocation([program, "--version"], self._environ, 1000, in_background=True)
        out, _ = programs.run(version_query, _TIME_LIMIT)
        found = _VERSION.match(out)
        if found is None or (int(found[1]), int(found[2])) >= _LOSSY_BEFORE:
            return None
        return f"{int(found[1])}.{int(found[2])}"

    def _run(self, command: list[str]) -> tuple[int, bytes]:
        """Return the exit code and the start of stderr of *command* with an empty stdin; raises _Unusable."""
        try:
            process = self._process(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        except OSError as error:
            raise _Unusable(str(error.strerror)) from error
        code, errors = self._outcome(process)
        assert code is not None  # noqa: S101 - its stdout is not a pipe
        return code, errors

    def _process(self, command: list[str], *, stdin: int, stdout: int = subprocess.PIPE) -> FilterProcess:
        environ = self._library_environ if self.is_library else self._environ
        return FilterProcess(command, environ, memory=self.memory, stdin=stdin, stdout=stdout)

    @staticmethod
    def _outcome(process: FilterProcess) -> tuple[int | None, bytes]:
        """Return the exit code of *process* and the start of its stderr, or None as soon as it prints a byte.

        Raises _Unusable if it does neither in time.
        """
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        with _limited_time(process) as has_expired:
            try:
                if process.stdout is not None and os.read(process.stdout.fileno(), 1):
                    return None, b""
                errors = process.stderr.read(MAX_ERRORS)
                has_more = len(errors) == MAX_ERRORS
                if has_more:
                    process.kill()
                code = process.wait()
                if has_more and errors.startswith(_ERROR.encode()):  # of the compiler: there is no document yet
                    code = COMPILE_ERROR
            except BaseException:
                process.end()
                raise
        process.end()
        _close_outputs(process)
        if has_expired.is_set():
            raise _Unusable(f"the filter was not compiled within {_TIME_LIMIT} s")
        return code, errors


def _close_outputs(process: FilterProcess) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@contextmanager
def _limited_time(process: FilterProcess) -> Iterator[threading.Event]:
    """Kill *process* after the time to compile a filter; yield an event that is then set."""
    has_expired = threading.Event()

    def expire() -> None:
        has_expired.set()
        process.kill()

    timer = threading.Timer(_TIME_LIMIT, expire)
    timer.daemon = True
    timer.start()
    try:
        yield has_expired
    finally:
        timer.cancel()


def check_text(text: str) -> None:
    """Raise UsageError if the filter *text* is an option of the program jq, such as `-r`."""
    if _OPTION_OF_JQ.fullmatch(text):
        raise UsageError(
            f"--jq takes a filter, not an option of jq such as {text}",
            hint=f"omit {text}: each result is one line, and strings are printed without quotes",
        )


class NumberCheck:
    """Warn with *warn* if the program jq, with the version *lossy* before 1.7, changes a number in a document."""

    def __init__(self, lossy: str | None, warn: Callable[[str], None]) -> None:
        self._lossy, self._warn = lossy, warn
        self._unchecked = b""  # the end of the last chunk: a number, or the quote of a string that is open

    def add(self, chunk: bytes) -> None:
        """Check *chunk*, the next part of the document; numbers in strings do not count."""
        if not self._lossy:
            return
        text = self._unchecked + chunk
        text = _ESCAPE.sub(b"", text) if b"\\" in text else text  # each quote that is left begins or ends a string
        if text.count(b'"') % 2:
            self._unchecked = b'"\\' if text.endswith(b"\\") else b'"'
        else:
            self._unchecked = text[text.rfind(b'"') + 1 :][-_LONGEST_NUMBER:]
        if _has_changed_number(text) and _has_changed_number(b'"'.join(text.split(b'"')[::2])):
            self._warn(
                f"jq {self._lossy} changes numbers such as 1.10 and integers of more than 17 digits; "
                "use jq 1.7, or `pip install 'xapi-cli[jq]'`"
            )


class _Unusable(XapiError):
    """The engine cannot be used."""


def reason_of(errors: bytes, code: int, *, memory: int) -> str:
    """Return the reason in *errors*, the end of what jq printed on stderr before it exited with *code*.

    *memory* is the number of bytes that it may use.
    """
    if code < 0:
        is_limited = sys.platform == "linux"
        cause = f"exceeded the memory limit of {memory // 2**30} GiB" if is_limited else "used too much memory"
        return f"jq was killed, possibly because it {cause}"
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    found = [line for line in lines if line.startswith(_ERROR)] or lines[-1:] or [""]
    reason = printable(_PREFIX.sub("", found[0])).removesuffix(":")[:_MAX_REASON]
    return _REASONS.get(reason, reason)


def _has_changed_number(text: bytes) -> bool:
    return any(expression.search(text) for expression in _CHANGED_NUMBERS)


def _library_directory() -> str | None:
    """Return the directory of libjq's module, None if there is none; a directory `jq` without code is none."""
    spec = find_spec("jq")
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    directory = Path(spec.origin).resolve().parent
    return str(directory.parent if spec.submodule_search_locations else directory)


def _placed(text: str, before: str, after: str) -> str:
    """Return *text* between *before* and *after*, except for its directives, which must be the first."""
    found = _DIRECTIVES.match(text)
    end = found.end() if found else 0
    return f"{text[:end]}{before}{text[end:]}{after}"
