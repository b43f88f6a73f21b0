"""What a schema says about a value, as far as versions of it are compared: types, allowed values, fields, elements.

A schema can consist of others. With `allOf`, all of them apply; with `oneOf` and `anyOf`, one of them, so that a field
is required only if each alternative requires it, and has the types of all alternatives.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from xapi_cli.openapi.schemas import References, TooComplex, clean_name, list_of

ANY, NULL = "any", "null"
_MAX_DEPTH = 16  # of schemas that consist of others
_ALTERNATIVES = ("oneOf", "anyOf")
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Field(NamedTuple):
    """A field of an object, with its *schema*; *is_described* is False if its name is only listed in `required`."""

    schema: object
    required: bool
    is_described: bool = True


class _Part(NamedTuple):
    """One part of a schema: the fields that it describes, and the names that it requires, maybe of other fields."""

    fields: dict[str, Field]
    required: set[str]


class SchemaReader:
    """Reads schemas with *references* as they are for what a client sends, if it *is_request*, or what it receives.

    Raises TooComplex after *budget* steps for a schema, or *total* steps for all.
    """

    def __init__(self, references: References, budget: int, total: int, *, is_request: bool) -> None:
        self._references, self._budget, self._total = references, budget, total
        self._excluded = "readOnly" if is_request else "writeOnly"
        self._is_request = is_request
        self._combined: dict[tuple[str, int, int], dict[str, Any]] = {}  # by the keyword and the parts
        self._allowed = self._left = 0

    def begin(self) -> None:
        """Begin to read another schema, with the whole budget."""
        self._total -= self._allowed - max(0, self._left)
        self._allowed = self._left = min(self._budget, self._total)

    def node(self, schema: object) -> Mapping[str, Any]:
        """Return the object *schema*, after its references; the same object each time."""
        self._left -= 1
        if self._left < 0:
            raise TooComplex
        return self._references.resolve(schema)

    def types(self, schema: object, depth: int = 0) -> tuple[str, ...]:
        """Return the types of *schema*; null is the last one. A string has its format: `string (date)`."""
        node = self.node(schema)
        found = dict.fromkeys(self._declared(node) or self._implied(node, depth))
        if node.get("nullable") is True or node.get("x-nullable") is True:  # OpenAPI 3.0, and Swagger 2
            found[NULL] = None
        if NULL in found and len(found) > 1:
            del found[NULL]
            found[NULL] = None
        return (ANY,) if ANY in found else tuple(found)

    @staticmethod
    def _declared(node: Mapping[str, Any]) -> list[str]:
        if node.get("format") == "binary" or node.get("contentMediaType") == "application/octet-stream":
            return ["file"]
        declared = node.get("type")
        names = [clean_name(each) for each in (declared if isinstance(declared, list) else [declared])]
        kind = clean_name(node.get("format"))
        return [f"{each} ({kind})" if each == "string" and kind else each for each in names if each]

    def _implied(self, node: Mapping[str, Any], depth: int) -> Iterator[str]:
        """Yield the types of *node*, which declares none."""
        listed = _listed(node)
        if isinstance(node.get("properties"), dict):
            yield "object"
        elif listed is not None:
            yield from (_JSON_TYPES.get(type(each), NULL) for each in listed)
        elif "items" in node:
            yield "array"
        elif depth < _MAX_DEPTH and (parts := list_of(node.get("allOf"))):
            all_types = [types for each in parts if (types := self.types(each, depth + 1)) != (ANY,)]
            for kind in all_types[0] if all_types else (ANY,):
                if kind != NULL or all(NULL in types for types in all_types):
                    yield kind
        elif depth < _MAX_DEPTH and (alternatives := _alternatives(node)):
            for each in alternatives:
                yield from self.types(each, depth + 1)
        else:
            yield ANY

    def values(self, schema: object, depth: int = 0) -> tuple[str, ...] | None:
        """Return the values that *schema* allows, without null; None if they are not listed."""
        node = self.node(schema)
        if (listed := _listed(node)) is not None:
            self._left -= len(listed)
            return tuple(dict.fromkeys(_text(each) for each in listed if each is not None))
        if depth == _MAX_DEPTH:
            return None
        for each in list_of(node.get("allOf")):
            if (found := self.values(each, depth + 1)) is not None:
                return found
        parts = [self.values(each, depth + 1) for each in _alternatives(node) if self.types(each) != (NULL,)]
        known = [each for each in parts if each is not None]
        return tuple(dict.fromkeys(chain(*known))) if known and len(known) == len(parts) else None

    def fields(self, schema: object) -> dict[str, Field]:
        """Return the fields of the object *schema* by name, including those that are only listed as required."""
        found, required = self._fields(schema, 0)
        found |= {name: Field(None, True, False) for name in sorted(required.difference(found))}
        if self._is_request:  # a client can omit a field that has a default value
            optional = {name for name, each in found.items() if each.required and self._has_default(each.schema)}
            found |= {name: found[name]._replace(required=False) for name in optional}
        return {name: each for name, each in found.items() if not self._is_excluded(each.schema)}

    def _fields(self, schema: object, depth: int) -> "_Part":
        node = self.node(schema)
        own, required = node.get("properties"), _names(node.get("required"))
        if isinstance(schema, dict):
            required |= _names(schema.get("required"))  # OpenAPI 3.1 permits it beside a $ref
        self._left -= len(required) + (len(own) if isinstance(own, dict) else 0)
        found = {clean_name(name): Field(each, False) for name, each in (own.items() if isinstance(own, dict) else ())}
        parts = [self._fields(each, depth + 1) for each in list_of(node.get("allOf")) if depth < _MAX_DEPTH]
        alternatives = [each for each in _alternatives(node) if depth < _MAX_DEPTH and self.types(each) != (NULL,)]
        if alternatives:
            parts.append(self._of_alternatives([self._fields(each, depth + 1) for each in alternatives]))
        for part in parts:
            required |= part.required
            for name, field in part.fields.items():
                found[name] = self._both(found[name], field) if name in found else field
        for name in required.intersection(found):
            found[name] = found[name]._replace(required=True)
        return _Part(found, required)

    def _has_default(self, schema: object, depth: int = 0) -> bool:
        """Return whether *schema* has a default value: in itself, beside its reference, in a part or an alternative."""
        node = self.node(schema)
        if "default" in node or (isinstance(schema, dict) and "default" in schema):
            return True
        parts = (*list_of(node.get("allOf")), *_alternatives(node)) if depth < _MAX_DEPTH else ()
        return any(self._has_default(each, depth + 1) for each in parts)

    def _both(self, one: Field, other: Field) -> Field:
        return Field(self._combination("allOf", one.schema, other.schema), one.required or other.required)

    def _of_alternatives(self, alternatives: "list[_Part]") -> "_Part":
        found: dict[str, Field] = {}
        for part in alternatives:
            for name, field in part.fields.items():
                known = found.get(name)
                if known is None:
                    is_required = field.required and all(name in each.fields for each in alternatives)
                    found[name] = field._replace(required=is_required)
                elif known.schema is not field.schema:
                    schema = self._combination("anyOf", known.schema, field.schema)
                    found[name] = Field(schema, known.required and field.required)
                else:
                    found[name] = known._replace(required=known.required and field.required)
        return _Part(found, set.intersection(*(each.required for each in alternatives)))

    def _combination(self, keyword: str, one: object, other: object) -> object:
        """Return a schema of two others, the same object each time."""
        if one is other:
            return one
        return self._combined.setdefault((keyword, id(one), id(other)), {keyword: [one, other]})

    def _is_excluded(self, schema: object, depth: int = 0) -> bool:
        """Return whether only the other side sends *schema*: the keyword is there, beside its `$ref`, or in `allOf`."""
        beside = isinstance(schema, dict) and schema.get(self._excluded) is True
        node = self.node(schema)
        if beside or node.get(self._excluded) is True:
            return True
        return depth < _MAX_DEPTH and any(self._is_excluded(each, depth + 1) for each in list_of(node.get("allOf")))

    def below(self, schema: object, keyword: str, depth: int = 0) -> object | None:
        """Return the schema of the elements (*keyword* `items`) or the other members (`additionalProperties`)."""
        node = self.node(schema)
        if isinstance(node.get(keyword), dict):
            found: object = node[keyword]
            return found
        if depth == _MAX_DEPTH:
            return None
        result = None
        for name in ("allOf", *_ALTERNATIVES):
            for each in list_of(node.get(name)):
                part = self.below(each, keyword, depth + 1)
                if part is not None:
                    result = part if result is None else self._combination(name, result, part)
        return result


def _listed(node: Mapping[str, Any]) -> list[Any] | None:
    listed = node.get("enum", [node["const"]] if "const" in node else None)
    return listed if isinstance(listed, list) else None


def _alternatives(node: Mapping[str, Any]) -> list[Any]:
    return [each for keyword in _ALTERNATIVES for each in list_of(node.get(keyword))]


def _names(value: object) -> set[str]:
    return {clean_name(each) for each in list_of(value) if isinstance(each, str)}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return clean_name(value if isinstance(value, str) else repr(value))
