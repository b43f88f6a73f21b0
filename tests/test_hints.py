"""A hint is one instruction: no question, no second sentence, and short enough to be read in a line."""

import ast
from collections.abc import Iterator

from tests.tools.documents import ROOT

_MAX_LENGTH = 160


def texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that *node* can be, with … for each value that is inserted; nothing for other expressions."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
        case ast.Tuple():
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.elts)
        case ast.IfExp():
            yield from texts(node.body)
            yield from texts(node.orelse)


def hints(source: str) -> list[str]:
    """Return the hints in *source*, the text of a module."""
    keywords = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword) and node.arg == "hint")
    return [text for keyword in keywords for text in texts(keyword.value)]


def faults(hint: str) -> list[str]:
    """Return what is wrong with *hint*; a suggestion for a mistyped word is the only question."""
    is_question = "?" in hint and not hint.startswith("did you mean ")
    found = {"a question": is_question, "a semicolon": ";" in hint, "too long": len(hint) > _MAX_LENGTH}
    return [fault for fault, is_found in found.items() if is_found]


MODULES = sorted((ROOT / "xapi_cli").rglob("*.py"))


def test_each_hint_is_one_instruction() -> None:
    all_hints = [(path.relative_to(ROOT).as_posix(), hint) for path in MODULES for hint in hints(path.read_text())]

    assert len(all_hints) > 150
    assert [(path, hint, faults(hint)) for path, hint in all_hints if faults(hint)] == []
