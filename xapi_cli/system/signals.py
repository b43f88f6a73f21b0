"""Signal handling: terminate a command on Ctrl-C and other signals, and on the alarm for --max-time."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from xapi_cli.errors import Interrupted, TimeoutExpired, XapiError

_ALARM_DELAY = 0.1  # seconds; network code times out first, and its error message names the operation
_ALARM_INTERVAL = 1.0  # seconds; Python ignores exceptions in a finalizer, so one alarm may not be enough
_CLEANUP_TIMEOUT = 0.4  # seconds that cleanup may take after a signal
_RERAISE_DELAY = 0.01  # seconds
_MAX_TIMER = 1e8  # seconds; the maximum of a timer


class Terminated(BaseException):
    """Terminates the command and unwinds the stack, so that temporary files are removed and terminal echo is restored.

    It is not an Exception, so that error handlers do not catch it. `failure` is the error to report.
    """

    def __init__(self, failure: XapiError) -> None:
        super().__init__()
        self.failure = failure


def install_handlers() -> None:
    """Install handlers for SIGINT, SIGTERM and SIGHUP that terminate the command.

    A signal that the parent process set to be ignored, as nohup does, remains ignored.
    """
    for number in _termination_signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _terminate)
    sys.unraisablehook = _reraise


@contextmanager
def graceful_stop(stop: Callable[[int], bool]) -> Iterator[None]:
    """Call *stop* with the number of the first signal; terminate at the second one, or if *stop* returns False."""
    handled = [number for number in _termination_signals() if signal.getsignal(number) is _terminate]

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


def set_alarm(seconds: float, started: float) -> None:
    """Terminate the command *seconds* after *started*, a time of the monotonic clock; without effect on Windows."""
    if sys.platform == "win32":
        return  # only the network timeouts apply there

    def on_alarm(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(TimeoutExpired(f"the command did not finish within {seconds:g} s", hint="raise --max-time"))

    signal.signal(signal.SIGALRM, on_alarm)
    remaining = started + seconds + _ALARM_DELAY - time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, min(max(remaining, 0.001), _MAX_TIMER), _ALARM_INTERVAL)


def cancel_alarm() -> None:
    """Cancel the alarm, because the command has finished or another program replaces it."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _termination_signals() -> list[int]:
    """Return the numbers of the termination signals; Windows has no SIGHUP."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind the stack; ignore further signals, and exit the process if cleanup exceeds its time limit."""
    if sys.platform != "win32":
        for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(handled, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
        signal.setitimer(signal.ITIMER_REAL, _CLEANUP_TIMEOUT)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(Interrupted(number))


def _reraise(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise Terminated or KeyboardInterrupt again after 10 ms if Python ignored it in a finalizer or an import."""
    error = ignored.exc_value
    if sys.platform == "win32" or not isinstance(error, Terminated | KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    previous = signal.getsignal(signal.SIGALRM)

    def on_alarm(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, _CLEANUP_TIMEOUT, _ALARM_INTERVAL)
        raise error

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, _RERAISE_DELAY)
