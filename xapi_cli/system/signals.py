"""Signal handling: terminate a command on Ctrl-C and other signals, and on the alarm for --max-time.

A process inherits ignored and blocked signals, and a timer if it replaces another program. xapi changes only what its
own work depends on: with SIGCHLD ignored, the exit status of a child process is lost; with SIGALRM blocked, --max-time
has no effect. What the caller had is recorded, and is given to child processes and to the COMMAND of `exec`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, NoReturn

from xapi_cli.errors import Interrupted, TimeoutExpired, XapiError

_ALARM_DELAY = 0.1  # seconds; network code times out first, and its error message names the operation
_ALARM_INTERVAL = 1.0  # seconds; Python ignores exceptions in a finalizer, so one alarm may not be enough
_CLEANUP_TIMEOUT = 0.4  # seconds that cleanup may take after a signal
_RERAISE_DELAY = 0.01  # seconds
_MAX_TIMER = 1e8  # seconds; the maximum of a timer

Handler = Callable[[int, FrameType | None], object] | int | None  # as `signal.getsignal` returns it


class Terminated(BaseException):
    """Terminates the command and unwinds the stack, so that temporary files are removed and terminal echo is restored.

    It is not an Exception, so that error handlers do not catch it. `failure` is the error to report.
    """

    def __init__(self, failure: XapiError) -> None:
        super().__init__()
        self.failure = failure


class _CallersAlarm(NamedTuple):
    """The state of SIGALRM that the caller left: its disposition, and its timer, which *expires* on a monotonic clock.

    *is_pending* is whether the signal has arrived while it *is_blocked*.
    """

    disposition: Handler
    is_blocked: bool
    is_pending: bool
    expires: float | None
    interval: float


_callers_alarm: _CallersAlarm | None = None  # while SIGALRM and the timer are used for a limit of xapi
_is_sigchld_ignored = False  # by the caller
_received: int | None = None  # the signal that terminates this process


def install_handlers() -> None:
    """Install handlers for SIGINT, SIGTERM and SIGHUP that terminate the command; make exit statuses readable.

    A signal that the parent process set to be ignored, as nohup does, remains ignored, except SIGCHLD.
    """
    global _is_sigchld_ignored  # noqa: PLW0603  # the signals belong to the process, and so does their previous state
    for number in _termination_signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _terminate)
    if sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _is_sigchld_ignored = True
    sys.unraisablehook = _reraise


def restore() -> None:
    """Restore the signal state and the timer of the caller, for a program that replaces xapi, except handlers."""
    global _is_sigchld_ignored  # noqa: PLW0603  # see above
    cancel_alarm()
    if sys.platform != "win32" and _is_sigchld_ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _is_sigchld_ignored = False


@contextmanager
def of_caller() -> Iterator[Callable[[], None] | None]:
    """Let a child process that is started within inherit the blocked signals of the caller.

    Yields what the child process must call before it executes a program to ignore what the caller ignored, if anything:
    in this process, a moment in which SIGCHLD is ignored would lose the exit status of another child process.
    """
    if sys.platform == "win32":
        yield None
        return
    alarm = _callers_alarm
    ignored = [signal.SIGCHLD] if _is_sigchld_ignored else []
    if alarm is not None and alarm.disposition == signal.SIG_IGN:
        ignored.append(signal.SIGALRM)

    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    is_blocked = alarm is not None and alarm.is_blocked
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM] if is_blocked else [])
    try:
        yield ignore if ignored else None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


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


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and Ctrl-Break for a `with` block: a child process on the same console gets them too."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGBREAK") if hasattr(signal, name)]
    previous = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def set_alarm(seconds: float, started: float) -> None:
    """Terminate the command *seconds* after *started*, a time of the monotonic clock."""
    from xapi_cli.system.render import decimal

    limit = f"{decimal(seconds)} s"

    def on_alarm(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(TimeoutExpired(f"the command did not finish within {limit}", hint="raise --max-time"))

    remaining = started + seconds + _ALARM_DELAY - time.monotonic()
    start_timer(on_alarm, min(max(remaining, 0.001), _MAX_TIMER), _ALARM_INTERVAL)


def cancel_alarm() -> None:
    """Cancel the alarm, because the command has finished or another program replaces it; the caller's is restored."""
    global _callers_alarm
    if sys.platform == "win32":
        if _timer is not None:
            _timer.cancel()
        return
    if _callers_alarm is None:
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    alarm, _callers_alarm = _callers_alarm, None
    if alarm.is_blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.signal(signal.SIGALRM, alarm.disposition)
    now, expires = time.monotonic(), alarm.expires
    has_expired = expires is not None and expires <= now
    if alarm.is_pending or has_expired:
        import threading

        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)  # one for the process could reach another thread
    if expires is not None and (alarm.interval or not has_expired):
        left = (expires - now) % alarm.interval if has_expired else expires - now
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.000_001), alarm.interval)


