"""Run `xapi api diff`: print how an API description differs from the loaded one."""

from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError
from xapi_cli.openapi import index_file, stored_document
from xapi_cli.openapi.differences import Change, Comparison, Description
from xapi_cli.openapi.stored_document import InvalidDocument, StoredDocument
from xapi_cli.system.layout import Cell, columns
from xapi_cli.system.render import printable
from xapi_cli.usecases import api_document

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_CHANGED = 1  # the exit code if something did, as of diff(1)


def diff(runtime: "Runtime", source: str | None, *, as_json: bool) -> int:
    """Print the changes from the loaded description to the document *source*, by default from where that came.

    Returns the exit code: 0 without changes, 1 with some. Raises UsageError if none is loaded, and the errors of
    `api_document`.
    """
    loaded = _loaded(runtime)
    current = api_document.read_again(runtime, loaded) if source is None else api_document.read(runtime, source)
    changes = []
    if current.data != loaded.data:
        comparison = Comparison(_description(runtime, loaded), _description(runtime, current))
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
        return stored_document.decode(data)
    except InvalidDocument as error:
        raise index_file.unusable(profile, error) from error


def _description(runtime: "Runtime", document: StoredDocument) -> Description:
    compiler, operations = api_document.compiled(runtime, document)
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
