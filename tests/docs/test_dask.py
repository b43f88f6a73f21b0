"""The examples of docs/python.md: Dask runs on a local cluster, and with its own scheduler."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import xapi_cli
from tests.support.pages import block_with, run
from tests.support.program import Xapi
from tests.tools.documents import ROOT
from xapi_cli.sandbox import MASTER, Sandbox

pytestmark = pytest.mark.slow  # starts clusters

PAGE = (ROOT / "docs" / "python.md").read_text()


@pytest.fixture
def worker_environ(xapi: Xapi, sandbox: Sandbox) -> dict[str, str]:
    package = str(Path(xapi_cli.__file__).parent.parent)
    dask = {"PYTHONPATH": package, "DASK_DISTRIBUTED__DASHBOARD__LINK": "", "DASK_DISTRIBUTED__WORKER__DAEMON": "true"}
    return xapi.environment({**sandbox.settings, "XAPI_PASSWORD": MASTER.password, **dask})


def run_dask_example(environ: Mapping[str, str], directory: Path) -> str:
    program = directory / "program.py"
    program.write_text(block_with(PAGE, "python", "WorkerPlugin"))
    completed = run(sys.executable, str(program), cwd=directory, environ=environ)
    assert completed.returncode == 0, completed
    return completed.stdout


def test_the_dask_example_runs_on_a_local_cluster_with_one_login(
    worker_environ: dict[str, str], sandbox: Sandbox, tmp_path: Path
) -> None:
    assert run_dask_example(worker_environ, tmp_path) == "9900\n"
    assert sandbox.logins == 1


@pytest.fixture
def scheduler(worker_environ: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers in their own processes."""
    distributed = pytest.importorskip("distributed", reason="needs distributed (make venv)")
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file)]
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *common],
        *(
            ["worker", "--no-nanny", "--nthreads", "2", "--no-dashboard", "--host", "127.0.0.1", *common]
            for _ in range(2)
        ),
    ]
    with (tmp_path / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "dask", *command],
                cwd=tmp_path,
                env=worker_environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            for command in commands
        ]
        try:
            with distributed.Client(scheduler_file=str(file), timeout=60) as client:
                client.wait_for_workers(2, timeout=60)
                address = str(client.scheduler.address)
            yield address
        finally:
            for process in processes:  # on SIGTERM, a worker waits for a scheduler that has ended
                process.kill()
            for process in processes:
                process.wait(30)


def test_the_dask_example_runs_with_a_scheduler_of_its_own_and_one_login(
    worker_environ: dict[str, str], scheduler: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    assert run_dask_example({**worker_environ, "DASK_SCHEDULER_ADDRESS": scheduler}, tmp_path) == "9900\n"
    assert sandbox.logins == 1


def test_the_ray_example_is_valid_python() -> None:
    names = {
        each.id for each in ast.walk(ast.parse(block_with(PAGE, "text", "ray.init()"))) if isinstance(each, ast.Name)
    }

    assert {"ray", "xapi_cli", "Api", "pool"} <= names
