"""Which options of a request cannot be combined, and which require another."""

from collections.abc import Mapping

from xapi_cli.errors import UsageError
from xapi_cli.request.items import STDIN, Items
from xapi_cli.request.options import RequestOptions
from xapi_cli.system.files import comparable

_RANGE_HEADERS = frozenset({"accept-encoding", "range", "if-range"})


def check(options: RequestOptions, items: Items, method: str | None, *, log: str | None = None) -> None:
    """Raise UsageError if *options* cannot be combined, with each other or with *items* and *method*.

    *log* is the file of the request log.
    """
    _check_body(items, options.data, form=options.form)
    if options.resume:
        _check_resumable(options, items, method)
    if options.filter is not None:
        _check_filters(options)
    if options.expect:
        _refuse("--expect", {"--continue": options.resume, "--paginate": options.paginate})
    if options.until is not None:
        _check_repeats(options, items, method)
    elif options.every is not None:
        raise UsageError("--every requires --until", hint="add --until FILTER")
    if options.pages is not None:
        _check_paginates(options, items, method)
    _check_files(options, log)


def check_pages(options: RequestOptions) -> None:
    """Raise UsageError if the options of `--paginate` are not valid."""
    given = {
        "--items": options.items,
        "--slurp": options.slurp or None,
        "--next": options.next_field,
        "--max-pages": options.max_pages,
    }
    for name, value in given.items():
        if value is not None and not options.paginate:
            raise UsageError(f"{name} requires --paginate", hint="add --paginate")
        if value == "":
            raise UsageError(f"{name} is empty", hint="write the name of a field")


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
        parts = ("", ".part", ".part.json") if role == "-o" and options.resume else ("",)
        roles.update((path + part, role) for part in parts)


def _check_resumable(options: RequestOptions, items: Items, method: str | None) -> None:
    if options.output in (None, "-"):
        raise UsageError("--continue requires -o FILE", hint="add -o FILE")
    _check_gets("--continue", options, items, method)
    for name, _ in items.headers:
        if name.lower() in _RANGE_HEADERS:
            raise UsageError(f"--continue sets the header {name} itself", hint="remove the header")
    if not options.check_status:
        raise UsageError(
            "--continue cannot be combined with --no-check-status", hint="an error body is not a part of the file"
        )


def _check_repeats(options: RequestOptions, items: Items, method: str | None) -> None:
    _check_gets("--until", options, items, method)
    _refuse("--until", {"--paginate": options.paginate, "--continue": options.resume})


def _check_filters(options: RequestOptions) -> None:
    if options.resume:
        raise UsageError("--jq cannot be combined with --continue", hint="omit --continue")
    if options.pages is not None and options.pages.slurp:
        raise UsageError("--jq cannot be combined with --slurp", hint="omit --slurp, or use `jq -s` in a pipe")


def _check_paginates(options: RequestOptions, items: Items, method: str | None) -> None:
    _check_gets("--paginate", options, items, method)
    _refuse(
        "--paginate",
        {
            "--include": options.include,
            "--continue": options.resume,
            "--no-check-status": not options.check_status,
        },
    )


def _check_gets(option: str, options: RequestOptions, items: Items, method: str | None) -> None:
    """Raise UsageError unless the request is a GET without a body, which *option* requires."""
    if method not in (None, "GET") or items.has_body(options.data):
        raise UsageError(f"{option} is supported only for a GET request without a body", hint=f"omit {option}")


def _refuse(option: str, others: Mapping[str, bool]) -> None:
    """Raise UsageError if one of *others* is given, which cannot be combined with *option*."""
    for name, is_given in others.items():
        if is_given:
            raise UsageError(f"{option} cannot be combined with {name}", hint=f"omit {name}")
