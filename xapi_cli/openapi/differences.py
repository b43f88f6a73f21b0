"""Compare two versions of an API description: what was added, removed and changed, and what breaks a client.

A change breaks a client if a request that was valid may fail, or if a client does not find what it could rely on in a
successful response. So a request may require less and allow more, and a successful response the opposite.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xapi_cli.openapi.fields import Field
from xapi_cli.openapi.operations import Details, Operation
from xapi_cli.openapi.schema_changes import SchemaChange, SchemaComparison
from xapi_cli.openapi.schemas import References

DEPRECATED = "(deprecated)"  # what the summary of a deprecated operation begins with
ALL = "*"  # the method of a change that concerns all operations
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SUCCESS = re.compile(r"2..")
_DEFAULT = "default"
_PATH = "path parameter "
_Key = tuple[str, str]  # the method and the path


class Change(NamedTuple):
    """A change of an operation: it was `added` or `removed`, or `changed` as *text* says. Some are *breaking*."""

    method: str
    path: str
    kind: str
    text: str = ""
    breaking: bool = False


class Description(NamedTuple):
    """The operations of a document, the *details* of each, and the *references* in them."""

    operations: Sequence[Operation]
    details: Mapping[_Key, Details]
    references: References
    server_path: str = ""


class Comparison:
    """The comparison of the descriptions *old* and *new*; `is_complete` is known after `changes`."""

    def __init__(self, old: Description, new: Description) -> None:
        self._old, self._new = old, new
        self._requests = SchemaComparison(old.references, new.references, is_request=True)
        self._responses = SchemaComparison(old.references, new.references, is_request=False)

    @property
    def is_complete(self) -> bool:
        """Whether all schemas were compared completely; some may be too complex."""
        return self._requests.is_complete and self._responses.is_complete

    def changes(self) -> list[Change]:
        """Return the changes, sorted by path and method."""
        old, new = self._old, self._new
        before, after = _by_key(old, old.server_path), _by_key(new, new.server_path)
        changes = []
        if old.server_path != new.server_path and before.keys().isdisjoint(after):
            text = f"server path changed from {old.server_path or '/'} to {new.server_path or '/'}"
            changes.append(Change(ALL, old.server_path or "/", "changed", text, breaking=True))
            before, after = _by_key(old), _by_key(new)
        for key, operation in before.items():
            if key not in after:
                changes.append(_change(old, operation, "removed", breaking=True))
            else:
                found = self._of_operation(operation, after[key])
                changes += [_change(new, after[key], "changed", *each) for each in dict.fromkeys(found)]
        changes += [_change(new, operation, "added") for key, operation in after.items() if key not in before]
        return sorted(changes, key=lambda each: (each.method != ALL, each.path, each.method))

    def _of_operation(self, old: Operation, new: Operation) -> Iterator[tuple[str, bool]]:
        """Yield each change of an operation as a text, and whether it is breaking."""
        was, is_ = (each.summary.startswith(DEPRECATED) for each in (old, new))
        if was != is_:
            yield ("deprecated" if is_ else "no longer deprecated"), False
        before, after = self._old.details[old.method, old.path], self._new.details[new.method, new.path]
        one, other = _parameters(before, old), _parameters(after, new)
        # the path of an operation, by which it was found, has the same parameters, whether they are described or not
        one, other = (
            {name: each for name, each in these.items() if name in those or not name.startswith(_PATH)}
            for these, those in ((one, other), (other, one))
        )
        yield from _labeled(self._requests.of_fields(one, other))
        yield from self._of_body(before, after)
        yield from self._of_responses(before, after)

    def _of_body(self, old: Details, new: Details) -> Iterator[tuple[str, bool]]:
        if not old.body or not new.body:
            if new.body:
                how = "required" if new.is_body_required else "optional"
                yield f"body added, {how}", new.is_body_required
            elif old.body:
                yield "body removed", True
            return
        if old.is_body_required != new.is_body_required:
            yield f"body became {'required' if new.is_body_required else 'optional'}", new.is_body_required
        changes = [*_of_media_types(old.body, new.body, lambda each: not _is_in(each, new.body))]
        for before, after in _common(old.body, new.body):
            changes += _labeled(self._requests.changes(before, after), "field ")
        yield from ((f"body {text}", breaking) for text, breaking in changes)

    def _of_responses(self, old: Details, new: Details) -> Iterator[tuple[str, bool]]:
        has_success = any(map(_SUCCESS.fullmatch, old.responses))
        for status, before in old.responses.items():
            is_success = bool(_SUCCESS.fullmatch(status)) or (status == _DEFAULT and not has_success)
            after = new.responses.get(status)
            if after is None:
                after = new.responses.get(f"{status[:1]}XX")
            if after is None:
                yield f"response {status} removed", is_success
                continue
            for text, breaking in self._of_response(before, after):
                yield f"response {status} {text}", breaking and is_success
        yield from ((f"response {status} added", False) for status in new.responses if status not in old.responses)

    def _of_response(self, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
        """Yield the changes of the body of a response; whether they are breaking holds for a success."""
        if not old or not new:
            if old or new:
                yield ("body removed", True) if old else ("body added", False)
            return
        yield from _of_media_types(old, new, lambda each: not any(_is_in(other, [each]) for other in new))
        for before, after in _common(old, new):
            yield from _labeled(self._responses.changes(before, after), "field ")


def _parameters(details: Details, operation: Operation) -> dict[str, Field]:
    """Return the parameters outside the body; those of the path by their position, as names do not matter."""
    names = _PLACEHOLDER.findall(operation.path)
    found = {}
    for each in details.parameters:
        name = each.name
        if each.location == "path":
            name = str(names.index(name) + 1) if name in names else name
        elif each.location == "header":
            name = name.lower()
        found[f"{each.location} parameter {name}"] = Field(each.schema, each.required)
    return found


def _by_key(description: Description, start: str = "") -> dict[_Key, Operation]:
    """Return the operations by method and path; the names of path parameters do not matter to a client."""
    return {(each.method, _PLACEHOLDER.sub("{}", start + each.path)): each for each in description.operations}


def _change(of: Description, operation: Operation, kind: str, text: str = "", breaking: bool = False) -> Change:
    return Change(operation.method, of.server_path + operation.path, kind, text, breaking)


def _labeled(changes: Iterable[SchemaChange], kind: str = "") -> Iterator[tuple[str, bool]]:
    """Yield *changes* as texts; *kind* is what their paths denote."""
    for each in changes:
        yield (f"{kind}{each.path} {each.text}" if each.path else each.text), each.breaking


def _common(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[object, object]]:
    """Yield the schemas for each media type that both have."""
    for media_type, schema in old.items():
        if media_type in new:
            yield schema or {}, new[media_type] or {}  # without a schema, any value is valid


def _of_media_types(
    old: Collection[str], new: Collection[str], is_breaking: Callable[[str], bool]
) -> Iterator[tuple[str, bool]]:
    """Yield the media types that were removed, with what *is_breaking* says about each, and those that were added."""
    yield from ((f"media type {each} removed", is_breaking(each)) for each in old if each not in new)
    yield from ((f"media type {each} added", False) for each in new if each not in old)


def _is_in(media_type: str, ranges: Iterable[str]) -> bool:
    """Return whether *media_type* is one of *ranges*, such as `text/*`."""
    return not {media_type, f"{media_type.partition('/')[0]}/*", "*/*"}.isdisjoint(ranges)
