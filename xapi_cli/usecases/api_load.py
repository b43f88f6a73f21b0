"""Run `xapi api load`: store an index of an API description for the profile, and the document itself."""

from typing import TYPE_CHECKING

from xapi_cli.openapi import index_file, stored_document
from xapi_cli.openapi.index import IndexInfo, encode
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable
from xapi_cli.usecases import api_document

if TYPE_CHECKING:
    from xapi_cli.openapi.compiler import Compiler
    from xapi_cli.runtime import Runtime


def load(runtime: "Runtime", source: str) -> None:
    """Read the document *source*, and store it and its index; raises the errors of `api_document`, and OutputError."""
    document = api_document.read(runtime, source)
    compiler, operations = api_document.compiled(runtime, document)
    settings = runtime.settings
    info = IndexInfo(
        compiler.title,
        compiler.server_path(),
        redact_url(source.partition("?")[0]),
        settings.base_url or "",
        compiler.other_server_paths(),
        compiler.is_partial,
    )
    data = runtime.terminal.redactor.redact(document.data.decode()).encode()
    stored = stored_document.encode(document._replace(data=data))
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
