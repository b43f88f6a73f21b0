"""The program with storage `agent`."""

import json
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.agent.conftest import Agent, is_running
from tests.agent.keeper_programs import ME, without_password
from tests.support.keeper_process import KeeperProcess
from tests.support.program import PROGRAM, Environ, Xapi
from tests.support.servers import Server, request, send, wait_for
from tests.support.skips import IMPOSSIBLE
from tests.support.threads import Gate, wait_until
from xapi_cli.agent import daemon
from xapi_cli.sandbox import MASTER, Sandbox
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import key_of
from xapi_cli.tokens import Identity

UNWRITABLE = "/dev/null/state"


def test_a_token_is_stored_used_described_and_deleted_and_no_file_contains_it(xapi: Xapi, env: Environ) -> None:
    login = xapi("login", env=env)
    assert login.code == 0
    assert login.err.endswith(", token stored in the agent's memory\n")

    shown = json.loads(xapi("token", "show", "--json", env=without_password(env)).out)
    assert (shown["storage"], shown["source"]) == ("agent", "store")
    assert json.loads(xapi("token", "status", env=without_password(env)).out)["state"] == "valid"
    assert xapi(*ME, "--no-login", env=without_password(env)).code == 0
    token = str(shown["access_token"]).encode()
    assert [path for path in xapi.home.rglob("*") if path.is_file() and token in path.read_bytes()] == []

    logout = xapi("logout", "--all", env=without_password(env))
    assert (logout.code, logout.err.count("logged out of ")) == (0, 1)
    assert xapi("token", "show", env=without_password(env)).code == 10


def test_when_the_agent_has_ended_there_is_no_stored_token(xapi: Xapi, keeper: KeeperProcess, env: Environ) -> None:
    assert xapi("login", env=env).code == 0
    assert keeper.cut_lifeline() == 0

    status = xapi("token", "status", env=without_password(env))
    assert (status.code, json.loads(status.out)["state"], json.loads(status.out)["storage"]) == (10, "none", "agent")
    assert status.err == "xapi: error: no stored token; run `xapi login`\n"
    used = xapi(*ME, env=env)
    assert (used.code, json.loads(used.out)["email"]) == (0, MASTER.email)
    assert "xapi: warning: the new token could not be stored: no agent is running; run `xapi agent start`" in used.err
    assert xapi("logout", env=env).code == 0


def test_a_rejected_token_is_shown_as_rejected_until_a_login(xapi: Xapi, sandbox: Sandbox, env: Environ) -> None:
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()
    assert xapi(*ME, env=without_password(env)).code == 10

    rejected = xapi("token", "status", env=without_password(env))
    assert (rejected.code, json.loads(rejected.out)["state"]) == (10, "rejected")
    assert xapi("login", env=env).code == 0
    assert json.loads(xapi("token", "status", env=without_password(env)).out)["state"] == "valid"


def test_a_password_is_remembered_by_consent_and_deleted_by_a_logout(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Environ
) -> None:
    login = xapi("login", "--remember", env=env)
    assert "token and password stored in the agent's memory" in login.err
    sandbox.revoke_tokens()
    assert xapi(*ME, env=without_password(env)).code == 0
    assert xapi("login", "--no-remember", env=env).code == 0
    sandbox.revoke_tokens()
    assert xapi(*ME, env=without_password(env)).code == 10

    assert xapi("logout", env=env).code == 0
    assert KeeperClient(keeper.environ, 20).held() == []


def test_the_user_is_asked_for_consent(xapi: Xapi, sandbox: Sandbox, env: Environ) -> None:
    with xapi.on_terminal("login", env=without_password(env)) as terminal:
        terminal.expect("Password")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("Remember the password in the agent's memory")
        terminal.type("y\n")
        assert terminal.wait() == 0
    sandbox.revoke_tokens()
    assert xapi(*ME, env=without_password(env)).code == 0


def test_doctor_reports_the_agent(xapi: Xapi, keeper: KeeperProcess, env: Environ) -> None:
    assert xapi("login", env=env).code == 0
    assert _check(xapi, env, "keeper") == ("pass", _passed("memory locked (never swapped)"))
    assert _check(xapi, env, "token")[0] == "pass"

    keeper.kill()
    assert _check(xapi, env, "keeper") == ("fail", "no agent is running")
    status, message = _check(xapi, env, "token")
    assert (status, message) == ("warn", "no stored token: the agent's memory cannot be used")


def _passed(memory: str) -> str:
    return f"{memory}: an item was written, read and deleted"


def _check(xapi: Xapi, env: Environ, name: str) -> tuple[str, str]:
    checks = json.loads(xapi("doctor", "--json", env=env).out)["checks"]
    (check,) = (check for check in checks if check["name"] == name)
    return check["status"], check["message"]


