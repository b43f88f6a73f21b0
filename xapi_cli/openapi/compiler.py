"""Compile an OpenAPI 3 or Swagger 2 document into operations."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from xapi_cli.errors import UsageError
from xapi_cli.openapi.fields import FieldList, FieldLister
from xapi_cli.openapi.operations import Body, Operation, Parameter, Response
from xapi_cli.openapi.references import References
from xapi_cli.openapi.schemas import Schemas, TooComplex, clean, clean_name
from xapi_cli.openapi.servers import DescribedServer, normalized, server

_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")  # xapi sends no TRACE
_ANY = "x-amazon-apigateway-any-method"  # of exports from AWS API Gateway: all methods that the path does not list
_METHODS_OF_ANY = _METHODS[:5]  # the others are supported wherever one of these is
_PLACES = ("path", "query", "header", "cookie")
_NOT_PARAMETERS = frozenset({
    "accept", "authorization", "content-type",  # OpenAPI 3.1, Parameter Object
    "connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",  # xapi's
})  # fmt: skip
_PREFERRED = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
_OTHER_KINDS = {  # by a field that only they have
    "asyncapi": "an AsyncAPI document",
    "discoveryVersion": "a Google API discovery document",
    "swaggerVersion": "a Swagger 1 document",
    "__schema": "a GraphQL schema",
    "$schema": "a JSON Schema",
    "item": "a Postman collection",
}
_MAX_OPERATIONS, _MAX_PARAMETERS, _MAX_RESPONSES = 50_000, 300, 50
_MAX_SUMMARY, _MAX_PATH, _MAX_PATHS = 120, 2000, 5_000_000  # characters; the last one is for all paths
_BUDGET, _BUDGET_OF_OPERATION = 5_000_000, 50_000  # steps, such as the visit of a schema
_CHARACTERS, _CHARACTERS_OF_OPERATION = 64_000_000, 256_000  # in the index
_LONG, _LONG_OF_OPERATION = 12_000_000, 128_000  # bytes of texts in the index that are longer than usual
_MAX_MEDIA_TYPES, _MAX_SERVERS = 100, 20


class Compiler:
    """Compiles *document*; raises UsageError if it is of another kind or describes no operation.

    *location* is the path of the document's URL, if it came from the API. `skipped` counts references to other
    documents, and `truncated` operations whose schemas are too complex. With `is_partial`, the document has paths that
    are not compiled, because they are in other documents or too long. Messages call the document *name*. If it
    *lists_fields*, `fields` are those of the bodies of each operation, by the status; that of the request has none.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        base_url: str | None = None,
        *,
        location: str | None = None,
        name: str = "the document",
        lists_fields: bool = False,
    ) -> None:
        self._name = name
        self._document, self._base_url = document, base_url or ""
        self._base_path = normalized(self._base_url.partition("://")[2].partition("/")[2])
        self._location = location or f"{self._base_path}/"
        self._is_swagger = _is_swagger(document, name)
        self._references = References(document)
        self._left, self._characters, self._long = _BUDGET, _CHARACTERS, _LONG
        self._servers = [] if self._is_swagger else self._servers_of(document)
        self._other_servers: list[DescribedServer] = []
        self._lister = FieldLister(self._references) if lists_fields else None
        self.fields: dict[tuple[str, str], dict[str, FieldList]] = {}
        self._fields_of_operation: dict[str, FieldList] = {}
        self.truncated = 0
        self.is_partial = False

    @property
    def skipped(self) -> int:
        """The number of references that lead to other documents or to nothing; known after `operations`."""
        return len(self._references.skipped)

    @property
    def title(self) -> str:
        """The title and the version of the API."""
        info = self._references.resolve(self._document.get("info"))
        return " ".join(filter(None, (clean_name(info.get("title")), clean_name(info.get("version")))))

    def server_path(self) -> str:
        """Return the path that all paths start with, according to the document; without a slash at its end.

        Prefer a server with the origin of the base URL, and among those one with its path; otherwise, use the first.
        """
        if self._is_swagger:
            return normalized(f"/{clean_name(self._document.get('basePath'))}")
        base = f"{self._base_url.lower()}/"
        ours = [each for each in self._servers if each.origin and base.startswith(f"{each.origin}/")]
        paths = [each.path for each in ours or self._servers] or [""]
        return self._base_path if self._base_path in paths else paths[0]

    def other_server_paths(self) -> list[str]:
        """Return the other server paths, with their variables as parameters; known after `operations`."""
        servers = [*self._servers, *self._other_servers]
        paths = dict.fromkeys(path for each in servers for path in (each.path, each.template))
        return [path for path in paths if path != self.server_path()][:_MAX_SERVERS]

    def _servers_of(self, node: Mapping[str, Any]) -> list[DescribedServer]:
        listed = _list(node.get("servers"))[:_MAX_SERVERS]
        return [server(self._references.resolve(each), self._location) for each in listed]

    def operations(self) -> list[Operation]:
        """Return all operations, in the order of the document."""
        found = []
        for operation in self._operations():
            found.append(operation)
            if len(found) > _MAX_OPERATIONS:
                raise UsageError(f"{self._name} describes more than {_MAX_OPERATIONS:,} operations")
        if not found:
            raise UsageError(f"{self._name} contains no operations", hint="check that it is complete")
        return found

    def _operations(self) -> Iterator[Operation]:
        paths = self._document.get("paths")
        left = _MAX_PATHS  # every request reads them
        for path, value in paths.items() if isinstance(paths, dict) else ():
            if path.startswith("x-"):
                continue
            item = self._references.resolve(value)
            if len(path) > _MAX_PATH or (isinstance(value, dict) and "$ref" in value and not item):
                self.is_partial = True
                continue
            written = clean(path if path.startswith("/") else f"/{path}", _MAX_PATH + 1)
            left -= len(written)
            if left < 0:
                raise UsageError(f"{self._name} has paths of more than {_MAX_PATHS:,} characters in total")
            for name in _METHODS:
                node = item.get(name) if name in item else item.get(_ANY) if name in _METHODS_OF_ANY else None
                if isinstance(node, dict):
                    self._add_servers(item, node)
                    yield self._operation(name.upper(), written, item, node)

    def _add_servers(self, *nodes: Mapping[str, Any]) -> None:
        """Remember the servers of a path or an operation, which apply to it instead of those of the document."""
        for node in nodes:
            if "servers" in node and len(self._other_servers) < _MAX_SERVERS and not self._is_swagger:
                self._other_servers += self._servers_of(node)

    def _operation(self, method: str, path: str, item: Mapping[str, Any], node: Mapping[str, Any]) -> Operation:
        allowed, characters = min(self._left, _BUDGET_OF_OPERATION), min(self._characters, _CHARACTERS_OF_OPERATION)
        long = min(self._long, _LONG_OF_OPERATION)
        schemas = Schemas(self._references, allowed, characters, long)
        summary = schemas.text(node.get("summary"), _MAX_SUMMARY) or clean(node.get("description"), _MAX_SUMMARY)
        summary = summary or schemas.text(item.get("summary"), _MAX_SUMMARY)
        if node.get("deprecated") is True:
            summary = f"(deprecated) {summary}".rstrip()
        operation = Operation(method, path, summary)
        self._fields_of_operation = self.fields[method, path] = {}
        try:
            text = schemas.text(node.get("description"))
            schemas.store(text)
            operation = operation._replace(text=text)
            return self._with_details(operation, schemas, item, node)
        except TooComplex:
            self.truncated += 1
            return operation
        finally:
            self._left = self._left - allowed + max(0, schemas.left)
            self._characters = self._characters - characters + max(0, schemas.characters)
            self._long -= long - schemas.long

    def _with_details(
        self, operation: Operation, schemas: Schemas, item: Mapping[str, Any], node: Mapping[str, Any]
    ) -> Operation:
        written = [value for each in (item, node) for value in _list(each.get("parameters"))[:_MAX_PARAMETERS]]
        schemas.spend(len(written))
        nodes = {
            _key(each): each
            for value in written
            if isinstance((each := self._references.resolve(value)).get("name"), str)
            and isinstance(each.get("in"), str)
        }
        listed = list(nodes.values())[:_MAX_PARAMETERS]
        parameters = [self._parameter(each, schemas) for each in listed if _is_parameter(each)]
        if self._is_swagger:
            body, fields = self._swagger_body(listed, node, schemas)
        else:
            body, fields = self._body(node.get("requestBody"), schemas)
        return operation._replace(
            parameters=[*parameters, *fields],
            body=body,
            responses=list(self._responses(node.get("responses"), schemas)),
        )

    def _parameter(self, node: Mapping[str, Any], schemas: Schemas) -> Parameter:
        schema, content = node if self._is_swagger else node.get("schema"), node.get("content")
        is_json = schema is None and isinstance(content, dict) and list(islice(content, 1)) == ["application/json"]
        if schema is None:  # a parameter with a media type
            schema = self._references.resolve(_first(content)).get("schema")
        location = node["in"]
        required = node.get("required") is True or location == "path"
        found = schemas.parameter(node["name"], location, schema, required=required, text=node.get("description"))
        return found._replace(type=f"JSON ({found.type})", values=()) if is_json else found

    def _body(self, value: object, schemas: Schemas) -> tuple[Body | None, list[Parameter]]:
        node = self._references.resolve(value)
        content = node.get("content")
        if not isinstance(content, dict) or not content:
            return None, []
        media_type = _preferred(list(islice(content, _MAX_MEDIA_TYPES)))
        schema = self._references.resolve(content[media_type]).get("schema")
        is_required = node.get("required") is True
        fields = schemas.fields(schema)
        self._list_fields("", schema)
        return Body(clean_name(media_type), is_required, schemas.type_of(schema)), fields

    def _swagger_body(
        self, listed: list[Mapping[str, Any]], node: Mapping[str, Any], schemas: Schemas
    ) -> tuple[Body | None, list[Parameter]]:
        consumes = _list(node.get("consumes")) or _list(self._document.get("consumes"))
        types = [each for each in consumes[:_MAX_MEDIA_TYPES] if isinstance(each, str)]
        for each in listed:
            if each.get("in") == "body":
                schema, required = each.get("schema"), each.get("required") is True
                media_type = clean_name(_preferred(types or ["application/json"]))
                self._list_fields("", schema)
                return Body(media_type, required, schemas.type_of(schema)), schemas.fields(schema)
        forms = [each for each in listed if each.get("in") == "formData"]
        if not forms:
            return None, []
        fields = [
            schemas.parameter(
                each["name"], "body", each, required=each.get("required") is True, text=each.get("description")
            )
            for each in forms
        ]
        media_type = "multipart/form-data" if any(each.is_file for each in fields) else _PREFERRED[1]
        return Body(media_type, any(each.required for each in fields), "object"), fields

    def _list_fields(self, place: str, schema: object) -> None:
        if self._lister is not None:
            self._fields_of_operation[place] = self._lister.of(schema, is_request=not place)

    def _responses(self, value: object, schemas: Schemas) -> Iterator[Response]:
        for status, each in islice(value.items(), _MAX_RESPONSES) if isinstance(value, dict) else ():
            node = self._references.resolve(each)
            schema = node.get("schema")
            content = node.get("content")
            if isinstance(content, dict) and content:
                media_type = _preferred(list(islice(content, _MAX_MEDIA_TYPES)))
                schema = self._references.resolve(content[media_type]).get("schema")
            kind = "" if schema is None else schemas.type_of(schema)
            self._list_fields(clean_name(status), schema)
            response = Response(clean_name(status), schemas.text(node.get("description")), kind)
            schemas.store(*response)
            yield response


