"""Prints the size of the project: `make check` shows whether it stays one that a person can own."""

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xapi_cli"

# All code that touches a password or a token.
SECRET = ["auth", "store", "features/redis", "features/helper", "http/authorization", "http/httpx_transport"]
SECRET += ["system/prompts"]


def lines(paths: Iterable[Path]) -> int:
    """Return the number of lines in *paths*."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def code_lines(paths: Iterable[Path]) -> int:
    """Return the number of lines in *paths* that are not blank, and neither comment nor docstring."""
    return sum(_code_lines(path.read_text()) for path in paths)


def _code_lines(text: str) -> int:
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def main() -> None:
    """Print the sizes."""
    package = sorted(PACKAGE.rglob("*.py"))
    names = {path: path.relative_to(PACKAGE).with_suffix("").as_posix() for path in package}
    core = [path for path in package if not names[path].startswith("features/")]
    secret = [path for path in package if f"{names[path]}/".startswith(tuple(f"{each}/" for each in SECRET))]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    pages = [page for page in pages if page.name != "CHANGELOG.md"]
    rows = {
        "package, lines": lines(package),
        "package, modules": len(package),
        "package, lines of code": code_lines(package),
        "core, lines": lines(core),
        "path of the secret, lines": lines(secret),
        "tests, lines": lines((ROOT / "tests").rglob("*.py")),
        "pages, words": sum(len(page.read_text().split()) for page in pages),
    }
    for name, number in rows.items():
        print(f"{name:<26}{number:>8,}")


if __name__ == "__main__":
    main()
