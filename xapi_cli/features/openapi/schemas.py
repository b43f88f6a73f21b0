"""The schemas of a description: their types in words, and the fields of objects at any depth.

They are read when they are needed, because a short document can describe any number of fields; and each of them once,
because many combine the same others. The document may have anything in any place.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xapi_cli.system.render import shortened

Node = Mapping[str, Any]
MAX_TEXT, MAX_NAME = 500, 200  # characters
_MAX_DEPTH, _MAX_VALUES = 10, 50
_NOTHING: Node = {}


class Shape(NamedTuple):
    """What a schema, with those that it combines, says of a value.

    *type* is in words: `array of string`, `string (date)`, `object or null`. *values* are those that the value, or the
    elements of an array, may have; there are none if it may have any.
    """

    type: str = "any"
    values: tuple[str, ...] = ()
    text: str = ""
    fields: Mapping[str, Node] = _NOTHING
    required: frozenset[str] = frozenset()


class Field(NamedTuple):
    """A field of a body at any depth, such as `items[].owner.email`, or a parameter; *shape* is that of *schema*."""

    name: str
    required: bool
    text: str
    schema: Node
    shape: Shape


class Schemas:
    """The schemas of *document*."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._shapes: dict[int, Shape] = {}  # by the identity of the schema

    def resolve(self, node: object) -> Node:
        """Return the object *node*, or the one in this document to which its `$ref` leads; an empty one otherwise."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
                break
            node = self._target(reference)
        return node if isinstance(node, dict) else _NOTHING

    def _target(self, reference: str) -> object:
        """Return the value to which the JSON pointer *reference* (RFC 6901) leads, None if there is none."""
        start, *parts = reference.split("/")
        value: object = self._document if start == "#" else None
        for part in parts:
            value = mapping(value).get(part.replace("~1", "/").replace("~0", "~"))
        return value

    def field(self, name: str, node: object, *, required: bool, text: str = "") -> Field:
        """Return the field or parameter *name* with the schema *node*."""
        shape = self.shape(node)
        return Field(name, required, text or shape.text, self.resolve(node), shape)

    def members(self, node: object) -> dict[str, Field]:
        """Return the fields of the object with the schema *node* itself, by their names."""
        shape = self.shape(node)
        return {name: self.field(name, each, required=name in shape.required) for name, each in shape.fields.items()}

    def fields(self, node: object, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[Field]:
        """Yield the fields of the schema *node* at any depth, each with its path as its name."""
        schema = self.resolve(node)
        if id(schema) in above or len(above) > _MAX_DEPTH:
            return
        above = (*above, id(schema))
        if "items" in schema:
            yield from self.fields(schema["items"], f"{prefix}[]", above)
        for name, each in self.members(schema).items():
            path = f"{prefix}.{name}" if prefix else name
            yield each._replace(name=path)
            yield from self.fields(each.schema, path, above)

    def shape(self, node: object) -> Shape:
        """Return the shape of the schema *node*."""
        schema = self.resolve(node)
        if id(schema) not in self._shapes:
            self._shapes[id(schema)] = Shape()  # for a schema that contains itself
            self._shapes[id(schema)] = self._read(schema)
        return self._shapes[id(schema)]

    def _read(self, schema: Node) -> Shape:
        every = [self.shape(each) for each in listed(schema.get("allOf"))]
        some = [self.shape(each) for name in ("oneOf", "anyOf") for each in listed(schema.get(name))]
        alternatives = [each for each in some if each.type != "null"]
        # of several alternatives, none is certain
        certain = [*every, *(alternatives if len(alternatives) == 1 else ())]
        fields = {clean(name, MAX_NAME): each for name, each in mapping(schema.get("properties")).items()}
        if others := mapping(schema.get("additionalProperties")):
            fields["*"] = others
        names = self._names(schema) or (["object"] if fields else [])
        for part in (*every, *some):
            fields |= {name: each for name, each in part.fields.items() if name not in fields}
        if not names:
            names = [name for part in (*every, *some) for name in part.type.split(" or ") if name != "any"]
        return Shape(
            type=" or ".join(sorted(dict.fromkeys(names), key=lambda name: name == "null")) or "any",
            values=self._values(schema) or (certain[0].values if len(certain) == 1 else ()),
            text=clean(schema.get("description")),
            fields=fields,
            required=frozenset().union(_texts(schema.get("required")), *(each.required for each in certain)),
        )

    def _names(self, schema: Node) -> list[str]:
        """Return the types that *schema* itself has, in words."""
        given = schema.get("type")
        names = _texts(given if isinstance(given, list) else [given])
        if schema.get("nullable") is True:
            names.append("null")
        kind = clean(schema.get("format"), MAX_NAME)
        if "array" in names:
            of = self.shape(schema.get("items")).type
            names[names.index("array")] = "array" if of == "any" else f"array of {of}"
        elif kind:
            names = [name if name == "null" else f"{name} ({kind})" for name in names]
        return names

    def _values(self, schema: Node) -> tuple[str, ...]:
        values = listed(schema.get("enum", [schema["const"]] if "const" in schema else None))[:_MAX_VALUES]
        return tuple(map(_written, values)) or (self.shape(schema["items"]).values if "items" in schema else ())


def clean(text: object, limit: int = MAX_TEXT) -> str:
    """Return *text*, which comes from a document, as one printable line of about *limit* characters at most."""
    return shortened(" ".join(text[: 4 * limit].split()), limit) if isinstance(text, str) else ""


def listed(value: object) -> list[Any]:
    """Return *value* if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def mapping(value: object) -> Node:
    """Return *value* if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def _texts(value: object) -> list[str]:
    return [clean(each, MAX_NAME) for each in listed(value) if isinstance(each, str)]


def _written(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return clean(str(value), MAX_NAME)
