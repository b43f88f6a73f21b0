"""The schemas of a description: their types in words, and the fields of objects at any depth.

A schema of a summary has only what this module reads: `type` (a list of names), `format`, `values`, `fields`,
`required`, `items`, `all` and `any` (schemas that it combines), `text`, `is_read_only`, and `ref`, the name of one of
the summary's types. So a summary is smaller than its document; fields are found when they are needed, because a short
document can describe any number of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xapi_cli.system.render import shortened

Schema = Mapping[str, Any]
MAX_TEXT = 500  # characters of a description
MAX_NAME = 200
_MAX_DEPTH, _MAX_STEPS, _MAX_VALUES = 10, 5_000, 50
_COMPONENTS = "#/components/schemas/"
_COMBINED = {"allOf": "all", "oneOf": "any", "anyOf": "any"}


class Field(NamedTuple):
    """A field of a body at any depth, such as `items[].owner.email`, or a parameter."""

    name: str
    type: str
    required: bool
    values: list[str]
    text: str
    schema: Schema
    is_read_only: bool = False


class Reader:
    """Reads the schemas of a document; `types` has those that others refer to, `skipped` the references to nothing."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._waiting: list[tuple[str, Any]] = []
        self.types: dict[str, Schema] = {}
        self.skipped: set[str] = set()

    def resolve(self, node: object) -> Schema:
        """Return the object *node*, or the one in this document to which its `$ref` leads; an empty one otherwise."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
                break
            node = self._target(reference)
        return node if isinstance(node, dict) else {}

    def read_types(self) -> None:
        """Read what the schemas refer to, into `types`."""
        while self._waiting:
            name, node = self._waiting.pop()
            self.types[name] = self.schema(node)

    def schema(self, node: object, depth: int = 0) -> Schema:
        """Return the schema *node* of the document as one of the summary."""
        if not isinstance(node, dict) or depth > 5 * _MAX_DEPTH:
            return {}
        beside = {"is_read_only": True} if node.get("readOnly") is True else {}
        if isinstance(reference := node.get("$ref"), str):
            return {**self._reference(reference), **beside}
        names = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
        if node.get("nullable") is True:
            names = [*names, "null"]
        values = node.get("enum", [node["const"]] if "const" in node else None)
        found: dict[str, Any] = {
            "type": [clean(name, MAX_NAME) for name in names if isinstance(name, str)],
            "format": clean(node.get("format"), MAX_NAME),
            "values": [_written(value) for value in listed(values)[:_MAX_VALUES]],
            "text": clean(node.get("description")),
            "required": [clean(name, MAX_NAME) for name in listed(node.get("required")) if isinstance(name, str)],
            "fields": self._fields(node, depth),
            "items": self.schema(node.get("items"), depth + 1),
            **beside,
        }
        for keyword, kind in _COMBINED.items():
            parts = [self.schema(each, depth + 1) for each in listed(node.get(keyword))]
            found[kind] = [*found.get(kind, []), *parts]
        return {name: value for name, value in found.items() if value}

    def _fields(self, node: Schema, depth: int) -> dict[str, Schema]:
        properties = node.get("properties")
        found = {
            clean(name, MAX_NAME): self.schema(each, depth + 1)
            for name, each in (properties.items() if isinstance(properties, dict) else ())
        }
        if isinstance(others := node.get("additionalProperties"), dict) and others:
            found["*"] = self.schema(others, depth + 1)
        return found

    def _reference(self, reference: str) -> Schema:
        name = clean(reference.removeprefix(_COMPONENTS), MAX_NAME)
        if name not in self.types:
            if (target := self._target(reference)) is None:
                return {}
            self.types[name] = {}
            self._waiting.append((name, target))
        return {"ref": name}

    def _target(self, reference: str) -> object:
        """Return the value to which the JSON pointer *reference* (RFC 6901) leads, None if there is none."""
        value: object = self._document
        start, *parts = reference.split("/")
        for part in parts:
            name = part.replace("~1", "/").replace("~0", "~")
            value = value.get(name) if isinstance(value, dict) else None
        if start != "#" or value is None:
            self.skipped.add(reference)
            return None
        return value


class Types:
    """The *types* of a summary, with which its schemas are read."""

    def __init__(self, types: Mapping[str, Schema]) -> None:
        self._types = types
        self._steps = 0  # left for one call: schemas that combine others are nested, and may be combined very often

    def type_of(self, schema: Schema) -> str:
        """Return the type of *schema* in words: `array of string`, `string (date)`, `object or null`."""
        self._steps = _MAX_STEPS
        return self._type_of(schema, 0)

    def members(self, schema: Schema) -> dict[str, Field]:
        """Return the fields of the object *schema* itself, by their names."""
        self._steps = _MAX_STEPS
        required, found = self._required(schema, 0), dict[str, Field]()
        for name, each in self._members(schema, 0):
            if name not in found:
                found[name] = self._field(name, each, name in required, "")
        return found

    def parameter(self, name: str, schema: Schema, *, required: bool, text: str = "") -> Field:
        """Return the parameter *name* with *schema*."""
        self._steps = _MAX_STEPS
        return self._field(name, schema, required, text)

    def fields(self, schema: Schema, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[Field]:
        """Yield the fields of *schema* at any depth, each with its path as its name."""
        schema = self.resolved(schema)
        if id(schema) in above or len(above) > _MAX_DEPTH:
            return
        above = (*above, id(schema))
        if "items" in schema:
            yield from self.fields(schema["items"], f"{prefix}[]", above)
        for name, each in self.members(schema).items():
            path = f"{prefix}.{name}" if prefix else name
            yield each._replace(name=path)
            yield from self.fields(each.schema, path, above)

    def resolved(self, schema: Schema) -> Schema:
        """Return *schema*, or the one that it refers to."""
        self._steps -= 1
        for _ in range(_MAX_DEPTH):
            if "ref" not in schema:
                return schema
            schema = self._types.get(schema["ref"], {})
        return {}

    def _field(self, name: str, schema: Schema, required: bool, text: str) -> Field:
        target = self.resolved(schema)
        is_read_only = "is_read_only" in schema or "is_read_only" in target
        kind, values = self._type_of(schema, 0), self._values(schema, 0)
        return Field(name, kind, required, values, text or target.get("text", ""), schema, is_read_only)

    def _type_of(self, schema: Schema, depth: int) -> str:
        schema = self.resolved(schema)
        if depth > _MAX_DEPTH or self._steps < 0:
            return "any"
        names = list(schema.get("type", ()))
        if "array" in names:
            of = self._type_of(schema["items"], depth + 1) if "items" in schema else "any"
            names[names.index("array")] = "array" if of == "any" else f"array of {of}"
        elif kind := schema.get("format"):
            names = [name if name == "null" else f"{name} ({kind})" for name in names]
        if not names and "fields" in schema:
            names = ["object"]
        if not names:
            parts = (self._type_of(each, depth + 1).split(" or ") for each in _combined(schema))
            names = [name for part in parts for name in part if name != "any"]
        return " or ".join(sorted(dict.fromkeys(names), key=lambda name: name == "null")) or "any"

    def _values(self, schema: Schema, depth: int) -> list[str]:
        """Return the values that *schema*, or the elements of its array, may have; none if it may have any."""
        schema = self.resolved(schema)
        if "values" in schema or depth > _MAX_DEPTH or self._steps < 0:
            return list(schema.get("values", ()))
        if "items" in schema:
            return self._values(schema["items"], depth + 1)
        if schema.get("type") == ["boolean"]:
            return ["true", "false"]
        parts = [each for each in _combined(schema) if each.get("type") != ["null"]]
        return self._values(parts[0], depth + 1) if len(parts) == 1 else []

    def _members(self, schema: Schema, depth: int) -> Iterator[tuple[str, Schema]]:
        schema = self.resolved(schema)
        if depth > _MAX_DEPTH or self._steps < 0:
            return
        yield from schema.get("fields", {}).items()
        for each in _combined(schema):
            yield from self._members(each, depth + 1)

    def _required(self, schema: Schema, depth: int) -> set[str]:
        """Return the names of the fields that *schema* requires; of several alternatives, none."""
        schema = self.resolved(schema)
        found = set(schema.get("required", ()))
        if depth > _MAX_DEPTH or self._steps < 0:
            return found
        alternatives = [each for each in schema.get("any", ()) if each.get("type") != ["null"]]
        for each in (*schema.get("all", ()), *(alternatives if len(alternatives) == 1 else ())):
            found |= self._required(each, depth + 1)
        return found


def _combined(schema: Schema) -> list[Schema]:
    return [*schema.get("all", ()), *schema.get("any", ())]


def clean(text: object, limit: int = MAX_TEXT) -> str:
    """Return *text*, which comes from a document, as one printable line of about *limit* characters at most."""
    return shortened(" ".join(text[: 4 * limit].split()), limit) if isinstance(text, str) else ""


def listed(value: object) -> list[Any]:
    """Return *value* if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def _written(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return clean(str(value), MAX_NAME)
