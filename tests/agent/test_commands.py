"""`xapi agent start`, `stop` and `status`, and which commands the agent runs."""

import inspect
import json
import os
import re
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import PATIENT, Agent, is_running
from tests.support.ownership import OTHER_USER, give_away, needs_root
from tests.support.program import PROGRAM, PYTHON, REAL, Outcome, Xapi
from tests.support.skips import IMPOSSIBLE
from tests.support.threads import wait_until
from tests.tools.documents import ROOT
from xapi_cli.agent import adoption, protocol, worker
from xapi_cli.sandbox import Sandbox
from xapi_cli.system import agent_socket

ME = ("request", "/x-api/me")


def test_no_agent_runs_unless_it_is_started(stopped: Agent, sandbox: Sandbox) -> None:
    assert stopped.xapi("login", env=sandbox.settings).code == 0

    outcome = stopped.xapi("agent", "status")

    assert (outcome.code, json.loads(outcome.out)) == (1, {"running": False, "state": "stopped"})
    assert "the agent is not running; run `xapi agent start`" in outcome.err
    assert not stopped.directory.exists()


def test_the_agent_runs_commands(agent: Agent, sandbox: Sandbox) -> None:
    xapi = agent.xapi
    assert xapi("login", env=sandbox.settings).code == 0
    outcome = xapi(*ME, env=sandbox.settings)
    token = xapi("token", "show", env=sandbox.settings, cwd=xapi.home)
    failure = xapi("request", "/x-api/missing", env=sandbox.settings)

    assert json.loads(outcome.out)["email"] == sandbox.settings["XAPI_USERNAME"]
    assert (outcome.code, token.code, failure.code) == (0, 0, 4)
    assert token.out == xapi("token", "show", env={**sandbox.settings, "XAPI_AGENT": "off"}).out
    status = agent.status()
    assert (status["warm"], status["cold"]) == (4, {})


def test_the_agent_starts_without_the_optional_dependencies(stopped: Agent, tmp_path: Path) -> None:
    (tmp_path / "hiredis.py").write_text("raise ModuleNotFoundError('blocked', name='hiredis')")
    stopped.xapi.environ["PYTHONPATH"] = str(tmp_path)
    assert subprocess.run([PYTHON, "-c", "import hiredis"], env=stopped.xapi.environment(), check=False).returncode

    stopped.start()

    show = stopped.xapi.start("token", "show", env={"XAPI_TOKEN": "t0ken"}, argv=PATIENT)
    assert show.communicate(timeout=60) == (b"t0ken\n", b"")
    assert stopped.status()["warm"] == 1


def test_a_real_start_uses_the_agent(agent: Agent) -> None:
    """On a busy machine, no worker may be ready within 0.4 s, or no request in 1 s; then the next start may use it."""
    status: dict[str, Any] = {"warm": 0, "cold": {}}
    while not status["warm"]:
        assert status["cold"].keys() <= {protocol.DECLINED[protocol.NO_WORKER], "no request in time"}
        agent.wait_for_workers()
        process = agent.xapi.start("token", "show", env={"XAPI_TOKEN": "t0ken"}, argv=REAL)
        assert process.communicate(timeout=30) == (b"t0ken\n", b"")
        status = agent.status()


def test_without_a_runtime_directory_the_sockets_are_in_the_state_directory(stopped: Agent, runtime: Path) -> None:
    """As in a session of ssh or cron without systemd."""
    del stopped.xapi.environ["XDG_RUNTIME_DIR"]
    stopped.xapi.environ["XAPI_STATE_DIR"] = str(runtime)
    stopped.directory = runtime / "xapi" / "agent"
    stopped.start()

    assert stopped.xapi("token", "show", env={"XAPI_TOKEN": "t0ken"}).out == "t0ken\n"
    assert stopped.status()["warm"] == 1