def _is_swagger(document: Mapping[str, Any], name: str) -> bool:
    """Return whether *document* is Swagger 2; raise UsageError if it is not OpenAPI 3 either."""
    version = document.get("openapi", document.get("swagger"))
    text = clean_name(version)
    if "openapi" in document and (text == "3" or text.startswith("3.")):
        return False
    if "openapi" not in document and text in ("2", "2.0"):
        return True
    if text:
        kind = "OpenAPI" if "openapi" in document else "Swagger"
        what = f"uses {kind} {text}, which is not supported"
    elif other := next((kind for field, kind in _OTHER_KINDS.items() if field in document), None):
        what = f"is {other}, not an OpenAPI document"
    else:
        what = "is not an OpenAPI document: it has neither an `openapi` nor a `swagger` field"
    raise UsageError(f"{name} {what}", hint="load an OpenAPI 3 or Swagger 2 document")


def _is_parameter(node: Mapping[str, Any]) -> bool:
    return node["in"] in _PLACES and not (node["in"] == "header" and node["name"].lower() in _NOT_PARAMETERS)


def _key(node: Mapping[str, Any]) -> tuple[str, str]:
    """Return what identifies a parameter, so that one of the operation replaces that of the path."""
    place, name = node["in"], node["name"]
    return place, name.lower() if place == "header" else "" if place == "body" else name


def _preferred(media_types: list[str]) -> str:
    """Return the media type that xapi sends most easily."""
    for wanted in _PREFERRED:
        for media_type in media_types:
            if media_type.partition(";")[0].strip().lower() == wanted:
                return media_type
    return next((each for each in media_types if each.endswith("+json")), media_types[0])


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: object) -> object:
    """Return the first value of an object, None if there is none."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None
