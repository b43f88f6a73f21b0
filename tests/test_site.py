"""The site is built out of docs/ without a warning and without the network, and a mistake in it is found."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.documents import ROOT

pytestmark = pytest.mark.slow


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Make the site as `make docs-site` does, of *pages* into *site*; whoever looked outside would find no proxy."""
    (command,) = re.findall(r"^\t@?\$\(VENV\)/bin/sphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    words = command.replace("docs build/site", f"{pages} {site}").split()
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HTTPS_PROXY": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words], env=environ, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pages, beside the package that they take the version from, and the site that was built of it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "xapi_cli").mkdir()
    shutil.copy(ROOT / "xapi_cli" / "__init__.py", folder / "xapi_cli")
    built = build(folder / "docs", folder / "site")
    assert (built.returncode, built.stderr) == (0, "")
    return folder


class Assets(HTMLParser):
    """Collects what a browser would load by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source"}:
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href") or "")


def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(copy: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index"}
    assert {path.stem for path in (copy / "site").glob("*.html")} >= pages

    for page in (copy / "site").glob("*.html"):
        assets = Assets()
        assets.feed(page.read_text())
        assert [url for url in assets.found if re.match(r"(?:https?:)?//", url)] == [], page.name
        assert len(assets.found) > 1
    for style in (copy / "site" / "_static").rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()) == [], style.name


def test_links_of_one_page_to_a_heading_of_another_lead_there(copy: Path) -> None:
    settings = (copy / "site" / "settings.html").read_text()

    assert 'href="storage.html#files"' in settings
    assert 'id="files"' in (copy / "site" / "storage.html").read_text()


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](storage.md#gone)", "gone"),
        ("[gone](#gone)", "gone"),
        ("![gone](pictures/gone.svg)", "gone.svg"),
    ],
)
def test_a_mistake_in_a_page_fails_the_build(copy: Path, tmp_path: Path, planted: str, complaint: str) -> None:
    folder = tmp_path / "planted"
    shutil.copytree(copy, folder)
    page = folder / "docs" / "settings.md"
    page.write_text(f"{page.read_text()}\n{planted}\n")

    built = build(folder / "docs", folder / "site")
    assert built.returncode != 0
    assert re.search(rf"settings\.md:\d+: WARNING: .*{re.escape(complaint)}", built.stderr), built.stderr


def test_a_page_that_the_contents_do_not_name_fails_the_build(copy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    shutil.copytree(copy, folder)
    (folder / "docs" / "lonely.md").write_text("# Lonely\n")

    built = build(folder / "docs", folder / "site")
    assert built.returncode != 0
    assert re.search(r"lonely\.md: WARNING: document isn't included in any toctree", built.stderr), built.stderr
