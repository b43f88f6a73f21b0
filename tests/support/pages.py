"""The pages of the documentation: their blocks, their tables, and their examples as a shell runs them."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.tools.documents import ROOT
from xapi_cli.features.sandbox import MASTER, Sandbox

STRICT_SHELL = ("bash", "-euo", "pipefail", "-c")
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of *text*, in order."""
    return [Block(*found) for found in re.findall(r"^```([\w-]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def without_blocks(text: str) -> str:
    """Return *text* without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def cells(text: str, *, columns: int) -> list[list[str]]:
    """Return the rows of all tables of *text* that have this number of *columns*, including the header rows."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == columns and not row[0].startswith("--")]


def with_sandbox(sandbox: Sandbox, text: str) -> str:
    """Return *text* with the addresses and the account of the examples replaced by those of *sandbox*."""
    text = re.sub(r"https://api\.example\.com|http://127\.0\.0\.1:8765", sandbox.base_url, text)
    return re.sub(r"\bme@example\.com", MASTER.email, text)


def run(*command: str, cwd: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run *command* with an empty stdin; return its exit code and its output."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_examples(text: str, sandbox: Sandbox, *, cwd: Path, environ: Mapping[str, str]) -> int:
    """Run the `sh` blocks of *text* in order, compare each with the `output` block after it, and return their number.

    Raises AssertionError if a block fails or prints something else.
    """
    blocks = blocks_of(text)
    examples = [number for number, block in enumerate(blocks) if block.language == "sh"]
    for number in examples:
        block, after = blocks[number], blocks[number + 1 : number + 2]
        ran = run(*STRICT_SHELL, with_sandbox(sandbox, block.text), cwd=cwd, environ=environ)
        assert (ran.returncode, "xapi: error" in ran.stderr and "exit" not in block.text) == (0, False), ran
        if after and after[0].language == "output":
            assert ran.stdout == with_sandbox(sandbox, after[0].text)
    return len(examples)
