"""A machine that is short of everything, stops the program in between, or lays traps where Python looks for modules."""

import signal
import time
from pathlib import Path

import pytest

from tests.commands.api import answer, bearing
from tests.program import PROGRAM, Outcome, Xapi
from tests.servers import OK, Server, drip, hang, request, send
from tests.threads import Gate
from xapi_cli.sandbox import Sandbox

CANARY = "canary-of-a-password"


def _within(xapi: Xapi, limit: str, *words: str, env: dict[str, str]) -> Outcome:
    """Run the program under what `ulimit` allows."""
    process = xapi.start(*words, env=env, argv=("bash", "-c", f'ulimit {limit}; exec "$@"', "bash", str(PROGRAM)))
    out, err = process.communicate(timeout=60)
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("words", ["login", "request /x-api/me", "token show", "exec -- true", "doctor"])
@pytest.mark.parametrize("limit", ["-n 6", "-n 8", "-v 30000"])
def test_too_few_files_or_too_little_memory_are_one_line(xapi: Xapi, sandbox: Sandbox, limit: str, words: str) -> None:
    outcome = _within(xapi, limit, *words.split(), env=sandbox.settings)

    assert "Traceback" not in outcome.err
    if outcome.code and "xapi: " not in outcome.err:
        return  # Python itself could not begin
    assert sandbox.settings["XAPI_PASSWORD"] not in outcome.out + outcome.err
    if outcome.code and words != "doctor":
        assert len([line for line in outcome.err.splitlines() if line.startswith("xapi: error: ")]) == 1
        assert "this is a bug" not in outcome.err or limit.startswith("-v")  # there, Python itself stumbles


@pytest.mark.parametrize("limit", ["-n 6", "-n 7"])
def test_too_few_files_for_a_body_from_a_pipe_are_one_line(xapi: Xapi, sandbox: Sandbox, limit: str) -> None:
    words = f'ulimit {limit}; head -c 5000000 /dev/zero | "$@"'
    process = xapi.start(
        "request", "/x-api/echo", "-d", "@-", env=bearing(sandbox), argv=("bash", "-c", words, "bash", str(PROGRAM))
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
    assert no_child or (outcome.code == 1 and "too few files may be open" in outcome.err)  # by the version of Python


@pytest.mark.parametrize("late", ["never", "while it slept", "in drips"])
def test_a_process_that_was_stopped_goes_on_or_ends_in_a_timeout(xapi: Xapi, late: str) -> None:
    gate = Gate()
    whole = answer("200 OK", b"done")
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


def test_a_module_in_the_current_folder_is_not_imported(xapi: Xapi, sandbox: Sandbox) -> None:
    folder = xapi.home / "trap"
    folder.mkdir()
    trap = "import pathlib; pathlib.Path('sprung').touch(); raise SystemExit('sprung')"
    for name in ("keyring", "httpx", "typer", "json", "ssl", "resource", "xapi_cli", "sitecustomize", "h11"):
        (folder / f"{name}.py").write_text(trap)

    for words in (("login",), ("request", "/x-api/me"), ("token", "status"), ("doctor",)):
        assert xapi(*words, env=sandbox.settings, cwd=folder).code == 0
    assert not (folder / "sprung").exists()


def test_no_setting_is_read_from_the_current_folder(xapi: Xapi, sandbox: Sandbox) -> None:
    with Server([request(), send(OK)]) as other:
        folder = xapi.home / "repository"
        (folder / "xapi").mkdir(parents=True)
        evil = f'[profiles.default]\nbase_url = "{other.url}"\nusername = "me"\n'
        for name in ("config.toml", "xapi/config.toml", "xapi.toml", ".xapi.toml", ".xapirc", "pyproject.toml"):
            (folder / name).write_text(evil)
        (folder / ".env").write_text(f"XAPI_BASE_URL={other.url}\nXAPI_TOKEN=x\n")
        outcome = xapi("request", "/x", cwd=folder, env={"XAPI_TOKEN": "canary"})
        inside = xapi("request", "/x-api/me", cwd=folder, env=sandbox.settings)

        assert (outcome.code, outcome.out) == (2, "")
        assert "there is no base URL" in outcome.err
        assert inside.code == 0
        assert other.received == []


@pytest.mark.parametrize("name", ["PYTHONDEVMODE", "PYTHONFAULTHANDLER", "PYTHONVERBOSE", "PYTHONTRACEMALLOC"])
def test_what_python_tells_of_itself_holds_no_secret(xapi: Xapi, sandbox: Sandbox, name: str) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": CANARY, name: "1"}

    for words in (("login",), ("request", "-v", "/x-api/me")):
        outcome = xapi(*words, env=env)
        assert outcome.code == 10
        assert CANARY not in outcome.out + outcome.err


def test_a_crash_that_python_reports_holds_no_secret(xapi: Xapi) -> None:
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
def test_text_of_odd_width_is_shown_without_delay(xapi: Xapi, text: str) -> None:
    with (
        Server([request(), send(answer("200 OK", text.encode(), "Content-Type: text/plain; charset=utf-8"))]) as server,
        xapi.on_terminal("request", "/x", env=bearing(server)) as terminal,
    ):
        assert terminal.wait(30) == 0
    assert len(terminal.seen) >= len(text.encode())


def test_a_home_that_is_gone_or_foreign_is_no_crash(xapi: Xapi) -> None:
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
