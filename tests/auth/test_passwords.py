"""The password command, run for real; and characters that a password probably should not have."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.support.servers import Stopwatch
from xapi_cli.auth.passwords import described, from_command
from xapi_cli.errors import LoginNeeded, TimeoutExpired

PATH = {"PATH": os.environ["PATH"]}


def _python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-ISc", code)


def _failure(*command: str, limit: float = 10) -> str:
    with pytest.raises(LoginNeeded) as caught:
        from_command(command, PATH, limit=limit)
    assert "CANARY" not in str(caught.value)
    return caught.value.message


@pytest.mark.parametrize(
    "printed, password",
    [
        ("secret\n", "secret"),
        ("secret", "secret"),
        ("secret\r\n", "secret"),
        ("secret\nlogin: me\nurl: x\n", "secret"),
        (" with blanks \n", " with blanks "),
        ("grün\n", "grün"),
        ("x" * 65536, "x" * 65536),
    ],
)
def test_the_password_is_the_first_line_that_the_command_prints(tmp_path: Path, printed: str, password: str) -> None:
    file = tmp_path / "printed"
    file.write_bytes(printed.encode())

    assert from_command(("cat", str(file)), PATH) == password


def test_the_arguments_are_passed_verbatim_without_a_shell() -> None:
    assert from_command(("printf", "%s", "$HOME `id` ; * 'x'"), PATH) == "$HOME `id` ; * 'x'"


def test_the_command_has_an_empty_stdin_and_no_secrets_of_xapi() -> None:
    environ = PATH | {"XAPI_PASSWORD": "CANARY", "XAPI_TOKEN": "CANARY", "XAPI_BASE_URL": "https://api.test"}
    code = (
        "import os, sys; print(repr(sys.stdin.read()), sorted(n for n in os.environ if n.startswith('XAPI')),"
        " 'CANARY' in str(os.environ))"
    )

    assert from_command(_python(code), environ) == "'' ['XAPI_BASE_URL'] False"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
@pytest.mark.parametrize(
    "number, name",
    [
        ("KILL", "SIGKILL"),
        pytest.param(
            "40",
            "signal 40",
            marks=pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals"),
        ),
    ],
)
def test_the_signal_that_terminates_a_command_is_named(number: str, name: str) -> None:
    assert _failure("sh", "-c", f"echo CANARY; kill -{number} $$") == f"password_command 'sh' was terminated by {name}"


def test_a_failing_command_is_named_with_its_exit_code_and_without_its_output() -> None:
    code = "import sys; print('CANARY'); print('CANARY', file=sys.stderr); sys.exit(3)"

    assert _failure(*_python(code)) == (
        f"password_command {os.path.basename(sys.executable)!r} failed with exit code 3"
    )


@pytest.mark.parametrize(
    "command, message",
    [
        (("/nonexistent/pass", "CANARY"), "password_command 'pass' cannot be run: No such file or directory"),
        (("/", "CANARY"), "password_command '' cannot be run: Permission denied"),
        (("/echo\0",), r"password_command 'echo\\x00' cannot be run: invalid argument"),
        (("true",), "password_command 'true' printed no password on its first line"),
        (("printf", "\\nCANARY"), "password_command 'printf' printed no password on its first line"),
    ],
)
def test_the_error_names_why_a_command_returned_no_password(command: tuple[str, ...], message: str) -> None:
    assert _failure(*command) == message


def test_output_of_more_than_64_kib_is_an_error_even_if_it_never_ends() -> None:
    assert _failure("yes", "CANARY") == "password_command 'yes' printed more than 64 KiB"


def test_a_command_that_hangs_is_killed() -> None:
    with Stopwatch() as watch:
        assert _failure("sleep", "60", limit=0.3) == "password_command 'sleep' timed out after 0 s"
    assert watch.seconds < 30


def test_max_time_takes_precedence_over_the_timeout_of_the_command() -> None:
    with (
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired, match="did not finish before --max-time expired; raise --max-time"),
    ):
        from_command(("sleep", "60"), PATH, deadline=time.monotonic() + 0.3)
    assert watch.seconds < 30


def test_a_child_process_that_keeps_running_causes_no_delay() -> None:
    with Stopwatch() as watch:
        assert from_command(("sh", "-c", "sleep 40 & echo secret"), PATH) == "secret"
    assert watch.seconds < 30


def test_a_line_that_a_child_process_left_without_a_newline_is_complete_once_the_command_has_exited() -> None:
    with Stopwatch() as watch:
        assert from_command(("sh", "-c", "sleep 40 & printf secret"), PATH) == "secret"
    assert watch.seconds < 30


def test_a_child_process_that_never_stops_printing_causes_no_delay() -> None:
    assert _failure("sh", "-c", "yes CANARY & sleep 20").endswith("printed more than 64 KiB")


@pytest.fixture
def _slow_threads() -> Iterator[None]:
    """Let every thread that starts wait after each read, as on a busy machine."""

    def wait(_frame: FrameType, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") in {"read", "readinto"}:
            time.sleep(0.35)

    threading.setprofile(wait)
    yield
    threading.setprofile(None)


@pytest.mark.usefixtures("_slow_threads")
def test_a_password_is_never_truncated_however_slowly_it_is_read() -> None:
    code = "import os, time; os.write(1, b'correct '); time.sleep(0.1); os.write(1, b'horse\\n')"

    assert from_command(_python(code), PATH) == "correct horse"


def test_what_was_probably_not_meant_to_be_in_a_password_is_named() -> None:
    assert described("the password from stdin", "pass phrase") == "the password from stdin"
    assert described("it", "gr\udcfcn") == "it, which is not UTF-8"
    assert described("the password", " secret") == "the password, which begins or ends with a space"
    for password, code in [
        ("secret\n", "000A"),
        ("\ufeffsecret", "FEFF"),
        ("\x1b[200~secret\x1b[201~", "001B"),
    ]:
        assert described("the password", password) == f"the password, which contains the invisible character U+{code}"
