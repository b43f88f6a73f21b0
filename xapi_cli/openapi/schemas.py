"""What users can write for a JSON schema: its type in words, its allowed values, and the fields of an object."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from xapi_cli.openapi.operations import Parameter
from xapi_cli.system.render import printable

_MAX_DEPTH, _MAX_DEPTH_OF_READ_ONLY = 16, 3
_MAX_VALUES, _MAX_FIELDS, _MAX_TYPES = 100, 1000, 8
_OVERHEAD = 64  # characters for each stored object
_MAX_NAME = 200  # characters
_MAX_TEXT = 1000  # characters of a description that always fit into the index
_NULL = {"type": "null"}  # what generators add to the alternatives of a value that may be null
_ALTERNATIVES = ("allOf", "oneOf", "anyOf")
_MAX_HOPS = 32
_NOTHING: Mapping[str, Any] = {}


class TooComplex(Exception):
    """The schemas of a document take more steps, or more characters in the index, than the budget allows."""


class _Fields(NamedTuple):
    """The properties of an object by name, and the names of some of them.

    They are those that are required, that the first of several alternatives requires, and that only the server sends.
    """

    properties: dict[str, object]
    required: set[str]
    suggested: set[str]
    read_only: set[str]

    def of_alternative(self, number: int) -> "_Fields":
        """Return these fields for one of several alternatives, which requires properties that the others may not."""
        suggested = self.suggested if number == 0 else set[str]()
        return self._replace(required=suggested, suggested=suggested)


class References:
    """Resolve the references in *document*: nothing is read from elsewhere, and cycles end.

    `skipped` are those that lead to other documents or to nothing.
    """

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


class Schemas:
    """The schemas of a document; raises TooComplex after *budget* steps, or *characters* in parameters and responses.

    A short document can refer to one long description very often, so that its index would fill the memory. Texts that
    are longer than usual are therefore cut if they take more than *long* bytes in total.
    """

    def __init__(self, references: References, budget: int, characters: int, long: int) -> None:
        self._references = references
        self.left, self.characters, self.long = budget, characters, long

    def parameter(self, name: str, location: str, schema: object, *, required: bool, text: object = None) -> Parameter:
        """Return the parameter *name* with *schema*, whose description applies if *text* is not one.

        One with a default value can be omitted, except in a path.
        """
        node, beside = self._visit(schema), schema if isinstance(schema, dict) else {}  # beside a reference
        required = required and (location == "path" or not ("default" in node or "default" in beside))
        about = self.text(text) or self.text(beside.get("description")) or self.text(node.get("description"))
        values = self.values_of(schema)
        found = Parameter(clean_name(name), location, self.type_of(schema), required, values, about)
        self.store(found.name, found.type, found.text, *values)
        return found

    def fields(self, schema: object) -> list[Parameter]:
        """Return the fields of the object *schema* that a client can send."""
        found = _Fields({}, set(), set(), set())
        self._collect(schema, found, depth=0)
        return [self._field(name, found) for name in found.properties if name not in found.read_only]

    def properties(self, schema: object, *, is_request: bool) -> tuple[Mapping[str, object], set[str]]:
        """Return the properties of the object *schema*, and the names of those that are required.

        If it *is_request*, without those that only the server sends; otherwise without those that only a client sends.
        """
        found = _Fields({}, set(), set(), set())
        self._collect(schema, found, depth=0)
        kept = {name: value for name, value in found.properties.items() if is_request or not self._is_write_only(value)}
        if is_request:
            kept = {name: value for name, value in kept.items() if name not in found.read_only}
        return kept, found.required

    def _is_write_only(self, schema: object) -> bool:
        return self._visit(schema).get("writeOnly") is True

    def _field(self, name: str, found: _Fields) -> Parameter:
        is_required = name in found.required
        field = self.parameter(name, "body", found.properties[name], required=is_required or name in found.suggested)
        return field._replace(required=field.required and is_required, suggested=field.required and not is_required)

    def type_of(self, schema: object, *, depth: int = 0) -> str:
        """Return the type of *schema* in words: `integer`, `array of string`, `string or null`."""
        node = self._visit(schema)
        if node.get("format") == "binary" or node.get("contentMediaType") == "application/octet-stream":
            return "file"
        declared = node.get("type")
        cleaned = [clean_name(name) for name in (declared[:_MAX_TYPES] if isinstance(declared, list) else [declared])]
        names = [name for name in cleaned if name]
        if not names:
            return self._undeclared_type(node, depth)
        if _has_type(node, "array") and depth < _MAX_DEPTH:
            of = self.type_of(node.get("items"), depth=depth + 1)
            kind = "array" if of == "any" else f"array of {of}"
            return f"{kind} or null" if "null" in names else kind
        kind = clean_name(node.get("format"))
        return f"{names[0]} ({kind})" if kind and names == ["string"] else " or ".join(names[:4])

    def _undeclared_type(self, node: Mapping[str, Any], depth: int) -> str:
        if isinstance(node.get("properties"), dict):
            return "object"
        if "enum" in node or "const" in node:
            listed = list_of(node.get("enum", [node.get("const")]))
            return "boolean" if listed and all(isinstance(value, bool) for value in listed) else "string"
        if depth == _MAX_DEPTH:
            return "any"
        types = dict.fromkeys(self.type_of(each, depth=depth + 1) for each in _alternatives(node))
        if "allOf" in node and len(types) > 1:  # a part of it may be only a description
            types.pop("any", None)
        return " or ".join(list(types)[:4]) or "any"

    def values_of(self, schema: object, *, depth: int = 0) -> tuple[str, ...]:
        """Return the allowed values of *schema*, or of the elements of an array; none if there are many."""
        node = self._visit(schema)
        listed = node.get("enum", [node["const"]] if "const" in node else None)
        if isinstance(listed, list):
            if len(listed) > _MAX_VALUES:
                return ()
            self.spend(len(listed))
            return tuple(dict.fromkeys(text for value in listed if (text := _scalar(value))))
        if _has_type(node, "boolean"):
            return ("true", "false")
        if depth == _MAX_DEPTH:
            return ()
        if _has_type(node, "array"):
            return self.values_of(node.get("items"), depth=depth + 1)
        found: dict[str, None] = {}
        for each in _alternatives(node):
            if len(found) < _MAX_VALUES:
                found |= dict.fromkeys(self.values_of(each, depth=depth + 1))
        return tuple(found)[:_MAX_VALUES]

    def _collect(self, schema: object, found: "_Fields", depth: int) -> None:
        """Add the properties of *schema* and of its alternatives to *found*."""
        node = self._visit(schema)
        names, own = list_of(node.get("required")), node.get("properties")
        own = own if isinstance(own, dict) else {}
        self.spend(len(names) + len(own))  # before the loops
        found.required.update(name for name in names if isinstance(name, str))
        for name, value in own.items():
            if len(found.properties) < _MAX_FIELDS:
                found.properties.setdefault(name, value)
                if self._is_read_only(value):
                    found.read_only.add(name)
        if depth == _MAX_DEPTH:
            return
        for keyword in _ALTERNATIVES:
            listed = list_of(node.get(keyword))
            self.spend(len(listed))
            alternatives = [each for each in listed if each != _NULL]
            applies = keyword == "allOf" or len(alternatives) == 1
            for number, each in enumerate(alternatives):
                self._collect(each, found if applies else found.of_alternative(number), depth + 1)

    def _is_read_only(self, schema: object, *, depth: int = 0) -> bool:
        """Return whether only the server sends *schema*: `readOnly` is there, beside its `$ref`, or in its `allOf`."""
        beside = isinstance(schema, dict) and schema.get("readOnly") is True
        node = self._visit(schema)
        if beside or node.get("readOnly") is True:
            return True
        parts = list_of(node.get("allOf")) if depth < _MAX_DEPTH_OF_READ_ONLY else []
        return any(self._is_read_only(each, depth=depth + 1) for each in parts)

    def text(self, text: object, limit: int = _MAX_TEXT) -> str:
        """Return *text* as `clean` does, but as a whole if the budget for texts that exceed *limit* allows it."""
        if not isinstance(text, str) or not limit < len(text) <= self.long or size_of(text) > self.long:
            return clean(text, limit)
        self.long -= size_of(text)
        return clean(text, len(text))

    def spend(self, steps: int) -> None:
        """Subtract *steps* from the budget; raises TooComplex."""
        self.left -= steps
        if self.left < 0:
            raise TooComplex

    def store(self, *texts: str) -> None:
        """Subtract the size of one object with *texts* in the index from the characters; raises TooComplex.

        What is longer than usual has its own budget.
        """
        self.characters -= _OVERHEAD + sum(size_of(text[:_MAX_TEXT]) for text in texts)
        if self.characters < 0:
            raise TooComplex

    def _visit(self, schema: object) -> Mapping[str, Any]:
        self.spend(1)
        return self._references.resolve(schema)


def size_of(text: str) -> int:
    """Return the largest number of bytes of *text* in JSON."""
    return 2 * (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def clean(text: object, limit: int = _MAX_TEXT) -> str:
    """Return *text* as one printable line of at most *limit* characters; other values are empty."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text[: 4 * limit].split())
    return printable(line if len(line) <= limit else f"{line[: limit - 1]}…")


def clean_name(text: object) -> str:
    """Return the name *text* as `clean` does."""
    return clean(text, _MAX_NAME)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return clean_name(value)


def _has_type(node: Mapping[str, Any], name: str) -> bool:
    """Return whether the type of *node* is *name*, or *name* or null."""
    return node.get("type") in (name, [name, "null"], ["null", name])


def _alternatives(node: Mapping[str, Any]) -> Iterator[object]:
    for keyword in _ALTERNATIVES:
        yield from list_of(node.get(keyword))


def list_of(value: object) -> list[Any]:
    """Return *value* if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []
