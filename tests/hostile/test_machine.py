"""Exhausted resources, a stopped process, and files in the current directory that Python might import."""

import signal
import time
import traceback
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.combinations import combined
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.servers import OK, Server, drip, hang, request, send
from tests.support.threads import Gate
from xapi_cli.cli import failures
from xapi_cli.runtime import Runtime
from xapi_cli.sandbox import Sandbox

CANARY = "canary-of-a-password"


def _within(xapi: Xapi, limit: str, *args: str, env: dict[str, str]) -> Outcome:
    """Run the program with the limits that `ulimit` sets."""
    process = xapi.start(*args, env=env, argv=("bash", "-c", f'ulimit {limit}; exec "$@"', "bash", str(PROGRAM)))
    out, err = process.communicate(timeout=60)
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(
    ("limit", "args"),
    combined(["-n 6", "-n 8", "-v 30000"], ["login", "request /x-api/me", "token show", "exec -- true", "doctor"]),
)
def test_exhausted_descriptors_or_memory_are_one_error_line(
    xapi: Xapi, sandbox: Sandbox, limit: str, args: str
) -> None:
    outcome = _within(xapi, limit, *args.split(), env=sandbox.settings)

    assert "Traceback" not in outcome.err
    if outcome.code and "xapi: " not in outcome.err:
        return  # Python itself could not start
    assert sandbox.settings["XAPI_PASSWORD"] not in outcome.out + outcome.err
    if outcome.code and args != "doctor":
        assert len([line for line in outcome.err.splitlines() if line.startswith("xapi: error: ")]) == 1
        assert "this is a bug" not in outcome.err or limit.startswith("-v")  # Python itself fails then


@pytest.mark.parametrize("limit", ["-n 6", "-n 7"])
def test_exhausted_descriptors_for_a_piped_body_are_one_error_line(xapi: Xapi, sandbox: Sandbox, limit: str) -> None:
    args = f'ulimit {limit}; head -c 5000000 /dev/zero | "$@"'
    process = xapi.start(
        "request", "/x-api/echo", "-d", "@-", env=bearing(sandbox), argv=("bash", "-c", args, "bash", str(PROGRAM))
    )
    _, err = process.communicate(timeout=60)

    assert process.returncode
    assert b"Traceback" not in err
    assert err.count(b"\n") == 1 or b"xapi: " not in err


def test_a_password_command_that_cannot_be_started_is_named(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.default]\npassword_command = ['sh', '-c', 'echo x']\n")

    outcome = _within(xapi, "-n 6", "token", "show", env={**sandbox.settings, "XAPI_PASSWORD": ""})

    assert (outcome.out, outcome.err.count("\n")) == ("", 1)
    no_child = outcome.code == 10 and "password_command 'sh' cannot be run: Too many open files" in outcome.err
    no_descriptor = outcome.code == 1 and "not enough memory or file descriptors" in outcome.err
    assert no_child or no_descriptor  # depends on the version of Python


@pytest.mark.parametrize("late", ["never", "while it slept", "in drips"])
def test_a_stopped_process_continues_or_times_out(xapi: Xapi, late: str) -> None:
    gate = Gate()
    whole = response("200 OK", b"done")
    rest = {"never": [hang()], "while it slept": [send(whole)], "in drips": [drip(whole, 0.02, 8)]}[late]
    with Server([request(), gate.reached, *rest]) as server:
        process = xapi.start("request", "/x", "--timeout", "1", env=bearing(server))
        gate.wait()
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # longer than its limit
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=20)

    if late == "never":
        assert (process.returncode, out) == (12, b"")
    else:
        assert (process.returncode, out) in {(0, b"done"), (12, b"")}
    assert err.count(b"\n") == (process.returncode != 0)


