"""Compare two descriptions: operations that were added, removed or changed in their parameters, bodies and responses.

Both versions of a schema are read side by side, and each pair of schemas is compared once for an operation, at the
first place where it occurs. So the comparison ends even for schemas that contain themselves.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from xapi_cli.features.openapi.description import Description, Operation
from xapi_cli.features.openapi.schemas import Field, Node

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MAX_DEPTH = 50


class Change(NamedTuple):
    """A change of an operation: *text* says what has changed."""

    method: str
    path: str
    text: str


def changes(old: Description, new: Description) -> list[Change]:
    """Return the changes from *old* to *new*, by path and method."""
    before, after = _by_key(old), _by_key(new)
    comparison = _Comparison(old, new)
    found = [Change(each.method, each.path, "removed") for key, each in before.items() if key not in after]
    found += [Change(each.method, each.path, "added") for key, each in after.items() if key not in before]
    for key, each in before.items():
        if key in after:
            now = after[key]
            found += [Change(now.method, now.path, text) for text in comparison.of_operations(each, now)]
    return sorted(found, key=lambda each: (each.path, each.method))


def _by_key(description: Description) -> dict[tuple[str, str], Operation]:
    """Return the operations by method and path; the names of path parameters do not matter to a client."""
    return {(each.method, _PLACEHOLDER.sub("{}", each.path)): each for each in description.operations()}


class _Comparison:
    def __init__(self, old: Description, new: Description) -> None:
        self._old, self._new = old.schemas, new.schemas
        self._compared: set[tuple[int, int]] = set()  # pairs of schemas, by their identities
        self._same: set[tuple[int, int]] = set()  # those in which earlier operations have no changes

    def of_operations(self, old: Operation, new: Operation) -> list[str]:
        """Return what has changed from *old* to *new*."""
        self._compared.clear()
        found = list(dict.fromkeys(self._of_operations(old, new)))
        if not found:
            self._same |= self._compared
        return found

    def _of_operations(self, old: Operation, new: Operation) -> Iterator[str]:
        before, after = _parameters(old), _parameters(new)
        for name in dict.fromkeys((*before, *after)):
            yield from self._of_field(before.get(name), after.get(name), name, "")
        if bool(old.media_type) != bool(new.media_type):
            yield "body removed" if old.media_type else "body added"
        elif old.media_type:
            if old.media_type != new.media_type:
                yield f"body type changed from {old.media_type} to {new.media_type}"
            if old.is_body_required != new.is_body_required:
                yield f"body became {'required' if new.is_body_required else 'optional'}"
            yield from self._of_body(old.body, new.body, "body")
        for status in dict.fromkeys((*old.responses, *new.responses)):
            name = f"response {status}"
            if status in old.responses and status in new.responses:
                yield from self._of_body(old.responses[status][1], new.responses[status][1], name)
            else:
                yield f"{name} {'removed' if status in old.responses else 'added'}"

    def _of_body(self, old: Node, new: Node, what: str) -> Iterator[str]:
        if (was := self._old.shape(old).type) != (now := self._new.shape(new).type):
            yield f"{what} type changed from {was} to {now}"
        yield from self._below(old, new, what, "")

    def _below(self, old: Node, new: Node, what: str, path: str, depth: int = 0) -> Iterator[str]:
        """Yield the changes of all fields below the schemas at *path* of *what*."""
        one, other = self._old.resolve(old), self._new.resolve(new)
        pair = id(one), id(other)
        if pair in self._compared or pair in self._same or depth > _MAX_DEPTH:
            return
        self._compared.add(pair)
        before, after = self._old.members(old), self._new.members(new)
        for name in dict.fromkeys((*before, *after)):
            where = f"{path}.{name}" if path else name
            yield from self._of_field(before.get(name), after.get(name), what, where, depth)
        if "items" in one and "items" in other:
            yield from self._below(one["items"], other["items"], what, f"{path}[]", depth + 1)

    def _of_field(self, old: Field | None, new: Field | None, what: str, path: str, depth: int = 0) -> Iterator[str]:
        where = f"{what} field {path}" if path else what
        if new is None:
            yield f"{where} removed"
        elif old is None:
            yield f"{where} added{', required' if new.required else ''}"
        else:
            if old.shape.type != new.shape.type:
                yield f"{where} type changed from {old.shape.type} to {new.shape.type}"
            if old.required != new.required:
                yield f"{where} became {'required' if new.required else 'optional'}"
            if old.shape.values != new.shape.values:
                was, now = (", ".join(each.shape.values) or "any" for each in (old, new))
                yield f"{where} values changed from {was} to {now}"
            yield from self._below(old.schema, new.schema, what, path, depth + 1)


def _parameters(operation: Operation) -> dict[str, Field]:
    """Return the parameters by place and name; those of the path by their position."""
    names = [each[1:-1] for each in _PLACEHOLDER.findall(operation.path)]
    found = {}
    for place, each in operation.parameters:
        name = each.name.lower() if place == "header" else each.name
        if place == "path" and name in names:
            name = str(names.index(name) + 1)
        found[f"{place} parameter {name}"] = each
    return found