@pytest.mark.parametrize("profile", [("-p", "staging"), ("-pstaging",), ("--profile=staging",)], ids=" ".join)
def test_a_profile_before_the_command_changes_nothing_about_where_it_runs(
    agent: Agent, sandbox: Sandbox, profile: tuple[str, ...]
) -> None:
    login = agent.xapi(*profile, "login", sandbox.base_url, env={**sandbox.settings, "XAPI_BASE_URL": None})
    status = agent.xapi(*profile, "token", "status")
    assert (login.code, json.loads(status.out)["profile"]) == (0, "staging")
    assert agent.status()["warm"] == 2

    executed = agent.xapi(*profile, "exec", "--", "sh", "-c", "echo $XAPI_BASE_URL")
    assert executed == Outcome(0, f"{sandbox.base_url}\n")
    assert (agent.status()["warm"], agent.status()["cold"]) == (2, {"exec": 1})
    assert agent.xapi(*profile, "agent", "status").err == (
        "xapi: error: `xapi agent status` does not use a profile; omit --profile\n"
    )
    assert agent.status()["cold"] == {"exec": 1}


@pytest.mark.parametrize("value", ["off", "0", "false", "No", " OFF "])
def test_off_bypasses_the_agent(agent: Agent, value: str) -> None:
    assert agent.xapi("token", "show", env={"XAPI_TOKEN": "t0ken", "XAPI_AGENT": value}).out == "t0ken\n"

    status = agent.status()
    assert (status["warm"], status["cold"]) == (0, {})


@pytest.mark.parametrize("value", ["", "on", "1"])
def test_other_values_do_not_bypass_the_agent(agent: Agent, value: str) -> None:
    assert agent.xapi("token", "show", env={"XAPI_TOKEN": "t0ken", "XAPI_AGENT": value}).out == "t0ken\n"

    assert agent.status()["warm"] == 1


@pytest.mark.parametrize("options", [(), ("--foreground",)])
def test_a_directory_that_others_can_write_to_is_a_usage_error(stopped: Agent, options: tuple[str, ...]) -> None:
    stopped.directory.mkdir()
    stopped.directory.chmod(0o777)
    outcome = stopped.xapi("agent", "start", *options)

    assert (outcome.code, "everyone can write" in outcome.err) == (2, True)


@pytest.mark.parametrize("options", [(), ("--foreground",)])
@pytest.mark.parametrize("name", ["agent", "keeper"])
def test_a_file_in_place_of_a_socket_is_named_and_nothing_is_left(
    stopped: Agent, options: tuple[str, ...], name: str
) -> None:
    stopped.directory.mkdir(mode=0o700)
    path = stopped.directory / name
    path.touch()
    outcome = stopped.xapi("agent", "start", *options)

    error = f"xapi: error: {path} is not a socket; move or delete it\n"
    assert (outcome.code, outcome.err) == (2, error)
    assert {file.name for file in stopped.directory.iterdir()} == {name, "lock"}


@needs_root
def test_a_socket_of_another_user_is_named(stopped: Agent) -> None:
    stopped.directory.mkdir(mode=0o700)
    path = stopped.directory / "agent"
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(path))
        give_away(path)
        outcome = stopped.xapi("agent", "start")

    error = f"xapi: error: {path} belongs to another user (ID {OTHER_USER}); remove it\n"
    assert (outcome.code, outcome.err) == (2, error)


@needs_root
@pytest.mark.parametrize("options", [(), ("--foreground",)])
def test_a_full_disk_is_reported(stopped: Agent, options: tuple[str, ...]) -> None:
    """The file system of the runtime directory has no space for another file."""
    runtime = stopped.directory.parent
    script = (
        'mount -t tmpfs -o size=4k,nr_inodes=4,mode=700 full "$1" && mkdir -m 700 "$1/xapi" && cd "$1"'
        ' && touch a xapi/lock && shift && exec "$@"'
    )
    outcome = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", runtime, PROGRAM, "agent", "start", *options],
        env=stopped.xapi.environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if outcome.stderr.startswith(("unshare: ", "mount: ")):
        pytest.skip(f"{IMPOSSIBLE}no file system can be mounted")

    problem = f"the agent cannot create its sockets in {stopped.directory}: No space left on device"
    hint = "check the owner, the mode and the free space of the directory"
    assert (outcome.returncode, outcome.stderr) == (1, f"xapi: error: {problem}; {hint}\n")


