"""Find libjq, compile a jq filter in a child process, and start further processes for it.

A child process can be killed at any time, while libjq ignores signals.
"""

import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from xapi_cli.errors import FilterError, UsageError
from xapi_cli.request.jq.child import END, NOT_COMPILED, TUNABLES
from xapi_cli.request.jq.process import FilterProcess
from xapi_cli.settings.table import without_secrets
from xapi_cli.system.encoding import is_utf8
from xapi_cli.system.render import shortened

_CHILD = Path(__file__).with_name("child.py")
_TIME_LIMIT = 10  # seconds, to compile the filter
_MAX_REASON = 200  # characters
_ERROR = b"jq: error: "  # what an error of the compiler begins with
_REASONS = {"": "no reason given", "break": "No more inputs"}  # `break` is the error of `input` in a module
_OPTION_OF_JQ = re.compile(
    r"-[CMRScehjnrs]{1,3}|--(?:(?:raw|compact|join|ascii|color|monochrome)-[a-z0-9]+|null-input|slurp|exit-status"
    r"|sort-keys|tab|indent|arg|argjson|args|jsonargs|slurpfile|rawfile|from-file|stream|seq)"
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # they may contain passwords


class FilterEngine(NamedTuple):
    """How to start processes for filters: their *command*, *environ*, and *memory*, a limit in bytes on Linux.

    Messages about the processes name *option*.
    """

    command: list[str]
    environ: Mapping[str, str]
    memory: int
    option: str

    def start(self) -> FilterProcess:
        """Start a process, whose first frame reports the result of compiling; raises FilterError if it cannot start."""
        try:
            return FilterProcess(self.command, self.environ, memory=self.memory)
        except OSError as error:
            raise FilterError(
                f"the process of {self.option} cannot be started: {error.strerror}",
                hint="check the limits of memory and processes",
            ) from error


class CompiledFilter(NamedTuple):
    """A filter that has been compiled: its *engine*, and the *process* that did it, which waits for documents."""

    engine: FilterEngine
    process: FilterProcess


def compile_filter(
    text: str,
    environ: Mapping[str, str],
    *,
    encode: Literal["tostring", "tojson"],
    memory: int,
    option: str = "--jq",
    conditions: Sequence[str] = (),
) -> CompiledFilter:
    """Compile the jq filter *text*, the value of *option*; *environ* is that of its processes, without secrets.

    The function *encode* of jq makes each result a line. The filters *conditions*, values of --expect, are tested on
    the same documents. Raises UsageError if a filter is not valid, or if there is no libjq.
    """
    options = [option, *("--expect" for _ in conditions)]
    for name, each in zip(options, (text, *conditions), strict=True):
        check_text(each, name)
    command = [sys.executable, "-I", "-S", str(_CHILD), _library_directory(option), text, encode, *conditions]
    public = {name: value for name, value in without_secrets(environ).items() if name.lower() not in _PROXIES}
    engine = FilterEngine(command, {"GLIBC_TUNABLES": TUNABLES, **public}, memory, option)
    try:
        process = engine.start()
    except FilterError as error:
        raise UsageError(error.message, hint=error.hint) from error
    try:
        _wait_until_compiled(process, options)
    except BaseException:
        process.end()
        raise
    return CompiledFilter(engine, process)


def check_text(text: str, option: str = "--jq") -> None:
    """Raise UsageError if the filter *text*, the value of *option*, is an option of jq, such as `-r`, or not UTF-8.

    An empty filter yields its input, which meets every condition: a shell variable may be unset.
    """
    if option != "--jq" and not text.strip():
        raise UsageError(f"{option} is empty", hint="give a filter, or omit the option")
    if not is_utf8(text):
        raise UsageError(f"{option} is not valid UTF-8", hint="write the filter in UTF-8")
    if _OPTION_OF_JQ.fullmatch(text):
        raise UsageError(
            f"{option} takes a filter, not an option of jq such as {text}",
            hint=f"omit {text}: each result is one line, and strings are printed without quotes",
        )


def reason_of(message: bytes) -> str:
    """Return the *message* of a failure as a part of a line."""
    reason = shortened(message.decode().replace("\n", " "), _MAX_REASON).removesuffix(":")
    return _REASONS.get(reason, reason)


def unmet_condition(content: bytes) -> tuple[int, str] | None:
    """Return the number of the condition in the *content* of a frame of the kind UNMET, and the reason, if any."""
    number, _, reason = content.partition(b" ")
    return (int(number), reason_of(reason)) if content else None


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


def _wait_until_compiled(process: FilterProcess, options: Sequence[str]) -> None:
    """Read the first frame of *process*; raises UsageError unless the filters of *options* are compiled."""
    option = options[0]
    with _limited_time(process) as has_expired:
        kind, message = next(process.read_frames(), (b"", b""))
    if kind == END:
        return
    if has_expired.is_set():
        raise UsageError(f"the {option} filter was not compiled within {_TIME_LIMIT} s", hint="use a simpler filter")
    if kind == NOT_COMPILED:
        number, _, message = message.partition(b" ")
        option = options[int(number)]
        errors = [line for line in message.splitlines() if line.startswith(_ERROR)]
        reason = reason_of((errors or [message])[0].removeprefix(_ERROR))
        raise UsageError(f"the {option} filter is not valid: {reason}", hint="correct it, and put it in single quotes")
    reason = reason_of(message) if kind else process.reason_of_end()
    raise UsageError(f"libjq cannot be used: {reason}", hint=_how_to_install(option))


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
