"""What the shell offers for the arguments of `xapi request`, from the index of the API description; nothing is sent."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.routes import INTERACTIVE_BUDGET, Routes
from xapi_cli.request import items
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.private_files import StateDirectory, state_directory

if TYPE_CHECKING:
    from xapi_cli.openapi.index import Index
    from xapi_cli.openapi.operations import Operation, Parameter

# A shell evaluates or expands other characters, in a word or in the code that offers it; such words are not offered.
# Neither is one that would be an option of xapi (-), the expansion of a shell (=ls in zsh, %self in fish, home=~root in
# bash), or a URL without a scheme (//host), which `request` refuses.
_PARAMETER = r"\{[A-Za-z_](?:[A-Za-z0-9_-]|\.(?!\.))*\}"  # not {a,b} or {a..z}, which bash expands
_SAFE = re.compile(rf"(?!//)[A-Za-z0-9/_.](?:[A-Za-z0-9/_.:=@+%-]|(?<![=:])~|{_PARAMETER})*")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_JSON = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_SEPARATORS = ("==", ":=", "=", ":", "@")
_MAX_WORDS, _MAX_CHARACTERS = 1000, 100_000  # in a reply, which a shell sorts and compares


class Word(str):
    """A word that is offered; if it ends with a separator, the shell adds no space, because a value follows."""

    __slots__ = ()

    @property
    def is_complete(self) -> bool:
        """Whether the next word follows."""
        return not self.endswith(_SEPARATORS)


def request_words(params: dict[str, Any], incomplete: str, option: str | None = None) -> list[str]:
    """Return the words that begin with *incomplete* after the arguments in *params*; none without an index.

    With *option*, `header`, they are values of that option. If there are very many, some are omitted.
    """
    found = _from_index(params, lambda index: index.words(incomplete, option))
    return list(map(Word, _limited(list(dict.fromkeys(found)))))


def _limited(words: list[str]) -> list[str]:
    """Return those of *words* that are safe, or those of them that fit into a reply.

    The first and the last one in alphabetical order have the same beginning in common as all of them. A shell inserts
    that, so it must not become longer.
    """
    if len(words) <= _MAX_WORDS and sum(map(len, words)) <= _MAX_CHARACTERS:
        return list(filter(_is_safe, words))
    words.sort()
    last = next(filter(_is_safe, reversed(words)), None)
    if last is None:
        return []
    kept, left = list[str](), _MAX_CHARACTERS - len(last)
    for word in filter(_is_safe, words):
        left -= len(word)
        if word == last or left < 0 or len(kept) == _MAX_WORDS - 1:
            break
        kept.append(word)
    return [*kept, last]


def methods_of(params: dict[str, Any], path: str) -> list[str]:
    """Return the methods of *path* in alphabetical order; none if the index does not contain it."""
    return sorted(set(_from_index(params, lambda found: found.methods(path))) & set(items.METHODS))


def _is_safe(word: str) -> bool:
    return _SAFE.fullmatch(word) is not None


def _from_index(params: dict[str, Any], read: "Callable[[_Completion], Iterable[str]]") -> list[str]:
    """Return what *read* finds in the index of the profile; nothing without one."""
    try:
        state = state_directory(os.environ)
        if not os.path.isdir(state / "api"):  # the usual case takes one system call
            return []
        directory = StateDirectory(state)
        directory.check()
        config = config_file.load(config_file.config_path(os.environ))
        name = resolve.selected_profile({"profile": params.get("profile")}, os.environ, config)
        base_url = _base_url(params, config.profiles.get(name, {}))
        with index_file.open_index(directory, name) as index:
            if index is None or (base_url and not index.describes(base_url)):
                return []
            return list(read(_Completion(params, index, urls.path_of(base_url) if base_url else "")))
    except Exception:  # noqa: BLE001 - no error may reach the shell
        return []


class _Completion:
    """Words for the arguments and options in *params*, from *index*, below the path of the base URL."""

    def __init__(self, params: dict[str, Any], index: "Index", base_path: str) -> None:
        self._params, self._index, self._routes = params, index, Routes(index, base_path, INTERACTIVE_BUDGET)

    def words(self, incomplete: str, option: str | None) -> Iterator[str]:
        """Yield the words that begin with *incomplete*, for an argument or for a value of *option*."""
        given = list(self._params.get("arguments") or ())
        method = given[0].upper() if given and given[0].upper() in items.METHODS else None
        path, rest = (given[1:2], given[2:]) if method else (given[:1], given[1:])
        if option is None and not path:
            yield from self._routes.completions(incomplete, method)
            return
        found = self._parameters(method, path[0] if path else "", rest, incomplete, option)
        yield from (word for word in found if word.startswith(incomplete))

    def methods(self, path: str) -> Iterator[str]:
        """Yield the methods of *path*, a template or a path with values."""
        for entries in self._routes.matches(_with_slash(path)):
            yield from (entry.method for entry in entries)

    def _parameters(
        self, method: str | None, path: str, rest: Sequence[str], incomplete: str, option: str | None
    ) -> Iterator[str]:
        given = [*rest, *(self._params.get("headers") or ())]
        for operation in self._operations(method, path):
            for parameter in operation.parameters:
                separator = separator_of(parameter, operation)
                if option is None and separator:
                    yield from _item_words(parameter, separator, given, incomplete)
                elif parameter.location == option:
                    yield from _option_words(parameter, ":", given, incomplete)

    def _operations(self, method: str | None, path: str) -> "Iterator[Operation]":
        """Yield the operations at *path*; without *method*, those of GET and POST."""
        for entry in self._routes.find(_with_slash(path)):
            if entry.method in ((method,) if method else ("GET", "POST")):
                yield self._index.operation(entry)


def _with_slash(path: str) -> str:
    path = path.partition("?")[0]
    return path if path.startswith("/") else f"/{path}"


def _base_url(params: dict[str, Any], profile: Any) -> str | None:
    url = params.get("base_url") or os.environ.get("XAPI_BASE_URL") or profile.get("base_url")
    return urls.base_url(url) if isinstance(url, str) else None


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
    for word in _option_words(parameter, separator, given, incomplete):
        value = word.removeprefix(f"{name}{separator}")
        is_allowed = separator != ":=" or _is_json(parameter, value)
        if not value or (is_allowed and items.reads_as(word, name, separator, value)):
            yield word


def _option_words(parameter: "Parameter", separator: str, given: Sequence[str], incomplete: str) -> Iterator[str]:
    """Yield the name and *separator* or, if *incomplete* contains them, with each value; *given* are other words."""
    name = parameter.name
    if not _NAME.fullmatch(name):
        return
    start = f"{name}{separator}"
    if incomplete.startswith(start):
        yield from (start + value for value in parameter.values if value)
    elif not any(each.startswith(tuple(f"{name}{other}" for other in _SEPARATORS)) for each in given):
        yield start


def _is_json(parameter: "Parameter", value: str) -> bool:
    """Return whether *value* can follow `:=`; the values of an array are those of its elements."""
    return not parameter.type.startswith("array") and _JSON.fullmatch(value) is not None
