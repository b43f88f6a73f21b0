"""The table of features: its strings lead to functions that fit, and each feature can be taken away."""

import inspect
import json
import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.program import PYTHON, Outcome
from xapi_cli import feature_table
from xapi_cli.feature_table import FEATURES, load
from xapi_cli.features.sandbox import MASTER, Sandbox

PACKAGE = Path(feature_table.__file__).parent
USED_BY = {"batch": ("each",)}  # features whose folders others import; those go with them


@pytest.mark.parametrize("name", FEATURES)
def test_every_string_of_a_row_leads_to_a_function_that_fits(name: str) -> None:
    row = FEATURES[name]
    assert (PACKAGE / "features" / name).is_dir()
    for command, entry in row.commands.items():
        for function in entry.subcommands or (command,):
            module = import_module(f"xapi_cli.features.{name}.{entry.module}")
            assert callable(getattr(module, f"{function}_", None) or getattr(module, function))
    if row.options:
        plan, *parameters = inspect.signature(load(row.prepare)).parameters
        assert (plan, set(parameters)) == ("plan", set(row.options))
    for function in row.hooks.values():
        assert len(inspect.signature(load(function)).parameters) == 2
    assert bool(row.hooks) == bool(row.state)


def test_there_is_a_row_for_each_folder() -> None:
    assert {path.name for path in (PACKAGE / "features").iterdir() if (path / "__init__.py").exists()} == set(FEATURES)


def _row(name: str) -> str:
    return rf'^    "{name}": Feature\(.*?(?=^    ["#]|^\}})'


@pytest.mark.slow
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_can_be_taken_away(tmp_path: Path, sandbox: Sandbox, name: str) -> None:
    """Its folder and its row are deleted in a copy; nothing that is left fails, or names it."""
    gone = (name, *USED_BY.get(name, ()))
    shutil.copytree(PACKAGE, tmp_path / "xapi_cli", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "xapi_cli" / "feature_table.py"
    for each in gone:
        shutil.rmtree(tmp_path / "xapi_cli" / "features" / each)
        text, count = re.subn(_row(each), "", table.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert count == 1
        table.write_text(text)
    modules = [path.relative_to(tmp_path).with_suffix("") for path in (tmp_path / "xapi_cli").rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in modules if path.name != "child"]
    ours = {"XAPI_CONFIG_DIR": f"{tmp_path}/config", "XAPI_STATE_DIR": f"{tmp_path}/state", "XAPI_STORAGE": "file"}
    env = {**os.environ, **ours, **sandbox.settings, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def ran(*args: str) -> Outcome:
        done = subprocess.run(
            [PYTHON, *args], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    program = "import sys; from xapi_cli.__main__ import main; sys.argv[0] = 'xapi'; main()"
    imported = ran("-c", "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]", *names)
    assert imported.code == 0, imported
    page = ran("-c", program, "--help")
    row = FEATURES[name]
    variables = [name for setting in row.settings.values() for name in setting.variables]
    words = [*(flag.names[0] for flag in row.options.values()), *row.variables, *variables]
    assert page.code == 0, page
    shown = page.out + ran("-c", program, "request", "--help").out
    assert [word for word in words if re.search(rf"(?<![\w-]){word}(?![\w-])", shown)] == []
    assert [command for command in row.commands if re.search(rf"^  {command} ", shown, re.MULTILINE)] == []
    assert (login := ran("-c", program, "login")).code == 0, login
    me = ran("-c", program, "request", "/x-api/me")
    assert json.loads(me.out)["email"] == MASTER.email
    assert ran("-c", program, "doctor").code in (0, 1)
