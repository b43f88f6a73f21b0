"""Draw the diagrams of boxes and arrows in docs/pictures/: `make pictures`."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tests.tools.documents import ROOT

PICTURES = ROOT / "docs" / "pictures"

_COLORS = {  # of the kinds of boxes: fill and stroke
    "step": ("#e8f0f8", "#2f6fb3"),
    "outside": ("#f4f4f0", "#8a8a7a"),
    "question": ("#fff7e0", "#b8902c"),
    "result": ("#e9f6ec", "#4c9560"),
}
_NAME, _TEXT = 15, 13  # font sizes


class Box(NamedTuple):
    """A box with centered *lines*, the first of which is bold, unless *kind* is a question."""

    left: int
    top: int
    width: int
    lines: Sequence[str]
    kind: str = "step"

    @property
    def height(self) -> int:
        """The height, which depends on the number of lines."""
        return 24 + 20 * len(self.lines)


class Arrow(NamedTuple):
    """A line through *points* with a *label* that is centered at *at*; with *both*, it has a tip at each end."""

    points: str
    label: str = ""
    at: tuple[int, int] = (0, 0)
    both: bool = False


class Diagram(NamedTuple):
    """A picture with a *title* and a *description* for readers who do not see it, and a *frame* with a name."""

    size: tuple[int, int]
    title: str
    description: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    frame: tuple[int, int, int, int, str] | None = None


DIAGRAMS = {
    "agent": Diagram(
        (1040, 430),
        "The processes of the agent",
        "xapi connects to the agent and hands its arguments, environment, working directory and standard streams "
        "to a worker. The worker runs the command, writes to the streams, returns the exit code and ends. The "
        "master process starts workers in advance. The worker borrows an open connection to the API from the "
        "relay, and reads a token in memory from the keeper. If no agent runs, or if a worker cannot stand in for "
        "the process, xapi runs the command itself.",
        (
            Box(20, 182, 230, ("xapi request …", "as started by the shell"), "outside"),
            Box(20, 336, 230, ("without the agent", "xapi runs the command itself"), "outside"),
            Box(460, 72, 250, ("master", "starts workers; no secrets")),
            Box(460, 182, 250, ("worker", "runs one command, then ends")),
            Box(460, 292, 250, ("keeper", "holds tokens in memory")),
            Box(800, 182, 160, ("relay", "open connections")),
        ),
        (
            Arrow("135,182 135,104 458,104", "connects", (300, 96)),
            Arrow("585,136 585,180", "starts in advance", (655, 164)),
            Arrow("252,202 458,202", "arguments, streams, …", (341, 194)),
            Arrow("460,228 252,228", "exit code", (341, 248)),
            Arrow("135,246 135,334", "no agent", (175, 296)),
            Arrow("585,246 585,290", "token", (614, 274), both=True),
            Arrow("712,214 798,214", "lends", (755, 206), both=True),
            Arrow("962,214 1000,214", "API", (1018, 219)),
        ),
        frame=(430, 36, 560, 346, "agent"),
    ),
    "login-flow": Diagram(
        (1000, 330),
        "One login, and what follows",
        "xapi login exchanges the email address and the password for a token, and stores the token. xapi request "
        "reads the token and sends it to the API. If the response is 401, one process logs in, replaces the stored "
        "token, and the same request is sent again. Otherwise the response is printed.",
        (
            Box(20, 40, 200, ("xapi login", "email and password")),
            Box(290, 40, 180, ("store", "keyring, file, …"), "outside"),
            Box(540, 40, 200, ("xapi request", "sends the token")),
            Box(810, 40, 170, ("the API", "checks the token"), "outside"),
            Box(290, 230, 220, ("log in again, once", "other processes wait")),
            Box(810, 230, 170, ("stdout", "the response"), "result"),
        ),
        (
            Arrow("222,72 288,72", "token", (255, 64)),
            Arrow("472,72 538,72", "token", (505, 64)),
            Arrow("742,72 808,72"),
            Arrow("895,106 895,228", "accepted", (935, 172)),
            Arrow("850,106 850,170 640,170 640,262 512,262", "401: the token was rejected", (735, 160)),
            Arrow("380,230 380,106", "new token", (334, 172)),
            Arrow("470,230 470,138 690,138 690,106", "the same request again", (578, 130)),
        ),
    ),
    "storage": Diagram(
        (880, 470),
        "Choose a storage option",
        "If several machines must share one login, use redis. Otherwise, if this computer has a keyring, keep the "
        "default. If not, and a credential helper such as pass is set up, use helper. If not, and the token may be "
        "on the disk, use file. Otherwise, use agent on Linux, which holds it in memory, or none, which logs in "
        "for each command.",
        (
            Box(20, 20, 360, ("Do several machines share one login?",), "question"),
            Box(20, 118, 360, ("Does this computer have a keyring?",), "question"),
            Box(20, 216, 360, ("Is a credential helper set up?",), "question"),
            Box(20, 314, 360, ("Can the token be stored on the disk?",), "question"),
            Box(500, 10, 360, ("redis", "one record for all machines"), "result"),
            Box(500, 108, 360, ("keyring", "the default; can remember the password"), "result"),
            Box(500, 206, 360, ("helper", "such as pass; can remember the password"), "result"),
            Box(500, 304, 360, ("file", "readable by you only"), "result"),
            Box(20, 396, 360, ("agent", "in memory, on Linux"), "result"),
            Box(500, 396, 360, ("none", "each command logs in"), "result"),
        ),
        (
            *(Arrow(f"382,{top} 498,{top}", "yes", (440, top - 8)) for top in (42, 140, 238, 336)),
            *(Arrow(f"200,{top} 200,{top + 52}", "no", (220, top + 30)) for top in (64, 162, 260)),
            Arrow("200,358 200,394", "no", (220, 382)),
            Arrow("382,428 498,428", "not on Linux", (440, 420)),
        ),
    ),
}


def diagram(name: str) -> str:
    """Return the diagram *name* as SVG, on its own background."""
    drawing = DIAGRAMS[name]
    width, height = drawing.size
    size = f'width="{width}" height="{height}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img" \
aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="{_TEXT}" fill="#222">
<title id="title">{escape(drawing.title)}</title>
<desc id="desc">{escape(drawing.description)}</desc>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" \
orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>
<rect {size} rx="8" fill="#fff"/>
{_drawn_frame(drawing)}{"".join(map(_drawn_box, drawing.boxes))}{"".join(map(_drawn_arrow, drawing.arrows))}</svg>
"""


