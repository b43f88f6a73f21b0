"""What the papers say is so: they are compared with the program, and their examples are run."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from tests.documents import COMMANDS_PAGE, ROOT, commands_page, help_of, invocations
from tests.program import PYTHON, Xapi
from xapi_cli import errors
from xapi_cli.cli import options
from xapi_cli.sandbox import MASTER, Sandbox
from xapi_cli.settings import config_file

README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES}

every_page = pytest.mark.parametrize("page", TEXTS)


class Block(NamedTuple):
    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```([\w-]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def cells(text: str, *, columns: int) -> list[list[str]]:
    """Return the rows of all tables of *text* that have so many *columns*, heads included."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == columns and not row[0].startswith("--")]


# commands


def test_the_page_of_commands_is_what_the_program_prints() -> None:
    assert COMMANDS_PAGE.read_text() == commands_page(), "run `make docs`"


@pytest.mark.parametrize("words", list(invocations()), ids=" ".join)
def test_a_help_text_fits_80_columns_and_nothing_in_it_is_cut_off(words: tuple[str, ...]) -> None:
    told = help_of(*words)

    assert [line for line in told.splitlines() if len(line) > 80] == []
    assert re.findall(r"\w\.\.\.$", told, re.MULTILINE) == []


@pytest.mark.parametrize("words", [words for words in invocations() if words not in {("token",), ("profile",)}])
def test_a_help_text_has_examples(words: tuple[str, ...]) -> None:
    assert "Examples:" in help_of(*words)


def test_every_command_is_in_the_readme_or_a_page_besides_that_of_commands() -> None:
    rest = "".join(text for name, text in TEXTS.items() if name not in {"docs/commands.md", "CHANGELOG.md"})
    commands = [" ".join(("xapi", *words)) for words in invocations() if words not in {(), ("token",), ("profile",)}]

    told = {command for command in commands if f"{command} " in rest or f"{command}`" in rest or f"{command}\n" in rest}
    assert [command for command in commands if command not in told] == []


# settings


def test_every_setting_has_its_row_with_flag_variable_and_key() -> None:
    rows = cells(TEXTS["docs/settings.md"], columns=5)
    flags = {flag for row in rows for flag in re.findall(r"`(--[a-z-]+)`", row[1])}
    keys = {key for row in rows for key in re.findall(r"`([a-z_]+)`", row[3])}

    assert flags >= {f"--{name.replace('_', '-')}" for name in (*options.LOCAL, *options.WIRE)}
    assert keys >= {*config_file.KEYS, "default_profile"}
    assert keys - {"login"} == {*config_file.KEYS, "default_profile"}


def test_every_variable_that_the_program_reads_is_told_and_no_other() -> None:
    source = "".join(path.read_text() for path in (ROOT / "xapi_cli").rglob("*.py") if path.name != "sandbox.py")
    named = set(re.findall(r"\bXAPI_[A-Z_]*[A-Z]\b", source)) | {
        f"XAPI_{key.upper()}" for key in ("timeout", "max_time")
    }
    told = set(re.findall(r"\bXAPI_[A-Z_]*[A-Z]\b", "".join(TEXTS.values())))

    assert told == named
    in_settings = set(re.findall(r"`(XAPI_[A-Z_]+)(?:=1)?`", TEXTS["docs/settings.md"]))
    assert in_settings == named


def test_every_storage_is_explained() -> None:
    first_cells = {row[0].split()[0].strip("`") for row in cells(TEXTS["docs/storage.md"], columns=3)}

    assert first_cells >= {"auto", "keyring", "file", "none"}


# exit codes


def exit_codes() -> dict[str, str]:
    """Return the meaning of each code, as the tree in the docstring of `errors` tells it."""
    tree = re.findall(r"[│├└─ ]+(\w+) {2,}(\d+)  (\S.*)$", errors.__doc__ or "", re.MULTILINE)
    meanings: dict[str, str] = {"0": "success"}
    for name, code, meaning in tree:
        shown = errors.Interrupted().exit_code if name == "Interrupted" else getattr(errors, name).exit_code
        assert shown == int(code)
        meanings.setdefault(code, meaning)
    return meanings


def test_the_tree_of_errors_names_every_failure() -> None:
    failures = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]

    assert [each.__name__ for each in failures if not re.search(rf"\b{each.__name__} ", errors.__doc__ or "")] == []


def test_the_table_of_exit_codes_has_every_code_with_its_meaning() -> None:
    section = TEXTS["docs/exit-codes.md"].partition("# Exit codes")[2]
    table = {row[0]: row[1] for row in cells(section.split("\n## ")[0], columns=2) if row[0] != "code"}

    assert list(table) == sorted(exit_codes(), key=int)
    assert {code: table[code][: len(meaning)] for code, meaning in exit_codes().items()} == exit_codes()


def test_the_meanings_of_the_exit_codes_are_listed_once() -> None:
    assert [page for page in TEXTS if "\n| code | meaning |\n" in TEXTS[page]] == ["docs/exit-codes.md"]


# what scripts read


