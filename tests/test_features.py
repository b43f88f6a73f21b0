"""Each feature is one folder and one row of the feature table: without both, the rest works and does not name it."""

import ast
import importlib
import inspect
import shutil
from pathlib import Path

import pytest

import xapi_cli
from tests.support.program import PYTHON, Outcome, Xapi
from xapi_cli.feature_table import FEATURES
from xapi_cli.features.sandbox import Sandbox

DEPENDENTS = {"batch": ["each"]}  # the rows of `each` are lines of a batch
IMPORT_ALL = """
import importlib, pkgutil, xapi_cli
for module in pkgutil.walk_packages(xapi_cli.__path__, "xapi_cli."):
    importlib.import_module(module.name)
print(xapi_cli.__file__)
"""


def resolve(text: str) -> object:
    """Return what *text* names: a module, or a function as `module:name`."""
    module, _, name = text.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@pytest.mark.parametrize("name", FEATURES)
def test_each_string_of_a_row_names_something_with_these_parameters(name: str) -> None:
    row = FEATURES[name]

    for word, command in row.commands.items():
        module = resolve(command.module)
        for function in command.subcommands or (word,):
            identifier = function.replace("-", "_")
            assert any(
                callable(getattr(module, each, None)) for each in (identifier, f"{identifier}_")
            )  # as in `list_`
    for hook in row.hooks.values():
        assert callable(resolve(hook))
    if row.prepare:
        prepare = resolve(row.prepare)
        assert callable(prepare)
        assert set(inspect.signature(prepare).parameters) >= row.options.keys()
    assert bool(row.options) == bool(row.prepare)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEATURES)
def test_the_rest_works_without_a_feature_and_does_not_name_it(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, name: str
) -> None:
    shutil.copytree(Path(xapi_cli.__file__).parent, tmp_path / "xapi_cli", ignore=shutil.ignore_patterns("__pycache__"))
    removed = [name, *DEPENDENTS.get(name, ())]
    for each in removed:
        shutil.rmtree(tmp_path / "xapi_cli" / "features" / each)
        _remove_row(tmp_path / "xapi_cli" / "feature_table.py", each)

    def run(*args: str) -> Outcome:
        process = xapi.start(*args, argv=(str(PYTHON),), env=sandbox.settings, cwd=tmp_path)
        out, err = process.communicate()
        return Outcome(process.returncode, out.decode(), err.decode())

    imported = run("-c", IMPORT_ALL)
    assert (imported.code, imported.err) == (0, "")
    assert imported.out.strip() == str(tmp_path / "xapi_cli" / "__init__.py")
    help_pages = run("-m", "xapi_cli", "--help").out + run("-m", "xapi_cli", "request", "--help").out
    for feature in removed:
        for word in FEATURES[feature].commands:
            assert f"\n  {word} " not in help_pages
            assert run("-m", "xapi_cli", word).code == 2
        for flag in FEATURES[feature].options.values():
            assert f"{flag.names[0]} " not in help_pages
            assert run("-m", "xapi_cli", "request", "/x-api/me", flag.names[0], "1").code == 2
    assert [run("-m", "xapi_cli", *args.split()).code for args in ("login", "request /x-api/me", "doctor")] == [0, 0, 0]


def _remove_row(table: Path, name: str) -> None:
    text = table.read_text()
    rows = next(
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "FEATURES"
    )
    assert isinstance(rows, ast.Dict)
    key, row = next(
        (key, row) for key, row in zip(rows.keys, rows.values, strict=True) if key and ast.literal_eval(key) == name
    )
    lines = text.splitlines(keepends=True)
    table.write_text("".join([*lines[: key.lineno - 1], *lines[row.end_lineno or 0 :]]))
