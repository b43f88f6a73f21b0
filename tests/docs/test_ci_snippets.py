"""The snippets of docs/ci.md are well-formed, and their commands work in the shells that the CI systems use."""

import re
import shlex
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.pages import run
from tests.support.program import Xapi
from tests.tools.documents import ROOT
from xapi_cli.sandbox import MASTER, Sandbox

pytestmark = pytest.mark.slow  # runs many shells

PAGE = (ROOT / "docs" / "ci.md").read_text()
PASSWORD = "correct-horse-battery-staple"
WEEK, DAY = 7 * 86400, 86400


class Step(NamedTuple):
    """What a CI system runs: the command of its shell, to which it passes the script, and the variables."""

    shell: list[str]
    script: str
    variables: Mapping[str, str]


def blocks(system: str, language: str) -> list[str]:
    """Return the snippets in *language* of the section about *system*."""
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]
    assert section, system
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def github(text: str) -> Iterator[Step]:
    """Yield the steps of a workflow or of a part of one; the shell of the runner is `bash -e`."""
    found = yaml.safe_load(text)
    for job in found["jobs"].values() if "jobs" in found else [found]:
        for step in job["steps"]:
            variables = {name: str(value) for name, value in step.get("env", {}).items()}
            yield Step(["bash", "-e", "-c"], step["run"], variables)


def gitlab(text: str) -> Iterator[Step]:
    for job in yaml.safe_load(text).values():
        variables = {name: str(value) for name, value in job["variables"].items()}
        for script in ("before_script", "script"):
            yield Step(["bash", "-eo", "pipefail", "-c"], "\n".join(job[script]), variables)


def jenkins(text: str) -> Iterator[Step]:
    assert text.count("{") == text.count("}")
    variables = dict(re.findall(r"^ +(XAPI_\w+) = ['\"](.*)['\"]$", text, re.MULTILINE))
    for script in re.findall(r"sh '''\n(.*?)'''", text, re.DOTALL):
        yield Step(["sh", "-xe", "-c"], script, variables)


def docker(text: str) -> Iterator[Step]:
    """Yield the command of the image, with the variables of image and container, and the script that it contains."""
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    (run,) = blocks("Plain Docker", "text")
    (script,) = blocks("Plain Docker", "sh")
    assert yaml.safe_load(command) == ["sh", "job.sh"]
    assigned = [pair for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in line.split()]
    assigned += [value for option, value in pairwise(shlex.split(run)) if option == "--env"]
    assert not [pair for pair in assigned if "PASSWORD" in pair]
    yield Step(["sh", "-c"], script, dict(pair.split("=", 1) for pair in assigned))


SYSTEMS = {
    "GitHub Actions": ("yaml", github),
    "GitLab CI": ("yaml", gitlab),
    "Jenkins": ("groovy", jenkins),
    "Plain Docker": ("dockerfile", docker),
}
REVISION = "git+URL@COMMIT"
ALL_STEPS = {
    f"{system} {number}": step
    for system, (language, read) in SYSTEMS.items()
    for number, step in enumerate(step for text in blocks(system, language) for step in read(text))
}
INSTALLATIONS = {name: step for name, step in ALL_STEPS.items() if REVISION in step.script}
STEPS = {name: step for name, step in ALL_STEPS.items() if name not in INSTALLATIONS}
each_step = pytest.mark.parametrize("name", STEPS)


class Runner:
    """Runs a step as a CI system does: in a workspace, with the variables that the snippet sets and no others."""

    def __init__(self, xapi: Xapi, sandbox: Sandbox, directory: Path) -> None:
        self._xapi = xapi
        self._sandbox = sandbox
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        self.state = directory / "workspace.tmp" / "xapi"
        self._files = directory / "runner"
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
        for placeholder, actual in known.items():
            variables = {name: value.replace(placeholder, actual) for name, value in variables.items()}
        assert not [value for value in variables.values() if "$" in value], variables
        environ = self._xapi.environment({"XAPI_STORAGE": None, "XAPI_STATE_DIR": None, "XAPI_CONFIG_DIR": None})
        environ |= variables | {"GITHUB_ENV": str(self._files)}
        if "GITHUB_ENV" in step.script:
            environ["GITHUB_ACTIONS"] = "true"
        return run(*step.shell, step.script, cwd=self.workspace, environ=environ)


