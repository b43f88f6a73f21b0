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

_GRACE = 0.1  # seconds; network code times out first, and its error message names the operation
_AGAIN = 1.0  # seconds; Python ignores exceptions in a finalizer, so one alarm may not be enough
_CLEANING = 0.4  # seconds that cleanup may take after a signal
_SOON = 0.01  # seconds
_LONGEST = 1e8  # seconds; the maximum of a timer


class Ended(BaseException):
    """Terminates the command and unwinds the stack, so that temporary files are removed and terminal echo is restored.

    It is not an Exception, so that error handlers do not catch it. `failure` is the error to report.
    """

    def __init__(self, failure: XapiError) -> None:
        super().__init__()
        self.failure = failure


def obey() -> None:
    """Install handlers for SIGINT, SIGTERM and SIGHUP that terminate the command.

    A signal that the parent process set to be ignored, as nohup does, remains ignored.
    """
    for number in _numbers():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    sys.unraisablehook = _raise_again


@contextmanager
def gently(stop: Callable[[int], bool]) -> Iterator[None]:
    """Call *stop* with the number of the first signal; terminate at the second one, or if *stop* returns False."""
    handled = [number for number in _numbers() if signal.getsignal(number) is _end]

    def once(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, _end)
        if not stop(number):
            _end(number, frame)

    for number in handled:
        signal.signal(number, once)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is once:
                signal.signal(number, _end)


def end_within(seconds: float, started: float) -> None:
    """Terminate the command *seconds* after *started*, a time of the monotonic clock; without effect on Windows."""
    if sys.platform == "win32":
        return  # only the network timeouts apply there

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise Ended(TimeoutExpired(f"the command was not over within {seconds:g} s", hint="raise --max-time"))

    signal.signal(signal.SIGALRM, ring)
    left = started + seconds + _GRACE - time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, min(max(left, 0.001), _LONGEST), _AGAIN)


def release() -> None:
    """Cancel the alarm, because the command has finished or another program replaces it."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _numbers() -> list[int]:
    """Return the numbers of the termination signals; Windows has no SIGHUP."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind the stack; ignore further signals, and exit the process if cleanup exceeds its time limit."""
    if sys.platform != "win32":
        for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(handled, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
        signal.setitimer(signal.ITIMER_REAL, _CLEANING)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Ended(Interrupted(number))


def _raise_again(swallowed: "sys.UnraisableHookArgs") -> None:
    """Raise Ended or KeyboardInterrupt again after 10 ms if Python ignored it in a finalizer or an import."""
    error = swallowed.exc_value
    if sys.platform == "win32" or not isinstance(error, Ended | KeyboardInterrupt):
        sys.__unraisablehook__(swallowed)
        return
    then = signal.getsignal(signal.SIGALRM)

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGALRM, then)
        signal.setitimer(signal.ITIMER_REAL, _CLEANING, _AGAIN)
        raise error

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, _SOON)
