"""What the shell offers for the arguments of `xapi request`: paths and query parameters; nothing is sent."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xapi_cli.features.openapi import description as descriptions
from xapi_cli.http import urls
from xapi_cli.request import items
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.files import StateDirectory, state_directory

if TYPE_CHECKING:
    from xapi_cli.features.openapi.description import Description

# A shell evaluates or expands other characters, in a word or in the code that offers it; such words are not offered.
_SAFE = re.compile(r"(?!//)[A-Za-z0-9/_.](?:[A-Za-z0-9/_.:=@+%-]|(?<![=:])~|\{[A-Za-z_][A-Za-z0-9_-]*\})*")
_MAX_WORDS = 1000


def words(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """Return the words that begin with *incomplete* after the `arguments` in *params*; none without a description."""
    try:
        state = state_directory(os.environ)
        config = config_file.load(config_file.config_path(os.environ))
        profile = resolve.selected_profile({"profile": params.get("profile")}, os.environ, config)
        base_url = params.get("base_url") or os.environ.get("XAPI_BASE_URL")
        description = descriptions.read(StateDirectory(state), profile)
        if description is None or (base_url and urls.base_url(base_url) != description.base_url):
            return []
        found = _words(description, params.get("arguments") or (), incomplete)
        safe = (word for word in found if word.startswith(incomplete) and _SAFE.fullmatch(word))
        return list(dict.fromkeys(safe))[:_MAX_WORDS]
    except Exception:  # noqa: BLE001 - no error may reach the shell
        return []


def _words(description: "Description", given: Sequence[str], incomplete: str) -> Iterator[str]:
    method = given[0].upper() if given and given[0].upper() in items.METHODS else None
    path, *others = [*given[1 if method else 0 :], ""]
    if not path:
        for name, template, _ in description.names():
            if method in (None, name):
                yield from _completed(template, incomplete)
        return
    for template in description.matching(path.partition("?")[0])[:1]:
        for operation in description.operations(template):
            if operation.method in ([method] if method else ["GET", "POST"]):
                for place, each in operation.parameters:
                    start = f"{each.name}=="
                    if place == "query" and incomplete.startswith(start):
                        yield from (start + value for value in each.shape.values)
                    elif place == "query" and not any(word.startswith(start) for word in others):
                        yield start


def _completed(template: str, incomplete: str) -> Iterator[str]:
    """Yield *template* with the values in *incomplete*, the beginning of a path, in place of its placeholders."""
    parts, typed = template.split("/"), incomplete.split("/")
    if len(typed) > len(parts):
        return
    *complete, last = zip(typed, parts, strict=False)
    if all(part == value or ("{" in part and value) for value, part in complete):
        value, part = last
        if part.startswith(value) or "{" in part:
            chosen = part if part.startswith(value) else value
            yield "/".join([*typed[:-1], chosen, *parts[len(typed) :]])
