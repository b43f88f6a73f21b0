"""What the shell offers for the arguments of `xapi request`, from the index of the API description; nothing is sent."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.routes import Routes
from xapi_cli.request import items
from xapi_cli.settings import config_file, paths, resolve
from xapi_cli.system import private_files

if TYPE_CHECKING:
    from xapi_cli.openapi.index import Index
    from xapi_cli.openapi.operations import Operation, Parameter

# A shell evaluates or expands other characters, in a word or in the code that offers it; such words are not offered.
_PARAMETER = r"\{[A-Za-z_](?:[A-Za-z0-9_-]|\.(?!\.))*\}"  # not {a,b} or {a..z}, which bash expands
_SAFE = re.compile(rf"[A-Za-z0-9/_.:=@+%-](?:[A-Za-z0-9/_.:=@+%~-]|{_PARAMETER})*")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_JSON = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_SEPARATORS = ("==", ":=", "=", ":", "@")


class Word(str):
    """A word that is offered; if it ends with a separator, the shell adds no space, because a value follows."""

    __slots__ = ()

    @property
    def is_complete(self) -> bool:
        """Whether the next word follows."""
        return not self.endswith(_SEPARATORS)


def request_words(params: dict[str, Any], incomplete: str) -> list[str]:
    """Return the words that begin with *incomplete* after the arguments in *params*; none without an index."""
    try:
        words = list(_words(params, list(params.get("arguments") or ()), incomplete))
    except Exception:  # noqa: BLE001 - no error may reach the shell
        return []
    return [Word(word) for word in words if word.startswith(incomplete) and _SAFE.fullmatch(word)]


def _words(params: dict[str, Any], given: list[str], incomplete: str) -> Iterator[str]:
    state = paths.state_directory(os.environ)
    if not os.path.isdir(state / "api"):  # the usual case takes one system call
        return
    private_files.check_directory(state)
    config = config_file.load(paths.config_path(os.environ))
    name = resolve.selected_profile({"profile": params.get("profile")}, os.environ, config)
    base_url = _base_url(params, config.profiles.get(name, {}))
    with index_file.opened(state, name) as index:
        if index is not None and (not base_url or index.describes(base_url)):
            yield from _words_of(index, base_url, given, incomplete)


def _words_of(index: "Index", base_url: str | None, given: list[str], incomplete: str) -> Iterator[str]:
    routes = Routes(index, urls.path_of(base_url) if base_url else "")
    method = given[0].upper() if given and given[0].upper() in items.METHODS else None
    if given == [] or (method and len(given) == 1):
        yield from routes.completions(incomplete, method)
        return
    path, rest = (given[1], given[2:]) if method else (given[0], given[1:])
    for parameter, separator in _parameters(index, routes, method, path):
        yield from _item_words(parameter, separator, rest, incomplete)


def _base_url(params: dict[str, Any], profile: Any) -> str | None:
    url = params.get("base_url") or os.environ.get("XAPI_BASE_URL") or profile.get("base_url")
    return urls.base_url(url) if isinstance(url, str) else None


def _parameters(index: "Index", routes: Routes, method: str | None, path: str) -> "Iterator[tuple[Parameter, str]]":
    """Yield the parameters of the operations at *path*, with their separators; without *method*, of GET and POST."""
    path = path.partition("?")[0]
    entries = routes.find(path if path.startswith("/") else f"/{path}")
    for entry in entries:
        if entry.method in ((method,) if method else ("GET", "POST")):
            operation = index.operation(entry)
            for parameter in operation.parameters:
                if separator := separator_of(parameter, operation):
                    yield parameter, separator


def separator_of(parameter: "Parameter", operation: "Operation") -> str:
    """Return the separator of the ITEM for *parameter*, empty if it is not written as an ITEM."""
    if parameter.location == "body":
        return parameter.separator(is_form=operation.body is not None and operation.body.is_form)
    return {"query": "==", "header": ":"}.get(parameter.location, "")


def _item_words(parameter: "Parameter", separator: str, given: Sequence[str], incomplete: str) -> Iterator[str]:
    """Yield the ITEM without its value or, if *incomplete* contains its name and separator, with each value.

    A value such as `@/etc/passwd` is omitted, because the ITEM would read that file.
    """
    name = parameter.name
    if not _NAME.fullmatch(name):
        return
    start = f"{name}{separator}"
    if incomplete.startswith(start):
        values = [each for each in parameter.values if separator != ":=" or _is_json(parameter, each)]
        yield from (start + value for value in values if items.reads_as(start + value, name, separator, value))
    elif not any(each.startswith(tuple(f"{name}{other}" for other in _SEPARATORS)) for each in given):
        yield start


def _is_json(parameter: "Parameter", value: str) -> bool:
    """Return whether *value* can follow `:=`; the values of an array are those of its elements."""
    return not parameter.type.startswith("array") and _JSON.fullmatch(value) is not None
