"""The agent runs the commands of the locale that it was started in."""

import subprocess

import pytest

from tests.agent.conftest import PATIENT, Agent
from xapi_cli.sandbox import Sandbox


@pytest.mark.parametrize(
    "locale",
    [
        {},
        {"LANG": "C"},
        {"LANG": "xx_XX.UTF-8"},
        {"LC_CTYPE": "UTF-8"},
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_ALL": "C"},
        {"PYTHONUTF8": "1"},
        {"PYTHONUTF8": "0"},
        {"PYTHONCOERCECLOCALE": "0"},
    ],
    ids=lambda locale: " ".join(f"{name}={value}" for name, value in locale.items()) or "none",
)
@pytest.mark.parametrize("by_login", [False, True], ids=["start", "login"])
def test_an_agent_serves_the_commands_of_the_locale_that_it_was_started_in(
    stopped: Agent, sandbox: Sandbox, locale: dict[str, str], by_login: bool
) -> None:
    del stopped.xapi.environ["LANG"]
    start = ("login", "--storage", "agent") if by_login else ("agent", "start")
    account = sandbox.settings if by_login else {"XAPI_TOKEN": "t0ken"}
    environ = stopped.xapi.environment({**locale, **account, "XAPI_STORAGE": "agent"})
    for command in (start, ("token", "show")):
        subprocess.run([*PATIENT, *command], env=environ, check=True, timeout=60, capture_output=True)
    stopped.xapi.environ.update(locale)

    stopped.attach()
    assert (stopped.status()["warm"], stopped.status()["cold"]) == (1, {})
