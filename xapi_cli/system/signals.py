"""What ends a command from outside: Ctrl-C and other signals, and the alarm that rings when --max-time is over."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from xapi_cli.errors import Interrupted, TimeoutExpired, XapiError

_GRACE = 0.1  # seconds; what waits for the network notices the end by itself, and can say what it waited for
_AGAIN = 1.0  # seconds; Python swallows what is raised in a finaliser, so that one alarm may not be enough
_CLEANING = 0.4  # seconds that tidying up may take after a signal
_SOON = 0.01  # seconds
_LONGEST = 1e8  # seconds; a timer takes no more


class Ended(BaseException):
    """Unwind the stack: temporary files are removed, the terminal's echo is restored.

    It is no Exception, because nothing that copes with failures may cope with this.
    """

    def __init__(self, failure: XapiError) -> None:
        super().__init__()
        self.failure = failure


def obey() -> None:
    """End the command at SIGINT, SIGTERM and SIGHUP, unless whoever started it wants them ignored, as nohup does."""
    for number in _numbers():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    sys.unraisablehook = _raise_again


@contextmanager
def gently(stop: Callable[[int], bool]) -> Iterator[None]:
    """Let the first signal call *stop* with its number; a second one, or a *stop* that says False, ends the command."""
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
    """End the command *seconds* after it was *started*, by the monotonic clock, whatever it is doing then."""
    if sys.platform == "win32":
        return  # there only the network's own limits

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise Ended(TimeoutExpired(f"the command was not over within {seconds:g} s", hint="raise --max-time"))

    signal.signal(signal.SIGALRM, ring)
    left = started + seconds + _GRACE - time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, min(max(left, 0.001), _LONGEST), _AGAIN)


def release() -> None:
    """Let no alarm ring any more: the command is over, or another program takes its place."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _numbers() -> list[int]:
    """Return the signals that ask for an end; Windows has no SIGHUP."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind; a second signal cannot disturb that, and what has not come to its end in time is ended the hard way."""
    if sys.platform != "win32":
        for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(handled, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
        signal.setitimer(signal.ITIMER_REAL, _CLEANING)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Ended(Interrupted(number))


def _raise_again(swallowed: "sys.UnraisableHookArgs") -> None:
    """Raise once more, a moment later, what was to end the command when Python was in a finaliser or an import."""
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