def test_quiet_omits_the_notes(stopped: Agent) -> None:
    started = stopped.xapi("agent", "start", "--quiet")
    stopped.attach()
    again = stopped.xapi("agent", "start", env={"XAPI_QUIET": "1"})
    ended = stopped.xapi("agent", "stop", env={"XAPI_QUIET": "1"})
    missing = stopped.xapi("agent", "status", "--quiet")

    assert [(each.code, each.err) for each in (started, again, ended)] == [(0, "")] * 3
    assert (missing.code, "the agent is not running" in missing.err) == (1, True)


def test_the_status_on_a_terminal_is_a_table(own_agent: Agent) -> None:
    own_agent.xapi("token", "show", env={"XAPI_TOKEN": "t0ken"})
    own_agent.xapi("exec", "true", env={"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"})

    with own_agent.xapi.on_terminal("agent", "status") as terminal:
        terminal.wait()
        shown = terminal.text

    status = own_agent.report()
    assert (status["warm"], status["cold"], status["commands"]) == (1, {"exec": 1}, 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["since"])
    since = status["since"].replace("T", " ")[:16]
    assert f"running      process {own_agent.pid}, since {since} UTC" in shown
    assert "commands     1 run by the agent, 0 in progress" in shown
    assert "tokens       0 stored, 0 cached from the keyring" in shown
    assert "bypassed     1 (exec)" in shown


def test_the_documentation_lists_the_fields_of_the_status(agent: Agent) -> None:
    page = (ROOT / "docs" / "agent-details.md").read_text()
    table = page.partition("`xapi agent status --json` prints one JSON object:")[2].strip().partition("\n\n")[0]
    fields = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]

    assert sorted(fields) == sorted(agent.report())


def test_the_documentation_lists_the_reasons() -> None:
    table = (ROOT / "docs" / "agent-details.md").read_text().partition("reason in `cold`")[2]
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    raised = re.findall(r'raise Cold\(f?"(.*?)"\)', inspect.getsource(adoption))

    declined = [*protocol.DECLINED.values(), *re.findall(r'b"N", reason="(.*?)"', inspect.getsource(worker))]
    assert {_kind(each) for each in (*raised, *declined)} <= {_kind(each) for each in listed}
    assert set(listed) >= agent_socket.COLD_COMMANDS


def _kind(reason: str) -> str:
    """Return *reason* without its details in parentheses, if it has variable ones."""
    return re.sub(r" \((\{.*|…|open files|memory)\)$", "", reason)


def test_the_memory_counts_shared_pages_once(agent: Agent) -> None:
    status = agent.status()
    processes = [agent.pid, *agent.workers(), *agent.services.values()]
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in processes)

    resident = pages * os.sysconf("SC_PAGESIZE")
    assert 0 < status["memory"] <= resident
    if os.geteuid() == 0:  # may read the share of each process
        assert status["memory"] < resident * 3 / 4


def test_only_this_user_can_reach_the_agent(agent: Agent) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in agent.directory.iterdir()}

    assert modes == dict.fromkeys(modes, 0o600)
    assert {"agent", "control", "lock"} <= modes.keys()
    assert stat.S_IMODE(agent.directory.stat().st_mode) == 0o700


def test_a_second_start_keeps_the_first_agent(agent: Agent) -> None:
    again = agent.xapi("agent", "start")
    foreground = agent.xapi("agent", "start", "--foreground")

    assert (again.code, again.err) == (0, f"xapi: the agent is already running (process {agent.pid})\n")
    assert (foreground.code, "the agent is already running" in foreground.err) == (1, True)
    assert agent.status()["pid"] == agent.pid


