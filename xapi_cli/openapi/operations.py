"""What a document describes: operations with their parameters, bodies and responses, as plain values."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_JSON_TYPES = ("integer", "number", "boolean", "object")


class Parameter(NamedTuple):
    """A parameter or a body field; *location* is `path`, `query`, `header`, `cookie` or `body`.

    *type* is for readers, and decides how a value is written. *values* are those that are allowed, if they are few.
    With *suggested*, the first of several alternatives requires it, so that it belongs to an example.
    """

    name: str
    location: str
    type: str
    required: bool = False
    values: Sequence[str] = ()
    text: str = ""
    suggested: bool = False

    @property
    def types(self) -> list[str]:
        """The types that a value may have, apart from null."""
        return [each for each in self.type.split(" or ") if each != "null"]

    @property
    def is_file(self) -> bool:
        """Whether a multipart body contains this field as a file, or as several ones."""
        return set(self.types) in ({"file"}, {"array of file"})

    @property
    def is_json_text(self) -> bool:
        """Whether the value of this parameter is JSON."""
        return self.type.startswith("JSON (")

    @property
    def is_exploded(self) -> bool:
        """Whether the members of an object may be sent as their own parameters (style `form`, `explode`)."""
        return not {"any", "object"}.isdisjoint(self.types)

    def separator(self, *, is_form: bool) -> str:
        """Return the separator of the ITEM for this body field, in a form or in JSON."""
        if self.type == "file" or (is_form and self.is_file):
            return "@"
        is_json = all(each in _JSON_TYPES or each.startswith("array") for each in self.types) and bool(self.types)
        return ":=" if is_json and not is_form else "="


class Body(NamedTuple):
    """The body of a request; its fields are parameters."""

    media_type: str
    required: bool
    type: str

    @property
    def is_form(self) -> bool:
        """Whether the fields are sent as a form."""
        return self.is_multipart or self._essence == "application/x-www-form-urlencoded"

    @property
    def is_multipart(self) -> bool:
        """Whether the fields are sent as the parts of a multipart body."""
        return self._essence == "multipart/form-data"

    @property
    def is_json(self) -> bool:
        """Whether the fields are sent as JSON."""
        return self._essence.endswith(("/json", "+json")) or "*" in self._essence

    @property
    def content_type(self) -> str:
        """The media type that a request must set; empty if it is the one that xapi sends."""
        return "" if self.is_form or self._essence == "application/json" or "*" in self._essence else self.media_type

    @property
    def _essence(self) -> str:
        """The media type without its parameters (WHATWG MIME Sniffing)."""
        return self.media_type.partition(";")[0].strip().lower()


class Response(NamedTuple):
    """A response to an operation; *status* is a status code, `2XX` or `default`."""

    status: str
    text: str
    type: str


class DescribedParameter(NamedTuple):
    """A parameter outside the body, as the document describes it."""

    name: str
    location: str
    required: bool
    schema: object


class Details(NamedTuple):
    """The schemas of an operation, as the document has them: of the body, and of each response, by the media type."""

    parameters: Sequence[DescribedParameter]
    body: Mapping[str, object]
    is_body_required: bool
    responses: Mapping[str, Mapping[str, object]]


class Operation(NamedTuple):
    """A method on a path, which is a template with `{name}` for each path parameter."""

    method: str
    path: str
    summary: str
    text: str = ""
    parameters: Sequence[Parameter] = ()
    body: Body | None = None
    responses: Sequence[Response] = ()

    def parameters_in(self, location: str) -> list[Parameter]:
        """Return the parameters in *location*."""
        return [parameter for parameter in self.parameters if parameter.location == location]
