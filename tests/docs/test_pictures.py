"""The pictures are current, load nothing from elsewhere, and have a text alternative."""

import re
from pathlib import Path

import pytest

from tests.benchmarks import charts
from tests.tools import agent_picture, layers
from tests.tools.documents import ROOT
from tests.tools.pictures import PICTURES, SCENES, picture, read_text
from xapi_cli.sandbox import MASTER

pytestmark = pytest.mark.slow  # the pictures do not depend on the version of Python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRAWINGS = {"automatic-login.svg", agent_picture.PICTURE.name, layers.PICTURE.name} | {
    f"{name}.svg" for name in charts.CHARTS
}  # not taken from a terminal

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
    assert shown == rows


def test_the_bars_of_a_chart_are_proportional_and_those_of_xapi_have_another_color() -> None:
    table = "\n| command | wall |\n| --- | --- |\n| xapi a | 50 |\n| `b <c>` | 1,000 |\n\n| d | 7 |\n"
    drawn = charts.chart("start-up", table)

    (xapi, other) = re.findall(r'width="(\d+)" height="20" rx="3" fill="(#\w+)"', drawn)
    assert int(other[0]) == 20 * int(xapi[0])
    assert other[1] != xapi[1]
    assert "b &lt;c&gt;" in drawn


def test_the_picture_of_the_layers_matches_the_import_contract() -> None:
    assert layers.PICTURE.read_text() == layers.picture(), "run `make pictures`"


def test_the_picture_of_the_agent_is_current() -> None:
    assert agent_picture.PICTURE.read_text() == agent_picture.picture(), "run `make pictures`"


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