if sys.platform == "win32":
    import _thread
    import threading

    from xapi_cli.system import windows

    _CANCEL_DELAY = 0.2  # seconds after which the main thread must be waiting in a system call

    _timer: threading.Timer | None = None

    def start_timer(handler: Handler, seconds: float, interval: float = 0.0) -> None:
        """Call *handler* in the main thread after *seconds*, and then in each *interval*, in place of an earlier timer.

        Windows has no timer that sends a signal. A thread makes Python act as after SIGABRT, which is not sent, and
        cancels a read or a write in which the main thread waits.
        """
        handled = threading.Event()

        def handle(number: int, frame: FrameType | None) -> None:
            handled.set()
            if callable(handler):
                handler(number, frame)

        def expire() -> None:
            handled.clear()
            _thread.interrupt_main(signal.SIGABRT)
            if not handled.wait(_CANCEL_DELAY) and (thread := threading.main_thread().native_id):
                windows.cancel_io(thread)
            if interval:
                start(interval)

        def start(delay: float) -> None:
            global _timer  # noqa: PLW0603  # as the signals, it belongs to the process
            _timer = threading.Timer(delay, expire)
            _timer.daemon = True
            _timer.start()

        cancel_alarm()
        signal.signal(signal.SIGABRT, handle)
        start(min(seconds, threading.TIMEOUT_MAX))

else:

    def start_timer(handler: Handler, seconds: float, interval: float = 0.0) -> None:
        """Call *handler* after *seconds*, and then in each *interval*, in place of an earlier timer of xapi.

        The timer of the caller is kept for `cancel_alarm`. It is not replaced if it terminates this process before.
        """
        global _callers_alarm  # noqa: PLW0603  # see above
        if _callers_alarm is None:
            left, callers_interval = signal.getitimer(signal.ITIMER_REAL)
            disposition = signal.getsignal(signal.SIGALRM)
            is_blocked = signal.SIGALRM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
            if 0 < left <= seconds and disposition == signal.SIG_DFL and not is_blocked:
                return
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_pending = signal.SIGALRM in signal.sigpending()
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # discards the pending one
            left = left or callers_interval  # after a signal that is pending, the timer starts again
            expires = time.monotonic() + left if left else None
            _callers_alarm = _CallersAlarm(disposition, is_blocked, is_pending, expires, callers_interval)
        signal.signal(signal.SIGALRM, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.setitimer(signal.ITIMER_REAL, seconds, interval)


def _termination_signals() -> list[int]:
    """Return the numbers of the termination signals; those of Windows include Ctrl-Break, but no SIGHUP."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind the stack; ignore further signals, and exit the process if cleanup exceeds its time limit."""
    global _received  # noqa: PLW0603  # see above
    _received = number
    if sys.platform != "win32":
        for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(handled, signal.SIG_IGN)
        start_timer(lambda *_: os._exit(128 + number), _CLEANUP_TIMEOUT)
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

    def on_alarm(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is _reraise.__code__:  # on a busy machine; Python would ignore the error again
                start_timer(on_alarm, _RERAISE_DELAY)
                return
            frame = frame.f_back
        start_timer(previous, _CLEANUP_TIMEOUT, _ALARM_INTERVAL)
        raise error

    start_timer(on_alarm, _RERAISE_DELAY)