def test_doctor_reports_that_memory_could_not_be_locked(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    prefix = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock") if os.getuid() == 0 else ()
    with KeeperProcess(tmp_path / "none", prefix=("prlimit", "--memlock=0:0", *prefix)) as unlocked:
        env = {**sandbox.settings, **unlocked.environ}
        assert _check(xapi, env, "keeper") == ("pass", _passed("memory not locked (RLIMIT_MEMLOCK)"))


@pytest.mark.slow
def test_a_keeper_that_hangs_exits_with_13_in_time(xapi: Xapi, keeper: KeeperProcess, env: Environ) -> None:
    assert xapi("login", env=env).code == 0
    keeper.signal(signal.SIGSTOP)
    for args in (("token", "show"), ("login",), ("logout",)):
        outcome = xapi(*args, env=env)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        assert "the agent did not respond within 3 s; run `xapi agent stop`, which erases its tokens" in outcome.err


def test_a_keeper_that_is_killed_during_logins_fails_none_of_them(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Environ
) -> None:
    running = [xapi.start("token", "show", "--fresh", env=env) for _ in range(12)]
    while sandbox.login_attempts < 3:
        assert running[0].poll() in {None, 0}
    keeper.kill()
    keeper.start()
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, bool(out)) == (0, True), err
    assert xapi("token", "show", env=env).code == 0


# without a state directory


@pytest.mark.slow
def test_without_a_writable_state_directory_many_processes_still_trigger_one_login(
    xapi: Xapi, sandbox: Sandbox, env: Environ
) -> None:
    env = {**env, "XAPI_STATE_DIR": UNWRITABLE}
    running = [xapi.start(*ME, env=env) for _ in range(32)]
    ended = [process.communicate(timeout=100)[1].decode() for process in running]

    assert Counter(process.returncode for process in running) == {0: 32}, ended[:3]
    assert sandbox.logins == sandbox.login_attempts == 1
    warnings = {line for err in ended for line in err.splitlines() if "warning" in line}
    assert len(warnings) == 1
    assert warnings.pop().endswith("; continuing with the locks of the agent's memory")


def test_without_a_writable_state_directory_a_logout_still_takes_precedence(
    xapi: Xapi, sandbox: Sandbox, env: Environ
) -> None:
    env = {**env, "XAPI_STATE_DIR": UNWRITABLE}
    for _ in range(3):
        attempts = sandbox.login_attempts
        racing = xapi.start("token", "show", "--fresh", env=env)
        while sandbox.login_attempts == attempts and racing.poll() is None:
            pass
        assert xapi("logout", env=env).code == 0
        message = racing.communicate(timeout=60)[1].decode()
        assert "logged out in the meantime" in message or xapi("token", "show", "--no-login", env=env).code == 10


def test_a_logout_of_all_accounts_during_a_login_is_not_undone(xapi: Xapi, env: Environ) -> None:
    gate = Gate()
    body = b'{"access_token": "late"}'
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with Server([request(), gate.reached, wait_for(gate.open), send(response)]) as server:
        env = {**env, "XAPI_BASE_URL": server.url}
        racing = xapi.start("token", "show", env=env)
        gate.wait()
        assert xapi("logout", "--all", env=env).err == "xapi: no known account, nothing to delete\n"
        gate.open.set()
        message = racing.communicate(timeout=60)[1].decode()

    assert "the account was logged out in the meantime, so the new token is not stored" in message
    assert xapi("token", "show", "--no-login", env=env).code == 10


# shared with another machine or a container


@contextmanager
def forwarded(to: Path, at: Path) -> Iterator[None]:
    """Forward connections to the socket *at* to the socket *to*, byte by byte, as `ssh -R` does."""
    at.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(64) as pool:
        listener.bind(str(at))
        listener.listen(128)
        accepting = pool.submit(_forward_all, listener, to, pool)
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.result(20)


def _forward_all(listener: socket.socket, to: Path, pool: ThreadPoolExecutor) -> None:
    """Forward each connection of *listener* until it is shut down; all clients have ended then."""
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(to))
            pool.submit(_forward, near, far, pool)


def _forward(near: socket.socket, far: socket.socket, pool: ThreadPoolExecutor) -> None:
    with near, far:
        back = pool.submit(_copy, far, near)
        _copy(near, far)
        back.result(20)


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until *source* ends, then end both directions."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_it_can_be_used_through_a_forwarded_socket_with_a_state_directory_of_its_own(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Environ, tmp_path: Path
) -> None:
    far = {**env, "XDG_RUNTIME_DIR": None, "XAPI_STATE_DIR": str(tmp_path / "far"), "XAPI_CONFIG_DIR": str(tmp_path)}
    with forwarded(keeper.path, tmp_path / "far" / "xapi" / "agent" / "keeper"):
        assert xapi("login", env=env).code == 0
        assert xapi(*ME, "--no-login", env=without_password(far)).code == 0
        sandbox.revoke_tokens()

        running = [xapi.start(*ME, env=each) for _ in range(6) for each in (env, far)]
        errors = [process.communicate(timeout=100)[1] for process in running]
        assert {process.returncode for process in running} == {0}, errors
        assert sandbox.logins == 2  # of the first login, and of one process on one of both sides

        assert xapi("logout", env=far).code == 0
        assert xapi("token", "show", "--no-login", env=env).code == 10


