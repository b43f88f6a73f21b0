"""Compile an OpenAPI 3 or Swagger 2 description into operations."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.openapi.operations import Body, DescribedParameter, Details, Operation, Parameter, Response
from xapi_cli.openapi.schemas import References, Schemas, TooComplex, clean, clean_name, list_of

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
_URL = re.compile(r"(?:(https?://[^/?#]*)|//[^/?#]*)?([^?#]*)", re.IGNORECASE)
_WRITTEN_PATH = re.compile(r"(?:[^/?#]*//[^/?#]*)?(/[^?#]*)")  # of a URL with variables
_VARIABLE = re.compile(r"\{([^{}]*)\}")


class DescribedServer(NamedTuple):
    """A server: its origin, empty if its URL is relative, and its path, in *template* with variables as parameters."""

    origin: str
    path: str
    template: str


def server(node: Mapping[str, Any], location: str) -> DescribedServer:
    """Return the server *node* of a document at the path *location*; variables have their defaults."""
    variables = node.get("variables")

    def default(match: re.Match[str]) -> str:
        variable = variables.get(match[1]) if isinstance(variables, dict) else None
        return clean_name(variable.get("default")) if isinstance(variable, dict) else ""

    url = clean(node.get("url")).partition("?")[0].partition("#")[0]
    if not (match := _URL.fullmatch(_VARIABLE.sub(default, url))):
        return DescribedServer("", "", "")
    path = normalized(posixpath.join(posixpath.dirname(location), match[2])) if match[2] else ""
    written = _WRITTEN_PATH.fullmatch(url)
    return DescribedServer((match[1] or "").lower(), path, normalized(written[1]) if written else path)


def normalized(path: str) -> str:
    """Return *path* without dot segments, repeated slashes and the slash at its end."""
    return re.sub("/+", "/", posixpath.normpath(f"/{path}")).rstrip("/")


class Compiler:
    """Compiles *document*; raises UsageError if it is of another kind or describes no operation.

    *location* is the path of the document's URL, if it came from the API. `skipped` counts references to other
    documents, and `truncated` operations whose schemas are too complex. With `is_partial`, the document has paths that
    are not compiled, because they are in other documents or too long. Messages call the document *name*.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        base_url: str | None = None,
        *,
        location: str | None = None,
        name: str = "the document",
    ) -> None:
        self._name = name
        self._document, self._base_url = document, base_url or ""
        self._base_path = normalized(self._base_url.partition("://")[2].partition("/")[2])
        self._location = location or f"{self._base_path}/"
        self._is_swagger = _is_swagger(document, name)
        self.references = References(document)
        self._left, self._characters, self._long = _BUDGET, _CHARACTERS, _LONG
        self._servers = [] if self._is_swagger else self._servers_of(document)
        self._other_servers: list[DescribedServer] = []
        self._nodes: dict[tuple[str, str], tuple[Mapping[str, Any], Mapping[str, Any]]] = {}  # path item and operation
        self.truncated = 0
        self.is_partial = False

    @property
    def skipped(self) -> int:
        """The number of references that lead to other documents or to nothing; known after `operations`."""
        return len(self.references.skipped)

    @property
    def title(self) -> str:
        """The title and the version of the API."""
        info = self.references.resolve(self._document.get("info"))
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
        listed = list_of(node.get("servers"))[:_MAX_SERVERS]
        return [server(self.references.resolve(each), self._location) for each in listed]

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
            item = self.references.resolve(value)
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
        schemas = Schemas(self.references, allowed, characters, long)
        summary = schemas.text(node.get("summary"), _MAX_SUMMARY) or clean(node.get("description"), _MAX_SUMMARY)
        summary = summary or schemas.text(item.get("summary"), _MAX_SUMMARY)
        if node.get("deprecated") is True:
            summary = f"(deprecated) {summary}".rstrip()
        operation = Operation(method, path, summary)
        self._nodes[method, path] = item, node
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
        schemas.spend(sum(len(list_of(each.get("parameters"))) for each in (item, node)))
        listed = self._listed_parameters(item, node)
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

    def _listed_parameters(self, item: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        written = [value for each in (item, node) for value in list_of(each.get("parameters"))[:_MAX_PARAMETERS]]
        nodes = {
            _key(each): each
            for value in written
            if isinstance((each := self.references.resolve(value)).get("name"), str) and isinstance(each.get("in"), str)
        }
        return list(nodes.values())[:_MAX_PARAMETERS]

    def _schema_of(self, parameter: Mapping[str, Any]) -> object:
        if self._is_swagger:
            return parameter
        if (schema := parameter.get("schema")) is not None:
            return schema
        return self.references.resolve(_first(parameter.get("content"))).get("schema")  # it has a media type

    def _parameter(self, node: Mapping[str, Any], schemas: Schemas) -> Parameter:
        schema, content = self._schema_of(node), node.get("content")
        has_own = self._is_swagger or node.get("schema") is not None
        is_json = not has_own and isinstance(content, dict) and list(islice(content, 1)) == ["application/json"]
        location = node["in"]
        required = node.get("required") is True or location == "path"
        found = schemas.parameter(node["name"], location, schema, required=required, text=node.get("description"))
        return found._replace(type=f"JSON ({found.type})", values=()) if is_json else found

    def _body(self, value: object, schemas: Schemas) -> tuple[Body | None, list[Parameter]]:
        node = self.references.resolve(value)
        content = node.get("content")
        if not isinstance(content, dict) or not content:
            return None, []
        media_type = _preferred(list(islice(content, _MAX_MEDIA_TYPES)))
        schema = self.references.resolve(content[media_type]).get("schema")
        is_required = node.get("required") is True
        fields = schemas.fields(schema)
        return Body(clean_name(media_type), is_required, schemas.type_of(schema)), fields

    def _swagger_body(
        self, listed: list[Mapping[str, Any]], node: Mapping[str, Any], schemas: Schemas
    ) -> tuple[Body | None, list[Parameter]]:
        consumes = list_of(node.get("consumes")) or list_of(self._document.get("consumes"))
        types = [each for each in consumes[:_MAX_MEDIA_TYPES] if isinstance(each, str)]
        for each in listed:
            if each.get("in") == "body":
                schema, required = each.get("schema"), each.get("required") is True
                media_type = clean_name(_preferred(types or ["application/json"]))
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

    def details(self) -> dict[tuple[str, str], Details]:
        """Return the schemas of the operations by method and path; call `operations` before."""
        return {key: self._details(*nodes) for key, nodes in self._nodes.items()}

    def _details(self, item: Mapping[str, Any], node: Mapping[str, Any]) -> Details:
        listed = self._listed_parameters(item, node)
        parameters = [
            DescribedParameter(clean_name(each["name"]), each["in"], self._is_needed(each), self._schema_of(each))
            for each in listed
            if _is_parameter(each)
        ]
        written = node.get("responses")
        responses = {
            _status(name): self._response_schemas(node, each)
            for name, each in (islice(written.items(), _MAX_RESPONSES) if isinstance(written, dict) else ())
        }
        return Details(parameters, *self._body_schemas(listed, node), responses)

    def _is_needed(self, parameter: Mapping[str, Any]) -> bool:
        schema = self._schema_of(parameter)
        parts = (schema, self.references.resolve(schema))  # the default value may be beside the reference
        has_default = any(isinstance(each, dict) and "default" in each for each in parts)
        return parameter["in"] == "path" or (parameter.get("required") is True and not has_default)

    def _body_schemas(self, listed: list[Mapping[str, Any]], node: Mapping[str, Any]) -> tuple[dict[str, object], bool]:
        """Return the schemas of the body of the operation *node* by their media types, and whether it is required."""
        if not self._is_swagger:
            body = self.references.resolve(node.get("requestBody"))
            return self._content(body), body.get("required") is True
        for each in listed:
            if each.get("in") == "body":
                types = self._declared(node, "consumes")
                return dict.fromkeys(types, each.get("schema")), each.get("required") is True
        forms = {each["name"]: each for each in listed if each.get("in") == "formData"}
        if not forms:
            return {}, False
        needed = [name for name, each in forms.items() if self._is_needed(each)]
        is_file = any(each.get("type") == "file" for each in forms.values())
        schema = {"type": "object", "properties": forms, "required": needed}
        return {"multipart/form-data" if is_file else _PREFERRED[1]: schema}, bool(needed)

    def _response_schemas(self, node: Mapping[str, Any], value: object) -> dict[str, object]:
        response = self.references.resolve(value)
        if not self._is_swagger:
            return self._content(response)
        schema = response.get("schema")
        return {} if schema is None else dict.fromkeys(self._declared(node, "produces"), schema)

    def _declared(self, node: Mapping[str, Any], name: str) -> list[str]:
        """Return the media types that the operation *node* or else the document lists under *name*."""
        listed = list_of(node.get(name)) or list_of(self._document.get(name)) or ["application/json"]
        return [_essence(each) for each in listed[:_MAX_MEDIA_TYPES] if isinstance(each, str)]

    def _content(self, node: Mapping[str, Any]) -> dict[str, object]:
        content = node.get("content")
        return {
            _essence(name): self.references.resolve(each).get("schema")
            for name, each in (islice(content.items(), _MAX_MEDIA_TYPES) if isinstance(content, dict) else ())
        }

    def _responses(self, value: object, schemas: Schemas) -> Iterator[Response]:
        for status, each in islice(value.items(), _MAX_RESPONSES) if isinstance(value, dict) else ():
            node = self.references.resolve(each)
            schema = node.get("schema")
            content = node.get("content")
            if isinstance(content, dict) and content:
                media_type = _preferred(list(islice(content, _MAX_MEDIA_TYPES)))
                schema = self.references.resolve(content[media_type]).get("schema")
            kind = "" if schema is None else schemas.type_of(schema)
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
        what = f"is {other}, not an OpenAPI description"
    else:
        what = "is not an OpenAPI description: it has neither an `openapi` nor a `swagger` field"
    raise UsageError(f"{name} {what}", hint="load an OpenAPI 3 or Swagger 2 description")


def _essence(media_type: str) -> str:
    """Return *media_type* without its parameters."""
    return clean_name(media_type.partition(";")[0]).lower()


def _status(name: object) -> str:
    """Return the status or the range *name*: `200`, `2XX` or `default`; YAML has numbers."""
    text = clean_name(name if isinstance(name, str) else str(name))
    return text if text == "default" else text.upper()


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


def _first(value: object) -> object:
    """Return the first value of an object, None if there is none."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None