def test_every_field_of_token_show_status_and_meta_is_explained(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    shown = xapi("token", "show", "--json", env=sandbox.settings).out
    status = xapi("token", "status", "--json", env=sandbox.settings).out
    meta = xapi("request", "/x-api/me", "--meta", "-", env=sandbox.settings).err

    fields = set(re.findall(r'"([a-z_]+)": ', shown + status + meta.partition('"headers"')[0]))
    fields |= set(re.findall(r'"([a-z_]+)": ', meta.rpartition("}, ")[2]))
    assert {"access_token", "state", "bytes"} <= fields
    assert [name for name in fields if f"`{name}`" not in TEXTS["docs/scripting.md"]] == []


# the house


def test_the_page_of_architecture_names_every_module() -> None:
    page = TEXTS["docs/architecture.md"]
    package = ROOT / "xapi_cli"
    directories = [path.parent for path in package.rglob("__init__.py") if path.parent != package]
    modules = [path for path in package.glob("*.py") if not path.name.startswith("__")]
    rows = {row[0]: row[1] for row in cells(page, columns=2)}

    assert [path.name for path in modules if not any(f"`{path.name}`" in part for part in rows)] == []
    for directory in directories:
        row = f"`{directory.relative_to(package)}/`"
        assert row in rows
        if directory.name != "commands":  # one file per command, as it states
            names = [path.stem for path in directory.glob("*.py") if path.stem != "__init__"]
            assert [name for name in names if f"`{name}`" not in rows[row]] == [], directory.name


def test_the_page_of_architecture_names_nothing_that_is_gone() -> None:
    named = {
        name
        for row in cells(TEXTS["docs/architecture.md"], columns=2)
        for name in re.findall(r"`([a-z0-9_/]+(?:\.py|/))`", row[0])
    }

    assert [name for name in named if not (ROOT / "xapi_cli" / name).exists()] == []


def test_every_dependency_has_its_reason() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    rows = cells(TEXTS["docs/dependencies.md"], columns=5)[1:]

    assert {row[0].split()[0].strip("`") for row in rows} == {Requirement(line).name for line in wanted}


# links and habits


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_link_leads_somewhere(page: str) -> None:
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
    reached, waiting = set(), [README]
    while waiting:
        path = waiting.pop().resolve()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        waiting += [
            path.parent / target.partition("#")[0]
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
        ]
    assert [path.name for path in PAGES if path.resolve() not in reached] == []


@every_page
def test_a_page_names_no_folder_of_somebodys_machine(page: str) -> None:
    assert re.findall(r"(?<![\w.~$}])/(?:home|root|Users|tmp|work|var|opt)/\S*", TEXTS[page]) == []


# examples


LANGUAGES = {"sh", "output", "text", "python", "yaml", "toml", "groovy", "dockerfile"}


def against(sandbox: Sandbox, script: str) -> str:
    """Return an example *script* with the addresses that it names replaced by those of *sandbox*."""
    script = re.sub(r"https://api\.example\.com|http://127\.0\.0\.1:8765", sandbox.base_url, script)
    return re.sub(r"\bme@example\.com", MASTER.email, script)


def scripts() -> Iterator[tuple[str, int]]:
    for page, text in TEXTS.items():
        for number, block in enumerate(blocks_of(text)):
            assert block.language in LANGUAGES, f"{page}: {block}"
            if block.language == "sh":
                yield page, number


def test_there_are_examples() -> None:
    assert len(list(scripts())) > 15


@pytest.mark.slow
@pytest.mark.parametrize("page", list(dict.fromkeys(page for page, _ in scripts())))
def test_the_examples_of_a_page_run_one_after_the_other(
    page: str, xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    environ = xapi.environment({"XAPI_PASSWORD": MASTER.password})
    login = xapi("login", env=sandbox.settings)
    assert login.code == 0
    blocks = blocks_of(TEXTS[page])
    for number, block in enumerate(blocks):
        if block.language != "sh":
            continue
        script = against(sandbox, block.text)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, "xapi: error" in ran.stderr and "exit" not in block.text) == (0, False), ran
        if number + 1 < len(blocks) and blocks[number + 1].language == "output":
            assert ran.stdout == blocks[number + 1].text


def test_the_examples_in_python_run(xapi: Xapi, sandbox: Sandbox) -> None:
    environ = xapi.environment({**sandbox.settings, "XAPI_PASSWORD": MASTER.password})
    examples = [block.text for text in TEXTS.values() for block in blocks_of(text) if block.language == "python"]

    for example in examples:
        assert len(example.splitlines()) <= 10
        ran = subprocess.run(
            [PYTHON, "-c", example], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran
    assert examples


def test_the_example_of_a_config_file_can_be_used(xapi: Xapi) -> None:
    (block,) = [block for block in blocks_of(TEXTS["docs/settings.md"]) if block.language == "toml"]
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(block.text)

    listed = xapi("profile", "list")
    assert listed.code == 0, listed
    assert all(xapi("profile", "show", name).code == 0 for name in tomllib.loads(block.text)["profiles"])
