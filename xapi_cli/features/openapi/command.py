"""Load, look up and compare API descriptions (OpenAPI).

Examples:

\b
  xapi api load /openapi/v1.json
  xapi api show POST /x-api/echo
  xapi api diff
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, completer, settings_flags
from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.features.openapi import description as descriptions
from xapi_cli.hints import Run
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.features.openapi.description import Description, Operation
    from xapi_cli.features.openapi.schemas import Field, Node, Schemas
    from xapi_cli.system.style import Style

_PLACES = {"path": "Path parameters", "query": "Query parameters", "header": "Headers", "cookie": "Cookies"}
_MAX_FIELDS = 500  # of a body that are shown
_ACCEPT = "application/json, */*;q=0.1"

Source = Annotated[
    str,
    typer.Argument(metavar="FILE|PATH", help="The API description: a file, or a PATH of the API.", show_default=False),
]
Word = Annotated[
    str | None,
    typer.Argument(metavar="[WORD]", help="List operations that contain WORD.", show_default=False),
]
Current = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE|PATH]",
        help="The API description to compare with; by default, the loaded one, read again from its source.",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] PATH",
        help="The method and path.",
        autocompletion=completer("methods_and_paths"),
        show_default=False,
    ),
]


@settings_flags(*ACCOUNT, *NETWORK)
def load(ctx: typer.Context, source: Source) -> None:
    """Load an API description (OpenAPI 3, JSON).

    Reads FILE. If it does not exist and the argument starts with a slash,
    requests it from the API with the token. Stores it for the profile.

    Examples:

    \b
      xapi api load /openapi/v1.json
      xapi api load openapi.json -p staging
    """
    context: Context = ctx.obj
    found = _read(context, source)
    descriptions.write(context.state_directory, context.settings.profile, found)
    of = f" of {found.title}" if found.title else ""
    number = len(list(found.names()))
    count = f"{number:,} operation{'' if number == 1 else 's'}"
    context.terminal.note(f"loaded {count}{of} for profile {printable(context.settings.profile)}")


@settings_flags(*ACCOUNT)
def list_(ctx: typer.Context, word: Word = None) -> None:
    """List the operations of the loaded API description.

    With WORD, lists only operations whose method, path or summary contains it.
    In a pipe, prints one tab-separated line per operation: method, path,
    summary. Sends no request.

    Examples:

    \b
      xapi api list
      xapi api list project
    """
    context: Context = ctx.obj
    names = _loaded(context).names()
    rows = [row for row in names if any((word or "").lower() in cell.lower() for cell in row)]
    if rows:
        _print_rows(context, ("method", "path", "summary"), rows)
    else:
        context.terminal.note(f"no operation contains {printable(word or '')}")


@settings_flags(*ACCOUNT)
def show(ctx: typer.Context, arguments: Arguments) -> None:
    """Show an operation of the loaded API description.

    Prints its parameters, body fields and responses. Without METHOD, shows all
    methods of PATH. PATH can contain placeholders, as in /users/{id}, or
    values, as in /users/7. Sends no request.

    Examples:

    \b
      xapi api show POST /x-api/echo
      xapi api show /x-api/projects
    """
    context: Context = ctx.obj
    terminal, description = context.terminal, _loaded(context)
    texts = ["\n".join(_lines(description.schemas, each, terminal.style)) for each in _chosen(description, arguments)]
    terminal.print("\n\n".join(texts))


@settings_flags(*ACCOUNT, *NETWORK)
def diff(ctx: typer.Context, source: Current = None) -> None:
    """Compare an API description with the loaded one.

    Reads the description again from where it was loaded, or another one, and
    prints which operations were added, removed or changed: their parameters,
    required fields, and the names and types of fields. In a pipe, prints one
    tab-separated line per change: method, path, change. Exits with code 0 if
    nothing has changed, and with 1 if something has. The loaded description is
    not replaced; `xapi api load` does that.

    Examples:

    \b
      xapi api diff
      xapi api diff new.json | cut -f 2 | sort -u
    """
    from xapi_cli.features.openapi.differences import changes

    context: Context = ctx.obj
    loaded = _loaded(context)
    source = source or loaded.source
    if not source:
        hint = "name the FILE or PATH to compare it with"
        raise UsageError("the API description was loaded from a PATH with a query, which is not stored", hint=hint)
    found = changes(loaded, _read(context, source))
    if not found:
        context.terminal.note("no changes")
        return
    _print_rows(context, ("method", "path", "change"), found)
    context.terminal.note(f"{len(found):,} change{'' if len(found) == 1 else 's'}")
    raise typer.Exit(1)


# where a description comes from


def _loaded(context: "Context") -> "Description":
    return descriptions.loaded(context.state_directory, context.settings.profile)


def _read(context: "Context", source: str) -> "Description":
    """Return the description *source*: a file of that name if it exists, otherwise a PATH of the API.

    Raises UsageError if it is not a description, NetworkError if the API has sent it, and the errors of a request.
    """
    path = os.path.expanduser(source)
    if not os.path.isfile(path) and source.startswith(("/", "http:", "https:")):
        return _from_api(context, source)
    try:
        with open(path, "rb") as file:
            data = file.read(descriptions.MAX_SIZE + 1)
    except OSError as error:
        hint = "check the path; a PATH of the API starts with a slash"
        raise UsageError(f"cannot read {printable(source)}: {error.strerror}", hint=hint) from error
    return _description(context, data, printable(source), f"{context.settings.base_url or ''}/", os.path.abspath(path))


def _from_api(context: "Context", path: str) -> "Description":
    """Return the description in the response to a GET request for *path*."""
    from xapi_cli.http import urls
    from xapi_cli.http.header_syntax import with_defaults
    from xapi_cli.http.send import Call, Sender
    from xapi_cli.request.output import decoded
    from xapi_cli.request.status_errors import status_error

    url = urls.resolve(context.base_url, path)
    tokens, note = context.tokens(), context.terminal.note
    sender = Sender(context.transport, context.base_url, tokens, deadline=context.deadline, note=note)
    outcome = sender.send(Call("GET", url, with_defaults([("Accept", _ACCEPT)], context.default_headers)))
    with closing(outcome.response) as response:
        if error := status_error(outcome, tokens):
            raise error
        data = bytearray()
        for chunk in decoded(response):
            data += chunk
            if len(data) > descriptions.MAX_SIZE:
                break
    try:
        # a query may be secret
        return _description(context, data, "the response", response.request.url, "" if "?" in path else path)
    except UsageError as unusable:
        raise NetworkError(unusable.message, hint=unusable.hint, sent=True, headers_received=True) from unusable


def _description(context: "Context", data: bytes | bytearray, name: str, location: str, source: str) -> "Description":
    if len(data) > descriptions.MAX_SIZE:
        raise UsageError(f"{name} is larger than {descriptions.MAX_SIZE // 1_000_000} MB", hint="load a smaller one")
    try:
        text = context.terminal.redactor.redact(data.decode("utf-8-sig"))  # a server may repeat the token
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not valid UTF-8", hint="load the description itself, in JSON") from None
    base_url = context.settings.base_url or ""
    return descriptions.parsed(text, name, base_url=base_url, location=location, source=source)


# what is printed


def _print_rows(context: "Context", header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from xapi_cli.system.style import Cell, columns

    terminal = context.terminal
    if terminal.stdout_is_terminal:
        cells = [(Cell(method, "strong"), Cell(path, "name"), Cell(text)) for method, path, text in rows]
        terminal.print(columns(cells, terminal.style, header=header))
    else:
        terminal.print("\n".join("\t".join(map(printable, row)) for row in rows))


def _chosen(description: "Description", arguments: Sequence[str]) -> "list[Operation]":
    """Return the operations of `[METHOD] PATH`; raises UsageError if there is none."""
    *before, path = arguments
    if len(before) > 1:
        raise UsageError("too many arguments", hint="write for example: xapi api show POST /x-api/echo")
    path = path if path.startswith("/") else f"/{path}"
    method = before[0].upper() if before else None
    for template in description.matching(path)[:1]:
        if chosen := [each for each in description.operations(template) if method in (None, each.method)]:
            return chosen
    what = f"the API description has no operation {printable(' '.join(filter(None, (method, path))))}"
    raise UsageError(what, hint=("see ", Run("api list")))


def _lines(schemas: "Schemas", operation: "Operation", style: "Style") -> Iterator[str]:
    """Yield the lines of *operation* for readers; all its texts are printable."""
    yield f"{style('strong', operation.method)} {style('name', operation.path)}"
    yield from (f"  {text}" for text in dict.fromkeys((operation.summary, operation.text)) if text)
    for place, heading in _PLACES.items():
        if found := [each for where, each in operation.parameters if where == place]:
            yield from ("", style("heading", heading), *_rows(found, style))
    if operation.media_type:
        need = "required" if operation.is_body_required else ""
        facts = filter(None, (operation.media_type, schemas.shape(operation.body).type, need))
        yield from ("", style("heading", f"Body ({', '.join(facts)})"))
        yield from _rows(_fields(schemas, operation.body), style)
    for status, (text, schema) in operation.responses.items():
        kind = schemas.shape(schema).type
        shown = f"Response {status}{'' if kind == 'any' else f' ({kind})'}"
        yield from ("", style("heading", shown), *([f"  {text}"] if text else []))
        yield from _rows(_fields(schemas, schema) if status.startswith("2") else [], style)


def _fields(schemas: "Schemas", schema: "Node") -> "list[Field]":
    """Return the fields of *schema*, or the first ones of very many."""
    return list(islice(schemas.fields(schema), _MAX_FIELDS))


def _rows(fields: "Sequence[Field]", style: "Style") -> Iterator[str]:
    longest = max((len(each.name) for each in fields), default=0)
    for each in fields:
        kind = f"{each.shape.type}, required" if each.required else each.shape.type
        values = f"one of: {', '.join(each.shape.values)}" if each.shape.values else ""
        about = "; ".join(filter(None, (each.text, values)))
        name = style("name", each.name) + " " * (longest - len(each.name))
        yield f"  {name}  {style('faint', kind)}{f'  {about}' if about else ''}"
