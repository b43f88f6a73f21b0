"""Draw docs/pictures/agent.svg, the processes of the agent and what passes between them: `make pictures`."""

from html import escape
from typing import NamedTuple

from tests.tools.documents import ROOT

PICTURE = ROOT / "docs" / "pictures" / "agent.svg"

_WIDTH, _HEIGHT = 940, 430
_TITLE = "The processes of the agent"
_DESCRIPTION = (
    "xapi connects to the agent and hands its arguments, environment, working directory and standard streams to a "
    "worker. The worker runs the command, writes to the streams, returns the exit code and ends. The master process "
    "forks workers in advance. The worker borrows an open connection to the API from the relay, and reads a token in "
    "memory from the keeper. If no agent runs, or if a worker cannot stand in for the process, xapi runs the command "
    "itself."
)


class _Box(NamedTuple):
    left: int
    top: int
    width: int
    lines: tuple[str, ...]  # the first one is the name
    inside: bool = True  # part of the agent


class _Arrow(NamedTuple):
    points: str
    label: tuple[int, int, str]
    both: bool = False  # with a tip at each end


_HEIGHT_OF_BOX = 66
_BOXES = (
    _Box(20, 182, 190, ("xapi request …", "as started by the shell"), inside=False),
    _Box(20, 336, 190, ("without the agent", "xapi runs the command itself"), inside=False),
    _Box(420, 72, 210, ("master", "listens and forks; no secrets")),
    _Box(420, 182, 210, ("worker", "runs one command, then ends")),
    _Box(420, 292, 210, ("keeper", "tokens in memory (storage agent)")),
    _Box(690, 182, 150, ("relay", "open connections")),
)
_ARROWS = (
    _Arrow("115,182 115,105 420,105", (270, 97, "connects")),
    _Arrow("525,138 525,180", (578, 164, "forks early")),
    _Arrow("212,204 418,204", (315, 196, "arguments, streams, …")),
    _Arrow("420,228 212,228", (315, 246, "exit code")),
    _Arrow("115,248 115,334", (166, 296, "no agent")),
    _Arrow("525,250 525,290", (562, 274, "token"), both=True),
    _Arrow("632,215 688,215", (660, 207, "lends"), both=True),
    _Arrow("842,215 898,215", (918, 219, "API")),
)


def picture() -> str:
    """Return the processes as SVG, on its own background."""
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {size} role="img" \
aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="13" fill="#222">
<title id="title">{_TITLE}</title>
<desc id="desc">{escape(_DESCRIPTION)}</desc>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" \
orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>
<rect {size} rx="8" fill="#fff"/>
<rect x="395" y="36" width="470" height="346" rx="8" fill="none" stroke="#667" stroke-dasharray="6 5"/>
<text x="410" y="58" font-weight="600">agent</text>
{"".join(map(_drawn_box, _BOXES))}{"".join(map(_drawn_arrow, _ARROWS))}</svg>
"""


def _drawn_box(box: _Box) -> str:
    fill, stroke = ("#e8f0f8", "#2f6fb3") if box.inside else ("#f4f4f0", "#8a8a7a")
    middle = box.left + box.width // 2
    name, *rest = map(escape, box.lines)
    texts = [
        f'<text x="{middle}" y="{box.top + 28}" text-anchor="middle" font-size="15" font-weight="600">{name}</text>'
    ]
    texts += [
        f'<text x="{middle}" y="{box.top + 50 + 18 * number}" text-anchor="middle">{line}</text>'
        for number, line in enumerate(rest)
    ]
    rectangle = f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{_HEIGHT_OF_BOX}" rx="6"'
    return f'{rectangle} fill="{fill}" stroke="{stroke}"/>\n{"".join(texts)}\n'


def _drawn_arrow(arrow: _Arrow) -> str:
    left, top, label = arrow.label
    tips = ' marker-start="url(#tip)"' if arrow.both else ""
    line = (
        f'<polyline points="{arrow.points}" fill="none" stroke="#444" stroke-width="1.5"{tips} marker-end="url(#tip)"/>'
    )
    text = f'<text x="{left}" y="{top}" text-anchor="middle" fill="#444" font-style="italic">{escape(label)}</text>'
    return f"{line}\n{text}\n"


def write_picture() -> None:
    """Write docs/pictures/agent.svg."""
    PICTURE.write_text(picture())


if __name__ == "__main__":
    write_picture()
