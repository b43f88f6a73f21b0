"""Compares a request with the API description: an unknown path or method, or a required parameter that is missing."""

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

from xapi_cli.http import urls
from xapi_cli.openapi.index_file import read
from xapi_cli.openapi.routes import Routes, placeholders
from xapi_cli.request.items import Items
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xapi_cli.openapi.index import Entry, Index
    from xapi_cli.openapi.operations import Operation

__all__ = ["difference", "read"]
_SENT_BY_XAPI = frozenset({"accept", "accept-encoding", "authorization", "content-type", "host", "user-agent"})
_IMPLIED = frozenset({"HEAD", "OPTIONS"})  # a server supports them wherever it supports another method


def difference(index: "Index", base_url: str, method: str, url: str, items: Items, *, has_data: bool) -> str | None:
    """Return how the request differs from its description in *index*, as one sentence with a suggestion; None if not.

    A request to another base URL than that of the document is not compared.
    *has_data* is whether the body is given as a whole, so that its fields are unknown. Raises InvalidIndex.
    """
    if not index.describes(base_url):
        return None
    base_path, path = urls.path_of(base_url), urls.path_of(url)
    if not f"{path}/".startswith(f"{base_path}/"):
        return None  # a URL beside the base path
    routes, path = Routes(index, base_path), path[len(base_path) :] or "/"
    entries = routes.find(path)
    if not entries:
        return _unknown_path(routes, path)
    if left := placeholders(unquote(path), [routes.path(entry) for entry in entries]):
        return f"PATH contains {left[0]}, a placeholder of the API description; write a value in its place"
    chosen = [entry for entry in entries if entry.method == method]
    if not chosen:
        return _unknown_method(entries, method, path)
    return _missing(index.operation(chosen[0]), routes.path(chosen[0]), url, items, has_data=has_data)


def _unknown_path(routes: Routes, path: str) -> str | None:
    closest = routes.closest(path)
    if closest is None and routes.find_prefix(path):
        return None
    hint = f"did you mean {closest}?" if closest else "see `xapi api list`"
    return f"the API description has no path {_shown(path)}; {hint}"


def _unknown_method(entries: "Sequence[Entry]", method: str, path: str) -> str | None:
    if method in _IMPLIED:
        return None
    methods = ", ".join(entry.method for entry in entries)
    return f"{method} is not listed for {_shown(path)} in the API description; it lists {methods}"


def _shown(path: str) -> str:
    """Return *path* as a user writes it: without percent-encoding, except of slashes."""
    return printable("%2F".join(unquote(part) for part in re.split("%2F", path, flags=re.IGNORECASE)))


def _missing(operation: "Operation", path: str, url: str, items: Items, *, has_data: bool) -> str | None:
    names = list(_missing_names(operation, url, items, has_data=has_data))
    if not names:
        return None
    see = f"see `xapi api show {operation.method} {path}`"
    return f"the API description requires {', '.join(names)}, which the request does not contain; {see}"


def _with_bases(names: "Iterable[str]") -> set[str]:
    """Return *names*, and the parts before their brackets: `filter[status]` is written for the object `filter`."""
    return {each for name in names for each in (name, name.partition("[")[0])}


def _missing_names(operation: "Operation", url: str, items: Items, *, has_data: bool) -> "Iterator[str]":
    query = _with_bases(unquote_plus(each.partition("=")[0]) for each in url.partition("?")[2].split("&"))
    headers = {name.lower() for name, value in items.headers if value is not None} | _SENT_BY_XAPI
    fields, body = _with_bases(each.name for each in items.parts), operation.body
    for parameter in operation.parameters:
        if not parameter.required or (parameter.location == "body" and has_data):
            continue
        if parameter.location == "query" and parameter.name not in query:
            yield f"{parameter.name}=="
        elif parameter.location == "header" and parameter.name.lower() not in headers:
            yield f"{parameter.name}:"
        elif parameter.location == "body" and body and parameter.name not in fields and (body.required or fields):
            yield parameter.name + parameter.separator(is_form=body.is_form)
