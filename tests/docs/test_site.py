"""The site is built from docs/ without warnings and without network access, and a broken link fails the build."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.tools.documents import ROOT

pytestmark = pytest.mark.slow


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build *pages* into *site* as `make docs-site` does; the proxy does not exist, so network access would fail."""
    (command,) = re.findall(r"^\t@?\$\(VENV\)/bin/sphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    args = command.replace("docs build/site", f"{pages} {site}").split()
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HTTPS_PROXY": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *args],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages, next to the package from which they take the version."""
    directory = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", directory / "docs")
    (directory / "xapi_cli").mkdir()
    shutil.copy(ROOT / "xapi_cli" / "__init__.py", directory / "xapi_cli")
    return directory


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from the pages."""
    directory = tmp_path_factory.mktemp("site")
    built = build(ROOT / "docs", directory)
    assert (built.returncode, built.stderr) == (0, "")
    return directory


class Assets(HTMLParser):
    """Collects the URLs that a browser loads automatically."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source"}:
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href") or "")


def test_every_page_is_in_the_site_and_loads_nothing_from_other_origins(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")} >= pages

    for page in site.rglob("*.html"):
        assets = Assets()
        assets.feed(page.read_text())
        assert [url for url in assets.found if re.match(r"(?:https?:)?//", url)] == [], page.name
        assert len(assets.found) > 1
    for style in (site / "_static").rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()) == [], style.name


def test_every_broken_link_fails_the_build(copy: Path) -> None:
    planted = {
        "[gone](gone-page.md)": "gone-page.md",
        "[gone](storage.md#gone-there)": "gone-there",
        "[gone](#gone-here)": "gone-here",
        "![gone](pictures/gone.svg)": "gone.svg",
    }
    page = copy / "docs" / "settings.md"
    page.write_text("\n\n".join([page.read_text(), *planted]) + "\n")
    (copy / "docs" / "lonely.md").write_text("# Lonely\n")

    built = build(copy / "docs", copy.parent / "planted")
    assert built.returncode != 0
    for warning in planted.values():
        assert re.search(rf"settings\.md:\d+: WARNING: .*{re.escape(warning)}", built.stderr), built.stderr
    assert re.search(r"lonely\.md: WARNING: document isn't included in any toctree", built.stderr), built.stderr
