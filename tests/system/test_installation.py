"""The command that adds an extra is that of the tool that installed the running xapi.

Each test makes an environment with the files that the tool leaves there. `tests/tools/release/test_installations.py`
runs the real tools, and the commands.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import xapi_cli

PACKAGE = Path(xapi_cli.__file__).parent
PRINT = "from xapi_cli.system.installation import how_to_add; print(how_to_add('redis'))"


class Environment:
    """An environment in *prefix* with a link to the package and its metadata, with HOME *home*."""

    def __init__(self, prefix: Path, home: Path) -> None:
        self.prefix, self.home = prefix, home
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True, timeout=60)
        (self.site,) = prefix.glob("lib/python3*/site-packages")
        self.install(self.site)

    def install(self, directory: Path) -> None:
        """Install the package in *directory*."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "xapi_cli").symlink_to(PACKAGE)
        metadata = directory / "xapi_cli-0.1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: xapi-cli\nVersion: 0.1.0\n")

    def record(self, source: Mapping[str, object]) -> None:
        """Record in the metadata what the package was installed from."""
        (metadata,) = self.site.glob("*.dist-info")
        (metadata / "direct_url.json").write_text(json.dumps(source))

    def write(self, name: str, text: str = "") -> None:
        """Write a file *name* of the environment."""
        (self.prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (self.prefix / name).write_text(text)

    def how_to_add_redis(self, **environ: str) -> str:
        """Return the instruction that xapi prints in this environment."""
        process = subprocess.run(
            [self.prefix / "bin" / "python", "-c", PRINT],
            env={"HOME": str(self.home), **environ},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return process.stdout.rstrip("\n")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment in the directory `env` of the home directory."""
    return Environment(tmp_path / "env", tmp_path)


def test_pip_of_a_virtual_environment_installs_there(environment: Environment) -> None:
    environment.write("bin/pip")

    assert environment.how_to_add_redis() == "run `~/env/bin/pip install 'xapi-cli[redis]'`"


def test_a_path_outside_the_home_directory_is_complete_and_one_word(tmp_path: Path) -> None:
    prefix = tmp_path / "my tools" / "xapi"
    environment = Environment(prefix, tmp_path / "elsewhere")
    environment.write("bin/pip")

    assert environment.how_to_add_redis() == f"run `'{prefix}/bin/pip' install 'xapi-cli[redis]'`"


def test_the_environment_of_make_is_installed_to_by_its_installer(environment: Environment) -> None:
    environment.write("installer/bin/pip")

    assert environment.how_to_add_redis() == "run `~/env/installer/bin/pip --python ~/env install 'xapi-cli[redis]'`"


def test_uv_installs_to_an_environment_that_it_created(environment: Environment) -> None:
    with (environment.prefix / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.9.9\n")

    assert environment.how_to_add_redis() == "run `uv pip install --python ~/env 'xapi-cli[redis]'`"


def test_an_environment_without_pip_gets_one(environment: Environment) -> None:
    python = "~/env/bin/python"

    expected = f"run `{python} -m ensurepip && {python} -m pip install 'xapi-cli[redis]'`"
    assert environment.how_to_add_redis() == expected


def test_pipx_installs_to_its_environment(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "xapi-cli-2", tmp_path)  # with `--suffix=-2`
    environment.write("pipx_metadata.json", "{}")
    environment.write("bin/pip")

    assert environment.how_to_add_redis() == "run `pipx runpip xapi-cli-2 install 'xapi-cli[redis]'`"


def test_uv_installs_the_tool_again_from_the_checkout_with_all_extras(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "source of xapi"
    source.mkdir()
    environment.record({"url": source.as_uri(), "dir_info": {}})
    environment.write("uv-receipt.toml", '[tool]\nrequirements = [{ name = "xapi-cli", extras = ["yaml", "jq"] }]\n')

    assert environment.how_to_add_redis() == f"run `uv tool install --reinstall '{source}[jq,redis,yaml]'`"
    source.rmdir()
    assert environment.how_to_add_redis() == (
        "run `uv tool install --reinstall '.[jq,redis,yaml]'` in a checkout of xapi"
    )


def test_uv_installs_the_tool_again_from_the_same_commit(environment: Environment) -> None:
    url, commit = "https://git.example/xapi", "0123abc"
    environment.record({"url": url, "vcs_info": {"vcs": "git", "commit_id": commit}})
    environment.write("uv-receipt.toml", "[tool]\n")

    expected = f"run `uv tool install --reinstall 'xapi-cli[redis] @ git+{url}@{commit}'`"
    assert environment.how_to_add_redis() == expected


def test_a_directory_of_pip_is_installed_again(environment: Environment, tmp_path: Path) -> None:
    for path in list(environment.site.iterdir()):
        path.rename(path.with_name(f"{path.name}.away"))
    environment.install(tmp_path / "lib" / "xapi")

    assert environment.how_to_add_redis(PYTHONPATH=str(tmp_path / "lib" / "xapi")) == (
        "run `~/env/bin/python -m pip install --upgrade --target ~/lib/xapi '.[redis]'` in a checkout of xapi"
    )


def test_a_checkout_on_the_path_is_installed(environment: Environment) -> None:
    (metadata,) = environment.site.glob("*.dist-info")
    metadata.rename(metadata.with_suffix(".away"))

    checkout = os.path.dirname(environment.site / "xapi_cli")
    assert environment.how_to_add_redis() == f"run `~/env/bin/python -m pip install '{checkout}[redis]'`"


def test_a_zipapp_is_built_again(environment: Environment, tmp_path: Path) -> None:
    assert environment.how_to_add_redis(PEX=f"{tmp_path}/bin/xapi") == (
        "run `uvx pex --python python3 '.[redis]' --script xapi --output-file ~/bin/xapi` in a checkout of xapi"
    )
