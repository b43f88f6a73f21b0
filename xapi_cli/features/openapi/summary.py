"""The summary of an API description (OpenAPI 3, JSON): one small file for each profile in the state directory.

`xapi api load` writes it, and everything else reads only it: the operations, each with its path relative to the base
URL, and the types that they refer to.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urljoin

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.openapi.schemas import MAX_NAME, Field, Reader, Schema, Types, clean, listed
from xapi_cli.hints import Run
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.system.render import printable

MAX_SIZE = 50_000_000  # bytes of a document
_MAX_VALUES = 3_000_000  # of a document: in memory, a value takes up to 40 times its size
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")  # xapi sends no TRACE
FORM = "application/x-www-form-urlencoded"
_PREFERRED = ("application/json", FORM, "multipart/form-data")
_LOAD_AGAIN = ("run ", Run("api load"), " again")


class Operation(NamedTuple):
    """A method and a path, which is a template with `{name}` for each path parameter.

    *parameters* are pairs of their place (`path`, `query`, `header`, `cookie`) and the parameter. *media_type*, *body*
    and *is_body_required* describe the body, if there is one; *responses* has the text and the schema of each status.
    """

    method: str
    path: str
    summary: str
    text: str
    parameters: list[tuple[str, Field]]
    media_type: str
    body: Schema
    is_body_required: bool
    responses: dict[str, tuple[str, Schema]]

    @property
    def is_form(self) -> bool:
        """Whether the fields of the body are sent as a form."""
        return self.media_type in _PREFERRED[1:]


class Summary:
    """The summary in *content*, which `summarized` has made."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self.title: str = content["title"]
        self.base_url: str = content["base_url"]  # that of the profile when it was loaded
        self.source: str = content["source"]  # the file or PATH to load it again from; empty if that is not known
        self.skipped: int = content["skipped"]  # references to other documents, or to nothing
        self.types = Types(content["types"])

    def __len__(self) -> int:
        return len(self._content["operations"])

    def names(self) -> Iterator[tuple[str, str, str]]:
        """Yield method, path and summary of each operation."""
        return ((each["method"], each["path"], each["summary"]) for each in self._content["operations"])

    def operations(self, path: str | None = None) -> list[Operation]:
        """Return the operations, all or those of the template *path*."""
        found = self._content["operations"]
        return [self._operation(each) for each in found if path in (None, each["path"])]

    def _operation(self, node: dict[str, Any]) -> Operation:
        parameters = [
            (place, self.types.parameter(name, schema, required=required, text=text))
            for place, name, schema, required, text in node["parameters"]
        ]
        responses = {status: (text, schema) for status, (text, schema) in node["responses"].items()}
        return Operation(**{**node, "parameters": parameters, "responses": responses})

    def matching(self, path: str) -> list[str]:
        """Return the templates that *path* matches, a template or a path with values; the most specific one first."""
        templates = dict.fromkeys(each["path"] for each in self._content["operations"])
        found = [each for each in templates if each == path or _pattern(each).fullmatch(path)]
        return sorted(found, key=lambda each: (each != path, each.count("{")))

    def encoded(self) -> bytes:
        """Return the content of the file of this summary."""
        return json.dumps(self._content, ensure_ascii=False, separators=(",", ":")).encode()


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^{}]*\})", template)
    return re.compile("".join("[^/]+" if index % 2 else re.escape(part) for index, part in enumerate(parts)))


def summarized(text: str, name: str, *, base_url: str, location: str, source: str) -> Summary:
    """Return the summary of the document *text*, which messages call *name*.

    Paths are relative to *base_url*; *location* is the URL of the document. Raises UsageError if it is not an OpenAPI 3
    description in JSON.
    """
    document = _parsed(text, name)
    reader = Reader(document)
    server = _server_path(document, location, base_url)
    content = {
        "title": " ".join(
            clean(reader.resolve(document.get("info")).get(key), MAX_NAME) for key in ("title", "version")
        ).strip(),
        "base_url": base_url,
        "source": source,
        "operations": list(_operations(document, reader, server)),
    }
    if not content["operations"]:
        raise UsageError(f"{name} contains no operations", hint="check that it is complete")
    reader.read_types()
    return Summary({**content, "types": reader.types, "skipped": len(reader.skipped)})


def _parsed(text: str, name: str) -> dict[str, Any]:
    start = text.lstrip()[:1]
    if start == "<":
        raise UsageError(f"{name} is HTML or XML, not an OpenAPI description", hint="load the description itself")
    if sum(map(text.count, "{[,")) > _MAX_VALUES:
        raise UsageError(f"{name} has more than {_MAX_VALUES:,} values", hint="load a smaller description")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        hint = "convert YAML to JSON, for example with yq" if start not in ("{", "[") else "correct it"
        raise UsageError(f"{name} is not valid JSON at {where}", hint=hint) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; too many levels
        raise UsageError(f"{name} is not an OpenAPI description", hint="check that it is the right file") from None
    version = document.get("openapi") if isinstance(document, dict) else None
    if not isinstance(version, str) or not version.startswith("3."):
        is_old = isinstance(document, dict) and "swagger" in document
        hint = "convert Swagger 2 to OpenAPI 3" if is_old else "check that it is the right file"
        raise UsageError(f"{name} is not an OpenAPI 3 description", hint=hint)
    return dict(document)


