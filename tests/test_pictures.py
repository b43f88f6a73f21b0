"""The pictures are what the program shows today, and show it to everybody."""

import re
from pathlib import Path

import pytest

from tests.benchmarks import charts
from tests.documents import ROOT
from tests.pictures import PICTURES, SCENES, picture, text_of
from xapi_cli.sandbox import MASTER

pytestmark = pytest.mark.slow  # papers of one Python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRAWINGS = {"automatic-login.svg"} | {f"{name}.svg" for name in charts.CHARTS}  # not taken from a terminal

each_scene = pytest.mark.parametrize("name", SCENES)


@each_scene
def test_a_picture_shows_what_the_program_shows(name: str) -> None:
    taken = (PICTURES / f"{name}.svg").read_text()

    assert text_of(taken) == text_of(picture(name)), "run `make pictures`"
    assert len(text_of(taken).splitlines()) > 5


@each_scene
def test_a_picture_shows_no_password(name: str) -> None:
    assert MASTER.password not in text_of((PICTURES / f"{name}.svg").read_text())


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_chart_shows_the_figures_of_its_table(name: str) -> None:
    page = charts.PAGE.read_text()
    drawn = (PICTURES / f"{name}.svg").read_text()

    assert drawn == charts.chart(name, page), "run `make pictures`"
    rows = charts.figures(page, charts.CHARTS[name].header)
    assert len(rows) > 4
    shown = re.findall(r">([^<]+)</text><rect [^>]*><text [^>]*>([\d,]+)<", drawn)
    assert shown == [(label, f"{figure:,}") for label, figure in rows]


def test_the_bars_of_a_chart_are_in_proportion_and_those_of_xapi_stand_out() -> None:
    table = "\n| command | wall |\n| --- | --- |\n| xapi a | 50 |\n| `b <c>` | 1,000 |\n\n| d | 7 |\n"
    drawn = charts.chart("start-up", table)

    (xapi, other) = re.findall(r'width="(\d+)" height="20" rx="3" fill="(#\w+)"', drawn)
    assert int(other[0]) == 20 * int(xapi[0])
    assert other[1] != xapi[1]
    assert "b &lt;c&gt;" in drawn


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_loads_nothing_from_elsewhere(path: Path) -> None:
    svg = path.read_text()

    assert svg.startswith("<svg")
    assert set(re.findall(r"https?://[\w./]+", re.sub(r">[^<]*<", "><", svg))) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|@import|<script|href=", svg)


def test_every_picture_is_shown_with_words_for_those_who_cannot_see_it() -> None:
    shown = [
        found
        for page in PAGES
        for found in re.findall(r"!\[([^]]*)\]\((?:docs/)?pictures/([\w.-]+)\)", page.read_text())
    ]

    assert {name for _, name in shown} == {path.name for path in PICTURES.iterdir()}
    assert {path.name for path in PICTURES.iterdir()} == {f"{name}.svg" for name in SCENES} | DRAWINGS
    assert [name for words, name in shown if len(words.split()) < 5] == []
