"""Compare two versions of a schema: what changed in it at any depth, and what breaks a client.

Both are read side by side, and each pair of schemas is compared once, at the first place where it occurs. So the
comparison ends even for schemas that contain themselves, and a change of a schema that a body contains at many places
is one change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from xapi_cli.openapi.fields import ANY, Field, SchemaReader
from xapi_cli.openapi.schemas import References, TooComplex

_BUDGET, _TOTAL = 100_000, 2_000_000  # steps for one schema, and for all, in each version
_MAX_DEPTH = 100
_MAX_VALUES, _MAX_TYPES = 10, 5  # that a text names


class SchemaChange(NamedTuple):
    """A change at *path*, such as `items[].id`; it is empty for the schema itself."""

    path: str
    text: str
    breaking: bool


class SchemaComparison:
    """Compares schemas of the documents of *old* and *new*, for what a client sends if it *is_request*, or receives.

    What a client sends may be restricted less, and what it receives, more. `is_complete` is False after schemas that
    are too complex to be compared as a whole.
    """

    def __init__(self, old: References, new: References, *, is_request: bool) -> None:
        self._old = SchemaReader(old, _BUDGET, _TOTAL, is_request=is_request)
        self._new = SchemaReader(new, _BUDGET, _TOTAL, is_request=is_request)
        self._is_request = is_request
        self._compared: set[tuple[int, int]] = set()  # pairs of schemas, by their identities
        self._same: set[tuple[int, int]] = set()  # those of earlier comparisons that found no changes
        self.is_complete = True

    def changes(self, old: object, new: object) -> list[SchemaChange]:
        """Return the changes from the schema *old* to *new*."""
        return self._collected(self._of_schemas(old, new, "", 0))

    def of_fields(self, old: Mapping[str, Field], new: Mapping[str, Field]) -> list[SchemaChange]:
        """Return the changes from the fields *old* to *new*, such as the parameters of a request."""
        return self._collected(self._of_fields(old, new, "", 0))

    def _collected(self, changes: Iterator[SchemaChange]) -> list[SchemaChange]:
        self._compared.clear()
        self._old.begin()
        self._new.begin()
        found: list[SchemaChange] = []
        was_complete = self.is_complete
        try:
            found.extend(changes)
        except TooComplex:
            self.is_complete = False
        if not found and was_complete and self.is_complete:
            self._same |= self._compared
        return found

    def _of_schemas(self, old: object, new: object, path: str, depth: int) -> Iterator[SchemaChange]:
        """Yield the changes of the types and values, then those below."""
        pair = id(self._old.node(old)), id(self._new.node(new))
        if pair in self._compared or pair in self._same:
            return
        self._compared.add(pair)
        if depth == _MAX_DEPTH:
            self.is_complete = False
            return
        before, after = self._old.types(old), self._new.types(new)
        if set(before) != set(after):
            fits = _include(after, before) if self._is_request else _include(before, after)
            yield SchemaChange(path, f"type changed from {_alternatives(before)} to {_alternatives(after)}", not fits)
            if not fits and {before, after} != {(ANY,)} and not _have_common(before, after):
                return
        yield from self._of_values(self._old.values(old), self._new.values(new), path)
        yield from self._of_fields(self._old.fields(old), self._new.fields(new), path, depth)
        for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
            one, other = self._old.below(old, keyword), self._new.below(new, keyword)
            if one is not None and other is not None:
                yield from self._of_schemas(one, other, f"{path}{step}".removeprefix("."), depth + 1)

    def _of_fields(
        self, old: Mapping[str, Field], new: Mapping[str, Field], path: str, depth: int
    ) -> Iterator[SchemaChange]:
        places = {name: f"{path}.{name}".removeprefix(".") for name in (*old, *new)}
        for name, place in places.items():
            if (change := self._of_field(old.get(name), new.get(name), place)) is not None:
                yield change
        for name, field in old.items():
            if field.is_described and name in new and new[name].is_described:
                yield from self._of_schemas(field.schema, new[name].schema, places[name], depth + 1)

    def _of_field(self, old: Field | None, new: Field | None, path: str) -> SchemaChange | None:
        """Return the change of a field itself; in a request, a field that was only listed as required is not new."""
        was_required, is_required = (each is not None and each.required for each in (old, new))
        if old is not None and old.is_described and not (new and new.is_described):
            return SchemaChange(path, "removed", True)
        was_described = old is not None and (old.is_described or self._is_request)
        if new is not None and new.is_described and not was_described:
            how = f"added, {'required' if is_required else 'optional'}" if self._is_request else "added"
            return SchemaChange(path, how, self._is_request and is_required)
        return None if was_required == is_required else self._of_need(is_required, path)

    def _of_need(self, is_required: bool, path: str) -> SchemaChange:
        if self._is_request:
            return SchemaChange(path, "became required" if is_required else "became optional", is_required)
        return SchemaChange(path, "is always present now" if is_required else "may be missing now", not is_required)

    def _of_values(self, old: Sequence[str] | None, new: Sequence[str] | None, path: str) -> Iterator[SchemaChange]:
        """Yield the changes of the values that are allowed, or received."""
        verb = "allows" if self._is_request else "may have"
        if old is None or new is None:
            if new is not None:
                yield SchemaChange(path, f"{verb} only {_named(new)}", self._is_request)
            elif old is not None:
                yield SchemaChange(path, f"{verb} any value", False)
            return
        before, after = set(old), set(new)
        if added := [each for each in new if each not in before]:
            yield SchemaChange(path, f"{verb} {_named(added)} too", False)
        if removed := [each for each in old if each not in after]:
            yield SchemaChange(path, f"no longer {verb} {_named(removed)}", self._is_request)


def _alternatives(types: Sequence[str]) -> str:
    return " or ".join(types[:_MAX_TYPES])


def _named(values: Sequence[str]) -> str:
    more = len(values) - _MAX_VALUES
    return ", ".join(values[:_MAX_VALUES]) + (f" and {more:,} more" if more > 0 else "")


def _include(wide: Iterable[str], narrow: Iterable[str]) -> bool:
    """Return whether each value of the types *narrow* is one of the types *wide*."""
    allowed = set(wide)
    if "number" in allowed:
        allowed.add("integer")
    return ANY in allowed or all(each in allowed or (_kind(each) in allowed) for each in narrow)


def _have_common(one: Iterable[str], other: Iterable[str]) -> bool:
    return not {_kind(each) for each in one}.isdisjoint(map(_kind, other))


def _kind(name: str) -> str:
    """Return the type *name* without its format."""
    return name.partition(" (")[0]
