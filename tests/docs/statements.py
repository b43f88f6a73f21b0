"""Statements in the pages for users that a reader relies on: exit codes, what is printed, and what never happens."""

import re
from collections.abc import Iterable, Iterator

from tests.support.pages import TEXTS, without_blocks
from tests.tools.documents import ROOT

# Generated from the program; a log of measurements; tests/tools/release runs the commands of the installation.
OTHERS = {"docs/commands.md", "docs/comparison.md", "docs/performance.md", "docs/install.md"}

_FORMS = re.compile(
    r"\bexits? with (?:code )?\d|\bexit code (?:is |\d)"
    r"|\bnever (?:changed|stored|sent|shown|shows|logged|followed|written|writes|stores|sends|prints|resends)\b"
    r"|\b(?:is|are) (?:left as|unchanged)\b|\bleaves the file as\b"
    r"|(?<!that )(?<!which command )(?<!what the helper )\bprints\b|\bwarns\b"
)


def user_pages() -> list[str]:
    """Return the pages for users: the README, and those in the navigation before the section for contributors."""
    users, found, _ = (ROOT / "docs" / "index.rst").read_text().partition(":caption: Contributing")
    assert found
    names = re.findall(r"^   (?:.*<)?([\w-]+)>?$", users, re.MULTILINE)
    return [page for page in ("README.md", *(f"docs/{name}.md" for name in names)) if page not in OTHERS]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of *text*, a page in Markdown: in paragraphs, list items and the cells of tables."""
    prose = re.sub(r"^#.*$|^!\[[^]]*\]\([^)]*\)", "", without_blocks(text), flags=re.MULTILINE)
    prose = "\n".join(_without_markers(prose.splitlines()))
    prose = re.sub(r"^\|.*$", lambda row: row[0].replace("| ", "\n\n").strip("|") + "\n\n", prose, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", prose):
        text = re.sub(r"^\*\*[^*]+\*\*[.:]? ", "", " ".join(block.split()))  # the title of a paragraph
        yield from re.split(r"(?<=[.!?:]) (?=xapi\b|[A-Z\d`*\"\[-])", text)


def _without_markers(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* with an empty line in place of the marker of each list item.

    A number begins an item only if it is 1, or continues a list: a sentence can be wrapped before a number.
    """
    number = 0
    for line in lines:
        found = re.match(r" *(?:[-*]|(\d+)\.) ", line)
        if found and (found[1] is None or int(found[1]) in (1, number + 1)):
            number = int(found[1] or number)
            yield "\n\n" + line[found.end() :]
        else:
            number = 0 if line[:1].strip() else number  # a paragraph ends the list
            yield line


def plain(sentence: str) -> str:
    """Return *sentence* as a test quotes it: without links, and without the markup of code and of bold text."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).replace("`", "").replace("*", "").strip()


def is_statement(sentence: str) -> bool:
    """Return whether *sentence* states an exit code, what is printed, or what never happens."""
    return bool(_FORMS.search(plain(sentence)))


def statements() -> dict[str, str]:
    """Return the statements of all pages for users, each with its page."""
    return {
        plain(sentence): page for page in user_pages() for sentence in sentences(TEXTS[page]) if is_statement(sentence)
    }
