"""Resolve `$ref` within a document: nothing is read from elsewhere, and cycles end."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_MAX_HOPS = 32
_NOTHING: Mapping[str, Any] = {}


class References:
    """The references in *document*; `skipped` are those that lead to other documents or to nothing."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._targets: dict[str, object] = {}
        self.skipped: set[str] = set()

    def resolve(self, node: object) -> Mapping[str, Any]:
        """Return the object *node*, or the one to which its `$ref` leads; an empty one if there is none."""
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict):
                return _NOTHING
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            if reference not in self._targets:
                self._targets[reference] = self._target(reference)
            node = self._targets[reference]
        return _NOTHING

    def _target(self, reference: str) -> object:
        """Return the value to which the JSON pointer *reference* (RFC 6901) leads, None if there is none."""
        if reference[:1] != "#" or reference[1:2] not in ("", "/"):
            self.skipped.add(reference)
            return None
        value: object = self._document
        for part in unquote(reference).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(value):
                value = value[int(name[:9])]
            else:
                self.skipped.add(reference)
                return None
        return value
