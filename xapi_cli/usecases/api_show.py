"""Run `xapi api list` and `xapi api show`: print what the loaded API description contains."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.example import example
from xapi_cli.openapi.index import Entry, Index, InvalidIndex
from xapi_cli.openapi.routes import Routes
from xapi_cli.openapi.templates import as_typed
from xapi_cli.request import items
from xapi_cli.system.layout import Cell, columns, wrapped
from xapi_cli.system.render import pasteable, printable

if TYPE_CHECKING:
    from xapi_cli.openapi.operations import Operation, Parameter
    from xapi_cli.runtime import Runtime
    from xapi_cli.system.style import Style

_HEADER = ("method", "path", "summary")
_HEADINGS = {"path": "Path parameters", "query": "Query parameters", "header": "Headers", "cookie": "Cookies"}
_MAX_SUMMARY, _MAX_TEXT = 120, 1000  # characters; JSON contains the whole texts


def list_operations(runtime: "Runtime", word: str | None, *, as_json: bool) -> None:
    """Print the operations whose method, path or summary contains *word*; raises UsageError if nothing is loaded."""
    wanted = (word or "").lower()
    with _loaded(runtime) as (index, routes):
        rows = [(each.method, routes.path(each), index.summary(each)) for each in index.entries]
    rows = [row for row in rows if any(wanted in cell.lower() for cell in row)]
    terminal = runtime.terminal
    if as_json:
        terminal.print_json([dict(zip(_HEADER, row, strict=True)) for row in rows])
    elif not rows:
        terminal.note(f"no operation contains {printable(word or '')}")
    elif terminal.stdout_is_terminal:
        cells = [
            (Cell(method, "strong"), Cell(path, "name"), Cell(_cut(summary, _MAX_SUMMARY)))
            for method, path, summary in rows
        ]
        terminal.print(columns(cells, terminal.style, header=_HEADER, width=terminal.stdout_columns))
    else:
        terminal.print("\n".join("\t".join(map(printable, row)) for row in rows))


def show_operations(runtime: "Runtime", arguments: Sequence[str], *, as_json: bool) -> None:
    """Print the operations of `[METHOD] PATH`; raises UsageError if there is none, or if nothing is loaded."""
    *before, path = arguments
    if len(before) > 1:
        raise UsageError("too many arguments", hint="write for example: xapi api show POST /x-api/echo")
    if not before and path in items.METHODS:
        raise items.missing_path(path)
    method = items.method(before[0]) if before else None
    path = path if path.startswith("/") else f"/{path}"
    with _loaded(runtime) as (index, routes):
        operations = [(index.operation(each), routes.path(each)) for each in _chosen(routes, method, path)]
    terminal = runtime.terminal
    if as_json:
        terminal.print_json([_as_json(each, template) for each, template in operations])
        return
    width = terminal.stdout_columns if terminal.stdout_is_terminal else 100
    texts = ["\n".join(_lines(each, template, terminal.style, width)) for each, template in operations]
    terminal.print("\n\n".join(texts))


@contextmanager
def _loaded(runtime: "Runtime") -> Iterator[tuple[Index, Routes]]:
    """Open the index of the profile; raise UsageError if there is none, or if it is damaged."""
    profile = runtime.settings.profile
    base_url = runtime.settings.base_url
    try:
        with index_file.open_index(runtime.state_directory, profile) as index:
            if index is None:
                raise index_file.nothing_loaded(profile)
            if base_url and not index.describes(base_url):
                loaded, now = printable(index.info.base_url), printable(base_url)
                what = f"the API description was loaded for {loaded}, not for {now}; {index_file.LOAD_AGAIN}"
                runtime.terminal.note(runtime.with_profile(what) or what)
            yield index, Routes(index, urls.path_of(base_url) if base_url else "")
    except InvalidIndex as error:
        raise index_file.unusable(profile, error) from error


def _chosen(routes: Routes, method: str | None, path: str) -> Sequence[Entry]:
    """Return the operations with *method*, None for all, at *path*; raises UsageError if there is none."""
    entries = routes.find(path)
    if not entries and routes.closest(path) is None:
        entries = routes.find_prefix(path)
    if chosen := [each for each in entries if method in (None, each.method)]:
        return chosen
    raise _not_found(method, path, entries, routes)


def _not_found(method: str | None, path: str, entries: Sequence[Entry], routes: Routes) -> UsageError:
    shown = printable(path)
    if entries:
        methods = ", ".join(each.method for each in entries)
        what = f"{method} is not listed for {shown} in the API description"
        return UsageError(what, hint=f"it lists {methods}")
    closest = routes.closest(path)
    hint = f"did you mean {pasteable(as_typed(closest))}?" if closest else "see `xapi api list`"
    return UsageError(f"the API description has no path {shown}", hint=hint)


def _as_json(operation: "Operation", path: str) -> dict[str, Any]:
    body = operation.body
    fields = [_parameter_as_json(each) for each in operation.parameters_in("body")]
    return {
        "method": operation.method,
        "path": path,
        "summary": operation.summary,
        "description": operation.text,
        "parameters": [
            {"in": each.location, **_parameter_as_json(each)}
            for each in operation.parameters
            if each.location != "body"
        ],
        "body": body
        and {"media_type": body.media_type, "required": body.required, "type": body.type, "fields": fields},
        "responses": [
            {"status": each.status, "description": each.text, "type": each.type} for each in operation.responses
        ],
        "example": shlex.join(example(operation, path)),
    }


def _parameter_as_json(parameter: "Parameter") -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "required": parameter.required,
        "values": list(parameter.values),
        "description": parameter.text,
    }


def _lines(operation: "Operation", path: str, style: "Style", width: int) -> Iterator[str]:
    """Yield the lines of *operation* for readers; all texts in an index are printable."""
    yield f"{style('strong', operation.method)} {style('name', path)}"
    texts = dict.fromkeys((operation.summary, operation.text))  # often the same
    yield from (_indented(_cut(text), width) for text in texts if text)
    for location, heading in _HEADINGS.items():
        yield from _section(heading, operation.parameters_in(location), style, width)
    if (body := operation.body) is not None:
        facts = ", ".join(filter(None, (body.media_type, body.type, "required" if body.required else "")))
        yield from ("", style("heading", f"Body ({facts})"))
        yield from _rows(operation.parameters_in("body"), style, width)
    if operation.responses:
        yield from ("", style("heading", "Responses"))
    for response in operation.responses:
        kind = f"({response.type})" if response.type else ""
        yield _indented(" ".join(filter(None, (response.status, _cut(response.text), kind))), width)
    yield from ("", style("heading", "Example"), f"  {shlex.join(example(operation, path))}")


def _section(heading: str, parameters: "list[Parameter]", style: "Style", width: int) -> Iterator[str]:
    if parameters:
        yield from ("", style("heading", heading))
        yield from _rows(parameters, style, width)


def _rows(parameters: "list[Parameter]", style: "Style", width: int) -> Iterator[str]:
    """Yield name and type of each of *parameters* on one line, and its description and values below."""
    longest = max((len(each.name) for each in parameters), default=0)
    for each in parameters:
        kind = f"{each.type}, required" if each.required else each.type
        yield f"  {style('name', each.name)}{' ' * (longest - len(each.name))}  {style('faint', kind)}"
        if each.text:
            yield _indented(_cut(each.text), width, by="      ")
        if each.values and each.type != "boolean":
            yield _indented(f"one of: {', '.join(each.values)}", width, by="      ")


def _cut(text: str, limit: int = _MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _indented(text: str, width: int, *, by: str = "  ") -> str:
    return by + wrapped(text, width - len(by), indent=by)
