"""Load, look up and compare API descriptions (OpenAPI).

Examples:

\b
  xapi api load /openapi/v1.json
  xapi api show POST /x-api/echo
  xapi api diff
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, completer, settings_flags
from xapi_cli.errors import NetworkError, UsageError, XapiError
from xapi_cli.features.openapi import summary as summaries
from xapi_cli.features.openapi.summary import FORM
from xapi_cli.hints import Run
from xapi_cli.system.render import pasteable, printable

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.features.openapi.schemas import Field, Schema
    from xapi_cli.features.openapi.summary import Operation, Summary
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
    requests it from the API with the token. Stores a summary of the operations
    for the profile.

    Examples:

    \b
      xapi api load /openapi/v1.json
      xapi api load openapi.json -p staging
    """
    context: Context = ctx.obj
    found = _read(context, source)
    summaries.write(context.state_directory, context.settings.profile, found)
    of = f" of {found.title}" if found.title else ""
    count = f"{len(found):,} operation{'' if len(found) == 1 else 's'}"
    context.terminal.note(f"loaded {count}{of} for profile {printable(context.settings.profile)}")
    if found.skipped:
        context.terminal.note(f"skipped references to other documents, or to nothing: {found.skipped:,}")


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

    Prints its parameters, body fields, responses and an example call. Without
    METHOD, shows all methods of PATH. PATH can contain placeholders, as in
    /users/{id}, or values, as in /users/7. Sends no request.

    Examples:

    \b
      xapi api show POST /x-api/echo
      xapi api show /x-api/projects
    """
    context: Context = ctx.obj
    terminal, summary = context.terminal, _loaded(context)
    texts = ["\n".join(_lines(summary, each, terminal.style)) for each in _chosen(summary, arguments)]
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
    if found:
        rows = [(each.method, each.path, each.text or each.kind) for each in found]
        _print_rows(context, ("method", "path", "change"), rows)
    context.terminal.note(f"{len(found):,} change{'' if len(found) == 1 else 's'}" if found else "no changes")
    if found:
        raise typer.Exit(1)


# where a description comes from


def _loaded(context: "Context") -> "Summary":
    found = summaries.loaded(context.state_directory, context.settings.profile)
    if context.settings.base_url not in (None, found.base_url):
        what = (f"the API description was loaded for {printable(found.base_url)}; run ", Run("api load"), " again")
        context.terminal.note(what)
    return found


def _read(context: "Context", source: str) -> "Summary":
    """Return the summary of the document *source*: a file of that name if it exists, otherwise a PATH of the API.

    Raises UsageError if it is not a description, NetworkError if the API has sent it, and the errors of a request.
    """
    path = os.path.expanduser(source)
    if not os.path.isfile(path) and source.startswith(("/", "http:", "https:")):
        return _from_api(context, source)
    try:
        with open(path, "rb") as file:
            data = file.read(summaries.MAX_SIZE + 1)
    except OSError as error:
        hint = "check the path; a PATH of the API starts with a slash"
        raise UsageError(f"cannot read {printable(source)}: {error.strerror}", hint=hint) from error
    base_url = context.settings.base_url or ""
    return _summary(context, data, source, f"{base_url}/", os.path.abspath(path))


def _from_api(context: "Context", path: str) -> "Summary":
    """Return the summary of the document in the response to a GET request for *path*."""
    from xapi_cli.http import urls
    from xapi_cli.http.send import Call, Sender
    from xapi_cli.request.items import with_defaults
    from xapi_cli.request.output import decoded
    from xapi_cli.request.status_errors import concern, status_error

    url = urls.resolve(context.base_url, path)
    tokens, note = context.tokens(), context.terminal.note
    sender = Sender(context.transport, context.base_url, tokens, deadline=context.deadline, note=note)
    outcome = sender.send(Call("GET", url, with_defaults([("Accept", _ACCEPT)], context.default_headers)))
    response = outcome.response
    try:
        if error := status_error(outcome, tokens):
            raise error
        data = _limited(decoded(response))
        source = "" if "?" in path else path  # a query may be secret
        return _summary(context, data, "the response", response.request.url, source)
    except UsageError as error:
        failure = NetworkError(error.message, hint=error.hint, sent=True, headers_received=True)
        concern(failure, response)
        raise failure from error
    except XapiError as error:
        concern(error, response)
        raise
    finally:
        response.close()


def _limited(chunks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > summaries.MAX_SIZE:
            break
    return bytes(data)


def _summary(context: "Context", data: bytes, name: str, location: str, source: str) -> "Summary":
    name = printable(name)
    if len(data) > summaries.MAX_SIZE:
        raise UsageError(f"{name} is larger than {summaries.MAX_SIZE // 1_000_000} MB", hint="load a smaller one")
    try:
        text = context.terminal.redactor.redact(data.decode("utf-8-sig"))  # a server may repeat the token
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not valid UTF-8", hint="load the description itself, in JSON") from None
    base_url = context.settings.base_url or ""
    return summaries.summarized(text, name, base_url=base_url, location=location, source=source)


# what is printed


def _print_rows(context: "Context", header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from xapi_cli.system.style import Cell, columns

    terminal = context.terminal
    if terminal.stdout_is_terminal:
        cells = [(Cell(method, "strong"), Cell(path, "name"), Cell(text)) for method, path, text in rows]
        terminal.print(columns(cells, terminal.style, header=header))
    else:
        terminal.print("\n".join("\t".join(map(printable, row)) for row in rows))


def _chosen(summary: "Summary", arguments: Sequence[str]) -> "list[Operation]":
    """Return the operations of `[METHOD] PATH`; raises UsageError if there is none."""
    from xapi_cli.hints import closest

    *before, path = arguments
    if len(before) > 1:
        raise UsageError("too many arguments", hint="write for example: xapi api show POST /x-api/echo")
    path = path if path.startswith("/") else f"/{path}"
    method = before[0].upper() if before else None
    templates = summary.matching(path)
    operations = summary.operations(templates[0]) if templates else []
    if chosen := [each for each in operations if method in (None, each.method)]:
        return chosen
    if operations:
        what = f"{printable(method or '')} is not listed for {printable(path)} in the API description"
        raise UsageError(what, hint=f"it lists {', '.join(each.method for each in operations)}")
    similar = closest(path, (each for _, each, _ in summary.names()))
    hint = f"did you mean {pasteable(similar)}?" if similar else ("see ", Run("api list"))
    raise UsageError(f"the API description has no path {printable(path)}", hint=hint)


def _fields(summary: "Summary", schema: "Schema", *, is_sent: bool = False) -> "list[Field]":
    """Return the fields of *schema*, or the first ones of very many; if it *is_sent*, those that a client sends."""
    found = islice(summary.types.fields(schema), _MAX_FIELDS)
    return [each for each in found if not (is_sent and each.is_read_only)]


def _lines(summary: "Summary", operation: "Operation", style: "Style") -> Iterator[str]:
    """Yield the lines of *operation* for readers; all texts in a summary are printable."""
    yield f"{style('strong', operation.method)} {style('name', operation.path)}"
    yield from (f"  {text}" for text in dict.fromkeys((operation.summary, operation.text)) if text)
    for place, heading in _PLACES.items():
        if found := [each for where, each in operation.parameters if where == place]:
            yield from ("", style("heading", heading), *_rows(found, style))
    if operation.media_type:
        need = "required" if operation.is_body_required else ""
        facts = filter(None, (operation.media_type, summary.types.type_of(operation.body), need))
        yield from ("", style("heading", f"Body ({', '.join(facts)})"))
        yield from _rows(_fields(summary, operation.body, is_sent=True), style)
    for status, (text, schema) in operation.responses.items():
        kind = summary.types.type_of(schema)
        shown = f"Response {status}{'' if kind == 'any' else f' ({kind})'}"
        yield from ("", style("heading", shown), *([f"  {text}"] if text else []))
        yield from _rows(_fields(summary, schema) if status.startswith("2") else [], style)
    yield from ("", style("heading", "Example"), f"  {_example(operation, summary)}")


def _rows(fields: "Sequence[Field]", style: "Style") -> Iterator[str]:
    longest = max((len(each.name) for each in fields), default=0)
    for each in fields:
        kind = f"{each.type}, required" if each.required else each.type
        values = f"one of: {', '.join(each.values)}" if each.values and each.type != "boolean" else ""
        about = "; ".join(filter(None, (each.text, values)))
        name = style("name", each.name) + " " * (longest - len(each.name))
        yield f"  {name}  {style('faint', kind)}{f'  {about}' if about else ''}"


def _example(operation: "Operation", summary: "Summary") -> str:
    """Return an example call of *operation*, with what is required; a name in capitals stands for a value."""
    values = {each.name: _value(each) for place, each in operation.parameters if place == "path"}
    path = re.sub(r"\{([^{}]*)\}", lambda found: values.get(found[1], "VALUE"), operation.path)
    words = [
        f"{each.name}{'==' if place == 'query' else ':'}{_value(each)}"
        for place, each in operation.parameters
        if place in ("query", "header") and each.required
    ]
    fields = [each for each in summary.types.members(operation.body).values() if not each.is_read_only]
    required = [each for each in fields if each.required] or (fields[:1] if operation.is_form else [])
    for each in required:
        if operation.is_form:
            words.append(f"{each.name}@FILE" if "(binary)" in each.type else f"{each.name}={_value(each)}")
        else:
            is_text = each.type.startswith("string")
            words.append(f"{each.name}{'=' if is_text else ':='}{_value(each)}")
    if operation.media_type and not required:
        words += ["-d", "@FILE"]
    elif operation.media_type == FORM:
        words.append("--form")
    default = "POST" if operation.media_type else "GET"
    method = [] if operation.method == default else [operation.method]
    return shlex.join(["xapi", "request", *method, path, *words])


def _value(field: "Field") -> str:
    if field.values:
        return field.values[0]
    samples = {"integer": "1", "number": "1", "boolean": "true", "array": "[]", "object": "{}"}
    name = re.sub(r"[^A-Z0-9]+", "_", field.name.upper()).strip("_")
    return samples.get(field.type.partition(" ")[0], name or "VALUE")
