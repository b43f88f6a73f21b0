"""Read an API description from a file, stdin or the API, for `xapi api load` and `xapi api diff`."""

import os
from typing import TYPE_CHECKING

from xapi_cli.errors import NetworkError, UsageError, XapiError
from xapi_cli.http import urls
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import MAX_SIZE, parse, redacted
from xapi_cli.openapi.stored_document import StoredDocument
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.openapi.operations import Operation
    from xapi_cli.runtime import Runtime

_STDIN = "-"
_WITH_CONTENT = (200, 203)  # a proxy that changes a response makes it 203
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.1"


def read(runtime: "Runtime", source: str) -> StoredDocument:
    """Return the document *source*: a file of that name if it exists, `-` for stdin, otherwise a PATH of the API.

    Raises UsageError if there is none, and the errors of a request.
    """
    if source == _STDIN:
        return StoredDocument(_from_stdin(runtime), "stdin")
    if os.path.exists(path := os.path.expanduser(source)) and not os.path.isdir(path):
        return _from_file(path, source)
    if source.startswith(("/", "http:", "https:")):
        return _from_api_or_directory(runtime, source)
    if os.path.isdir(path):
        raise UsageError(f"{printable(source)} is a directory", hint="give the file in it")
    raise UsageError(f"the file {printable(source)} does not exist", hint="a PATH of the API starts with a slash")


def read_again(runtime: "Runtime", loaded: StoredDocument) -> StoredDocument:
    """Return the document from where *loaded* came from; raises UsageError if that is not known, or as `read` does."""
    if loaded.file:
        return _from_file(loaded.file, loaded.file)
    if loaded.path:
        return _from_api(runtime, loaded.path)
    where = "from stdin" if loaded.location is None else "from a PATH with a query, which is not stored"
    raise UsageError(f"the API description was loaded {where}", hint="name the FILE or PATH to compare it with")


def compiled(runtime: "Runtime", document: StoredDocument) -> "tuple[Compiler, list[Operation]]":
    """Return the compiler of *document*, and its operations.

    Raises UsageError if it is not an OpenAPI description, and NetworkError if the API has sent it.
    """
    try:
        parsed = redacted(parse(document.data, document.name), runtime.terminal.redactor.redact)
        name, base_url = printable(document.name), runtime.settings.base_url
        compiler = Compiler(parsed, base_url, location=document.location, name=name)
        return compiler, compiler.operations()
    except UsageError as error:
        if document.location is None:
            raise
        raise NetworkError(error.message, hint=error.hint, sent=True, headers_received=True) from error


def _from_stdin(runtime: "Runtime") -> bytes:
    stream = runtime.terminal.noted_stdin("the API description")
    if stream is None:
        raise UsageError("stdin is closed", hint="redirect it from a file or a pipe")
    try:
        return _limited(iter(lambda: stream.read(65536), b""), "stdin")
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror}") from error


def _from_file(path: str, name: str) -> StoredDocument:
    try:
        with open(path, "rb", opener=open_file) as file:
            data = _limited(iter(lambda: file.read(65536), b""), path)
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}", hint="check the path") from error
    return StoredDocument(data, name, file=os.path.abspath(path))


def _from_api_or_directory(runtime: "Runtime", source: str) -> StoredDocument:
    """Return what `_from_api` does; its error says if *source* is a directory, because a file may be meant."""
    try:
        return _from_api(runtime, source)
    except XapiError as error:
        if os.path.isdir(source):
            directory = f"{printable(source)} is also a directory: to load a file, name the file in it"
            error.hint = f"{error.hint}; {directory}" if error.hint else directory
        raise


def _from_api(runtime: "Runtime", path: str) -> StoredDocument:
    """Return the body of the response to a GET request for *path*; raises XapiError for an error status.

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
            error = NetworkError(what, hint="load another PATH", sent=True, headers_received=True)
            concern(error, response)
            raise error
        data = _limited(decode(response.chunks(), response.headers.get("Content-Encoding")), path)
    finally:
        response.close()
    location = urls.path_of(final if urls.same_origin(final, runtime.base_url) else url)
    again = "" if "?" in path or "@" in path else path  # a query or user info may be secret
    return StoredDocument(data, f"the response from {shown}", path=again, location=location or "/")


def _limited(chunks: "Iterable[bytes]", name: str) -> bytes:
    """Return the joined *chunks*; stop after the maximum size, which `parse` reports."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_SIZE:
            break
    return bytes(data)