def test_a_module_in_the_current_directory_is_not_imported(xapi: Xapi, sandbox: Sandbox) -> None:
    directory = xapi.home / "trap"
    directory.mkdir()
    trap = "import pathlib; pathlib.Path('sprung').touch(); raise SystemExit('sprung')"
    for name in ("keyring", "httpx", "typer", "json", "ssl", "resource", "xapi_cli", "sitecustomize", "h11"):
        (directory / f"{name}.py").write_text(trap)

    for args in (("login",), ("request", "/x-api/me"), ("token", "status"), ("doctor",)):
        assert xapi(*args, env=sandbox.settings, cwd=directory).code == 0
    assert not (directory / "sprung").exists()


def test_no_setting_is_read_from_the_current_directory(xapi: Xapi, sandbox: Sandbox) -> None:
    with Server([request(), send(OK)]) as other:
        directory = xapi.home / "repository"
        (directory / "xapi").mkdir(parents=True)
        evil = f'[profiles.default]\nbase_url = "{other.url}"\nusername = "me"\n'
        for name in ("config.toml", "xapi/config.toml", "xapi.toml", ".xapi.toml", ".xapirc", "pyproject.toml"):
            (directory / name).write_text(evil)
        (directory / ".env").write_text(f"XAPI_BASE_URL={other.url}\nXAPI_TOKEN=x\n")
        outcome = xapi("request", "/x", cwd=directory, env={"XAPI_TOKEN": "canary"})
        inside = xapi("request", "/x-api/me", cwd=directory, env=sandbox.settings)

        assert (outcome.code, outcome.out) == (2, "")
        assert "no base URL" in outcome.err
        assert inside.code == 0
        assert other.received == []


@pytest.mark.parametrize(
    "name",
    [
        "PYTHONDEVMODE",
        "PYTHONVERBOSE",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("PYTHONFAULTHANDLER", "PYTHONTRACEMALLOC")),
    ],
)
def test_the_output_of_python_options_contains_no_secret(xapi: Xapi, sandbox: Sandbox, name: str) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": CANARY, name: "1"}

    for args in (("login",), ("request", "-v", "/x-api/me")):
        outcome = xapi(*args, env=env)
        assert outcome.code == 10
        assert CANARY not in outcome.out + outcome.err


def test_a_crash_report_of_python_contains_no_secret(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env = {**bearing(server), "PYTHONFAULTHANDLER": "1"}
        process = xapi.start("request", "/x", env=env)
        gate.wait()
        process.send_signal(signal.SIGSEGV)
        out, err = process.communicate(timeout=20)

    assert process.returncode == -signal.SIGSEGV
    assert b"Fatal Python error" in err
    assert env["XAPI_TOKEN"].encode() not in out + err


@pytest.mark.parametrize(
    "text", ["\u0301" * 500_000, "\u200b" * 300_000, "漢" * 300_000, "👩\u200d👩\u200d👧" * 50_000]
)
def test_text_of_unusual_width_is_shown_without_delay(xapi: Xapi, text: str) -> None:
    with (
        Server(
            [request(), send(response("200 OK", text.encode(), "Content-Type: text/plain; charset=utf-8"))]
        ) as server,
        xapi.on_terminal("request", "/x", env=bearing(server)) as terminal,
    ):
        assert terminal.wait(30) == 0
    assert len(terminal.seen) >= len(text.encode())


def test_a_missing_or_foreign_home_directory_causes_no_crash(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        env = {**bearing(server), "HOME": str(xapi.home / "missing"), "XAPI_CONFIG_DIR": None, "XAPI_STATE_DIR": None}
        gone = Path(xapi.home / "gone")
        gone.mkdir()
        process = xapi.start(
            "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "bash", str(PROGRAM), "request", "/x", env=env, argv=("bash",)
        )
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (0, b"ok", b"")
    assert not (xapi.home / "missing").exists()


def test_memory_that_does_not_suffice_for_the_report_is_one_error_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(traceback, "extract_tb", exhausted)

    code = failures.report(ImportError("a module of Python"), Runtime({}))

    assert code == 1
    assert capfd.readouterr().err == "xapi: error: not enough memory; check the limits with `ulimit -a`\n"
