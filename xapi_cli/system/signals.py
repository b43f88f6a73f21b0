"""Signals: Ctrl-C, SIGTERM and SIGHUP terminate a command, and so does the alarm of --max-time.

Each raises an exception in the main thread, which unwinds the stack: temporary files are removed, and the terminal's
echo is turned on again. Cleanup has a timeout.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from xapi_cli.errors import Interrupted, TimeoutExpired, XapiError
from xapi_cli.system.render import decimal

_ALARM_DELAY = 0.1  # seconds; network code times out first, and its error message names the operation
_ALARM_INTERVAL = 1.0  # seconds; Python ignores exceptions in a finalizer, so one alarm may not be enough
_CLEANUP_TIMEOUT = 0.4  # seconds that cleanup may take after a signal
_MAX_TIMER = 1e6  # seconds; less than the maximum of a timer on any platform
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # Windows has no SIGHUP, but Ctrl-Break
_NUMBERS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Terminated(BaseException):
    """Terminates the command; `failure` is the error to report.

    It is not an Exception, so that error handlers do not catch it.
    """

    def __init__(self, failure: XapiError) -> None:
        super().__init__()
        self.failure = failure


def install_handlers() -> None:
    """Install handlers that terminate the command; a signal that the parent process ignores, as for nohup, stays so."""
    for number in _NUMBERS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _terminate)
    sys.unraisablehook = _ignore_own


@contextmanager
def graceful_stop(stop: Callable[[int], bool]) -> Iterator[None]:
    """Call *stop* with the number of the first signal; terminate at the second one, or if *stop* returns False."""
    handled = [number for number in _NUMBERS if signal.getsignal(number) is _terminate]

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, _terminate)
        if not stop(number):
            _terminate(number, frame)

    for number in handled:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is on_signal:
                signal.signal(number, _terminate)


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and Ctrl-Break for a `with` block: a child process on the same console gets them too."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGBREAK") if hasattr(signal, name)]
    previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def set_alarm(seconds: float, started: float) -> None:
    """Terminate the command *seconds* after *started*, a time of the monotonic clock."""
    failure = TimeoutExpired(f"the command did not finish within {decimal(seconds)} s", hint="raise --max-time")

    def on_alarm(*_: object) -> NoReturn:
        raise Terminated(failure)

    delay = min(max(started + seconds + _ALARM_DELAY - time.monotonic(), 0.001), _MAX_TIMER)
    if sys.platform == "win32":
        _set_alarm(delay, on_alarm, failure)
    else:
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, delay, _ALARM_INTERVAL)


if sys.platform == "win32":
    import _thread

    _is_canceled = threading.Event()

    def _set_alarm(delay: float, on_alarm: Callable[..., NoReturn], failure: XapiError) -> None:
        """Let Python act as after SIGABRT, which is not sent; end the process if it waits in a system call."""

        def expire() -> None:
            if not _is_canceled.wait(delay):
                _thread.interrupt_main(signal.SIGABRT)
            if not _is_canceled.wait(_ALARM_INTERVAL):
                os.write(2, f"xapi: error: {failure}\r\n".encode())
                os._exit(failure.exit_code)

        signal.signal(signal.SIGABRT, on_alarm)
        threading.Thread(target=expire, daemon=True).start()

    def cancel_alarm() -> None:
        """Cancel the alarm, because the command has finished."""
        _is_canceled.set()

else:

    def cancel_alarm() -> None:
        """Cancel the alarm, because the command has finished or another program replaces it."""
        signal.setitimer(signal.ITIMER_REAL, 0)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind the stack; ignore further signals, and exit the process if cleanup exceeds its time limit."""
    for each in _NUMBERS:
        signal.signal(each, signal.SIG_IGN)
    cancel_alarm()
    limit = threading.Timer(_CLEANUP_TIMEOUT, os._exit, (128 + number,))
    limit.daemon = True
    with suppress(RuntimeError):  # no more threads
        limit.start()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(Interrupted(number))


def _ignore_own(ignored: "sys.UnraisableHookArgs") -> None:
    """Print what Python ignores in a finalizer, unless it ends the command: then the time limit ends the process."""
    if not isinstance(ignored.exc_value, Terminated | KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
