"""The site is built from docs/ without warnings, so without broken links, and without network access."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.documents import ROOT

pytestmark = pytest.mark.slow


def test_every_page_is_in_the_site_which_loads_nothing_from_other_origins(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\t@?\$\(VENV\)/bin/sphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *command.replace("docs build/site", f"docs {tmp_path}").split()],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HTTPS_PROXY": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")} >= pages
    loaded = (
        r'<(?:script|img|iframe|source|link rel="stylesheet")[^>]* (?:src|href)="(?:https?:)?//'
        r"|@import|url\(['\"]?(?:https?:)?//"
    )
    for page in (*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")):
        assert re.findall(loaded, page.read_text()) == [], page.name
