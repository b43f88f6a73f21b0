"""The pictures are current, load nothing from elsewhere, and have a text alternative."""

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.benchmarks import charts
from tests.tools import diagrams, layers
from tests.tools.documents import ROOT
from tests.tools.pictures import PICTURES, SCENES, picture, read_text
from tests.tools.text_width import text_width
from xapi_cli.sandbox import MASTER

pytestmark = pytest.mark.slow  # the pictures do not depend on the version of Python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRAWINGS = {"automatic-login.svg", layers.PICTURE.name} | {
    f"{name}.svg" for name in (*charts.CHARTS, *diagrams.DIAGRAMS)
}  # not taken from a terminal

_GRAPHICS = re.compile(r"<(rect|text) ([^>]*)>([^<]*)")


class Area(NamedTuple):
    """A rectangle in a picture."""

    left: float
    top: float
    right: float
    bottom: float

    def contains(self, other: "Area") -> bool:
        """Return whether *other* is inside."""
        return (
            self.left <= other.left
            and self.top <= other.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )

    def touches(self, other: "Area") -> bool:
        """Return whether they have a point in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def overflowing(svg: str) -> list[str]:
    """Return the texts in *svg* that, with the widest font, are neither inside nor outside a rectangle."""
    head = re.match(r"<svg [^>]*>", svg)
    assert head
    default = float(re.findall(r'font-size="(\d+)"', head[0])[0])
    boxes, texts = [], []
    for kind, attributes, text in _GRAPHICS.findall(svg):
        given = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
        left, top = float(given.get("x", 0)), float(given.get("y", 0))
        if kind == "rect" and "%" not in given["width"]:
            boxes.append(Area(left, top, left + float(given["width"]), top + float(given["height"])))
        elif kind == "text":
            size = float(given.get("font-size", default))
            monospace = "monospace" in given.get("font-family", "")
            width = text_width(unescape(text), size, bold="font-weight" in given, monospace=monospace)
            start = left - width * {"middle": 0.5, "end": 1.0}.get(given.get("text-anchor", ""), 0.0)
            texts.append((unescape(text), Area(start, top - 0.8 * size, start + width, top + 0.2 * size)))
    picture = Area(*map(float, re.findall(r'viewBox="([^"]*)"', head[0])[0].split()))
    outside = [text for text, area in texts if not picture.contains(area)]
    crossing = [text for text, area in texts if any(box.touches(area) and not box.contains(area) for box in boxes)]
    return outside + crossing


each_scene = pytest.mark.parametrize("name", SCENES)


@each_scene
def test_a_picture_shows_the_output_of_the_program(name: str) -> None:
    stored = (PICTURES / f"{name}.svg").read_text()

    assert read_text(stored) == read_text(picture(name)), "run `make pictures`"
    assert len(read_text(stored).splitlines()) > 5


@each_scene
def test_a_picture_shows_no_password(name: str) -> None:
    assert MASTER.password not in read_text((PICTURES / f"{name}.svg").read_text())


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_chart_contains_the_figures_of_its_table(name: str) -> None:
    page = charts.PAGE.read_text()
    drawn = (PICTURES / f"{name}.svg").read_text()

    assert drawn == charts.chart(name, page), "run `make pictures`"
    rows = charts.figures(page, charts.CHARTS[name].header)
    assert len(rows) > 2
    shown = re.findall(r">([^<]+)</text><rect [^>]*><text [^>]*>([\d,.]+)<", drawn)
    assert [row for row in shown if not row[0].startswith(f"{charts.CHARTS[name].reference}, ")] == rows


def test_a_chart_has_the_reference_at_each_latency() -> None:
    rows = "| xapi, near | 30 | 1.5 |\n| gh, near | 60 | 3 |\n| xapi, far | 50 | 0.5 |\n"
    table = f"\n| call | time | of curl |\n| --- | --- | --- |\n{rows}"

    assert charts.with_reference(table, "| call | time |", "curl") == [
        ("curl, near", "20.0"),
        ("xapi, near", "30"),
        ("gh, near", "60"),
        ("curl, far", "100.0"),
        ("xapi, far", "50"),
    ]


def test_the_bars_of_a_chart_are_proportional_and_those_of_xapi_have_another_color() -> None:
    table = "\n| command | wall |\n| --- | --- |\n| xapi a | 50 |\n| `b <c>` | 1,000 |\n\n| d | 7 |\n"
    drawn = charts.chart("startup", table)

    (xapi, other) = re.findall(r'width="(\d+)" height="20" rx="3" fill="(#\w+)"', drawn)
    assert int(other[0]) == 20 * int(xapi[0])
    assert other[1] != xapi[1]
    assert "b &lt;c&gt;" in drawn


def test_the_picture_of_the_layers_matches_the_import_contract() -> None:
    assert layers.PICTURE.read_text() == layers.picture(), "run `make pictures`"


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_current(name: str) -> None:
    assert (PICTURES / f"{name}.svg").read_text() == diagrams.diagram(name), "run `make pictures`"


@pytest.mark.parametrize("name", sorted(DRAWINGS))
def test_no_text_leaves_its_box_with_any_font(name: str) -> None:
    assert overflowing((PICTURES / name).read_text()) == []


@pytest.mark.parametrize(
    ("text", "is_inside"),
    [
        ('<text x="60" y="30" text-anchor="middle">Win</text>', True),
        ('<text x="60" y="30" text-anchor="middle">Wide words, wide words</text>', False),  # wider than the rectangle
        ('<text x="5" y="30">WW</text>', False),  # over its left edge
        ('<text x="150" y="30">WW</text>', True),  # beside it
        ('<text x="100" y="30" text-anchor="end">WWWWWWW</text>', False),
        ('<text x="185" y="90">WW</text>', False),  # leaves the picture
        ('<text x="150" y="90" font-size="30">WW</text>', False),
        ('<text x="60" y="11" text-anchor="middle">a</text>', False),  # over the upper edge
    ],
)
def test_a_text_outside_its_box_is_found(text: str, is_inside: bool) -> None:
    box = '<rect x="20" y="10" width="80" height="40"/>'
    svg = f'<svg viewBox="0 0 200 100" font-size="13"><rect width="200" height="100"/>{box}{text}</svg>'

    assert (overflowing(svg) == []) == is_inside


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_defines_what_it_refers_to(path: Path) -> None:
    drawn = path.read_text()
    assert set(re.findall(r"url\(#([\w-]+)\)", drawn)) <= set(re.findall(r'\bid="([\w-]+)"', drawn))


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_loads_nothing_from_elsewhere(path: Path) -> None:
    svg = path.read_text()

    assert svg.startswith("<svg")
    assert set(re.findall(r"https?://[\w./]+", re.sub(r">[^<]*<", "><", svg))) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|@import|<script|href=", svg)


def test_every_picture_is_on_a_page_with_a_text_alternative() -> None:
    shown = [
        found
        for page in PAGES
        for found in re.findall(r"!\[([^]]*)\]\((?:docs/)?pictures/([\w.-]+)\)", page.read_text())
    ]

    assert {name for _, name in shown} == {path.name for path in PICTURES.iterdir()}
    assert {path.name for path in PICTURES.iterdir()} == {f"{name}.svg" for name in SCENES} | DRAWINGS
    assert [name for alternative, name in shown if len(alternative.split()) < 5] == []
