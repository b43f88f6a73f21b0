"""Choose an engine for a jq filter, libjq or the program jq, and run it in a child process.

A child process can be killed at any time, while libjq ignores signals. It ends with xapi, even if xapi is killed.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from xapi_cli.errors import FilterError, UsageError, XapiError
from xapi_cli.request.filter_child import COMPILE_ERROR
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
_LOSSY_BEFORE = (1, 7)  # earlier versions of the program convert all numbers to binary floating point
_VERSION = re.compile(rb"jq-(\d{1,4})\.(\d{1,4})")
_DIRECTIVES = re.compile(
    r'(?:\s|#[^\n]*(?:\n|\Z)|(?:module|import|include)\b(?:"(?:[^"\\]|\\.)*"|#[^\n]*\n|[^";#])*;)*', re.DOTALL
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # they may contain passwords
# halt and halt_error would end libjq without an error, and the program with exit code 0
_NO_HALT = """def halt_error($code): error(if type == "string" then . else tojson end); \
def halt_error: halt_error(5); def halt: error("halt is not supported"); """
# the exit code of jq 1.6 is that of the last document, so the text %s on stderr marks an error
_FAIL = """def xapi_fail: "\\n%s: " + (if type == "string" then . else tojson end) + "\\n" | halt_error(5); """

# Numbers that jq before 1.7 changes: with a zero at the end of the fraction, or 17 digits. Two are faster than
# one. Text such as `version 1.10` in a string matches too: the warning is then not needed, but true.
_CHANGED_NUMBERS = (re.compile(rb"\d\.\d*0(?![\d.])"), re.compile(rb"\d{17}"))
_LONGEST_NUMBER = 64  # bytes that are searched again, with the next chunk
_NO_INPUT = 'def input: error("No more inputs"); def inputs: empty; '
_ONE_ANSWER = """
)] | [length, if length == 1 then .[0] else . end]) catch {error: (if type == "string" then . else tojson end)})"""
_KILL_AT_END_OF_FILE = 'read -r _; kill -9 "-$1"'


class FilterEngine:
    """The engine for the jq filter *text*; *environ* is that of its processes, without secrets.

    A process reads JSON documents and prints their results, one per line, strings raw. If the filter fails, its exit
    code is not 0, or a line on stderr begins with `failed`. *warn* takes a line about numbers that the program changes.

    With *by_line*, each line that a process reads is a document, and it prints one line for it: `[N,RESULT]`, in which
    RESULT is an array unless N, the number of results, is 1, or `{"error":TEXT}`.

    Raises UsageError if the filter cannot be compiled, or if there is neither libjq nor the program.
    """

    def __init__(
        self, text: str, environ: Mapping[str, str], *, warn: Callable[[str], None], by_line: bool = False
    ) -> None:
        if by_line and os.name == "nt":  # the engine of a batch can wait for sockets only
            raise UsageError("batch --jq is not available on Windows", hint="pass the output to the program jq")
        self._warn, self._is_by_line = warn, by_line
        self._environ = {
            name: value for name, value in without_secrets(environ).items() if name.lower() not in _PROXIES
        }
        self.failed = b"%s %s" % (_ERROR.encode(), os.urandom(16).hex().encode())  # documents cannot contain it
        self._lossy_version: str | None = None
        self._last_bytes = b""
        directory = _library_directory()
        self.is_library = directory is not None
        if directory is not None:
            try:
                self._command = self._checked(text, directory)
            except _Unusable as error:
                self.is_library = False
                self._use_program(text, f"libjq cannot be used: {error.message}")
        else:
            self._use_program(text, "--jq requires libjq or the program jq")

    def start(self) -> "FilterProcess":
        """Start a process; raises FilterError if that fails, because a request may have been sent."""
        try:
            return FilterProcess(self._command, self._environ, stdin=subprocess.PIPE)
        except OSError as error:
            message = f"jq cannot be run: {error.strerror}"
            raise FilterError(message, hint="check the installation of jq") from error

    def check_numbers(self, chunk: bytes) -> None:
        """Warn if the program jq changes a number in *chunk*, a part of a document."""
        if not self._lossy_version:
            return
        text = self._last_bytes + chunk
        self._last_bytes = text[-_LONGEST_NUMBER:]
        if any(expression.search(text) for expression in _CHANGED_NUMBERS):
            self._warn(
                f"jq {self._lossy_version} changes numbers such as 1.10 and integers of more than 17 digits; "
                "use jq 1.7, or `pip install 'xapi-cli[jq]'`"
            )

    def _use_program(self, text: str, otherwise: str) -> None:
        try:
            program = programs.find("jq", self._environ)
        except FileNotFoundError:
            hint = "run `pip install 'xapi-cli[jq]'`, or install jq"
            raise UsageError(otherwise, hint=hint) from None
        try:
            self._command = self._checked(text, program=program)
            self._lossy_version = self._old_version(program)
        except (_Unusable, OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = error.message if isinstance(error, _Unusable) else "it does not print its version"
            raise UsageError(f"jq cannot be run: {reason}", hint="check the installation of jq") from error

    def _checked(self, text: str, directory: str = "", *, program: str | None = None) -> list[str]:
        """Return the command for the filter *text*, which can be compiled; raises UsageError, or _Unusable."""
        commands = self._commands(text, directory, program)
        code, errors = self._run(commands[0])
        has_no_expression = _NO_PROGRAM in errors
        if not code and len(commands) > 1:
            has_no_expression = self._run(commands[-1])[0] == COMPILE_ERROR
        if has_no_expression:
            commands = self._commands(f"{text}\n.", directory, program)
            code, errors = self._run(commands[-1])
        if code == COMPILE_ERROR:
            raise UsageError(f"the filter of --jq cannot be compiled: {reason_of(errors)}", hint="check the filter")
        if code:
            raise _Unusable(reason_of(errors, code))
        return commands[-1]

    def _commands(self, text: str, directory: str, program: str | None) -> list[list[str]]:
        """Return commands whose filter must compile: the first one for the error messages, the last one to be used."""
        if self._is_by_line:
            return self._line_commands(text, directory, program)
        if program is None:
            # Python objects would lose the notation of numbers, which `tostring` preserves. Strings stay as they are.
            full = _placed(text, f"{_NO_HALT}(", "\n) | tostring")
            return [[sys.executable, "-E", "-P", str(_CHILD), directory, text, full]]
        full = _placed(text, f"{_FAIL % self.failed.decode()}{_NO_HALT}try (", "\n) catch xapi_fail")
        return [[program, "-r", "-c", f" {part}"] for part in (text, full)]  # the space: it may begin with a hyphen

    def _line_commands(self, text: str, directory: str, program: str | None) -> list[list[str]]:
        full = _placed(text, f"{_NO_INPUT}{_NO_HALT}(try ([(", _ONE_ANSWER)
        if program is None:
            return [[sys.executable, "-E", "-P", str(_CHILD), directory, text, f"{full} | tostring", "lines"]]
        return [[program, "-c", "--unbuffered", f" {part}"] for part in (text, full)]

    def _old_version(self, program: str) -> str | None:
        """Return the version of *program* if it changes numbers."""
        out, _ = programs.run([program, "--version"], self._environ, _TIME_LIMIT, largest=1000, in_background=True)
        found = _VERSION.match(out)
        if found is None or (int(found[1]), int(found[2])) >= _LOSSY_BEFORE:
            return None
        return f"{int(found[1])}.{int(found[2])}"

    def _run(self, command: list[str]) -> tuple[int, bytes]:
        """Return the exit code and the start of stderr of *command* with an empty stdin; raises _Unusable."""
        try:
            process = FilterProcess(command, self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        except OSError as error:
            raise _Unusable(str(error.strerror)) from error
        has_expired = threading.Event()

        def expire() -> None:
            has_expired.set()
            process.kill()

        timer = threading.Timer(_TIME_LIMIT, expire)
        timer.daemon = True
        timer.start()
        try:
            assert process.stderr is not None  # noqa: S101 - narrows the type
            errors = process.stderr.read(MAX_ERRORS)
            if len(errors) == MAX_ERRORS:
                process.kill()
            code = process.wait()
        finally:
            timer.cancel()
            process.end()
            process.stderr.close()  # type: ignore[union-attr]  # it is a pipe
        if has_expired.is_set():
            raise _Unusable(f"the filter was not compiled within {_TIME_LIMIT} s")
        return code, errors


class FilterProcess(subprocess.Popen[bytes]):
    """A process that runs *command*, in a process group of its own; raises OSError if it cannot be started.

    It is killed if this process is killed.
    """

    def __init__(
        self, command: list[str], environ: Mapping[str, str], *, stdin: int, stdout: int = subprocess.PIPE
    ) -> None:
        super().__init__(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environ,
            process_group=0 if os.name != "nt" else None,  # Ctrl-C reaches xapi only, which kills it
        )
        self._lifeline = None if os.name == "nt" else _lifeline(self.pid)

    def kill(self) -> None:
        """Kill the process and its child processes, unless it has ended: a jq may be a shell script."""
        if os.name != "nt" and self.returncode is None:
            with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError if all are zombies
                os.killpg(self.pid, signal.SIGKILL)
        super().kill()

    def end(self) -> None:
        """Kill the process if it is still running, and close its stdin."""
        if self._lifeline is not None:  # first, so that it cannot kill a process that has the same id later
            self._lifeline.kill()
            self._lifeline.wait()
            self._lifeline.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            self._lifeline = None
        if self.returncode is None:
            self.kill()
            self.wait()
        if self.stdin is not None:
            with suppress(OSError):  # it did not read the rest
                self.stdin.close()


class _Unusable(XapiError):
    """The engine cannot be used."""


def _lifeline(group: int) -> "subprocess.Popen[bytes] | None":
    """Start a process that kills the process group *group* when this process has ended; return None if that fails.

    It waits for the end of a pipe that only this process holds open. prctl(2) does the same without a process, but
    only on Linux, and only if it is called in the child process before it runs the program.
    """
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _KILL_AT_END_OF_FILE, "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            process_group=0,
        )
    except OSError:
        return None


def reason_of(errors: bytes, code: int = 0) -> str:
    """Return the reason in *errors*, the end of what jq printed on stderr before it exited with *code*."""
    if code < 0:
        return "jq was killed, perhaps because it used too much memory"
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    found = [line for line in lines if line.startswith(_ERROR)] or lines[-1:] or [""]
    reason = printable(_PREFIX.sub("", found[0])).removesuffix(":")[:_MAX_REASON]
    return reason or "no reason given"


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
