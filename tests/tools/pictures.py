"""Generates the pictures in docs/pictures/ from the terminal output of the program, with rich (`make pictures`)."""

import io
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.program import Xapi
from tests.tools.documents import ROOT
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox

PICTURES = ROOT / "docs" / "pictures"
_COLUMNS = 106
_PROMPT = "$ "
_IMPORTANT = "not dim bold on #1f4568"  # dim text is hard to read in a picture

# Text that differs between runs, and its replacement.
_STABLE: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]] = (
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8765"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-12-21 09:00"),
    (r"/\S+/config/config\.toml", "~/.config/xapi/config.toml"),
    (r"\bin \d+(\s+)days\b", r"in 30\1days"),
    (r" {2,}\d+ ms\b", lambda found: f"{'12 ms':>{len(found[0])}}"),  # a column of a table
    (r"\b\d+ (ms)\b", r"12 \1"),
    (r"in \d\.\d s \([\d,]+/s\)", "in 0.1 s (40/s)"),
)


class Typed(NamedTuple):
    """The *keys* that are typed when the screen shows *after*."""

    after: str
    keys: str


class Scene(NamedTuple):
    """A picture: its *title* and the input of a shell, in which BASE is replaced by the address of the server.

    The message that starts with *important* has another background.
    """

    title: str
    typed: Sequence[Typed]
    logged_in: bool = True
    important: str | None = None


SCENES = {
    "login": Scene(
        "The first login",
        (
            Typed(_PROMPT, "xapi login --storage file"),
            Typed("ase URL", "BASE"),
            Typed("mail", MASTER.email),
            Typed("assword", MASTER.password),
            Typed(_PROMPT, "xapi token status"),
        ),
        logged_in=False,
    ),
    "token-renewal": Scene(
        "A rejected token, replaced automatically",
        (
            Typed(_PROMPT, "xapi request /x-api/me"),
            Typed(_PROMPT, "curl -X POST BASE/sandbox/kill-tokens"),
            Typed(_PROMPT, "xapi request /x-api/me | jq -r .name"),
        ),
        important="xapi: logged in as ",
    ),
    "tables": Scene(
        "Accounts and calls at a glance",
        (
            Typed(_PROMPT, "xapi profile set base_url BASE -p staging"),
            Typed(_PROMPT, f"xapi profile set username {MEMBER.email} -p staging"),
            Typed(_PROMPT, "xapi profile list"),
            Typed(_PROMPT, """printf '{"path":"%s"}\\n' /x-api/me /x-api/projects /x-api/nope >calls.jsonl"""),
            Typed(_PROMPT, "xapi batch --ordered calls.jsonl"),
        ),
    ),
    "errors": Scene(
        "Errors say what to do",
        (
            Typed(_PROMPT, "xapi requst /x-api/me"),
            Typed(_PROMPT, "xapi request /x-api/nope -o response.json; echo $?"),
            Typed(_PROMPT, "xapi token status -p staging; echo $?"),
            Typed(_PROMPT, "xapi request https://evil.example.com/x-api/me; echo $?"),
        ),
    ),
}


def picture(name: str) -> str:
    """Run the scene *name* and return its picture as SVG."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory() as directory, Sandbox() as sandbox:
        xapi = Xapi(Path(directory) / "home")
        try:
            if scene.logged_in:
                assert xapi("login", env=sandbox.settings).code == 0
            return _drawn(scene, _played(scene, xapi, sandbox))
        finally:
            xapi.end()


def read_text(svg: str) -> str:
    """Return the lines of text in *svg*."""
    from html import unescape

    lines: dict[float, str] = {}
    for height, args in re.findall(r'<text [^>]*\by="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        lines[float(height)] = lines.get(float(height), "") + unescape(args).replace("\xa0", " ")
    return "\n".join(line.rstrip() for _, line in sorted(lines.items()))


def _played(scene: Scene, xapi: Xapi, sandbox: Sandbox) -> str:
    """Type the keys of *scene* into a shell without line editing; return the output of the terminal."""
    environ = {"PS1": _PROMPT, "ENV": "", "XAPI_PASSWORD": None if not scene.logged_in else MASTER.password}
    with xapi.on_terminal(
        "-i", program=shutil.which("dash") or "/bin/sh", env=environ, columns=_COLUMNS, rows=50
    ) as terminal:
        for after, keys in scene.typed:
            terminal.expect(after, timeout=60)
            terminal.type(keys.replace("BASE", sandbox.base_url) + "\n")
            terminal.expect("\n", timeout=60)
        terminal.expect(_PROMPT, timeout=60)
        return terminal.seen.decode()


def _drawn(scene: Scene, seen: str) -> str:
    """Return the output of a terminal as SVG that uses the fonts of the reader's system."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.ansi import AnsiDecoder
    from rich.console import Console

    for pattern, stable in _STABLE:
        seen = re.sub(pattern, stable, seen)
    lines = seen.replace("\r\n", "\n").removesuffix(_PROMPT).rstrip("\n")
    console = Console(
        width=_COLUMNS + 1, file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor"
    )
    is_important = False
    for line in AnsiDecoder().decode(lines):
        starts = bool(scene.important) and line.plain.startswith(scene.important or "")
        is_important = starts or (is_important and line.plain.startswith("  "))  # a wrapped line is indented
        if is_important:
            line.pad_right(_COLUMNS - len(line))
            line.stylize(_IMPORTANT)
        assert not set(line.plain) & {"\x1b", "\r", "\b"}, f"more than colors: {line.plain!r}"
        for row in line.divide(range(_COLUMNS, len(line), _COLUMNS)):  # a terminal wraps lines at any character
            console.print(row, highlight=False)
    form = re.sub(r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = re.sub(r"font-family: [^;]*;", "font-family: Menlo, Consolas, 'DejaVu Sans Mono', monospace;", form)
    drawn = console.export_svg(title=scene.title, code_format=form, unique_id="xapi")
    defined = set(re.findall(r'<clipPath id="([\w-]+)"', drawn))  # rich defines none for the last line
    return re.sub(r' clip-path="url\(#([\w-]+)\)"', lambda found: found[0] if found[1] in defined else "", drawn) + "\n"


def write_pictures() -> None:
    """Write the pictures in `docs/pictures/`."""
    for name in SCENES:
        (PICTURES / f"{name}.svg").write_text(picture(name))


if __name__ == "__main__":
    write_pictures()
