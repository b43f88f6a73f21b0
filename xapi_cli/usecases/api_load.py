"""Run `xapi api load`: read a document from a file, stdin or the API, and store its index for the profile."""

import os
from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import MAX_SIZE, parse, redacted
from xapi_cli.openapi.index import IndexInfo, encode
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.runtime import Runtime

_STDIN = "-"
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.1"


def load(runtime: "Runtime", source: str) -> None:
    """Read the document *source*, and store its index; raises UsageError if it is not an OpenAPI document.

    A file of that name is read if it exists, `-` is stdin, and anything else is a PATH of the API.
    """
    settings = runtime.settings
    if source == _STDIN:
        data, name, location = _from_stdin(runtime), "stdin", None
    elif os.path.exists(path := os.path.expanduser(source)) and not os.path.isdir(path):
        data, name, location = _from_file(path), source, None
    elif source.startswith(("/", "http:", "https:")):
        data, name, location = _from_api(runtime, source), source, urls.path_of(urls.resolve(runtime.base_url, source))
    else:
        raise UsageError(f"the file {printable(source)} does not exist", hint="a PATH of the API starts with a slash")
    name = redact_url(name.partition("?")[0])
    document = redacted(parse(data, name), runtime.terminal.redactor.redact)
    compiler = Compiler(document, settings.base_url, location=location)
    operations = compiler.operations()
    info = IndexInfo(
        compiler.title,
        compiler.server_path(),
        name,
        settings.base_url or "",
        compiler.other_servers(),
        compiler.is_partial,
    )
    index_file.write(runtime.state_directory, settings.profile, encode(info, operations))
    _report(runtime, compiler, len(operations))


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
        with open(path, "rb") as file:
            return _limited(iter(lambda: file.read(65536), b""), path)
    except OSError as error:
        raise UsageError(f"cannot read {printable(path)}: {error.strerror}", hint="check the path") from error


def _from_api(runtime: "Runtime", path: str) -> bytes:
    """Return the body of the response to a GET request for *path*; raises XapiError for an error status."""
    from xapi_cli.http.content_coding import decode
    from xapi_cli.request.calls import Call
    from xapi_cli.request.send import Sender, status_error

    url = urls.resolve(runtime.base_url, path)
    credentials = runtime.credentials()
    sender = Sender(
        runtime.http_client, runtime.base_url, credentials, deadline=runtime.deadline, note=runtime.terminal.note
    )
    outcome = sender.send(Call("GET", url, (("Accept", _ACCEPT),)))
    response = outcome.response
    try:
        if error := status_error(outcome, credentials):
            raise error
        if response.status_code != 200:
            raise UsageError(f"{path} responded with {response.status_code}", hint="load another document")
        return _limited(decode(response.iter_raw(), response.headers.get("Content-Encoding")), path)
    finally:
        response.close()


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
