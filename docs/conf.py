"""How Sphinx makes the site out of the pages in this folder: `make docs-site`. Offline; nothing is fetched."""

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

project = "xapi"
author = "The xapi authors"
_package = Path(__file__).parents[1] / "xapi_cli" / "__init__.py"
version = release = re.findall(r'^__version__ = "(.*)"$', _package.read_text(), re.MULTILINE)[0]

extensions = ["myst_parser"]
exclude_patterns = ["man"]
myst_heading_anchors = 3  # the anchors that the forges' own views have
myst_url_schemes = ["https"]
nitpicky = True

html_theme = "furo"
html_title = "xapi"
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Let Sphinx show what commands print, as the pages mark it."""
    app.add_lexer("output", TextLexer)
    app.connect("source-read", _name_what_is_not_in_the_site)


def _name_what_is_not_in_the_site(app: Any, docname: str, source: list[str]) -> None:
    """Make a link to a paper at the top of the project, which the site does not have, into its name."""
    source[0] = re.sub(r"\[([^]]+)\]\(\.\./[\w.]+\)", r"`\1`", source[0])
