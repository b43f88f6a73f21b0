import subprocess
import textwrap

import pytest

from tests.support.program import PYTHON


def _run(code: str, *, ignore: str = "") -> "subprocess.CompletedProcess[str]":
    prelude = f"import signal; signal.signal(signal.{ignore}, signal.SIG_IGN)\n" if ignore else ""
    script = prelude + "import os, signal, time\nfrom xapi_cli.system import signals\n" + textwrap.dedent(code)
    return subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=20, check=False)


def test_a_second_signal_does_not_interrupt_the_cleanup() -> None:
    done = _run(
        """
        signals._CLEANUP_TIMEOUT = 60
        signals.install_handlers()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except signals.Terminated as end:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            print(end.failure.exit_code, str(end.failure))
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "143 interrupted by SIGTERM\n", "")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_cleanup_that_hangs_is_terminated(name: str, code: int) -> None:
    done = _run(
        f"""
        signals.install_handlers()
        started = time.monotonic()
        try:
            os.kill(os.getpid(), signal.{name})
        except BaseException:
            print(flush=True)
            time.sleep(20)
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (code, "\n", "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_ignored_signal_remains_ignored(name: str) -> None:
    done = _run(f"signals.install_handlers()\nos.kill(os.getpid(), signal.{name})\nprint('still here')", ignore=name)

    assert (done.returncode, done.stdout) == (0, "still here\n")


def test_the_alarm_counts_from_the_start_of_the_command() -> None:
    done = _run(
        """
        signals.set_alarm(60, time.monotonic() - 59.7)
        try:
            time.sleep(15)
        except signals.Terminated as end:
            print(end.failure.exit_code, str(end.failure))
        """
    )

    assert done.stdout == "12 the command did not finish within 60 s; raise --max-time\n"


_SWALLOWED = """
    signals._CLEANUP_TIMEOUT = signals._ALARM_INTERVAL = 60
    signals.install_handlers()
    started = time.monotonic()
    class Finalised:
        def __del__(self):
            {ends}
            time.sleep(0.3)
    try:
        Finalised()
        time.sleep(15)
    except BaseException as end:
        print(type(end).__name__)
"""


@pytest.mark.parametrize(
    ("ends", "end"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "Terminated"),
        ("signals.set_alarm(0.1, started)", "Terminated"),
    ],
)
def test_a_termination_ignored_by_python_is_raised_again_silently(ends: str, end: str) -> None:
    done = _run(_SWALLOWED.format(ends=ends))

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{end}\n", "")


def test_a_termination_is_raised_again_only_after_python_has_ignored_it() -> None:
    done = _run(
        """
        signals._CLEANUP_TIMEOUT = 60
        signals.install_handlers()
        start_timer = signals.start_timer

        def expire_at_once(handler, seconds, interval=0.0):
            start_timer(handler, seconds, interval)
            if seconds == signals._RERAISE_DELAY:
                signals.start_timer = start_timer
                os.kill(os.getpid(), signal.SIGALRM)

        signals.start_timer = expire_at_once

        class Finalised:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)

        try:
            Finalised()
            time.sleep(20)
        except BaseException as end:
            print(type(end).__name__)
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "Terminated\n", "")


def test_other_errors_in_finalizers_are_printed() -> None:
    broken = _run("signals.install_handlers()\nclass A:\n    def __del__(self):\n        raise ValueError\nA()")

    assert broken.returncode == 0
    assert "Exception ignored " in broken.stderr
    assert "ValueError" in broken.stderr


@pytest.mark.parametrize("seconds", [1e-9, 1e300, float("inf")])
def test_any_number_of_seconds_is_accepted(seconds: float) -> None:
    done = _run(
        f"""
        try:
            signals.set_alarm(float("{seconds}"), time.monotonic())
            time.sleep(0.3)
            signals.cancel_alarm()
            print("done")
        except signals.Terminated:
            print("ended")
        """
    )

    assert done.stdout == ("ended\n" if seconds < 1 else "done\n")


def test_a_canceled_alarm_does_not_fire() -> None:
    done = _run(
        """
        signals.set_alarm(60, time.monotonic())
        was_set = any(signal.getitimer(signal.ITIMER_REAL))
        signals.cancel_alarm()
        print(was_set, any(signal.getitimer(signal.ITIMER_REAL)))
        """
    )

    assert done.stdout == "True False\n"


def test_importing_the_program_changes_no_handler() -> None:
    code = "import signal, xapi_cli.__main__, xapi_cli.cli; print(signal.getsignal(signal.SIGINT).__name__)"

    assert subprocess.check_output([PYTHON, "-c", code], text=True) == "default_int_handler\n"
