"""The snippets of docs/ci.md are well-formed, and what they run works: in the shells that the systems use."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.documents import ROOT
from tests.program import Xapi
from xapi_cli.sandbox import MASTER, Sandbox

pytestmark = pytest.mark.slow  # shells

PAGE = (ROOT / "docs" / "ci.md").read_text()
PASSWORD = "correct-horse-battery-staple"
WEEK, DAY = 7 * 86400, 86400


class Step(NamedTuple):
    """What a system runs: the words that start its shell, which are given the script, and the variables."""

    shell: list[str]
    script: str
    variables: Mapping[str, str]


def blocks(system: str, language: str) -> list[str]:
    """Return the snippets in *language* of the section about *system*."""
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]
    assert section, system
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def github(text: str) -> Iterator[Step]:
    """Yield the steps of a workflow, or of a part of one; the runner's shell is `bash -e`."""
    found = yaml.safe_load(text)
    for job in found["jobs"].values() if "jobs" in found else [found]:
        for step in job["steps"]:
            yield Step(["bash", "-e", "-c"], step["run"], {name: str(value) for name, value in step["env"].items()})


def gitlab(text: str) -> Iterator[Step]:
    for job in yaml.safe_load(text).values():
        variables = {name: str(value) for name, value in job["variables"].items()}
        yield Step(["bash", "-eo", "pipefail", "-c"], "\n".join(job["script"]), variables)


def jenkins(text: str) -> Iterator[Step]:
    assert text.count("{") == text.count("}")
    variables = dict(re.findall(r"^ +(XAPI_\w+) = ['\"](.*)['\"]$", text, re.MULTILINE))
    for script in re.findall(r"sh '''\n(.*?)'''", text, re.DOTALL):
        yield Step(["sh", "-xe", "-c"], script, variables)


def docker(text: str) -> Iterator[Step]:
    """Yield what the image runs, with the variables of image and container, and the script that is copied into it."""
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    (run,) = blocks("Plain Docker", "text")
    (script,) = blocks("Plain Docker", "sh")
    assert yaml.safe_load(command) == ["sh", "job.sh"]
    assigned = [word for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for word in line.split()]
    words = shlex.split(run)
    assigned += [after for word, after in pairwise(words) if word == "--env"]
    assert not [word for word in assigned if "PASSWORD" in word]
    yield Step(["sh", "-c"], script, dict(word.split("=", 1) for word in assigned))


SYSTEMS = {
    "GitHub Actions": ("yaml", github),
    "GitLab CI": ("yaml", gitlab),
    "Jenkins": ("groovy", jenkins),
    "Plain Docker": ("dockerfile", docker),
}
STEPS = {
    f"{system} {number}": step
    for system, (language, read) in SYSTEMS.items()
    for number, step in enumerate(step for text in blocks(system, language) for step in read(text))
}
each_step = pytest.mark.parametrize("name", STEPS)


