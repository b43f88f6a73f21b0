"""The documentation is correct: pages are compared with the program, and their examples are executed."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.pages import (
    PAGES,
    README,
    STRICT_SHELL,
    TEXTS,
    blocks_of,
    cells,
    run,
    run_examples,
    with_sandbox,
    without_blocks,
)
from tests.support.program import PYTHON, Xapi
from tests.tools.documents import (
    COMMANDS_PAGE,
    EXIT_CODES_PAGE,
    GROUPS,
    ROOT,
    SURFACE,
    commands_page,
    exit_codes_page,
    help_of,
    invocations,
)
from tests.tools.surface import surface
from xapi_cli import errors
from xapi_cli.cli.help_topics import VARIABLES
from xapi_cli.sandbox import MASTER, Sandbox
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry

EXTENDED = "docs/extending.md"  # describes a program with more commands and settings; see test_extending
CURRENT = {page: text for page, text in TEXTS.items() if page != EXTENDED}

every_page = pytest.mark.parametrize("page", TEXTS)


# commands


def test_the_commands_page_contains_the_output_of_help(xapi: Xapi) -> None:
    assert COMMANDS_PAGE.read_text() == commands_page(xapi), "run `make docs`"


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


def test_the_help_and_the_pages_have_one_term_for_an_api_description() -> None:
    texts = {**TEXTS, **{" ".join(args): help_of(*args) for args in invocations()}}

    assert [name for name, text in texts.items() if re.search(r"(OpenAPI|Swagger 2)\s+document\b", text)] == []


def test_every_command_is_mentioned_outside_the_commands_page() -> None:
    rest = "".join(text for page, text in CURRENT.items() if page not in {"docs/commands.md", "CHANGELOG.md"})
    commands = [" ".join(("xapi", *args)) for args in invocations() if args and args not in GROUPS]

    assert [command for command in commands if not re.search(rf"{command}[ `\n]", rest)] == []


# settings and storage options


_VARIABLE = r"\bXAPI_(?!SANDBOX_)[A-Z_]*[A-Z]\b"  # xapi prints those of the sandbox, but does not read them


def test_the_pages_name_the_variables_that_the_program_reads_and_no_others() -> None:
    variables = {name for row in (*SETTINGS.values(), *VARIABLES) for name in row.variables if name.startswith("XAPI_")}
    modules = [path for path in (ROOT / "xapi_cli").rglob("*.py") if "sandbox" not in {path.stem, path.parent.name}]

    assert set(re.findall(_VARIABLE, "".join(path.read_text() for path in modules))) == variables
    assert set(re.findall(_VARIABLE, "".join(CURRENT.values()))) == variables
    assert set(re.findall(_VARIABLE, TEXTS["docs/settings.md"])) == variables


def test_every_storage_has_a_row() -> None:
    first_cells = {row[0].split()[0].strip("`") for row in cells(TEXTS["docs/storage.md"], columns=3)}

    assert first_cells >= {*registry.names()}


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


def test_the_meanings_of_the_exit_codes_are_listed_once() -> None:
    assert [page for page in TEXTS if "\n| code | meaning |\n" in TEXTS[page]] == ["docs/exit-codes.md"]


# formats


def test_the_surface_lists_what_a_script_can_depend_on() -> None:
    assert SURFACE.read_text().splitlines() == surface().splitlines(), "run `make docs`; see docs/releasing.md"


def test_every_field_of_token_show_status_and_meta_is_explained(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    shown = xapi("token", "show", "--json", env=sandbox.settings).out
    status = xapi("token", "status", "--json", env=sandbox.settings).out
    meta = xapi("request", "/x-api/me", "--meta", "-", env=sandbox.settings).err

    fields = set(re.findall(r'"([a-z_]+)": ', shown + status + meta.partition('"headers"')[0]))
    fields |= set(re.findall(r'"([a-z_]+)": ', meta.rpartition("}, ")[2]))
    assert {"access_token", "state", "bytes"} <= fields
    explained = TEXTS["docs/requests.md"] + TEXTS["docs/other-programs.md"]
    assert [name for name in fields if f"`{name}`" not in explained] == []


# architecture and dependencies


def modules_in(listing: str) -> Iterator[str]:
    """Yield the path of each module in *listing*, an indented directory listing with comments."""
    directories: list[str] = []
    for line in listing.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        if found := re.match(r" *(\w+/)(?: |$)", line):
            directories[depth:] = [found[1]]
        else:
            yield from ("".join([*directories[:depth], name]) for name in re.findall(r"(?<![\w/])\w+\.py\b", line))


def test_the_architecture_page_lists_the_modules_of_the_package() -> None:
    (listing,) = [block.text for block in blocks_of(TEXTS["docs/architecture.md"]) if "  __main__.py" in block.text]
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "xapi_cli").rglob("*.py")}

    assert set(modules_in(listing)) == {path for path in modules if not path.endswith("/__init__.py")}


def test_the_architecture_page_names_only_modules_that_exist() -> None:
    package = ROOT / "xapi_cli"
    directories = "|".join(path.name for path in package.iterdir() if path.is_dir())
    named = re.findall(rf"\b(?:{directories})(?:/\w+)+", TEXTS["docs/architecture.md"].replace("docs/", ""))

    assert [name for name in named if not (package / f"{name}.py").exists()] == []


def test_the_owners_in_the_table_of_rules_exist() -> None:
    rows = cells(TEXTS["docs/architecture.md"].partition("\n## Rules")[2].partition("\n## ")[0], columns=3)[1:]
    named = [found for row in rows for found in re.findall(r"`([a-z_/]+)` \(`(\w+)`", " ".join(row))]

    assert len(named) >= len(rows) - 2
    assert [pair for pair in named if not re.search(rf"\b{pair[1]}\b", _source_of(pair[0]))] == []


def _source_of(module: str) -> str:
    return (ROOT / "xapi_cli" / f"{module}.py").read_text()


def test_every_dependency_has_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    rows = cells(TEXTS["docs/dependencies.md"].partition("\n## ")[0], columns=5)[1:]

    assert {row[0].split()[0].strip("`") for row in rows} == {Requirement(line).name for line in wanted}


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


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, queue = set(), [README]
    while queue:
        path = queue.pop().resolve()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        queue += [
            path.parent / target.partition("#")[0]
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
        ]
    assert [path.name for path in PAGES if path.resolve() not in reached] == []


@every_page
def test_a_page_contains_no_path_of_a_particular_machine(page: str) -> None:
    assert re.findall(r"(?<![\w.~$}])/(?:home|root|Users|tmp|work|var|opt)/\S*", TEXTS[page]) == []


# examples


LANGUAGES = {
    "sh", "bash", "output", "text", "python", "yaml", "toml", "groovy", "dockerfile", "diff", "powershell", "json",
    "javascript",
}  # fmt: skip


SCRIPTED = [page for page, text in CURRENT.items() if any(block.language == "sh" for block in blocks_of(text))]


@every_page
def test_every_block_has_a_known_language(page: str) -> None:
    assert {block.language for block in blocks_of(TEXTS[page])} <= LANGUAGES


def test_a_common_question_has_a_short_answer_and_a_link_to_the_details() -> None:
    answers = re.split(r"^### .*$", TEXTS["docs/faq.md"], flags=re.MULTILINE)[1:]

    assert len(answers) >= 20
    assert [answer for answer in answers if len(answer.split("\n## ")[0].split()) > 50] == []
    assert [answer for answer in answers if not re.search(r"\]\([\w-]+\.md", answer)] == []


def test_the_commands_of_the_common_questions_work(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    (tmp_path / "requests.jsonl").write_text('{"path": "/x-api/me"}\n')
    commands = [" ".join(each.split()) for each in re.findall(r"`(xapi [^`]+)`", TEXTS["docs/faq.md"])]
    served = [command for command in commands if "proxy" in command]  # runs until Ctrl-C; see test_other_programs

    assert served == ["xapi proxy --port 8766"]
    assert xapi("login", env=sandbox.settings).code == 0
    for command in commands:
        if command not in served:
            environ = xapi.environment(sandbox.settings)
            ran = run(*STRICT_SHELL, with_sandbox(sandbox, command), cwd=tmp_path, environ=environ)
            assert ran.returncode == 0, ran
            if "data.csv" in command:
                assert '"content-type":"text/csv"' in ran.stdout.replace(" ", "")
    assert len(commands) > 10


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
    blocks = [block for text in CURRENT.values() for block in blocks_of(text) if block.language == "python"]
    apart = ("distributed", "import os, requests")  # those are in test_dask and test_other_programs
    examples = [block.text for block in blocks if not any(name in block.text for name in apart)]

    for example in examples:
        assert len(example.splitlines()) <= 10
        ran = subprocess.run(
            [PYTHON, "-c", example], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran
    assert examples


def test_the_example_of_a_config_file_is_valid(xapi: Xapi) -> None:
    (block,) = [block for block in blocks_of(TEXTS["docs/settings.md"]) if block.language == "toml"]
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(block.text)

    listed = xapi("profile", "list")
    assert listed.code == 0, listed
    assert all(xapi("profile", "show", name).code == 0 for name in tomllib.loads(block.text)["profiles"])