def test_it_can_be_used_in_a_container_through_a_bind_mount(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Environ, tmp_path: Path
) -> None:
    unshare = ("unshare", "--mount", *(() if os.getuid() == 0 else ("--map-root-user",)))
    probe = xapi.start("true", argv=unshare)
    probe.communicate(timeout=30)
    if shutil.which("unshare") is None or probe.returncode != 0:
        pytest.skip(f"{IMPOSSIBLE}it does not allow mount namespaces")
    assert xapi("login", env=env).code == 0
    state = tmp_path / "container"
    (state / "xapi" / "agent").mkdir(parents=True, mode=0o700)
    script = (
        'mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'  # the socket can still be used
    )
    command = ("sh", "-c", script, str(keeper.path.parent), str(state / "xapi" / "agent"), str(PROGRAM), *ME)
    inside = {**without_password(env), "XDG_RUNTIME_DIR": None, "XAPI_STATE_DIR": str(state)}
    process = xapi.start("--no-login", argv=(*unshare, *command), env=inside)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["email"] == MASTER.email
    assert list((state / "xapi" / "agent").iterdir()) == []  # outside, nothing is mounted


# with the whole agent


def test_a_login_starts_the_agent_with_a_note_and_the_token_ends_with_the_agent(
    xapi: Xapi, sandbox: Sandbox, stopped: Agent
) -> None:
    env = {**sandbox.settings, "XAPI_STORAGE": "agent"}
    first = xapi("login", env=env)
    stopped.attach()
    assert first.code == 0
    assert first.err.splitlines()[0] == "xapi: agent started; it keeps tokens in memory until it stops"
    assert "agent started" not in xapi("login", env=env).err
    assert [stopped.report()[name] for name in ("tokens", "cached")] == [1, 0]
    for agent in ("on", "off"):
        assert xapi(*ME, "--no-login", env={**without_password(env), "XAPI_AGENT": agent}).code == 0

    assert xapi("agent", "stop").code == 0
    wait_until(lambda: not is_running(stopped.pid), "the agent has ended")
    assert xapi("token", "status", env=without_password(env)).err == "xapi: error: no stored token; run `xapi login`\n"


def test_a_killed_keeper_is_started_again_without_tokens(xapi: Xapi, sandbox: Sandbox, own_agent: Agent) -> None:
    env = {**sandbox.settings, "XAPI_STORAGE": "agent"}
    assert xapi("login", env=env).code == 0
    os.kill(own_agent.services["keeper"], signal.SIGKILL)
    wait_until(
        lambda: own_agent.status()["services"].get("keeper") not in {None, own_agent.services["keeper"]}, "a new keeper"
    )

    assert xapi("token", "show", "--no-login", env=env).code == 10
    assert xapi(*ME, env=env).code == 0
    assert xapi("token", "show", "--no-login", env=env).code == 0


def test_the_keeper_ends_with_a_killed_agent(xapi: Xapi, sandbox: Sandbox, own_agent: Agent) -> None:
    env = {**sandbox.settings, "XAPI_STORAGE": "agent"}
    assert xapi("login", env=env).code == 0
    os.kill(own_agent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(own_agent.services["keeper"]), "the keeper has ended")

    assert xapi("token", "show", "--no-login", env=env).code == 10


@pytest.mark.slow
def test_an_idle_agent_stays_while_it_holds_a_token_that_is_not_in_the_keyring_too(stopped: Agent) -> None:
    assert stopped.xapi("agent", "start", "--idle", "4s").code == 0
    client = KeeperClient({"XDG_RUNTIME_DIR": str(stopped.directory.parent)}, 20)
    token, cached = (key_of(Identity("https://api.test", "me"), space) for space in ("a", "c"))
    client.put(token, b"record")
    client.put(cached, b"record")
    stopped.attach()
    end = time.monotonic() + 9
    wait_until(lambda: time.monotonic() > end, "two periods without a command have passed")
    assert len(client.held()) == 2

    client.erase(token)
    wait_until(lambda: not is_running(stopped.pid), "the agent has ended")


def test_a_keeper_that_does_not_respond_may_hold_tokens(runtime: Path) -> None:
    assert not daemon._holds_tokens(str(runtime))  # noqa: SLF001 - decides whether an idle agent ends
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(runtime / "keeper"))
        silent.listen()

        assert daemon._holds_tokens(str(runtime))  # noqa: SLF001 - as above
