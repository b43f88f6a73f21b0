"""Draw docs/pictures/layers.svg, the layers of the package, from the import contract in pyproject.toml."""

import tomllib
from html import escape

from tests.tools.documents import ROOT

PICTURE = ROOT / "docs" / "pictures" / "layers.svg"

_CAPTIONS = {
    "__main__": "starts the program",
    "commands": "one file per command: arguments in, one call",
    "agent": "warm processes that run commands",
    "cli": "command table, options, help, exit codes",
    "usecases": "what a command does",
    "library": "open_client, the Python API",
    "runtime": "wiring, created on first use",
    "batch": "many requests in flight",
    "proxy": "the API for other programs",
    "request": "one request: arguments, body, output",
    "auth": "tokens: login, renewal, lock, failed logins",
    "store": "where records are stored: keyring, file, memory",
    "settings": "flag > environment > profile > default",
    "http": "HTTP/1.1: connections, retries",
    "openapi": "the description of the API",
    "system": "terminal, files, locks, signals",
    "sandbox": "the documented API on loopback",
    "errors": "failures and exit codes",
    "tokens": "account, token, record",
}
_WIDTH, _LEFT, _TOP = 1060, 70, 54  # pixels
_ROW, _GAP = 36, 8


def layers() -> list[list[str]]:
    """Return the names in each layer of the package, highest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["containers"] == ["xapi_cli"]]
    return [row.split(" | ") for row in contract["layers"]]


def picture() -> str:
    """Return the layers as SVG, on its own background."""
    rows = layers()
    height = _TOP + len(rows) * (_ROW + _GAP) + 12
    size = f'width="{_WIDTH}" height="{height}"'
    boxes = "".join(_row(_TOP + number * (_ROW + _GAP), names) for number, names in enumerate(rows))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {size} role="img" aria-labelledby="title" \
font-family="system-ui, sans-serif" font-size="14" fill="#222">
<title id="title">The layers of xapi_cli: imports point downward</title>
<rect {size} rx="8" fill="#fff"/>
<text x="20" y="32" font-size="16" font-weight="600">The layers of xapi_cli: imports point downward</text>
<path d="M36 {_TOP}V{height - 26}m-6 -8l6 10l6 -10" fill="none" stroke="#667" stroke-width="2"/>
{boxes}</svg>
"""


def _row(top: int, names: list[str]) -> str:
    width = (_WIDTH - _LEFT - 20 - _GAP * (len(names) - 1)) // len(names)
    return "".join(_box(_LEFT + number * (width + _GAP), top, width, name) for number, name in enumerate(names))


def _box(left: int, top: int, width: int, name: str) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{_ROW}" rx="4" fill="#e8f0f8" stroke="#2f6fb3"/>'
        f'<text x="{left + 14}" y="{top + 23}" font-family="Menlo, Consolas, monospace" font-weight="600">{name}</text>'
        f'<text x="{left + 120}" y="{top + 23}">{escape(_CAPTIONS[name])}</text>\n'
    )


def write_picture() -> None:
    """Write docs/pictures/layers.svg."""
    PICTURE.write_text(picture())


if __name__ == "__main__":
    write_picture()
