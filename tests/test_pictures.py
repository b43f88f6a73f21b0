"""The pictures are what the program shows today, and show it to everybody."""

import re
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.pictures import PICTURES, SCENES, picture, text_of
from xapi_cli.sandbox import MASTER

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DRAWINGS = {"automatic-login.svg"}  # made by hand

each_scene = pytest.mark.parametrize("name", SCENES)


@each_scene
def test_a_picture_shows_what_the_program_shows(name: str) -> None:
    taken = (PICTURES / f"{name}.svg").read_text()

    assert text_of(taken) == text_of(picture(name)), "run `make pictures`"
    assert len(text_of(taken).splitlines()) > 5


@each_scene
def test_a_picture_shows_no_password(name: str) -> None:
    assert MASTER.password not in text_of((PICTURES / f"{name}.svg").read_text())


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
