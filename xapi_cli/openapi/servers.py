"""The servers of an API: the paths below which its operations are."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from xapi_cli.openapi.schemas import clean, clean_name

_URL = re.compile(r"(?:(https?://[^/?#]*)|//[^/?#]*)?([^?#]*)", re.IGNORECASE)
_WRITTEN_PATH = re.compile(r"(?:[^/?#]*//[^/?#]*)?(/[^?#]*)")  # of a URL with variables
_VARIABLE = re.compile(r"\{([^{}]*)\}")


class DescribedServer(NamedTuple):
    """A server: its origin, empty if its URL is relative, and its path, in *template* with variables as parameters."""

    origin: str
    path: str
    template: str


def server(node: Mapping[str, Any], location: str) -> DescribedServer:
    """Return the server *node* of a document at the path *location*; variables have their defaults."""
    variables = node.get("variables")

    def default(match: re.Match[str]) -> str:
        variable = variables.get(match[1]) if isinstance(variables, dict) else None
        return clean_name(variable.get("default")) if isinstance(variable, dict) else ""

    url = clean(node.get("url")).partition("?")[0].partition("#")[0]
    if not (match := _URL.fullmatch(_VARIABLE.sub(default, url))):
        return DescribedServer("", "", "")
    path = normalized(posixpath.join(posixpath.dirname(location), match[2])) if match[2] else ""
    written = _WRITTEN_PATH.fullmatch(url)
    return DescribedServer((match[1] or "").lower(), path, normalized(written[1]) if written else path)


def normalized(path: str) -> str:
    """Return *path* without dot segments, repeated slashes and the slash at its end."""
    return re.sub("/+", "/", posixpath.normpath(f"/{path}")).rstrip("/")
