"""Run `xapi api load` and `xapi api diff`: store an API description for the profile; print how another one differs."""

import os
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import NetworkError, UsageError, XapiError
from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.differences import Change, Comparison, Description
from xapi_cli.openapi.documents import MAX_SIZE, parse, redacted
from xapi_cli.openapi.index import IndexInfo, encode
from xapi_cli.openapi.index_file import InvalidDocument, StoredDocument
from xapi_cli.system.layout import Cell, columns
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.http.messages import Response
    from xapi_cli.openapi.operations import Operation
    from xapi_cli.runtime import Runtime

_STDIN = "-"
_WITH_CONTENT = (200, 203)  # a proxy that changes a response makes it 203
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.1"
_CHANGED = 1  # the exit code if there are changes, as for diff(1)


class _Source(NamedTuple):
    """A *document*, and the *response* that contained it; None if this command has not requested it."""

    document: StoredDocument
    response: "Response | None" = None


def load(runtime: "Runtime", source: str) -> None:
    """Read the document *source*, and store it and its index.

    Raises UsageError, OutputError, and the errors of a request.
    """
    found = _read(runtime, source)
    compiler, operations = _compiled(runtime, found)
    settings = runtime.settings
    info = IndexInfo(
        compiler.title,
        compiler.server_path(),
        redact_url(source.partition("?")[0]),
        settings.base_url or "",
        compiler.other_server_paths(),
        compiler.is_partial,
    )
    data = runtime.terminal.redactor.redact(found.document.data.decode()).encode()
    stored = index_file.encode_document(found.document._replace(data=data))
    index_file.write(runtime.state_directory, settings.profile, encode(info, operations), stored)
    _report(runtime, compiler, len(operations))


def _report(runtime: "Runtime", compiler: "Compiler", count: int) -> None:
    note = runtime.terminal.note
    of = f" of {compiler.title}" if compiler.title else ""
    note(f"loaded {_plural(count, 'operation')}{of} for profile {printable(runtime.settings.profile)}")
    if compiler.skipped:
        verb = "is" if compiler.skipped == 1 else "are"
        note(f"skipped {_plural(compiler.skipped, 'reference')} that {verb} external or unresolvable")
    if compiler.truncated:
        note(f"omitted the details of {_plural(compiler.truncated, 'operation')} whose schemas are too complex")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def diff(runtime: "Runtime", source: str | None, *, as_json: bool) -> int:
    """Print the changes from the loaded description to the document *source*, by default from where that came.

    Returns the exit code: 0 without changes, 1 with some. Raises UsageError if none is loaded or *source* is
    not valid, and the errors of a request.
    """
    loaded = _loaded(runtime)
    current = _read_again(runtime, loaded) if source is None else _read(runtime, source)
    changes = []
    if current.document.data != loaded.data:
        comparison = Comparison(_description(runtime, _Source(loaded)), _description(runtime, current))
        changes = comparison.changes()
        if not comparison.is_complete:
            runtime.terminal.warn("some schemas are too complex to be compared completely")
    _print(runtime, changes, as_json=as_json)
    return _CHANGED if changes else 0


def _loaded(runtime: "Runtime") -> StoredDocument:
    state, profile = runtime.state_directory, runtime.settings.profile
    data = index_file.read_document(state, profile)
    if data is None and not index_file.exists(state, profile):
        raise index_file.nothing_loaded(profile)
    if data is None:
        what = f"the API description of profile {printable(profile)} cannot be compared"
        raise UsageError(f"{what}: an older version of xapi has loaded it", hint=index_file.LOAD_AGAIN)
    try:
        return index_file.decode_document(data)
    except InvalidDocument as error:
        raise index_file.unusable(profile, error) from error


def _description(runtime: "Runtime", source: _Source) -> Description:
    compiler, operations = _compiled(runtime, source)
    return Description(operations, compiler.details(), compiler.references, compiler.server_path())


def _print(runtime: "Runtime", changes: list[Change], *, as_json: bool) -> None:
    terminal = runtime.terminal
    if as_json:
        terminal.print_json([each._asdict() for each in changes])
    elif changes and terminal.stdout_is_terminal:
        style = terminal.style
        rows = [
            (
                Cell("breaking" if each.breaking else "", "bad"),
                Cell(each.method, "strong"),
                Cell(each.path, "name"),
                Cell(each.text or each.kind),
            )
            for each in changes
        ]
        terminal.print(columns(rows, style, header=("", "method", "path", "change"), width=terminal.stdout_columns))
    elif changes:
        cells = (("breaking" if each.breaking else "-", *each[:2], each.text or each.kind) for each in changes)
        terminal.print("\n".join("\t".join(map(printable, row)) for row in cells))
    count, breaking = len(changes), sum(each.breaking for each in changes)
    what = f"{count:,} {'change' if count == 1 else 'changes'}, {breaking:,} breaking" if count else "no changes"
    terminal.note(what)


