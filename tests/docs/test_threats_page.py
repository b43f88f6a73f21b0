"""The page of threats names a test for each threat, and these tests exist."""

import re
from pathlib import Path

from tests.hostile.faults import FAULTS
from tests.hostile.test_faults import CALLERS
from tests.leaks.canary import PASSWORD
from tests.leaks.scenes import BEHAVIORS, COMMANDS, SEND_NOTHING

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text()
ROWS = re.findall(r"^\| ([A-J]\d+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
GROUPS = {"A": 31, "B": 24, "C": 21, "D": 36, "E": 12, "F": 17, "G": 10, "H": 6, "I": 21, "J": 10}


def test_the_page_lists_every_threat() -> None:
    assert [row[0] for row in ROWS] == [
        f"{group}{number + 1}" for group, size in GROUPS.items() for number in range(size)
    ]


def test_a_threat_has_tests_that_exist_or_does_not_apply() -> None:
    tests = [(row[0], *each) for row in ROWS for each in re.findall(r"`([\w/]+)::(test_\w+)`", row[2])]
    files = {file: (ROOT / "tests" / f"{file}.py").read_text() for _, file, _ in tests}

    without = {row[0] for row in ROWS if not row[2].startswith("Does not apply: ")} - {row for row, _, _ in tests}
    assert without == set()
    assert [each for each in tests if f"\ndef {each[2]}(" not in files[each[1]]] == []


def test_the_numbers_on_the_page_match_the_tests() -> None:
    assert f"{len(FAULTS)} named faults, each tested with four of {len(CALLERS)} ways" in PAGE
    assert f"{len(COMMANDS)} commands, seven server behaviors" in PAGE
    assert f"every run: {len(FAULTS)} faults, four ways each" in PAGE
    traced = (len(COMMANDS) - len(SEND_NOTHING)) * len(BEHAVIORS) + len(SEND_NOTHING)
    assert f"{traced} traced commands" in PAGE
    assert (len(BEHAVIORS), len(PASSWORD.forms())) == (7, 13)
    assert "thirteen encodings" in PAGE


def test_the_readme_and_the_security_policy_link_to_the_security_page() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text()
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text()
