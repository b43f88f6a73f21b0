"""What only Windows has: consoles, PATHEXT, batch files, access control lists, its credential store."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import PYTHON, Outcome, Xapi
from tests.support.servers import Server, serve
from tests.windows.wine import INTERPRETER, windows_path
from xapi_cli.sandbox import Sandbox

ME = ("request", "/x-api/me")
ME_LINE = '{"path": "/x-api/me"}\n'
TOKEN = {"XAPI_TOKEN": "abc"}
_SHOW_ACL = """
import ctypes, sys
from ctypes import wintypes
a = ctypes.WinDLL("advapi32")
for path in sys.argv[1:]:
    descriptor, text = ctypes.c_void_p(), wintypes.LPWSTR()
    a.GetNamedSecurityInfoW(wintypes.LPCWSTR(path), 1, 4, None, None, None, None, ctypes.byref(descriptor))
    a.ConvertSecurityDescriptorToStringSecurityDescriptorW(descriptor, 1, 4, ctypes.byref(text), None)
    print(text.value)
"""

_CHANGES_THE_REGISTRY = """
import sys, winreg
name = r"Software\\xapi tests"
winreg.CreateKey(winreg.HKEY_CURRENT_USER, name).Close()
print("changed", flush=True)
sys.stdin.read()
winreg.DeleteKey(winreg.HKEY_CURRENT_USER, name)
"""


def python(*args: str) -> str:
    """Return what the interpreter for Windows prints."""
    return subprocess.run(
        [PYTHON, *args], stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True, timeout=60
    ).stdout


def batch_file(directory: Path, name: str, line: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"@echo off\r\n{line}\r\n")
    return path


def with_path(directory: Path) -> dict[str, str]:
    """Return the environment in which *directory* is in PATH: Wine adds WINEPATH to that of Windows."""
    name, rest = ("PATH", f";{os.environ['PATH']}") if sys.platform == "win32" else ("WINEPATH", "")
    return {name: windows_path(directory) + rest}


def test_the_first_hour(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    assert json.loads(xapi(*ME).out)["id"] == 1
    sandbox.revoke_tokens()
    renewed = xapi(*ME, env=sandbox.settings)
    assert (renewed.code, json.loads(renewed.out)["id"]) == (0, 1)
    lines = xapi("batch", input=ME_LINE * 2).out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == [200, 200]
    assert xapi("logout").code == 0
    assert xapi("token", "show").code == 10


def test_nul_as_stdin_is_no_terminal(xapi: Xapi, sandbox: Sandbox) -> None:
    settings = {name: value for name, value in sandbox.settings.items() if name != "XAPI_PASSWORD"}

    outcome = xapi("login", env=settings)

    assert outcome.code == 10
    assert len(outcome.err.splitlines()) == 1


def test_a_password_command_in_the_current_directory_is_not_run(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    batch_file(tmp_path / "clone", "getpw.cmd", "echo stolen>ran")
    settings = {name: value for name, value in sandbox.settings.items() if name != "XAPI_PASSWORD"}

    outcome = xapi("login", "--password-command", "getpw", env=settings, cwd=tmp_path / "clone")

    assert outcome.code == 10
    assert "password_command 'getpw' cannot be run" in outcome.err
    assert not (tmp_path / "clone" / "ran").exists()


def test_a_password_command_with_backslashes_is_found(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    script = tmp_path / "my scripts" / "getpw.py"
    script.parent.mkdir()
    script.write_text(f"import sys; sys.stdout.buffer.write({sandbox.settings['XAPI_PASSWORD'].encode()!r})")
    settings = {name: value for name, value in sandbox.settings.items() if name != "XAPI_PASSWORD"}
    command = f'{INTERPRETER} "{windows_path(script)}"'

    assert xapi("login", "--password-command", command, env=settings).code == 0


def test_exec_runs_a_program_and_passes_its_exit_code_on(xapi: Xapi) -> None:
    code = "import os, sys; print(os.environ['XAPI_TOKEN'], sys.argv[1:]); sys.exit(7)"

    outcome = xapi("exec", "--", INTERPRETER, "-c", code, 'a "b', "%PATH%", "c\\", env=TOKEN)

    assert outcome == Outcome(7, "abc ['a \"b', '%PATH%', 'c\\\\']\r\n")


def test_exec_finds_a_batch_file_in_path_and_not_in_the_current_directory(xapi: Xapi, tmp_path: Path) -> None:
    batch_file(tmp_path / "bin", "tool.cmd", "exit 5")
    batch_file(tmp_path / "clone", "other.cmd", "exit 6")
    env = TOKEN | with_path(tmp_path / "bin")

    assert xapi("exec", "--", "tool", "a & b", env=env, cwd=tmp_path / "clone").code == 5
    assert xapi("exec", "--", "other", env=env, cwd=tmp_path / "clone").code == 127


def test_exec_refuses_what_cmd_would_interpret(xapi: Xapi, tmp_path: Path) -> None:
    tool = batch_file(tmp_path, "tool.cmd", "exit 0")

    outcome = xapi("exec", "--", windows_path(tool), '" & echo injected', env=TOKEN)

    assert outcome.code == 126
    assert "a batch file cannot get an argument with a quote" in outcome.err


def test_only_the_user_administrators_and_the_system_can_access_what_is_stored(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    paths = [xapi.state, xapi.config, *xapi.state.rglob("*"), *xapi.config.rglob("*")]
    lists = python("-c", _SHOW_ACL, *map(windows_path, paths)).splitlines()

    assert len(lists) == len(paths) > 4
    assert [each for each in lists if ";;;WD)" in each or ";;;BU)" in each] == []


def test_the_credential_store_keeps_a_token_longer_than_one_of_its_items(xapi: Xapi, sandbox: Sandbox) -> None:
    env: dict[str, str | None] = {**sandbox.settings, "XAPI_STORAGE": "keyring"}

    assert xapi("login", env=env).code == 0
    stored = xapi("token", "show", env={"XAPI_STORAGE": "keyring", "XAPI_BASE_URL": sandbox.base_url})
    assert xapi("logout", env={"XAPI_STORAGE": "keyring"}).code == 0

    assert (stored.code, len(stored.out.strip())) == (0, 900)


def test_a_process_with_other_temporary_files_does_not_restore_an_older_credential_store(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    env: dict[str, str | None] = {**sandbox.settings, "XAPI_STORAGE": "keyring"}
    other = subprocess.Popen(
        [PYTHON, "-c", _CHANGES_THE_REGISTRY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=xapi.environment({"TMPDIR": str(tmp_path)}),
        text=True,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "changed\n"
        assert xapi("login", env=env).code == 0
        other.communicate(timeout=60)

    assert other.returncode == 0
    assert xapi("token", "show", "--no-login", env=env).code == 0
    assert xapi("logout", env=env).code == 0


def test_processes_at_once_log_in_once(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    sandbox.revoke_tokens()
    before = sandbox.logins

    processes = [xapi.start(*ME, env=sandbox.settings) for _ in range(8)]
    results = [json.loads(process.communicate(timeout=60)[0])["id"] for process in processes]

    assert results == [1] * 8
    assert sandbox.logins == before + 1


def test_a_closed_pipe_is_no_error_of_the_output(xapi: Xapi) -> None:
    process = xapi.start("help", "exit-codes")
    assert process.stdout is not None
    process.stdout.close()

    assert process.wait(30) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="it would reach the tests too")
def test_ctrl_c_ends_a_command_without_a_traceback(xapi: Xapi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = xapi.start(*ME, env=TOKEN | {"XAPI_BASE_URL": url})
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)

    assert (process.returncode != 0, out) == (True, b"")
    assert b"Traceback" not in err


@pytest.mark.parametrize("name", ["con", "aux.json", "COM1"])
def test_the_name_of_a_device_is_refused(xapi: Xapi, sandbox: Sandbox, name: str) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    outcome = xapi(*ME, "-o", name)

    assert outcome.code == 14
    assert (
        outcome.err
        == f"xapi: error: {name} cannot be written: Windows reserves the name for a device; choose another file\n"
    )


def test_a_path_longer_than_260_characters_is_written_and_replaced(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    out = tmp_path / ("d" * 100) / ("d" * 100) / ("d" * 100) / "out.json"
    out.parent.mkdir(parents=True)
    name = windows_path(out)

    assert [xapi(*ME, *options, "-o", name).code for options in ((), (), ("--continue",))] == [0, 0, 0]
    assert xapi("batch", "--journal", f"{name}.journal", input=ME_LINE).code == 0

    assert json.loads(out.read_text())["id"] == 1
    assert [path.name for path in sorted(out.parent.iterdir())] == ["out.json", "out.json.journal"]


def test_a_name_without_a_drive_is_written(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    assert xapi(*ME, "-o", f"\\\\?\\{windows_path(tmp_path / 'öut→.json')}").code == 0

    assert json.loads((tmp_path / "öut→.json").read_text())["id"] == 1


@pytest.mark.states("Bodies in pipes and files are bytes and are never changed.")
def test_bytes_are_the_same_in_and_out_with_any_code_page(xapi: Xapi, sandbox: Sandbox) -> None:
    body = bytes(range(256)) + "é→\r\n\n".encode()

    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    with Server([serve(reply)]) as server:
        outcome = xapi("request", "/", "-d", "@-", input=body, env=TOKEN | {"XAPI_BASE_URL": server.url})

    assert (outcome.code, outcome.body) == (0, body)
    assert server.received[0].endswith(body)


def test_nul_discards_a_body(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    assert xapi(*ME, "-o", "NUL").code == 0


def test_the_filter_of_a_batch(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    outcome = xapi("batch", "--jq", ".id", input=ME_LINE * 40)

    assert outcome.code == 0
    assert [json.loads(line)["json"] for line in outcome.out.splitlines()] == [1] * 40


@pytest.mark.parametrize(
    "args", [("agent", "start"), ("agent", "status"), ("agent", "stop"), ("login", "--storage", "agent")]
)
@pytest.mark.states("Such a command exits with code 2 and says so.")
def test_the_agent_is_not_available(xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]) -> None:
    outcome = xapi(*args, env=sandbox.settings)

    assert outcome.code == 2
    assert outcome.err.startswith("xapi: error: the agent is not available on this platform: it requires Linux; ")
    assert sandbox.logins == 0


def test_doctor_lists_what_is_not_available(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    outcome = xapi("doctor")

    assert outcome.code == 0
    assert "pass  agent     not available on this platform: it requires Linux" in outcome.out.splitlines()
