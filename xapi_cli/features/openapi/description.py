"""An API description (OpenAPI 3, JSON): one file for each profile in the state directory.

`xapi api load` writes it, and everything else reads only it. Paths are relative to the base URL.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urljoin

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.features.openapi.schemas import MAX_NAME, Field, Node, Schemas, clean, listed, mapping
from xapi_cli.hints import Run
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.system.render import printable

MAX_SIZE = 20_000_000  # bytes of a document; in memory, it takes up to 30 times as many
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")  # xapi sends no TRACE
_PREFERRED = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
_NEEDED = "load an OpenAPI 3 description in JSON; convert YAML, for example with yq"


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
    body: Node
    is_body_required: bool
    responses: dict[str, tuple[str, Node]]


class Description:
    """The *document*, and what was known when it was loaded.

    *base_url* was that of the profile, *source* is the file or PATH to load it again from, empty if that is not known,
    and *prefix* precedes all paths of the document below the base URL.
    """

    def __init__(self, document: Node, *, base_url: str, source: str, prefix: str) -> None:
        self._document = document
        self.base_url, self.source, self._prefix = base_url, source, prefix
        self.schemas = Schemas(document)

    @property
    def title(self) -> str:
        """The title of the API, and its version."""
        about = mapping(self._document.get("info"))
        return " ".join(clean(about.get(key), MAX_NAME) for key in ("title", "version")).strip()

    def names(self) -> Iterator[tuple[str, str, str]]:
        """Yield method, path and summary of each operation."""
        for method, path, item, node in self._nodes():
            yield method, path, self._summary(item, node)

    def operations(self, path: str | None = None) -> list[Operation]:
        """Return the operations, all or those of the template *path*."""
        return [self._operation(*each) for each in self._nodes() if path in (None, each[1])]

    def matching(self, path: str) -> list[str]:
        """Return the templates that *path* matches, a template or a path with values; the most specific one first."""
        templates = dict.fromkeys(each for _, each, _, _ in self._nodes())
        found = [each for each in templates if each == path or _pattern(each).fullmatch(path)]
        return sorted(found, key=lambda each: (each != path, each.count("{")))

    def encoded(self) -> bytes:
        """Return the content of the file of this description."""
        content = {"document": self._document, "base_url": self.base_url, "source": self.source, "prefix": self._prefix}
        return json.dumps(content, separators=(",", ":")).encode()

    def _nodes(self) -> Iterator[tuple[str, str, Node, Node]]:
        """Yield the method and the path of each operation, the item of the path, and the operation itself."""
        for path, value in mapping(self._document.get("paths")).items():
            item = self.schemas.resolve(value)
            for method in _METHODS if path.startswith("/") else ():
                if isinstance(node := item.get(method), dict):
                    yield method.upper(), clean(self._prefix + path, 2000), item, node

    def _summary(self, item: Node, node: Node) -> str:
        summary = clean(node.get("summary") or item.get("summary") or node.get("description"), MAX_NAME)
        return f"(deprecated) {summary}".rstrip() if node.get("deprecated") is True else summary

    def _operation(self, method: str, path: str, item: Node, node: Node) -> Operation:
        body = self.schemas.resolve(node.get("requestBody"))
        media_type, schema = self._content(body)
        responses = {}
        for status, value in mapping(node.get("responses")).items():
            response = self.schemas.resolve(value)
            responses[clean(status, MAX_NAME)] = clean(response.get("description")), self._content(response)[1]
        return Operation(
            method=method,
            path=path,
            summary=self._summary(item, node),
            text=clean(node.get("description")),
            parameters=self._parameters(item, node),
            media_type=media_type,
            body=schema,
            is_body_required=body.get("required") is True,
            responses=responses,
        )

    def _parameters(self, item: Node, node: Node) -> list[tuple[str, Field]]:
        found = {}
        for value in (*listed(item.get("parameters")), *listed(node.get("parameters"))):
            each = self.schemas.resolve(value)
            name, place = clean(each.get("name"), MAX_NAME), each.get("in")
            if name and place in ("path", "query", "header", "cookie"):
                schema = each["schema"] if "schema" in each else self._content(each)[1]
                required, text = each.get("required") is True or place == "path", clean(each.get("description"))
                found[place, name] = place, self.schemas.field(name, schema, required=required, text=text)
        return list(found.values())

    def _content(self, node: Node) -> tuple[str, Node]:
        """Return the media type of a body that xapi can send best, or else the first one, and its schema."""
        content = mapping(node.get("content"))
        chosen = next((each for each in (*_PREFERRED, *content) if each in content), "")
        return clean(chosen, MAX_NAME), self.schemas.resolve(mapping(content.get(chosen)).get("schema"))


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^{}]*\})", template)
    return re.compile("".join("[^/]+" if index % 2 else re.escape(part) for index, part in enumerate(parts)))


def parsed(text: str, name: str, *, base_url: str, location: str, source: str) -> Description:
    """Return the description in *text*, which messages call *name*.

    Paths are relative to *base_url*; *location* is the URL of the document. Raises UsageError if it is not an OpenAPI 3
    description in JSON.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{name} is not valid JSON at line {error.lineno}, column {error.colno}", hint=_NEEDED
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; too many levels
        document = None
    if not str(mapping(document).get("openapi")).startswith("3."):
        raise UsageError(f"{name} is not an OpenAPI 3 description", hint=_NEEDED)
    prefix = _prefix(document, location, base_url)
    found = Description(document, base_url=base_url, source=source, prefix=prefix)
    if next(found.names(), None) is None:
        raise UsageError(f"{name} contains no operations", hint="check that it is complete")
    return found