def _server_path(document: Schema, location: str, base_url: str) -> str:
    """Return what precedes all paths of *document* below *base_url*; of several servers, its own one counts."""
    found = []
    for server in listed(document.get("servers"))[:20] or [{"url": "/"}]:
        url = server.get("url") if isinstance(server, dict) else None
        for name, variable in _variables(server):
            url = str(url).replace(f"{{{name}}}", variable)
        found.append(urljoin(location, url) if isinstance(url, str) else location)
    for url in found:
        if url.rstrip("/") == base_url:
            return ""
    path, base = (f"/{url.partition('://')[2].partition('/')[2]}".rstrip("/") for url in (found[0], base_url))
    return path.removeprefix(base) if f"{path}/".startswith(f"{base}/") else path


def _variables(server: Any) -> Iterator[tuple[str, str]]:
    variables = server.get("variables") if isinstance(server, dict) else None
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        yield name, clean(variable.get("default"), MAX_NAME) if isinstance(variable, dict) else ""


def _operations(document: Schema, reader: Reader, server: str) -> Iterator[dict[str, Any]]:
    paths = document.get("paths")
    for path, value in paths.items() if isinstance(paths, dict) else ():
        item = reader.resolve(value)
        for method in _METHODS if path.startswith("/") else ():
            node = item.get(method)
            if isinstance(node, dict):
                yield _operation(method.upper(), clean(server + path, 2000), item, node, reader)


def _operation(method: str, path: str, item: Schema, node: Schema, reader: Reader) -> dict[str, Any]:
    body = reader.resolve(node.get("requestBody"))
    media_type, schema = _content(body, reader)
    summary = clean(node.get("summary") or item.get("summary") or node.get("description"), MAX_NAME)
    responses = node.get("responses")
    found: dict[str, Any] = {}
    for status, value in responses.items() if isinstance(responses, dict) else ():
        response = reader.resolve(value)
        found[clean(status, MAX_NAME)] = clean(response.get("description")), _content(response, reader)[1]
    return {
        "method": method,
        "path": path,
        "summary": f"(deprecated) {summary}".rstrip() if node.get("deprecated") is True else summary,
        "text": clean(node.get("description")),
        "parameters": list(_parameters(item, node, reader).values()),
        "media_type": media_type,
        "body": schema,
        "is_body_required": body.get("required") is True,
        "responses": found,
    }


def _parameters(item: Schema, node: Schema, reader: Reader) -> dict[tuple[str, str], Any]:
    found = {}
    for value in (*listed(item.get("parameters")), *listed(node.get("parameters"))):
        each = reader.resolve(value)
        name, place = clean(each.get("name"), MAX_NAME), each.get("in")
        if name and place in ("path", "query", "header", "cookie"):
            schema = reader.schema(each["schema"]) if "schema" in each else _content(each, reader)[1]
            required = each.get("required") is True or place == "path"
            found[place, name] = place, name, schema, required, clean(each.get("description"))
    return found


def _content(node: Schema, reader: Reader) -> tuple[str, Schema]:
    """Return the media type of a body that xapi can send best, or else the first one, and its schema."""
    content = node.get("content")
    if not isinstance(content, dict) or not content:
        return "", {}
    chosen = next((each for each in _PREFERRED if each in content), next(iter(content)))
    return clean(chosen, MAX_NAME), reader.schema(reader.resolve(content[chosen]).get("schema"))


def file_of(state: StateDirectory, profile: str) -> StateFile:
    """Return the file of the summary of *profile*; file systems may ignore the case, so its name is a hash."""
    return state.directory("api").file(f"{sha256(profile.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json")


def read(state: StateDirectory, profile: str) -> Summary | None:
    """Return the summary of *profile*, None if none is loaded; raises UsageError if it cannot be used."""
    try:
        data = file_of(state, profile).read(limit=2 * MAX_SIZE)
        return None if data is None else Summary(json.loads(data))
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the API description of profile {printable(profile)} cannot be used: {type(error).__name__}"
        raise UsageError(what, hint=_LOAD_AGAIN) from error


def loaded(state: StateDirectory, profile: str) -> Summary:
    """Return the summary of *profile*; raises UsageError if none is loaded."""
    found = read(state, profile)
    if found is None:
        load = Run("api load /openapi/v1.json")
        hint = ("run ", Run("api load FILE"), ", or ", load, " if the API serves one")
        raise UsageError(f"no API description is loaded for profile {printable(profile)}", hint=hint)
    return found


def write(state: StateDirectory, profile: str, summary: Summary) -> None:
    """Store *summary* for *profile*; raises OutputError."""
    try:
        file_of(state, profile).replace(summary.encoded())
    except OSError as error:
        raise _failure("stored", error) from error


def remove(state: StateDirectory, profile: str) -> None:
    """Delete the summary of *profile*, if there is one; raises OutputError."""
    try:
        file_of(state, profile).remove()
    except OSError as error:
        raise _failure("deleted", error) from error


def _failure(what: str, error: OSError) -> OutputError:
    hint = "check the state directory, or set XAPI_STATE_DIR"
    return OutputError(f"the API description cannot be {what}: {error.strerror}", hint=hint)
