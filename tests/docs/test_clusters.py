"""The examples of docs/clusters.md: the manifests are valid, and the commands send each line once."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import block_with, run, with_sandbox
from tests.support.program import Xapi
from tests.tools.documents import ROOT
from xapi_cli.sandbox import MASTER, Sandbox

pytestmark = pytest.mark.slow  # starts many processes

PAGE = (ROOT / "docs" / "clusters.md").read_text()
JOB_SCHEMA = ROOT / "tests" / "schemas" / "kubernetes-job.json"
SHARDS = 4
LINES = 25


KUBERNETES = block_with(PAGE, "yaml", "kind: Job")
GITHUB = block_with(PAGE, "yaml", "workflow_dispatch")
SLURM = block_with(PAGE, "bash", "#SBATCH")
OVER_SSH, OVER_SSH_MERGE = block_with(PAGE, "text", "-S node1,node2").splitlines()
MERGE = "xapi batch --merge --input requests.jsonl out-*.jsonl >responses.jsonl"  # on Kubernetes; its own block
MERGE_JOB = block_with(PAGE, "text", "--dependency")


def container() -> dict[str, Any]:
    (found,) = yaml.safe_load(KUBERNETES)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def step(job: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in yaml.safe_load(GITHUB)["jobs"][job]["steps"] if each.get("name") == name]
    return dict(found)


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program} (Debian package {program})")


# manifests


def check_schema(text: str, directory: Path, *schema: str) -> subprocess.CompletedProcess[str]:
    file = directory / "manifest.yaml"
    file.write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", *schema, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "manifest, schema, typo",
    [
        (KUBERNETES, ("--schemafile", str(JOB_SCHEMA)), ("backoffLimitPerIndex", "backoffLimitForIndex")),
        (GITHUB, ("--builtin-schema", "vendor.github-workflows"), ("runs-on", "runs-at")),
    ],
    ids=["kubernetes", "github"],
)
def test_a_manifest_conforms_to_its_schema(
    manifest: str, schema: tuple[str, str], typo: tuple[str, str], tmp_path: Path
) -> None:
    checked = check_schema(manifest, tmp_path, *schema)
    assert checked.returncode == 0, checked
    assert check_schema(manifest.replace(*typo), tmp_path, *schema).returncode == 1


SCRIPTS = {
    "kubernetes": ("sh", container()["args"][0]),
    "slurm": ("bash", SLURM),
    "slurm-merge": ("bash", MERGE_JOB),
    "github": ("bash", step("batch", "Send a shard")["run"]),
    "github-merge": ("bash", step("merge", "Merge the outputs")["run"]),
    "ssh": ("bash", OVER_SSH),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_accepts_the_script(name: str) -> None:
    need("shellcheck")
    shell, script = SCRIPTS[name]
    command = ["shellcheck", "--severity=style", f"--shell={shell}", "-"]
    checked = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)

    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_outputs_of_pods_are_joined_by_the_command_of_the_page() -> None:
    assert f"\n```text\n{MERGE}\n```\n" in PAGE


def test_the_number_of_shards_is_the_same_everywhere() -> None:
    spec = yaml.safe_load(KUBERNETES)["spec"]
    matrix = yaml.safe_load(GITHUB)["jobs"]["batch"]["strategy"]["matrix"]

    assert (spec["completions"], spec["parallelism"]) == (SHARDS, SHARDS)
    assert matrix == {"shard": [*range(1, SHARDS + 1)]}
    assert f"#SBATCH --array=1-{SHARDS}\n" in SLURM
    assert {
        total for text in (KUBERNETES, GITHUB, SLURM, OVER_SSH) for total in re.findall(r"--shard \S+?/(\d+)", text)
    } == {str(SHARDS)}


def test_the_exit_codes_of_the_pod_failure_policy_are_those_that_another_attempt_cannot_change() -> None:
    rules = yaml.safe_load(KUBERNETES)["spec"]["podFailurePolicy"]["rules"]

    # the schemas of Kubernetes before 1.35 require the status, which has a default
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert rules[1]["onExitCodes"] == {"containerName": container()["name"], "operator": "In", "values": [2, 4, 5]}
    assert "Codes 2, 4 and 5 fail the shard without another attempt" in " ".join(PAGE.split())


# commands


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The directory that the machines share, with the input."""
    directory = tmp_path / "shared"
    directory.mkdir()
    lines = [json.dumps({"id": number, "path": "/x-api/echo", "json": number}) for number in range(LINES)]
    (directory / "requests.jsonl").write_text("\n".join([*lines[:10], "", *lines[10:]]) + "\n")
    return directory


class Machine:
    """A machine with its own HOME and state directory, on which the scheduler runs scripts."""

    def __init__(self, xapi: Xapi, sandbox: Sandbox, home: Path) -> None:
        home.mkdir()
        self.home, self._sandbox = home, sandbox
        inherited = {"PATH": xapi.environ["PATH"], "LANG": "C.UTF-8", "XAPI_PASSWORD": MASTER.password}
        self.environ = {
            **inherited,
            "HOME": str(home),
            "XAPI_BASE_URL": sandbox.base_url,
            "XAPI_USERNAME": MASTER.email,
        }

    def run(self, command: Sequence[str], script: str, variables: Mapping[str, str], directory: Path) -> None:
        environ = {**self.environ, **variables}
        completed = run(*command, with_sandbox(self._sandbox, script), cwd=directory, environ=environ)
        assert completed.returncode == 0, completed.stderr
        assert MASTER.password not in completed.stdout + completed.stderr


