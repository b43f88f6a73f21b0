"""The man pages are what the program says, whole, well-formed, and found by `man` after an ordinary install."""

import re
import shutil
import subprocess

import pytest

from tests.documents import MANUAL, help_of, invocations
from tests.manual import manual
from tests.program import PROGRAM, Xapi

pytestmark = pytest.mark.slow  # man

PAGES = {"-".join(("xapi", *words)): words for words in invocations()}

each_page = pytest.mark.parametrize("name", PAGES)
needs_man = pytest.mark.skipif(not shutil.which("man"), reason="there is no man here")


def read(xapi: Xapi, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run `man` as a person would who has xapi on the PATH."""
    environ = xapi.environment({"MANWIDTH": str(columns), "MANROFFOPT": "-c", "LC_ALL": "C.UTF-8"})
    return subprocess.run(
        ["man", "--pager=cat", *words], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_man_pages_are_those_of_the_program() -> None:
    assert {path.name: path.read_text() for path in MANUAL.iterdir()} == manual(), "run `make man`"


def test_there_is_a_page_for_each_command() -> None:
    assert set(manual()) == {f"{name}.1" for name in PAGES}


@needs_man
@each_page
def test_a_page_has_every_option_and_no_mistake(xapi: Xapi, name: str) -> None:
    told = read(xapi, "--warnings", "--local-file", str(MANUAL / f"{name}.1"))
    options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_of(*PAGES[name]).partition("Options:")[2]))

    assert (told.returncode, told.stderr) == (0, "")
    assert {option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", told.stdout)} == set()
    assert len(options) > 1
    assert max(map(len, told.stdout.splitlines())) <= 100


@needs_man
def test_the_first_page_has_exit_codes_variables_and_commands(xapi: Xapi) -> None:
    told = read(xapi, "--local-file", str(MANUAL / "xapi.1")).stdout

    assert re.search(r"^ +13 +the token store cannot be used", told, re.MULTILINE)
    assert re.search(r"^ +XAPI_STATE_DIR$", told, re.MULTILINE)
    assert re.search(r"^ +xapi-token\(1\)$", told, re.MULTILINE)


@needs_man
@pytest.mark.parametrize("words", [("xapi",), ("xapi", "token", "show")], ids=" ".join)
def test_man_finds_the_pages_of_an_ordinary_install(xapi: Xapi, words: tuple[str, ...]) -> None:
    """man-db looks in share/man beside each bin on the PATH, and joins words to a name with dashes."""
    folder = PROGRAM.parent.parent / "share" / "man" / "man1"
    if not folder.is_dir():
        pytest.skip("xapi is not installed the ordinary way")
    name = "-".join(words)

    found = read(xapi, "--where", name)
    assert (found.stdout.strip(), found.stderr) == (str(folder / f"{name}.1"), "")
    assert (folder / f"{name}.1").read_text() == manual()[f"{name}.1"]
    assert "NAME" in read(xapi, *words).stdout
