"""Compares a request with the API description: an unknown path or method, or a required parameter that is missing."""

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.index import Entry, Index, InvalidIndex
from xapi_cli.openapi.routes import INTERACTIVE_BUDGET, Routes, TooManyTemplates
from xapi_cli.openapi.templates import as_typed, placeholders
from xapi_cli.request.items import Items, sent_method
from xapi_cli.request.options import RequestOptions
from xapi_cli.system.render import pasteable, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xapi_cli.openapi.operations import Operation
    from xapi_cli.system.private_files import StateDirectory

_SENT_BY_XAPI = frozenset({"accept-encoding", "user-agent"})  # see also the compiler, which omits others
# A request must not wait for its check. Beyond these limits, it is not compared.
_MAX_READ, _MAX_BYTES = 20, 500_000  # the number of operations of which one suffices, and the size of their records
_MAX_NAMES, _MAX_NAME, _MAX_TEMPLATE = 5, 60, 200  # of which the last two are characters
_IMPLIED = frozenset({"HEAD", "OPTIONS"})  # a server supports them wherever it supports another method


def warning(
    state: "Callable[[], StateDirectory]",
    profile: str,
    base_url: str,
    method: str | None,
    url: str,
    items: Items,
    options: RequestOptions,
) -> str | None:
    """Return how the request differs from the API description of *profile*, with a suggestion; None if it does not.

    *state* returns the state directory. This check is only advice, so whatever is wrong, the request is sent: an error
    is a warning too. A request to another base URL than that of the document is not compared.
    """
    method = sent_method(method, has_body=items.has_body(options.data))
    try:
        with index_file.open_index(state(), profile) as index:
            if index is None or not index.describes(base_url):
                return None
            return _difference(index, base_url, method, url, _Request(url, items, options))
    except TooManyTemplates:
        return None
    except Exception as error:  # noqa: BLE001 - see above
        reason = f": {error}" if isinstance(error, InvalidIndex) else ""
        hint = f"{index_file.LOAD_AGAIN}, or use --no-validate"
        return f"the API description of profile {printable(profile)} cannot be used{reason}; {hint}"


def _difference(index: Index, base_url: str, method: str, url: str, request: "_Request") -> str | None:
    base_path, path = urls.path_of(base_url), urls.path_of(url)
    if not f"{path}/".startswith(f"{base_path}/"):
        return None  # a URL beside the base path
    routes, path = Routes(index, base_path, INTERACTIVE_BUDGET), path[len(base_path) :] or "/"
    found = list(routes.matches(path))
    if not found:
        return None if index.info.is_partial else _unknown_path(routes, path)
    if left := placeholders(unquote(path), [routes.path(entry) for entry in found[0]]):
        return f"PATH contains {left[0]}, a placeholder of the API description; replace it with a value"
    chosen = next((each for entries in found if (each := [e for e in entries if e.method == method])), None)
    if chosen is None:
        return _unknown_method(found[0], method, path)
    if len(chosen) > _MAX_READ or sum(entry.length for entry in chosen) > _MAX_BYTES:
        return None
    missing = [(entry, request.missing(index.operation(entry))) for entry in chosen]
    entry, names = min(missing, key=lambda each: len(each[1]))
    if not names:
        return None
    template = routes.path(entry)
    see = f"see `xapi api show {method} {pasteable(template if len(template) <= _MAX_TEMPLATE else as_typed(path))}`"
    return f"the request lacks {_listed(names)}, which the API description requires; {see}"


def _listed(names: "Sequence[str]") -> str:
    """Return *names* as text that is not much longer than a line."""
    shown = [shortened(each, _MAX_NAME) for each in names[:_MAX_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _unknown_path(routes: Routes, path: str) -> str | None:
    closest = routes.closest(path)
    if closest is None and routes.find_prefix(path):
        return None
    hint = f"did you mean {pasteable(as_typed(closest))}?" if closest else "see `xapi api list`"
    return f"the API description has no path {as_typed(path)}; {hint}"


def _unknown_method(entries: "Sequence[Entry]", method: str, path: str) -> str | None:
    if method in _IMPLIED:
        return None
    methods = ", ".join(dict.fromkeys(entry.method for entry in entries))
    return f"{method} is not listed for {as_typed(path)} in the API description; it lists {methods}"


class _Request:
    """The names of what a request contains."""

    def __init__(self, url: str, items: Items, options: RequestOptions) -> None:
        self._query = _bases(unquote_plus(each.partition("=")[0]) for each in url.partition("?")[2].split("&"))
        self._headers = {name.lower() for name, value in items.headers if value is not None} | _SENT_BY_XAPI
        self._fields = _bases(each.name for each in items.parts)
        self._has_data, self._is_form = options.data is not None, options.form or bool(items.uploads)

    def missing(self, operation: "Operation") -> list[str]:
        """Return what *operation* requires and the request does not contain, as the starts of ITEMs.

        Cookies are not compared, because a proxy or a session may add them.
        """
        return list(self._missing(operation))

    def _missing(self, operation: "Operation") -> "Iterator[str]":
        body = operation.body
        has_fields = body is not None and not self._has_data and (body.required or bool(self._fields))
        # Another kind of body than the one in the index may have other fields.
        has_fields = has_fields and (not self._fields or (body is not None and body.is_form == self._is_form))
        for parameter in operation.parameters:
            name, base = parameter.name, _base(parameter.name)
            if not parameter.required:
                continue
            if parameter.location == "query" and not parameter.is_exploded and base not in self._query:
                yield f"{name}=="
            elif parameter.location == "header" and name.lower() not in self._headers:
                yield f"{name}:"
            elif parameter.location == "body" and has_fields and base not in self._fields:
                yield name + parameter.separator(is_form=body is not None and body.is_form)


def _base(name: str) -> str:
    """Return the part of *name* before its brackets: `filter[status]` is a member of the object `filter`."""
    return name.partition("[")[0] or name


def _bases(names: "Iterable[str]") -> set[str]:
    return {_base(re.sub(r"\\(.)", r"\1", name)) for name in names}