class Kit:
    """Runs a step where the system would: in a workspace, with the variables that the snippet sets, and no others."""

    def __init__(self, xapi: Xapi, sandbox: Sandbox, folder: Path) -> None:
        self._xapi = xapi
        self._sandbox = sandbox
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.state = folder / "workspace.tmp" / "xapi"
        self._files = folder / "runner"
        self._files.write_text("")

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        known = {
            "${{ vars.XAPI_USERNAME }}": MASTER.email,
            "${{ secrets.XAPI_PASSWORD }}": MASTER.password,
            "${{ runner.temp }}": str(self.state.parent),
            "$CI_PROJECT_DIR": str(self.workspace),
            "${WORKSPACE_TMP}": str(self.state.parent),
            "/job/state": str(self.state),
            "https://api.example.com": self._sandbox.base_url,
            "me@example.com": MASTER.email,
        }
        variables = {"XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password, **step.variables}
        for told, meant in known.items():
            variables = {name: value.replace(told, meant) for name, value in variables.items()}
        assert not [value for value in variables.values() if "$" in value], variables
        environ = self._xapi.environment({"XAPI_STORAGE": None, "XAPI_STATE_DIR": None, "XAPI_CONFIG_DIR": None})
        environ |= variables | {"GITHUB_ENV": str(self._files)}
        if "GITHUB_ENV" in step.script:
            environ["GITHUB_ACTIONS"] = "true"
        return subprocess.run(
            [*step.shell, step.script],
            cwd=self.workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


@pytest.fixture
def kit(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> Kit:
    return Kit(xapi, sandbox, tmp_path)


def test_every_yaml_of_the_pages_can_be_read() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    texts = [text for page in pages for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]

    assert len(texts) >= 4
    assert all(isinstance(yaml.safe_load(text), dict) for text in texts)


@pytest.mark.parametrize("system", [*SYSTEMS, "cron"])
def test_each_system_is_told_what_is_stored_and_masked_and_how_to_fail_in_time(system: str) -> None:
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]

    assert "Stored: " in section
    assert "Masked: " in section
    assert re.search(r"xapi token status .*--min-ttl 7d", section)


@each_step
def test_a_step_does_its_work_and_tells_no_secret(kit: Kit, sandbox: Sandbox, name: str) -> None:
    ran = kit.run(STEPS[name])

    assert ran.returncode == 0, ran
    assert sandbox.logins == 1
    assert MASTER.password not in ran.stdout + ran.stderr
    stored = list(kit.state.glob("xapi/tokens/*"))
    assert [path.stat().st_mode & 0o777 for path in stored] == [0o600]
    assert not kit.state.is_relative_to(kit.workspace)
    token = _token(stored[0])
    shown = [line for line in (ran.stdout + ran.stderr).splitlines() if token in line]
    assert shown == ([f"::add-mask::{token}"] if "GITHUB_ENV" in STEPS[name].script else [])
    if "projects.json" in STEPS[name].script:
        assert yaml.safe_load((kit.workspace / "projects.json").read_text())


@pytest.mark.parametrize("name", [name for name in STEPS if "7d" in STEPS[name].script])
def test_a_step_fails_when_the_token_expires_soon(kit: Kit, sandbox: Sandbox, name: str) -> None:
    sandbox.expires_in = WEEK - DAY

    assert kit.run(STEPS[name]).returncode == 10
    sandbox.expires_in = WEEK + DAY
    for path in kit.state.glob("xapi/tokens/*"):
        path.unlink()
    assert kit.run(STEPS[name]).returncode == 0


@each_step
def test_a_step_fails_when_the_password_is_refused(kit: Kit, name: str) -> None:
    step = STEPS[name]
    ran = kit.run(step._replace(variables={**step.variables, "XAPI_PASSWORD": PASSWORD}))

    assert ran.returncode == 10
    assert PASSWORD not in ran.stdout + ran.stderr


def test_the_docker_job_reads_the_password_from_the_mounted_file(kit: Kit, tmp_path: Path) -> None:
    step = STEPS["Plain Docker 0"]
    mounted = tmp_path / "xapi-password"
    mounted.write_text(f"{MASTER.password}\n")
    assert "dst=/run/secrets/xapi-password" in PAGE

    script = step.script.replace("/run/secrets/xapi-password", str(mounted))
    ran = kit.run(step._replace(script=script, variables={**step.variables, "XAPI_PASSWORD": PASSWORD}))
    assert ran.returncode == 0, ran


@pytest.mark.parametrize(("lasts", "told"), [(30 * DAY, ""), (DAY, "the xapi token expires within a week\n")])
def test_the_lines_of_cron_run_as_cron_runs_them(
    xapi: Xapi, sandbox: Sandbox, lasts: int, told: str, tmp_path: Path
) -> None:
    sandbox.expires_in = lasts
    (login,) = blocks("cron", "sh")
    (table,) = blocks("cron", "text")
    environ = {"HOME": str(xapi.home), "PATH": xapi.environ["PATH"], "SHELL": "/bin/sh", "LOGNAME": "me"}
    prepared = login.replace("https://api.example.com", sandbox.base_url).replace("me@example.com", MASTER.email)
    _sh(prepared, environ | {"XAPI_PASSWORD": MASTER.password}, tmp_path)
    lines = re.findall(r"^\d+ \d+ \* \* \* (.*)$", table, re.MULTILINE)
    assert len(lines) == 2
    assert "%" not in table  # which means a newline to cron
    assert re.match(r"PATH=/", table)

    mailed = "".join(_sh(line, environ, xapi.home) for line in lines)
    assert mailed == told
    assert (xapi.home / "projects.json").stat().st_size > 2


def _sh(script: str, environ: Mapping[str, str], folder: Path) -> str:
    """Run *script* as cron does, without a terminal; return what it prints on stdout."""
    ran = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        start_new_session=True,
    )
    assert ran.returncode == 0, ran
    return ran.stdout


def _token(file: Path) -> str:
    record: dict[str, Any] = yaml.safe_load(file.read_text())
    (token,) = re.findall(r"'(?:access_)?token': '([^']+)'", str(record))
    return str(token)