def test_a_second_start_says_that_the_idle_time_remains_and_the_status_shows_it(agent: Agent) -> None:
    again = agent.xapi("agent", "start", "--idle", "8h")

    running = f"xapi: the agent is already running (process {agent.pid})"
    hint = "to change it, run `xapi agent stop` first"
    assert (again.code, again.err) == (0, f"{running} and keeps --idle 4h; {hint}\n")
    assert agent.status()["idle"] == 4 * 3600
    with agent.xapi.on_terminal("agent", "status") as terminal:
        terminal.expect("exits after  4h without a command")
        assert terminal.wait() == 0


def test_stop_ends_all_processes_and_removes_the_sockets(own_agent: Agent) -> None:
    workers = own_agent.workers()

    outcome = own_agent.xapi("agent", "stop")

    assert (outcome.code, outcome.err) == (0, f"xapi: agent stopped (process {own_agent.pid})\n")
    wait_until(lambda: not any(map(is_running, [own_agent.pid, *workers])), "all processes have ended")
    assert [path.name for path in own_agent.directory.iterdir()] == ["lock"]
    assert own_agent.xapi("agent", "stop").err == "xapi: the agent is not running\n"
    assert own_agent.xapi("token", "show", env={"XAPI_TOKEN": "t0ken"}).out == "t0ken\n"


def test_an_idle_agent_ends(stopped: Agent) -> None:
    stopped.xapi("agent", "start", "--idle", "1")

    wait_until(lambda: not stopped.status(), "the agent has ended")


def test_an_invalid_idle_time_is_named(stopped: Agent) -> None:
    outcome = stopped.xapi("agent", "start", "--idle", "soon")

    assert (outcome.code, "--idle: 'soon' is not a valid duration" in outcome.err) == (2, True)


def test_without_a_directory_for_the_sockets_it_does_not_start(xapi: Xapi) -> None:
    outcome = xapi("agent", "start", env={"XAPI_STATE_DIR": "/" + "x" * 107})

    assert (outcome.code, "longer than 107 bytes" in outcome.err) == (2, True)


def test_a_foreground_agent_serves_the_socket_that_a_service_manager_passes(stopped: Agent) -> None:
    stopped.directory.mkdir(mode=0o700)
    path = stopped.directory / "agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        inode = path.stat().st_ino
        # as systemd: descriptor 3, and the process id of the service in LISTEN_PID
        code = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()),"
            " LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])"
        )
        process = subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", code, str(listener.fileno()), PROGRAM, "agent", "start", "--foreground"],
            pass_fds=[listener.fileno()],
            env=stopped.xapi.environment(),
        )
    try:
        wait_until(stopped.status, "the agent has started")
        stopped.pid = process.pid
        assert stopped.xapi("token", "show", env={"XAPI_TOKEN": "t0ken"}).out == "t0ken\n"
        assert (stopped.status()["warm"], path.stat().st_ino) == (1, inode)
        assert stopped.xapi("agent", "stop").code == 0
        assert process.wait(30) == 0
        assert path.exists()  # it belongs to the service manager
    finally:
        process.kill()
        process.wait()


@needs_root
def test_another_user_cannot_use_or_stop_the_agent(own_agent: Agent) -> None:
    own_agent.directory.parent.chmod(0o755)  # the modes of the sockets are not the only protection
    own_agent.directory.chmod(0o755)
    for name in ("agent", "control"):
        (own_agent.directory / name).chmod(0o666)
    code = (
        f"import os, socket, sys; os.setgroups([]); os.setgid({OTHER_USER}); os.setuid({OTHER_USER})\n"
        "for path, message in zip(sys.argv[1:], (b'', b'E\\0\\0\\0\\0')):\n"
        "    s = socket.socket(socket.AF_UNIX); s.connect(path)\n"
        "    try: s.sendall(message); print(s.recv(100))\n"
        "    except ConnectionError: print(b'')"
    )
    outcome = subprocess.run(
        ["python3", "-c", code, own_agent.directory / "agent", own_agent.directory / "control"],
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )

    own_agent.directory.parent.chmod(0o700)
    assert outcome.stdout == "b''\nb''\n"
    assert own_agent.status()["pid"] == own_agent.pid