def _prefix(document: Node, location: str, base_url: str) -> str:
    """Return what precedes all paths of *document* below *base_url*; of several servers, its own one counts."""
    found = []
    for server in listed(document.get("servers")) or [{"url": "/"}]:
        url = str(mapping(server).get("url", ""))
        for name, variable in mapping(mapping(server).get("variables")).items():
            url = url.replace(f"{{{name}}}", clean(mapping(variable).get("default"), MAX_NAME))
        with suppress(ValueError):  # a malformed host
            found.append(urljoin(location, url).rstrip("/"))
    if base_url in found or not found:
        return ""
    path, base = (f"/{url.partition('://')[2].partition('/')[2]}".rstrip("/") for url in (found[0], base_url))
    return path.removeprefix(base) if f"{path}/".startswith(f"{base}/") else path


def file_of(state: StateDirectory, profile: str) -> StateFile:
    """Return the file of *profile*; file systems may ignore the case, so its name is a hash."""
    return state.directory("api").file(f"{sha256(profile.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json")


def read(state: StateDirectory, profile: str) -> Description | None:
    """Return the description of *profile*, None if none is loaded; raises UsageError if it cannot be used."""
    try:
        data = file_of(state, profile).read(limit=2 * MAX_SIZE)
        if data is None:
            return None
        content: dict[str, Any] = json.loads(data)
        return Description(content.pop("document"), **content)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"the API description of profile {printable(profile)} cannot be used: {type(error).__name__}"
        raise UsageError(what, hint=("run ", Run("api load"), " again")) from error


def loaded(state: StateDirectory, profile: str) -> Description:
    """Return the description of *profile*; raises UsageError if none is loaded."""
    found = read(state, profile)
    if found is None:
        load = Run("api load /openapi/v1.json")
        hint = ("run ", Run("api load FILE"), ", or ", load, " if the API serves one")
        raise UsageError(f"no API description is loaded for profile {printable(profile)}", hint=hint)
    return found


def write(state: StateDirectory, profile: str, description: Description) -> None:
    """Store *description* for *profile*; raises OutputError."""
    try:
        file_of(state, profile).replace(description.encoded())
    except OSError as error:
        raise _failure("stored", error) from error


def remove(state: StateDirectory, profile: str) -> None:
    """Delete the description of *profile*, if there is one; raises OutputError."""
    try:
        file_of(state, profile).remove()
    except OSError as error:
        raise _failure("deleted", error) from error


def _failure(what: str, error: OSError) -> OutputError:
    hint = "check the state directory, or set XAPI_STATE_DIR"
    return OutputError(f"the API description cannot be {what}: {error.strerror}", hint=hint)
