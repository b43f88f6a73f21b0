"""Run `xapi api load`: read a document from a file, stdin or the API, and store its index for the profile."""

import os
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import NetworkError, UsageError, XapiError
from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import MAX_SIZE, parse, redacted
from xapi_cli.openapi.index import IndexInfo, encode
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.openapi.operations import Operation
    from xapi_cli.runtime import Runtime

_STDIN = "-"
_WITH_CONTENT = (200, 203)  # a proxy that changes a response makes it 203
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.1"


class _Document(NamedTuple):
    """The content of a document. *name* is what messages call it, and *source* what the index records.

    *location* is the path of its URL, if it came from the API; for a document of another origin, that of the request.
    """

    data: bytes
    name: str
    source: str
    location: str | None = None


def load(runtime: "Runtime", source: str) -> None:
    """Read the document *source*, and store its index.

    A file of that name is read if it exists, `-` is stdin, and anything else is a PATH of the API. Raises UsageError
    if it is not an OpenAPI document, and NetworkError if the API responds with something else.
    """
    if source == _STDIN:
        document = _Document(_from_stdin(runtime), "stdin", "stdin")
    elif os.path.exists(path := os.path.expanduser(source)) and not os.path.isdir(path):
        document = _Document(_from_file(path), source, redact_url(source))
    elif source.startswith(("/", "http:", "https:")):
        document = _from_api_or_directory(runtime, source)
    elif os.path.isdir(path):
        raise UsageError(f"{printable(source)} is a directory", hint="give the file in it")
    else:
        raise UsageError(f"the file {printable(source)} does not exist", hint="a PATH of the API starts with a slash")
    try:
        compiler, operations = _compiled(runtime, document)
    except UsageError as error:
        if document.location is None:
            raise
        raise NetworkError(error.message, hint=error.hint, sent=True, headers_received=True) from error
    settings = runtime.settings
    info = IndexInfo(
        compiler.title,
        compiler.server_path(),
        document.source,
        settings.base_url or "",
        compiler.other_server_paths(),
        compiler.is_partial,
    )
    index_file.write(runtime.state_directory, settings.profile, encode(info, operations))
    _report(runtime, compiler, len(operations))


def _compiled(runtime: "Runtime", document: _Document) -> "tuple[Compiler, list[Operation]]":
    parsed = redacted(parse(document.data, document.name), runtime.terminal.redactor.redact)
    name, base_url = printable(document.name), runtime.settings.base_url
    compiler = Compiler(parsed, base_url, location=document.location, name=name)
    return compiler, compiler.operations()


def _report(runtime: "Runtime", compiler: Compiler, count: int) -> None:
    note = runtime.terminal.note
    of = f" of {compiler.title}" if compiler.title else ""
    note(f"loaded {_plural(count, 'operation')}{of} for profile {printable(runtime.settings.profile)}")
    if compiler.skipped:
        verb = "is" if compiler.skipped == 1 else "are"
        note(f"skipped {_plural(compiler.skipped, 'reference')} that {verb} external or unresolvable")
    if compiler.truncated:
        note(f"omitted the details of {_plural(compiler.truncated, 'operation')} whose schemas are too complex")


def _from_stdin(runtime: "Runtime") -> bytes:
    stream = runtime.terminal.stdin()
    if stream is None:
        raise UsageError("stdin is closed", hint="redirect it from a file or a pipe")
    try:
        return _limited(iter(lambda: stream.read(65536), b""), "stdin")
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror}") from error


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_file) as file:
            return _limited(iter(lambda: file.read(65536), b""), path)
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}", hint="check the path") from error


def _from_api_or_directory(runtime: "Runtime", source: str) -> _Document:
    """Return what `_from_api` does; its error says if *source* is a directory, because a file may be meant."""
    try:
        return _from_api(runtime, source)
    except XapiError as error:
        if os.path.isdir(source):
            directory = f"{printable(source)} is also a directory: to load a file, name the file in it"
            error.hint = f"{error.hint}; {directory}" if error.hint else directory
        raise


def _from_api(runtime: "Runtime", path: str) -> _Document:
    """Return the body of the response to a GET request for *path*; raises XapiError for an error status.

    A redirect to another origin is followed without the token, and reported.
    """
    from xapi_cli.http.content_coding import decode
    from xapi_cli.request.calls import Call, displayed
    from xapi_cli.request.send import Sender, status_error

    url = urls.resolve(runtime.base_url, path)
    tokens = runtime.tokens(once=True)
    note = runtime.terminal.note
    sender = Sender(runtime.http_client, runtime.base_url, tokens, deadline=runtime.deadline, note=note)
    outcome = sender.send(Call("GET", url, (("Accept", _ACCEPT),)))
    response = outcome.response
    final = str(response.url).partition("?")[0]
    shown = displayed(final)
    try:
        if error := status_error(outcome, tokens):
            raise error
        if not outcome.from_api:
            note(f"a redirect led to {shown}, to which the token is not sent")
        if response.status_code not in _WITH_CONTENT:
            what = f"{shown} responded with {response.status_code} instead of a complete document"
            raise NetworkError(what, hint="load another PATH", sent=True, headers_received=True)
        data = _limited(decode(response.iter_raw(), response.headers.get("Content-Encoding")), path)
    finally:
        response.close()
    location = urls.path_of(final if urls.same_origin(final, runtime.base_url) else url)
    return _Document(data, f"the response from {shown}", redact_url(path.partition("?")[0]), location or "/")


def _limited(chunks: "Iterable[bytes]", name: str) -> bytes:
    """Return the joined *chunks*; stop after the maximum size, which `parse` reports."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_SIZE:
            break
    return bytes(data)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
