import signal
import subprocess
import textwrap

import pytest

from tests.support.program import PYTHON


def _run(code: str) -> "tuple[int, str]":
    script = "import os, signal, time\nfrom xapi_cli.system import signals\n" + textwrap.dedent(code)
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_unwinds_the_stack_once_and_a_cleanup_that_hangs_is_ended(name: str) -> None:
    code = f"""
        signals.install_handlers()
        try:
            os.kill(os.getpid(), signal.{name})
        except BaseException as end:
            os.kill(os.getpid(), signal.SIGTERM)
            print(getattr(end, "failure", type(end).__name__), flush=True)
            time.sleep(20)
    """
    number = getattr(signal, name)
    shown = "KeyboardInterrupt" if name == "SIGINT" else f"interrupted by {name}"
    assert _run(code) == (128 + number, f"{shown}\n")


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    code = """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
            signals.install_handlers()
            os.kill(os.getpid(), number)
        print("here")
    """
    assert _run(code) == (0, "here\n")


@pytest.mark.parametrize("stops, shown", [(True, "stop 15\n143\n"), (False, "stop 15\n143\n")])
def test_a_second_signal_ends_what_stops_gracefully(stops: bool, shown: str) -> None:
    code = f"""
        signals.install_handlers()
        try:
            with signals.graceful_stop(lambda number: print("stop", number) or {stops}):
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)
                print("not reached")
        except signals.Terminated as end:
            print(end.failure.exit_code)
    """
    assert _run(code) == (0, shown)


def test_a_termination_that_python_ignores_in_a_finalizer_ends_the_process_silently() -> None:
    code = """
        signals.install_handlers()
        class Finalized:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.3)
        Finalized()
        time.sleep(20)
    """
    assert _run(code) == (143, "")


@pytest.mark.parametrize("seconds, started, shown", [(60, 59.7, "60"), (1e-9, 0, "0.000000001")])
def test_the_alarm_counts_from_the_start_of_the_command(seconds: float, started: float, shown: str) -> None:
    code = f"""
        try:
            signals.set_alarm({seconds}, time.monotonic() - {started})
            time.sleep(20)
        except signals.Terminated as end:
            print(end.failure.exit_code, end.failure)
    """
    assert _run(code) == (0, f"12 the command did not finish within {shown} s; raise --max-time\n")


def test_the_alarm_can_be_very_late_and_can_be_canceled() -> None:
    code = """
        for seconds in (1e300, float("inf")):
            signals.set_alarm(seconds, time.monotonic())
            print(signal.getitimer(signal.ITIMER_REAL)[0] > 1e5)
        signals.cancel_alarm()
        print(signal.getitimer(signal.ITIMER_REAL)[0])
    """
    assert _run(code) == (0, "True\nTrue\n0.0\n")