@pytest.fixture
def machines(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> list[Machine]:
    return [Machine(xapi, sandbox, tmp_path / f"node{number}") for number in range(1, SHARDS + 1)]


def check_responses(file: Path) -> None:
    assert [json.loads(line)["json"]["json"] for line in file.read_text().splitlines()] == [*range(LINES)]


def kubernetes_variables(machine: Machine, index: int) -> dict[str, str]:
    fixed = {each["name"]: each["value"] for each in container()["env"] if "value" in each}
    volume = machine.home / "state"
    volume.mkdir()
    volume.chmod(0o2777)  # as Kubernetes creates an emptyDir of the medium Disk, with fsGroup
    inside = {name: value.replace("/state", str(volume)) for name, value in fixed.items() if name != "XAPI_BASE_URL"}
    return {**inside, "JOB_COMPLETION_INDEX": str(index)}


def test_the_pods_of_the_job_send_each_line_once(machines: list[Machine], sandbox: Sandbox, shared: Path) -> None:
    found = container()
    assert found["workingDir"] == "/batch"
    for index, machine in enumerate(machines):
        (script,) = found["args"]
        machine.run(found["command"], script, kubernetes_variables(machine, index), shared)
    machines[0].run(
        ["sh", "-c"],
        MERGE,
        {},
        shared,
    )

    check_responses(shared / "responses.jsonl")
    assert sandbox.logins == SHARDS


def test_the_tasks_of_the_array_send_each_line_once_and_leave_no_token(
    machines: list[Machine], sandbox: Sandbox, shared: Path, tmp_path: Path
) -> None:
    (shared / "batch.slurm").write_text(with_sandbox(sandbox, SLURM))
    temporary = tmp_path / "local"
    temporary.mkdir()
    for task, machine in enumerate(machines, 1):
        variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_SUBMIT_DIR": str(shared), "TMPDIR": str(temporary)}
        machine.run(["bash"], str(shared / "batch.slurm"), variables, machine.home)
    (merge,) = re.findall(r"--wrap '(.*)'", MERGE_JOB)
    machines[0].run(["sh", "-c"], merge, {}, shared)

    check_responses(shared / "responses.jsonl")
    assert [*temporary.iterdir()] == []
    assert sandbox.logins == SHARDS


def test_a_task_that_is_started_again_resumes(
    machines: list[Machine], shared: Path, sandbox: Sandbox, tmp_path: Path
) -> None:
    (shared / "batch.slurm").write_text(with_sandbox(sandbox, SLURM))
    variables = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_SUBMIT_DIR": str(shared), "TMPDIR": str(tmp_path)}
    machines[0].run(["bash"], str(shared / "batch.slurm"), variables, shared)
    first = (shared / "out-3.jsonl").read_text()
    calls = sandbox.requests
    machines[0].run(["bash"], str(shared / "batch.slurm"), variables, shared)

    assert sorted((shared / "out-3.jsonl").read_text().splitlines()) == sorted(first.splitlines())
    assert sandbox.requests == calls


def test_the_jobs_of_the_matrix_send_each_line_once(machines: list[Machine], sandbox: Sandbox, shared: Path) -> None:
    send = step("batch", "Send a shard")
    for shard, machine in enumerate(machines, 1):
        variables = {
            "XAPI_STORAGE": send["env"]["XAPI_STORAGE"],
            "XAPI_STATE_DIR": send["env"]["XAPI_STATE_DIR"].replace("${{ runner.temp }}", str(machine.home)),
            "XAPI_NO_INPUT": send["env"]["XAPI_NO_INPUT"],
            "SHARD": send["env"]["SHARD"].replace("${{ matrix.shard }}", str(shard)),
        }
        machine.run(["bash", "-e", "-c"], send["run"], variables, shared)
    machines[0].run(["bash", "-e", "-c"], step("merge", "Merge the outputs")["run"], {}, shared)

    check_responses(shared / "responses.jsonl")
    assert sandbox.logins == SHARDS


# Runs the command on the "machine" with the name of the host, whose environment is in a file, in place of ssh.
SSH = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
machine="$MACHINES/$1"
shift
[ "$1" = -- ] && shift
. "$machine/environment"
export SHELL=/bin/sh # as sshd does; GNU parallel needs it
cd "$HOME" && exec sh -c "$*"
"""


def test_gnu_parallel_sends_each_line_once_over_machines_that_have_nothing_in_common(
    machines: list[Machine], sandbox: Sandbox, shared: Path, tmp_path: Path
) -> None:
    need("parallel")
    for machine in machines[:2]:
        settings = {
            "HOME": str(machine.home),
            "XAPI_STATE_DIR": str(machine.home),
            "XAPI_STORAGE": "file",
            "XAPI_NO_INPUT": "1",
        }
        text = "".join(f"export {name}='{value}'\n" for name, value in settings.items())
        (machine.home / "environment").write_text(text)
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    (tmp_path / "citation").mkdir()
    (tmp_path / "citation" / "will-cite").touch()
    variables = {"PARALLEL_SSH": str(ssh), "MACHINES": str(tmp_path), "PARALLEL_HOME": str(tmp_path / "citation")}
    machines[0].run(["bash", "-euc"], OVER_SSH, variables, shared)
    machines[0].run(["bash", "-euc"], OVER_SSH_MERGE, {}, shared)

    check_responses(shared / "responses.jsonl")
    assert sandbox.logins == 2
    assert all((machine.home / "xapi").is_dir() for machine in machines[:2])
