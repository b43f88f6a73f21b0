"""Build the documentation site with Sphinx, offline: `make docs-site`."""

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
myst_heading_anchors = 3  # the anchors that GitHub and GitLab create
myst_url_schemes = ["https"]
nitpicky = True
smartquotes = False  # they turn the dashes of --help into another character

html_theme = "furo"
html_title = f"xapi {version}"
html_static_path = ["_static"]
html_css_files = ["xapi.css"]
html_js_files = ["copy.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Support `output` blocks, and links to files outside this directory."""
    app.add_lexer("output", TextLexer)
    app.connect("source-read", _replace_links_to_other_files)


def _replace_links_to_other_files(app: Any, docname: str, source: list[str]) -> None:
    """Replace a link to a file at the top of the project, which is not in the site, with the name of the file."""
    source[0] = re.sub(r"\[([^]]+)\]\(\.\./[\w.]+\)", r"`\1`", source[0])