@pytest.fixture
def runner(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> Runner:
    return Runner(xapi, sandbox, tmp_path)


# installation


def empty_wheel(directory: Path) -> Path:
    """Return a wheel without modules, which pip can install without a network."""
    wheel, info = directory / "canary-1-py3-none-any.whl", "canary-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: canary\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_each_system_installs_xapi_before_it_uses_it() -> None:
    assert list(INSTALLATIONS) == ["GitHub Actions 0", "GitLab CI 0", "Jenkins 0"]
    assert "pip install --no-cache-dir /install/xapi_cli-*.whl" in blocks("Plain Docker", "dockerfile")[0]
    assert f'pipx install "{REVISION}"' in PAGE.partition("\n## cron\n")[2]


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_the_installation_runs_pip_with_the_given_revision(name: str, tmp_path: Path) -> None:
    step, bin_, log = INSTALLATIONS[name], tmp_path / "bin", tmp_path / "log"
    wheel = empty_wheel(tmp_path)
    bin_.mkdir()
    for program in ("apt-get", "pip", "pipx"):  # those of the image, which this machine may lack or must not run
        (bin_ / program).write_text(f'#!/bin/sh\necho "{program} $*" >>{log}\n')
        (bin_ / program).chmod(0o755)
    environ = {"PATH": f"{bin_}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "WORKSPACE_TMP": str(tmp_path)}
    environ |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}

    subprocess.run(
        [*step.shell, step.script.replace(REVISION, str(wheel))],
        env=environ,
        check=True,
        capture_output=True,
        timeout=100,
    )

    if name.startswith("Jenkins"):  # it has its own pip
        pip = tmp_path / "venv" / "bin" / "pip"
        listed = subprocess.run([pip, "list"], env=environ, check=True, capture_output=True, text=True, timeout=60)
        assert re.search(r"^canary +1$", listed.stdout, re.MULTILINE)
        assert 'PATH = "${WORKSPACE_TMP}/venv/bin:${env.PATH}"' in PAGE
    else:
        assert re.search(rf"^pipx? install {wheel}$", log.read_text(), re.MULTILINE)


# snippets


def test_every_yaml_block_is_valid() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    texts = [text for page in pages for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]

    assert len(texts) >= 4
    assert all(isinstance(yaml.safe_load(text), dict) for text in texts)


@pytest.mark.parametrize("system", [*SYSTEMS, "cron"])
def test_each_section_states_what_is_stored_and_masked_and_checks_the_expiry(system: str) -> None:
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]

    assert "Stored: " in section
    assert "Masked: " in section
    assert re.search(r"xapi token status .*--min-ttl 7d", section)


@each_step
def test_a_step_succeeds_and_prints_no_secret(runner: Runner, sandbox: Sandbox, name: str) -> None:
    completed = runner.run(STEPS[name])

    assert completed.returncode == 0, completed
    assert sandbox.logins == 1
    assert MASTER.password not in completed.stdout + completed.stderr
    stored = list(runner.state.glob("xapi/tokens/*"))
    assert [path.stat().st_mode & 0o777 for path in stored] == [0o600]
    assert not runner.state.is_relative_to(runner.workspace)
    token = _token(stored[0])
    shown = [line for line in (completed.stdout + completed.stderr).splitlines() if token in line]
    assert shown == ([f"::add-mask::{token}"] if "GITHUB_ENV" in STEPS[name].script else [])
    if "projects.json" in STEPS[name].script:
        assert yaml.safe_load((runner.workspace / "projects.json").read_text())


@pytest.mark.parametrize("name", [name for name in STEPS if "7d" in STEPS[name].script])
def test_a_step_fails_if_the_token_expires_soon(runner: Runner, sandbox: Sandbox, name: str) -> None:
    sandbox.expires_in = WEEK - DAY

    assert runner.run(STEPS[name]).returncode == 10
    sandbox.expires_in = WEEK + DAY
    for path in runner.state.glob("xapi/tokens/*"):
        path.unlink()
    assert runner.run(STEPS[name]).returncode == 0


@each_step
def test_a_step_fails_if_the_password_is_rejected(runner: Runner, name: str) -> None:
    step = STEPS[name]
    completed = runner.run(step._replace(variables={**step.variables, "XAPI_PASSWORD": PASSWORD}))

    assert completed.returncode == 10
    assert PASSWORD not in completed.stdout + completed.stderr


def test_the_docker_job_reads_the_password_from_the_mounted_file(runner: Runner, tmp_path: Path) -> None:
    step = STEPS["Plain Docker 0"]
    mounted = tmp_path / "xapi-password"
    mounted.write_text(f"{MASTER.password}\n")
    assert "dst=/run/secrets/xapi-password" in PAGE

    script = step.script.replace("/run/secrets/xapi-password", str(mounted))
    completed = runner.run(step._replace(script=script, variables={**step.variables, "XAPI_PASSWORD": PASSWORD}))
    assert completed.returncode == 0, completed


@pytest.mark.parametrize(("expires_in", "mail"), [(30 * DAY, ""), (DAY, "the xapi token expires within a week\n")])
def test_the_crontab_lines_work_in_the_environment_of_cron(
    xapi: Xapi, sandbox: Sandbox, expires_in: int, mail: str, tmp_path: Path
) -> None:
    sandbox.expires_in = expires_in
    (login,) = blocks("cron", "sh")
    (table,) = blocks("cron", "text")
    environ = {"HOME": str(xapi.home), "PATH": xapi.environ["PATH"], "SHELL": "/bin/sh", "LOGNAME": "me"}
    prepared = login.replace("https://api.example.com", sandbox.base_url).replace("me@example.com", MASTER.email)
    _sh(prepared, environ | {"XAPI_PASSWORD": MASTER.password}, tmp_path)
    lines = re.findall(r"^\d+ \d+ \* \* \* (.*)$", table, re.MULTILINE)
    assert len(lines) == 2
    assert "%" not in table  # cron replaces it with a newline
    assert re.match(r"PATH=/", table)

    assert "".join(_sh(line, environ, xapi.home) for line in lines) == mail
    assert (xapi.home / "projects.json").stat().st_size > 2


def _sh(script: str, environ: Mapping[str, str], directory: Path) -> str:
    """Run *script* as cron does, without a terminal; return its stdout."""
    completed = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        start_new_session=True,
    )
    assert completed.returncode == 0, completed
    return completed.stdout


def _token(file: Path) -> str:
    record: dict[str, Any] = yaml.safe_load(file.read_text())
    (token,) = re.findall(r"'(?:access_)?token': '([^']+)'", str(record))
    return str(token)