def _drawn_frame(drawing: Diagram) -> str:
    if drawing.frame is None:
        return ""
    left, top, width, height, name = drawing.frame
    rectangle = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="none" stroke="#667"'
    text = f'<text x="{left + 15}" y="{top + 22}" font-weight="600">{escape(name)}</text>'
    return f'{rectangle} stroke-dasharray="6 5"/>\n{text}\n'


def _drawn_box(box: Box) -> str:
    fill, stroke = _COLORS[box.kind]
    middle, texts = box.left + box.width // 2, []
    for number, line in enumerate(box.lines):
        is_name = number == 0 and box.kind != "question"
        style = f'font-size="{_NAME}" font-weight="600"' if is_name else f'font-size="{_TEXT}"'
        top = box.top + 27 + 20 * number
        texts.append(f'<text x="{middle}" y="{top}" text-anchor="middle" {style}>{escape(line)}</text>')
    radius = box.height // 2 if box.kind == "question" else 6
    rectangle = f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="{radius}"'
    return f'{rectangle} fill="{fill}" stroke="{stroke}"/>\n{"".join(texts)}\n'


def _drawn_arrow(arrow: Arrow) -> str:
    tips = ' marker-start="url(#tip)"' if arrow.both else ""
    line = (
        f'<polyline points="{arrow.points}" fill="none" stroke="#444" stroke-width="1.5"{tips} marker-end="url(#tip)"/>'
    )
    if not arrow.label:
        return f"{line}\n"
    left, top = arrow.at
    label = escape(arrow.label)
    return f'{line}\n<text x="{left}" y="{top}" text-anchor="middle" fill="#444" font-style="italic">{label}</text>\n'


def write_diagrams() -> None:
    """Draw every diagram into `docs/pictures/`."""
    for name in DIAGRAMS:
        (PICTURES / f"{name}.svg").write_text(diagram(name))


if __name__ == "__main__":
    write_diagrams()
