"""List the fields of a schema, at any depth, to compare them with those of another version."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from xapi_cli.openapi.references import References
from xapi_cli.openapi.schemas import Schemas, TooComplex, clean_name

_MAX_DEPTH, _MAX_FIELDS = 8, 1000
_BUDGET = 50_000  # steps for one schema
_UNLIMITED = 2**62  # nothing is stored in an index


class Field(NamedTuple):
    """A field of a body, or a parameter; *values* are those that are allowed, if they are few."""

    type: str
    required: bool
    values: tuple[str, ...] = ()


class FieldList(NamedTuple):
    """Fields by their path, such as `items[].id`. If the schema is too complex, the list *is_complete* not."""

    fields: Mapping[str, Field]
    is_complete: bool = True


class FieldLister:
    """Lists the fields of schemas with *references*."""

    def __init__(self, references: References) -> None:
        self._references = references

    def of(self, schema: object, *, is_request: bool) -> FieldList:
        """Return the fields that a client can send with *schema* if it *is_request*, otherwise those it receives."""
        listing = _Listing(self._references, is_request)
        try:
            listing.add(schema, "", ())
        except TooComplex:
            return FieldList(listing.found, is_complete=False)
        return FieldList(listing.found)


class _Listing:
    """The fields that were *found* in one schema."""

    def __init__(self, references: References, is_request: bool) -> None:
        self.found: dict[str, Field] = {}
        self._references, self._is_request = references, is_request
        self._schemas = Schemas(references, _BUDGET, _UNLIMITED, 0)

    def add(self, schema: object, path: str, above: tuple[int, ...]) -> None:
        """Add the fields below *path*, whose schema is *schema*; *above* are the schemas that contain it.

        Raises TooComplex. A schema that contains itself is listed once.
        """
        node = self._references.resolve(schema)
        if id(node) in above or len(above) == _MAX_DEPTH:
            return
        above = (*above, id(node))
        if "items" in node:
            self.add(node["items"], f"{path}[]", above)
        properties, required = self._schemas.properties(schema, is_request=self._is_request)
        for name, value in properties.items():
            self._add_field(f"{path}.{clean_name(name)}", value, name in required, above)
        if isinstance(node.get("additionalProperties"), dict):
            self._add_field(f"{path}.*", node["additionalProperties"], False, above)

    def _add_field(self, path: str, schema: Any, is_required: bool, above: tuple[int, ...]) -> None:
        if len(self.found) == _MAX_FIELDS:
            raise TooComplex
        path = path.removeprefix(".")
        self.found[path] = Field(self._schemas.type_of(schema), is_required, self._schemas.values_of(schema))
        self.add(schema, path, above)
