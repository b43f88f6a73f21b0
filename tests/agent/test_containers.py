"""The agent and its keeper in containers with their own mount, process, user, network and other namespaces."""

import json
import os
import shlex
import shutil
import subprocess
from itertools import pairwise

import pytest

from tests.agent.conftest import PATIENT, Agent
from tests.support.pages import TEXTS, blocks_of, with_sandbox
from tests.support.program import PROGRAM, Outcome
from tests.support.skips import IMPOSSIBLE
from tests.tools.documents import ROOT
from xapi_cli.sandbox import MASTER, Sandbox

_HOME = "/home-of-the-container"


def _file_system() -> list[str]:
    """Return the options of bwrap for a file system with the programs of this one, and an empty /tmp and /run."""
    options = ["--dev", "/dev", "--proc", "/proc", "--dir", "/tmp", "--dir", "/run", "--dir", _HOME]
    for name in sorted(os.listdir("/")):
        if os.path.islink(f"/{name}"):
            options += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}") and name not in {"dev", "proc", "tmp", "run"}:
            options += ["--ro-bind", f"/{name}", f"/{name}"]
    for installed in (ROOT, PROGRAM.parents[1]):
        options += ["--ro-bind", str(installed), str(installed)]
    return options


_BWRAP = ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", *_file_system())


class Container:
    """Runs programs of this machine in a new container, which has its own /tmp, /run and environment."""

    def __init__(self, agent: Agent) -> None:
        self._xapi = agent.xapi

    def run(self, *command: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Outcome:
        """Run *command* with the *options* of bwrap, which has its own network unless they contain --share-net."""
        environ = {"HOME": _HOME, "LANG": "C.UTF-8", "PATH": self._xapi.environ["PATH"], **(env or {})}
        variables = [word for name, value in environ.items() for word in ("--setenv", name, value)]
        process = self._xapi.start(*options, "--clearenv", *variables, *command, argv=_BWRAP)
        out, err = process.communicate(timeout=60)
        return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture
def container(agent: Agent) -> Container:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bwrap")
    if subprocess.run([*_BWRAP, "true"], capture_output=True, timeout=60, check=False).returncode != 0:
        pytest.skip(f"{IMPOSSIBLE}it does not allow these namespaces")
    return Container(agent)


@pytest.fixture
def token(agent: Agent, sandbox: Sandbox) -> str:
    """The token of the account of the sandbox, which the agent holds with the password."""
    env = {**sandbox.settings, "XAPI_STORAGE": "agent"}
    assert agent.xapi("login", "--remember", env=env).code == 0
    token = agent.xapi("token", "show", "--no-login", env=env).out.strip()
    assert token
    return token


def _documented(agent: Agent, sandbox: Sandbox) -> tuple[dict[str, str], tuple[str, ...], list[str]]:
    """Return the environment, the mount for bwrap and the command of the documented `docker run`."""
    (block,) = [block for block in blocks_of(TEXTS["docs/tokens-in-memory.md"]) if "docker run" in block.text]
    runtime = str(agent.directory.parent)
    text = with_sandbox(sandbox, block.text).replace("\\\n", " ").replace("$XDG_RUNTIME_DIR", runtime)
    words = shlex.split(text)
    environ = dict(value.split("=", 1) for option, value in pairwise(words) if option == "--env")
    (mount,) = [value for option, value in pairwise(words) if option == "--mount"]
    places = dict(part.split("=", 1) for part in mount.split(","))
    return environ, ("--bind", places["source"], places["target"]), words[words.index("my-image") + 1 :]


def test_the_documented_mount_shares_the_keeper_and_nothing_else(
    container: Container, agent: Agent, sandbox: Sandbox, token: str
) -> None:
    env, mount, command = _documented(agent, sandbox)
    before = agent.status()
    state = ("--dir", env["XAPI_STATE_DIR"])

    responded = container.run(*command, options=("--share-net", *state, *mount), env=env)
    assert (responded.code, json.loads(responded.out)["email"]) == (0, MASTER.email), responded
    show = [*command[:1], "token", "show", "--no-login", *command[3:]]
    assert container.run(*show, options=(*state, *mount), env=env) == Outcome(0, f"{token}\n")
    sandbox.revoke_tokens()
    assert container.run(*command, options=("--share-net", *state, *mount), env=env).code == 0
    assert sandbox.logins == 2  # the second one with the remembered password

    assert container.run(*show, options=state, env=env).code == 10
    after = agent.status()
    assert (after["pid"], after["warm"], agent.report()["tokens"]) == (before["pid"], before["warm"], 1)


@pytest.mark.parametrize("is_visible", [True, False])
def test_a_container_does_not_use_the_agent(container: Container, agent: Agent, token: str, is_visible: bool) -> None:
    """As with `toolbox`, which mounts the runtime directory of the user, and without any mount."""
    before = agent.status()
    runtime = str(agent.directory.parent)
    options = ("--bind", runtime, runtime) if is_visible else ("--perms", "0700", "--dir", runtime)
    env = {"XDG_RUNTIME_DIR": runtime, "XAPI_TOKEN": "of-the-container", "XAPI_BASE_URL": "http://127.0.0.1:9"}

    shown = container.run(*PATIENT, "token", "show", options=options, env=env)

    assert shown == Outcome(0, "of-the-container\n")
    agent.wait_for_workers(2)  # they have read the reason
    status = agent.status()
    cold = {"different namespace or root directory": 1} if is_visible else {}
    assert (status["pid"], status["warm"], status["cold"]) == (before["pid"], before["warm"], cold)


def test_a_container_without_the_mount_has_no_token(
    container: Container, agent: Agent, sandbox: Sandbox, token: str
) -> None:
    env, _, command = _documented(agent, sandbox)

    outcome = container.run(*command, options=("--share-net",), env={**env, "XAPI_STATE_DIR": "/tmp/state"})

    assert outcome.code == 10
    assert "no stored token" in outcome.err or "no password" in outcome.err
    assert (token in outcome.out + outcome.err, sandbox.logins) == (False, 1)
