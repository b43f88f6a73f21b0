"""Which options of a request cannot be combined, and which require another."""

from xapi_cli.errors import UsageError
from xapi_cli.request.items import STDIN, Items
from xapi_cli.request.options import RequestOptions
from xapi_cli.system.files import comparable


def check(options: RequestOptions, items: Items, method: str | None, *, log: str | None = None) -> None:
    """Raise UsageError if *options* cannot be combined, with each other or with *items* and *method*.

    *log* is the file of the request log.
    """
    _check_body(items, options.data, form=options.form)
    if options.fields is not None and not options.csv:
        raise UsageError("--fields requires --csv", hint="add --csv")
    _check_files(options, log)


def _check_body(items: Items, data: str | None, *, form: bool) -> None:
    """Raise UsageError if the parts of the body cannot be combined."""
    fields, uploads = items.fields, items.uploads
    has_json = any(field.is_json for field in fields)
    if data is not None and items.parts:
        raise UsageError("-d cannot be combined with fields or uploads", hint="omit one of them")
    if data is not None and form:
        from xapi_cli.request.body.build import FORM

        raise UsageError("--form cannot be combined with -d", hint=f"write -H 'Content-Type: {FORM}'")
    if form and has_json:
        raise UsageError("a form cannot have JSON fields", hint="write = instead of :=, or omit --form")
    if uploads and has_json:
        raise UsageError("a request with uploads cannot have JSON fields", hint="write = instead of :=")
    if [*items.files, *(part.path for part in items.parts)].count(STDIN) + (data == f"@{STDIN}") > 1:
        raise UsageError("stdin is used more than once (@-)", hint="read one of them from a file")
    if fields and not form and not uploads:
        from xapi_cli.request import nested_json

        nested_json.build(fields)  # reports contradictory names
    if uploads and any(name.lower() == "content-type" for name, _ in items.headers):
        raise UsageError("an upload sets its own Content-Type, which contains the boundary", hint="remove the header")


def _check_files(options: RequestOptions, log: str | None) -> None:
    """Raise UsageError if two of the files that the request writes are the same."""
    output, meta = (None if name == "-" else name for name in (options.output, options.meta))
    roles: dict[str, str] = {}
    for role, name in (("-o", output), ("--meta", meta), ("the request log", log)):
        if not name:
            continue
        path = comparable(name)
        if path in roles:
            raise UsageError(f"{roles[path]} and {role} are the same file", hint="use two different files")
        roles[path] = role
