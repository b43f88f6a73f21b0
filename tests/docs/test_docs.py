"""The documentation is correct: pages are compared with the program, and their examples are executed."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.forks import Forks
from tests.support.pages import (
    TEXTS,
    blocks_of,
    cells,
    run_examples,
    without_blocks,
)
from tests.support.program import PYTHON, Xapi
from tests.tools.documents import (
    EXIT_CODES_PAGE,
    GROUPS,
    ROOT,
    SURFACE,
    exit_codes_page,
    help_of,
    invocations,
)
from tests.tools.surface import surface
from xapi_cli import errors
from xapi_cli.feature_table import FEATURES
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.settings.table import SETTINGS, VARIABLES

every_page = pytest.mark.parametrize("page", TEXTS)


# commands


def test_the_page_of_exit_codes_lists_the_kinds_of_failures() -> None:
    assert EXIT_CODES_PAGE.read_text() == exit_codes_page(), "run `make docs`"


@pytest.mark.parametrize("args", list(invocations()), ids=" ".join)
def test_a_help_text_fits_80_columns_and_is_not_truncated(args: tuple[str, ...]) -> None:
    text = help_of(*args)

    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert re.findall(r"\w\.\.\.$", text, re.MULTILINE) == []


@pytest.mark.parametrize("args", [args for args in invocations() if args not in GROUPS])
def test_a_help_text_has_examples(args: tuple[str, ...]) -> None:
    assert "Examples:" in help_of(*args)


# settings and storage options


_VARIABLE = r"\bXAPI_(?!SANDBOX_)[A-Z_]*[A-Z]\b"  # xapi prints those of the sandbox, but does not read them


def test_the_pages_name_the_variables_that_the_program_reads_and_no_others() -> None:
    variables = {name for row in (*SETTINGS.values(), *VARIABLES) for name in row.variables if name.startswith("XAPI_")}
    variables |= {name for feature in FEATURES.values() for name in feature.variables}
    modules = [path for path in (ROOT / "xapi_cli").rglob("*.py") if "sandbox" not in {path.stem, path.parent.name}]

    assert set(re.findall(_VARIABLE, "".join(path.read_text() for path in modules))) == variables
    pages = "".join(text for page, text in TEXTS.items() if page != "CHANGELOG.md")
    assert set(re.findall(_VARIABLE, pages)) == variables


# exit codes


def exit_codes() -> dict[str, str]:
    """Return the meaning of each code, from the tree in the docstring of `errors`."""
    tree = re.findall(r"[│├└─ ]+(\w+) {2,}(\d+)  (\S.*)$", errors.__doc__ or "", re.MULTILINE)
    meanings: dict[str, str] = {"0": "success"}
    for name, code, meaning in tree:
        actual = errors.Interrupted().exit_code if name == "Interrupted" else getattr(errors, name).exit_code
        assert actual == int(code)
        first, *others = re.split(r"[;,] (?=\d+ (?:if|on) )", meaning)
        meanings.setdefault(code, first)
        meanings |= {other.split()[0]: "" for other in others}  # the page has separate rows for these
    return meanings


def test_the_tree_of_errors_contains_every_exception() -> None:
    failures = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]

    assert [each.__name__ for each in failures if not re.search(rf"\b{each.__name__} ", errors.__doc__ or "")] == []


def test_the_table_of_exit_codes_has_every_code_with_its_meaning() -> None:
    section = TEXTS["docs/exit-codes.md"].partition("# Exit codes")[2]
    table = {row[0]: row[1] for row in cells(section.split("\n## ")[0], columns=2) if row[0] != "code"}

    assert list(table) == sorted(exit_codes(), key=int)
    assert {code: table[code][: len(meaning)] for code, meaning in exit_codes().items()} == exit_codes()


# formats


def test_the_surface_lists_what_a_script_can_depend_on(forks: Forks | None) -> None:
    assert SURFACE.read_text().splitlines() == surface(forks).splitlines(), "run `make docs`; see docs/dev/extending.md"


# links


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_link_has_a_target(page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(TEXTS[page])):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        if not path.is_file() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(target)
    assert broken == []


@every_page
def test_a_page_contains_no_path_of_a_particular_machine(page: str) -> None:
    assert re.findall(r"(?<![\w.~$}])/(?:home|root|Users|tmp|work|var|opt)/\S*", TEXTS[page]) == []


# examples


SCRIPTED = [page for page, text in TEXTS.items() if any(block.language == "sh" for block in blocks_of(text))]


@pytest.mark.slow
@pytest.mark.parametrize("page", SCRIPTED)
def test_the_shell_examples_of_a_page_run_in_order(page: str, xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    login = xapi("login", env=sandbox.settings)
    assert login.code == 0

    environ = xapi.environment({"XAPI_PASSWORD": MASTER.password})
    assert run_examples(TEXTS[page], sandbox, cwd=directory, environ=environ) > 0


def test_the_python_examples_run(xapi: Xapi, sandbox: Sandbox) -> None:
    environ = xapi.environment({**sandbox.settings, "XAPI_PASSWORD": MASTER.password})
    blocks = [block for text in TEXTS.values() for block in blocks_of(text) if block.language == "python"]
    examples = [block.text for block in blocks if "import xapi_cli" in block.text]

    for example in examples:
        assert len(example.splitlines()) <= 15
        ran = subprocess.run(
            [PYTHON, "-c", example], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran
    assert examples


def test_the_example_of_a_config_file_is_valid(xapi: Xapi) -> None:
    block, *_ = [block for block in blocks_of(TEXTS["docs/settings.md"]) if block.language == "toml"]
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(block.text)

    listed = xapi("profile", "list")
    assert listed.code == 0, listed
    assert all(xapi("profile", "show", name).code == 0 for name in tomllib.loads(block.text)["profiles"])
