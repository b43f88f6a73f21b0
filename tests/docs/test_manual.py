"""The man pages match the program, are well-formed, and are found by `man` after an ordinary installation."""

import re
import shutil
import subprocess

import pytest

from tests.support.program import Xapi
from tests.tools.documents import MANUAL, help_of, invocations
from tests.tools.manual import manual

pytestmark = pytest.mark.slow  # man

PAGES = {"-".join(("xapi", *args)): args for args in invocations()}

each_page = pytest.mark.parametrize("name", PAGES)
needs_man = pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")


def read(xapi: Xapi, *args: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run `man` with xapi on the PATH."""
    environ = xapi.environment({"MANWIDTH": str(columns), "MANROFFOPT": "-c", "LC_ALL": "C.UTF-8"})
    return subprocess.run(
        ["man", "--pager=cat", *args], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_man_pages_are_those_of_the_program() -> None:
    assert {path.name: path.read_text() for path in MANUAL.iterdir()} == manual(), "run `make docs`"


@needs_man
@each_page
def test_a_page_has_every_option_and_no_groff_warning(xapi: Xapi, name: str) -> None:
    result = read(xapi, "--warnings", "--local-file", str(MANUAL / f"{name}.1"))
    options = set(
        re.findall(
            r"(?<![\w-])--?[a-z][a-z-]*", help_of(*PAGES[name]).partition("Options:")[2].partition("Settings, as")[0]
        )
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert {option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", result.stdout)} == set()
    assert len(options) > 1
    assert max(map(len, result.stdout.splitlines())) <= 100


@needs_man
def test_the_first_page_has_exit_codes_variables_and_commands(xapi: Xapi) -> None:
    result = read(xapi, "--local-file", str(MANUAL / "xapi.1")).stdout

    assert re.search(r"^ +13 +The token store cannot be used", result, re.MULTILINE)
    assert re.search(r"^ +XAPI_STATE_DIR$", result, re.MULTILINE)
    assert re.search(r"^ +xapi-token\(1\)$", result, re.MULTILINE)