def _read(runtime: "Runtime", source: str) -> _Source:
    """Return the document *source*: a file of that name if it exists, `-` for stdin, otherwise a PATH of the API.

    Raises UsageError if there is none, and the errors of a request.
    """
    if source == _STDIN:
        return _Source(StoredDocument(_from_stdin(runtime), "stdin"))
    if os.path.exists(path := os.path.expanduser(source)) and not os.path.isdir(path):
        return _from_file(path, source)
    if source.startswith(("/", "http:", "https:")):
        return _from_api_or_directory(runtime, source)
    if os.path.isdir(path):
        raise UsageError(f"{printable(source)} is a directory", hint="give the file in it")
    raise UsageError(f"the file {printable(source)} does not exist", hint="a PATH of the API starts with a slash")


def _read_again(runtime: "Runtime", loaded: StoredDocument) -> _Source:
    """Return the document from where *loaded* came from; raises UsageError if that is not known, or as `_read` does."""
    if loaded.file:
        return _from_file(loaded.file, loaded.file)
    if loaded.path:
        return _from_api(runtime, loaded.path)
    where = "from stdin" if loaded.location is None else "from a PATH with a query, which is not stored"
    raise UsageError(f"the API description was loaded {where}", hint="name the FILE or PATH to compare it with")


def _compiled(runtime: "Runtime", source: _Source) -> "tuple[Compiler, list[Operation]]":
    """Return the compiler of the document of *source*, and its operations.

    Raises UsageError if it is not an OpenAPI description, and NetworkError if the API has sent it.
    """
    document, response = source
    try:
        parsed = redacted(parse(document.data, document.name), runtime.terminal.redactor.redact)
        name, base_url = printable(document.name), runtime.settings.base_url
        compiler = Compiler(parsed, base_url, location=document.location, name=name)
        return compiler, compiler.operations()
    except UsageError as error:
        if document.location is None:
            raise
        failure = NetworkError(error.message, hint=error.hint, sent=True, headers_received=True)
        if response is not None:
            from xapi_cli.request.send import concern

            concern(failure, response)
        raise failure from error


def _from_stdin(runtime: "Runtime") -> bytes:
    stream = runtime.terminal.noted_stdin("the API description")
    if stream is None:
        raise UsageError("stdin is closed", hint="redirect it from a file or a pipe")
    try:
        return _limited(iter(lambda: stream.read(65536), b""), "stdin")
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror}") from error


def _from_file(path: str, name: str) -> _Source:
    try:
        with open(path, "rb") as file:
            data = _limited(iter(lambda: file.read(65536), b""), path)
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}", hint="check the path") from error
    return _Source(StoredDocument(data, name, file=os.path.abspath(path)))


def _from_api_or_directory(runtime: "Runtime", source: str) -> _Source:
    """Return what `_from_api` does; its error says if *source* is a directory, because a file may be meant."""
    try:
        return _from_api(runtime, source)
    except XapiError as error:
        if os.path.isdir(source):
            directory = f"{printable(source)} is also a directory: to load a file, name the file in it"
            error.hint = f"{error.hint}; {directory}" if error.hint else directory
        raise


def _from_api(runtime: "Runtime", path: str) -> _Source:
    """Return the document in the response to a GET request for *path*; raises XapiError for an error status.

    A redirect to another origin is followed without the token, and reported.
    """
    from xapi_cli.http.content_coding import decode
    from xapi_cli.request.calls import Call, displayed
    from xapi_cli.request.items import with_defaults
    from xapi_cli.request.send import Sender, concern, status_error

    try:
        url = urls.resolve(runtime.base_url, path)
    except UsageError as problem:
        if problem.hint == urls.ONLY_PATH:
            command = f"`xapi {runtime.command} FILE`"
            problem.hint = f"download the file and run {command}, or use only the path if the API serves it"
        raise
    tokens = runtime.tokens(once=True)
    note = runtime.terminal.note
    sender = Sender(runtime.transport, runtime.base_url, tokens, deadline=runtime.deadline, note=note)
    outcome = sender.send(Call("GET", url, with_defaults([("Accept", _ACCEPT)], runtime.default_headers)))
    response = outcome.response
    final = response.request.url.partition("?")[0]
    shown = displayed(final)
    try:
        if error := status_error(outcome, tokens):
            raise error
        if not outcome.from_api:
            note(f"a redirect led to {shown}, to which the token is not sent")
        if response.status not in _WITH_CONTENT:
            what = f"{shown} responded with {response.status} instead of a complete description"
            raise NetworkError(what, hint="load another PATH", sent=True, headers_received=True)
        data = _limited(decode(response.chunks(), response.headers.get("Content-Encoding")), path)
    except XapiError as error:
        concern(error, response)
        raise
    finally:
        response.close()
    location = urls.path_of(final if urls.same_origin(final, runtime.base_url) else url)
    again = "" if "?" in path or "@" in path else path  # a query or user info may be secret
    document = StoredDocument(data, f"the response from {shown}", path=again, location=location or "/")
    return _Source(document, response)


def _limited(chunks: "Iterable[bytes]", name: str) -> bytes:
    """Return the joined *chunks*; stop after the maximum size, which `parse` reports."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_SIZE:
            break
    return bytes(data)
