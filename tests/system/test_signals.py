import subprocess
import textwrap

import pytest

from tests.program import PYTHON


def _run(code: str, *, ignore: str = "") -> "subprocess.CompletedProcess[str]":
    prelude = f"import signal; signal.signal(signal.{ignore}, signal.SIG_IGN)\n" if ignore else ""
    script = prelude + "import os, signal, time\nfrom xapi_cli.system import signals\n" + textwrap.dedent(code)
    return subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=20, check=False)


def test_a_second_signal_does_not_disturb_the_tidying_up() -> None:
    done = _run(
        """
        signals.obey()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except signals.Ended as end:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            print(end.failure.exit_code, str(end.failure))
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "143 interrupted by SIGTERM\n", "")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_what_does_not_come_to_its_end_is_ended(name: str, code: int) -> None:
    done = _run(
        f"""
        signals.obey()
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
def test_a_signal_that_the_parent_wants_ignored_stays_so(name: str) -> None:
    done = _run(f"signals.obey()\nos.kill(os.getpid(), signal.{name})\nprint('still here')", ignore=name)

    assert (done.returncode, done.stdout) == (0, "still here\n")


def test_the_alarm_counts_from_the_start_of_the_command() -> None:
    done = _run(
        """
        started = time.monotonic()
        time.sleep(0.3)
        signals.end_within(0.5, started)
        try:
            time.sleep(20)
        except signals.Ended as end:
            print(end.failure.exit_code, str(end.failure), 0.5 < time.monotonic() - started < 1)
        """
    )

    assert done.stdout == "12 the command was not over within 0.5 s; raise --max-time True\n"


_SWALLOWED = """
    signals.obey()
    started = time.monotonic()
    class Finalised:
        def __del__(self):
            {ends}
            time.sleep(0.3)
    try:
        Finalised()
        time.sleep(20)
    except BaseException as end:
        print(type(end).__name__, time.monotonic() - started < 1)
"""


@pytest.mark.parametrize(
    ("ends", "end"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "Ended"),
        ("signals.end_within(0.1, started)", "Ended"),
    ],
)
def test_an_end_that_python_swallowed_comes_again_without_a_word(ends: str, end: str) -> None:
    done = _run(_SWALLOWED.format(ends=ends))

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{end} True\n", "")


def test_other_failures_of_finalisers_are_shown_as_ever() -> None:
    broken = _run("signals.obey()\nclass Broken:\n    def __del__(self):\n        raise ValueError\nBroken()")

    assert broken.returncode == 0
    assert "Exception ignored in: " in broken.stderr
    assert "ValueError" in broken.stderr


@pytest.mark.parametrize("seconds", [1e-9, 1e300, float("inf")])
def test_any_number_of_seconds_will_do(seconds: float) -> None:
    done = _run(
        f"""
        try:
            signals.end_within(float("{seconds}"), time.monotonic())
            time.sleep(0.3)
            signals.release()
            print("done")
        except signals.Ended:
            print("ended")
        """
    )

    assert done.stdout == ("ended\n" if seconds < 1 else "done\n")


def test_a_released_alarm_does_not_ring() -> None:
    done = _run("signals.end_within(0.1, time.monotonic())\nsignals.release()\ntime.sleep(0.5)\nprint('quiet')")

    assert done.stdout == "quiet\n"


def test_importing_the_program_changes_no_handler() -> None:
    code = "import signal, xapi_cli.__main__, xapi_cli.cli; print(signal.getsignal(signal.SIGINT).__name__)"

    assert subprocess.check_output([PYTHON, "-c", code], text=True) == "default_int_handler\n"
