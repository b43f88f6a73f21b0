"""What users can write for a JSON schema: its type in words, its allowed values, and the fields of an object."""

from collections.abc import Iterator, Mapping
from typing import Any

from xapi_cli.openapi.operations import Parameter
from xapi_cli.openapi.references import References
from xapi_cli.system.render import printable

_MAX_DEPTH = 16
_MAX_VALUES, _MAX_FIELDS = 100, 1000
_MAX_NAME, _MAX_TEXT = 200, 1000  # characters
_ALTERNATIVES = ("allOf", "oneOf", "anyOf")


class TooComplex(Exception):
    """The schemas of a document take more steps than the budget allows."""


class Schemas:
    """The schemas of a document; raises TooComplex when *budget* schemas have been visited."""

    def __init__(self, references: References, budget: int) -> None:
        self._references = references
        self.left = budget  # visits

    def parameter(self, name: str, location: str, schema: object, *, required: bool, text: object = None) -> Parameter:
        """Return the parameter *name* with *schema*, whose description applies if *text* is not one."""
        node = self._visit(schema)
        about = clean(text) or clean(node.get("description"))
        return Parameter(clean_name(name), location, self.type_of(schema), required, self.values_of(schema), about)

    def fields(self, schema: object) -> list[Parameter]:
        """Return the fields of the object *schema* that a client can send."""
        properties: dict[str, object] = {}
        required: set[str] = set()
        self._collect(schema, properties, required, depth=0)
        return [
            self.parameter(name, "body", value, required=name in required)
            for name, value in properties.items()
            if self._visit(value).get("readOnly") is not True
        ]

    def type_of(self, schema: object, *, depth: int = 0) -> str:
        """Return the type of *schema* in words: `integer`, `array of string`, `string or null`."""
        node = self._visit(schema)
        if node.get("format") == "binary" or node.get("contentMediaType") == "application/octet-stream":
            return "file"
        declared = node.get("type")
        cleaned = [clean_name(name) for name in (declared if isinstance(declared, list) else [declared])]
        names = [name for name in cleaned if name]
        if not names:
            return self._undeclared_type(node, depth)
        if names == ["array"] and depth < _MAX_DEPTH:
            of = self.type_of(node.get("items"), depth=depth + 1)
            return "array" if of == "any" else f"array of {of}"
        kind = clean_name(node.get("format"))
        return f"{names[0]} ({kind})" if kind and names == ["string"] else " or ".join(names[:4])

    def _undeclared_type(self, node: Mapping[str, Any], depth: int) -> str:
        if isinstance(node.get("properties"), dict):
            return "object"
        if "enum" in node or "const" in node:
            return "string"
        if depth == _MAX_DEPTH:
            return "any"
        types = dict.fromkeys(self.type_of(each, depth=depth + 1) for each in _alternatives(node))
        return " or ".join(list(types)[:4]) or "any"

    def values_of(self, schema: object, *, depth: int = 0) -> tuple[str, ...]:
        """Return the allowed values of *schema*, or of the elements of an array; none if there are many."""
        node = self._visit(schema)
        listed = node.get("enum", [node["const"]] if "const" in node else None)
        if isinstance(listed, list):
            values = dict.fromkeys(text for value in listed[: _MAX_VALUES + 1] if (text := _scalar(value)))
            return tuple(values) if len(listed) <= _MAX_VALUES else ()
        if node.get("type") == "boolean":
            return ("true", "false")
        if depth == _MAX_DEPTH:
            return ()
        if node.get("type") == "array":
            return self.values_of(node.get("items"), depth=depth + 1)
        found = dict.fromkeys(value for each in _alternatives(node) for value in self.values_of(each, depth=depth + 1))
        return tuple(found)[:_MAX_VALUES]

    def _collect(self, schema: object, properties: dict[str, object], required: set[str], depth: int) -> None:
        """Add the properties of *schema* and of its alternatives, and the names of those that are required."""
        node = self._visit(schema)
        for name in _list(node.get("required")):
            if isinstance(name, str):
                required.add(name)
        own = node.get("properties")
        for name, value in own.items() if isinstance(own, dict) else ():
            if len(properties) < _MAX_FIELDS:
                properties.setdefault(name, value)
        if depth == _MAX_DEPTH:
            return
        for keyword in _ALTERNATIVES:
            alternatives = _list(node.get(keyword))
            applies = keyword == "allOf" or len(alternatives) == 1
            for each in alternatives:
                self._collect(each, properties, required if applies else set(), depth + 1)

    def _visit(self, schema: object) -> Mapping[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise TooComplex
        return self._references.resolve(schema)


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


def _alternatives(node: Mapping[str, Any]) -> Iterator[object]:
    for keyword in _ALTERNATIVES:
        yield from _list(node.get(keyword))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
