"""Compare two versions of an API description: what was added, removed and changed, and what breaks a client.

A change breaks a client if a request that was valid may fail, or if a client does not find what it could rely on in a
response to a success. So a request may require less and allow more, and such a response the opposite.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from xapi_cli.openapi.fields import Field, FieldList
from xapi_cli.openapi.operations import Operation

DEPRECATED = "(deprecated)"  # what the summary of a deprecated operation begins with
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_SUCCESS = re.compile(r"2..|default", re.IGNORECASE)
_BODY = ""  # where the fields of the body of a request are in `Description.fields`


class Change(NamedTuple):
    """A change of an operation: it was `added` or `removed`, or `changed` as *text* says. Some are *breaking*."""

    method: str
    path: str
    kind: str
    text: str = ""
    breaking: bool = False


class Description(NamedTuple):
    """The operations of a document, and the *fields* of each: for a status, or for the empty text, the body."""

    operations: list[Operation]
    fields: Mapping[tuple[str, str], Mapping[str, FieldList]]
    server_path: str = ""


def compare(old: Description, new: Description) -> list[Change]:
    """Return the changes from *old* to *new*, sorted by path and method."""
    before, after = _by_key(old), _by_key(new)
    changes = []
    for key, operation in before.items():
        if key not in after:
            changes.append(_change(old, operation, "removed", breaking=True))
        else:
            comparison = _Comparison(old, new, operation, after[key])
            changes += [_change(new, after[key], "changed", *each) for each in comparison.changes()]
    changes += [_change(new, operation, "added") for key, operation in after.items() if key not in before]
    return sorted(changes, key=lambda each: (each.path, each.method))


def _by_key(description: Description) -> dict[tuple[str, str], Operation]:
    """Return the operations by method and path; the names of path parameters do not matter to a client."""
    start = description.server_path
    return {(each.method, _PLACEHOLDER.sub("{}", start + each.path)): each for each in description.operations}


def _change(of: Description, operation: Operation, kind: str, text: str = "", breaking: bool = False) -> Change:
    return Change(operation.method, of.server_path + operation.path, kind, text, breaking)


class _Comparison:
    """The comparison of the operation *before* in the description *old* with *after* in *new*."""

    def __init__(self, old: Description, new: Description, before: Operation, after: Operation) -> None:
        self._before, self._after = before, after
        self._old = old.fields.get((before.method, before.path), {})
        self._new = new.fields.get((after.method, after.path), {})

    def changes(self) -> Iterator[tuple[str, bool]]:
        """Yield each change as a text, and whether it is breaking."""
        was, is_ = (each.summary.startswith(DEPRECATED) for each in (self._before, self._after))
        if was != is_:
            yield ("deprecated" if is_ else "no longer deprecated"), False
        yield from _of_request(_parameters(self._before), _parameters(self._after), "", "")
        yield from self._of_body()
        yield from self._of_responses()

    def _of_body(self) -> Iterator[tuple[str, bool]]:
        old, new = self._before.body, self._after.body
        if old is None or new is None:
            if new is not None:
                yield f"body added, {'required' if new.required else 'optional'}", new.required
            elif old is not None:
                yield "body removed", True
            return
        if old.media_type != new.media_type:
            yield f"body changed from {old.media_type} to {new.media_type}", True
        pair = Field(old.type, old.required), Field(new.type, new.required)
        yield from (("body " + text, breaking) for text, breaking in _of_field(*pair))
        before = self._old.get(_BODY) or _fields_of_form(self._before)
        after = self._new.get(_BODY) or _fields_of_form(self._after)
        yield from _of_request(before, after, "body field ", ".[")

    def _of_responses(self) -> Iterator[tuple[str, bool]]:
        old = {each.status: each for each in self._before.responses}
        new = {each.status: each for each in self._after.responses}
        for status, response in old.items():
            is_success = bool(_SUCCESS.fullmatch(status))
            if status not in new:
                yield f"response {status} removed", is_success
                continue
            label, kind = f"response {status} ", new[status].type
            if response.type != kind:
                breaking = is_success and bool(kind) and not _includes(response.type, kind)
                yield f"{label}{_changed('type', response.type, kind)}", breaking
            found = _of_fields_received(self._old.get(status), self._new.get(status))
            yield from ((f"{label}field {text}", breaking and is_success) for text, breaking in found)
        yield from ((f"response {status} added", False) for status in new if status not in old)


def _parameters(operation: Operation) -> FieldList:
    """Return the parameters outside the body; those of the path by their position."""
    position = 0
    found = {}
    for each in operation.parameters:
        name = each.name
        if each.location == "body":
            continue
        if each.location == "path":
            position += 1
            name = str(position)
        elif each.location == "header":
            name = name.lower()
        found[f"{each.location} parameter {name}"] = Field(each.type, each.required, tuple(each.values))
    return FieldList(found)


def _fields_of_form(operation: Operation) -> FieldList:
    return FieldList(
        {each.name: Field(each.type, each.required, tuple(each.values)) for each in operation.parameters_in("body")}
    )


def _of_request(old: FieldList, new: FieldList, label: str, separators: str) -> Iterator[tuple[str, bool]]:
    """Yield the changes of what a client sends; below a field that was added or removed, there are none."""
    if old.is_complete and new.is_complete:
        for path in _outermost(old.fields, new.fields, separators):
            yield f"{label}{path} removed", True
        for path in _outermost(new.fields, old.fields, separators):
            is_required = new.fields[path].required
            yield f"{label}{path} added, {'required' if is_required else 'optional'}", is_required
    for path in (each for each in old.fields if each in new.fields):
        found = _of_field(old.fields[path], new.fields[path])
        yield from ((f"{label}{path} {text}", breaking) for text, breaking in found)


def _of_field(old: Field, new: Field) -> Iterator[tuple[str, bool]]:
    if old.required != new.required:
        yield ("became required" if new.required else "became optional"), new.required
    if old.type != new.type:
        yield _changed("type", old.type, new.type), not _includes(new.type, old.type)
        return
    yield from _of_values(old, new, "allows")


def _of_fields_received(old: FieldList | None, new: FieldList | None) -> Iterator[tuple[str, bool]]:
    """Yield the changes of what a client receives; whether they are breaking holds for a success."""
    if old is None or new is None:
        return
    if old.is_complete and new.is_complete:
        yield from ((f"{path} removed", True) for path in _outermost(old.fields, new.fields, ".["))
        yield from ((f"{path} added", False) for path in _outermost(new.fields, old.fields, ".["))
    for path in (each for each in old.fields if each in new.fields):
        before, after = old.fields[path], new.fields[path]
        if before.required != after.required:
            text = "is always present now" if after.required else "may be missing now"
            yield f"{path} {text}", before.required
        if before.type != after.type:
            yield f"{path} {_changed('type', before.type, after.type)}", not _includes(before.type, after.type)
        else:
            yield from ((f"{path} {text}", False) for text, _ in _of_values(before, after, "may have"))


def _of_values(old: Field, new: Field, verb: str) -> Iterator[tuple[str, bool]]:
    """Yield the changes of the allowed values, of which there are none if all are allowed."""
    if old.values == new.values:
        return
    if not old.values or not new.values:
        yield f"{verb} " + (f"only {', '.join(new.values)}" if new.values else "any value"), bool(new.values)
        return
    added, removed = (
        [each for each in one if each not in other]
        for one, other in ((new.values, old.values), (old.values, new.values))
    )
    if added:
        yield f"{verb} {', '.join(added)} too", False
    if removed:
        yield f"no longer {verb} {', '.join(removed)}", True


def _outermost(fields: Mapping[str, Field], other: Mapping[str, Field], separators: str) -> Iterator[str]:
    """Yield the paths of *fields* that *other* does not have, without those below another one."""
    for path in fields:
        if path not in other:
            above = [path[:at] for at, character in enumerate(path) if character in separators and at]
            if all(each in other or each not in fields for each in above):
                yield path


def _includes(wide: str, narrow: str) -> bool:
    """Return whether each value of the type *narrow* is one of the type *wide*."""
    allowed = set(wide.split(" or "))
    if "number" in allowed:
        allowed.add("integer")
    return "any" in allowed or set(narrow.split(" or ")) <= allowed


def _changed(what: str, old: str, new: str) -> str:
    return f"{what} changed from {old or 'none'} to {new or 'none'}"
