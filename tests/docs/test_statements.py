"""What the pages promise is tested: a statement about an exit code, an output or a file is quoted by its test.

A test quotes a sentence with `@pytest.mark.states("…")`, without links and markup. To change the sentence, change it
beside the test, where you see whether the test still proves it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.statements import is_statement, plain, sentences, statements, user_pages
from tests.support.pages import TEXTS
from tests.tools.documents import ROOT

# No test proves these. Remove what a test quotes; add nothing.
UNPROVEN = {
    # the servers of the tests are on loopback, where there is no warning
    "Without TLS, anyone on the network can read the token; if the Redis server is on another machine, login warns.",
}


def quoted() -> Iterator[tuple[str, Path]]:
    """Yield each sentence that a test quotes, and the module of the test."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "pytest.mark.states" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.states":
                yield from ((ast.literal_eval(each), path) for each in node.args)


def test_each_statement_of_a_page_is_quoted_by_a_test() -> None:
    proven = {sentence for sentence, _ in quoted()}

    missing = {sentence: page for sentence, page in statements().items() if sentence not in proven | UNPROVEN}
    assert missing == {}, "quote each sentence in the test that proves it, or replace it by an example that is run"


def test_each_sentence_that_a_test_quotes_is_on_a_page() -> None:
    written = {plain(sentence) for page in user_pages() for sentence in sentences(TEXTS[page])}

    assert [(sentence, path.name) for sentence, path in quoted() if sentence not in written] == []


def test_the_statements_without_a_test_only_become_fewer() -> None:
    assert len(UNPROVEN) <= 1
    assert statements().keys() >= UNPROVEN


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Title\n\nIt works. `login` exits with code 13 if it fails.\n", ["login exits with code 13 if it fails."]),
        ("- **Files.** It is never changed. xapi [warns](a.md) you.\n", ["It is never changed.", "xapi warns you."]),
        ("| a | b |\n| --- | --- |\n| none | `x` prints\n", ["x prints"]),
        ("1. a\n2. It warns.\n\n3. b\n", ["It warns."]),
        ("1. a\n\nIf not, xapi exits with\n2. Otherwise, it is 0.\n", ["If not, xapi exits with 2."]),
        ("1. It exits with code\n   13. B\n", ["It exits with code 13."]),
        ("```sh\nxapi exits with code 1\n```\n\n![It prints a\nline](a.svg)\n\nA command that prints it.\n", []),
    ],
)
def test_statements_are_found_in_prose_and_tables_only(text: str, found: list[str]) -> None:
    assert [plain(each) for each in sentences(text) if is_statement(each)] == found


def test_no_page_but_a_reference_is_longer_than_1800_words() -> None:
    reference = {"docs/commands.md", "docs/settings.md", "docs/architecture.md", "docs/packages.md", "docs/threats.md"}
    exempt = reference | {"CHANGELOG.md", "docs/extending.md"}  # half of the words on extending are code
    lengths = {page: len(text.split()) for page, text in TEXTS.items() if page not in exempt}

    assert {page: words for page, words in lengths.items() if words > 1800} == {}


def test_the_pages_for_users_are_those_before_the_section_for_contributors() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/storage.md"} <= set(user_pages())
    assert not any(re.search("architecture|threats|internals", page) for page in user_pages())
