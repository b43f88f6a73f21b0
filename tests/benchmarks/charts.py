"""Draw the bar charts in docs/performance.md from the tables in that page: `make pictures`."""

import re
from html import escape
from typing import NamedTuple

from tests.tools.documents import ROOT

PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"

_LABELS, _BARS, _WIDTH = 410, 480, 980  # pixels: the column of the labels, the longest bar, the picture
_ROW, _TOP = 30, 56
_XAPI, _OTHER, _AGENT = "#2f6fb3", "#9aa5b1", "#12395f"


class Chart(NamedTuple):
    """A chart of the first column of figures in the table that begins with *header*.

    If the last column of the table is the ratio to *reference*, each group of rows also has a bar of that program. The
    group of a row is what follows the first comma of its label.
    """

    title: str
    header: str
    reference: str | None = None


CHARTS = {
    "startup": Chart("Time for one command, in milliseconds (less is better)", "| command | wall |"),
    "warm": Chart("Time for one call, in milliseconds (less is better)", "| call | time |", reference="curl"),
    "batch": Chart("Calls per second (more is better)", "| program | calls/s |"),
}


def figures(page: str, header: str) -> list[tuple[str, str]]:
    """Return the rows of the table in *page* that begins with *header*: a label and the first figure."""
    table = page.partition(f"\n{header}")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| (\d[\d,.]*) \|", table, re.MULTILINE)
    return [(label.replace("`", ""), figure) for label, figure in rows]


def with_reference(page: str, header: str, program: str) -> list[tuple[str, str]]:
    """Return the rows of `figures` in groups, each with a row of *program*: the time divided by the ratio to it."""
    table = page.partition(f"\n{header}")[2].partition("\n\n")[0]
    ratios = re.findall(r"^\| [^|]+ \|.* ([\d.]+) \|$", table, re.MULTILINE)
    groups: dict[str, list[tuple[str, str]]] = {}
    references: dict[str, str] = {}
    for (label, figure), ratio in zip(figures(page, header), ratios, strict=True):
        group = label.rpartition("storage agent, ")[2] if "storage agent, " in label else label.partition(", ")[2]
        groups.setdefault(group, []).append((label, figure))
        references.setdefault(group, f"{_number(figure) / float(ratio):.1f}")
    return [row for group, rows in groups.items() for row in ((f"{program}, {group}", references[group]), *rows)]


def chart(name: str, page: str) -> str:
    """Return the chart *name* of the figures in *page* as SVG, on its own background."""
    title, header, reference = CHARTS[name]
    rows = with_reference(page, header, reference) if reference else figures(page, header)
    longest = max(_number(figure) for _, figure in rows)
    height = _TOP + _ROW * len(rows) + 14
    bars = [_bar(_TOP + _ROW * number, label, figure, longest) for number, (label, figure) in enumerate(rows)]
    size = f'width="{_WIDTH}" height="{height}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {size} role="img" aria-labelledby="title" \
font-family="system-ui, sans-serif" font-size="14" fill="#222">
<title id="title">{title}</title>
<rect {size} rx="8" fill="#fff"/>
<text x="20" y="32" font-size="16" font-weight="600">{title}</text>
{"".join(bars)}</svg>
"""


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


def _bar(top: int, label: str, figure: str, longest: float) -> str:
    length = max(1, round(_BARS * _number(figure) / longest))
    color = _AGENT if "with the agent" in label else _XAPI if label.startswith("xapi ") else _OTHER
    return (
        f'<text x="{_LABELS - 10}" y="{top + 15}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{_LABELS}" y="{top}" width="{length}" height="20" rx="3" fill="{color}"/>'
        f'<text x="{_LABELS + length + 8}" y="{top + 15}">{figure}</text>\n'
    )


def write_charts() -> None:
    """Draw every chart into `docs/pictures/`."""
    for name in CHARTS:
        (PICTURES / f"{name}.svg").write_text(chart(name, PAGE.read_text()))


if __name__ == "__main__":
    write_charts()
