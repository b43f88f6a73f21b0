"""Which options of a request cannot be combined."""

import os

from xapi_cli.errors import UsageError
from xapi_cli.request.items import STDIN, Items
from xapi_cli.request.options import RequestOptions

_FORM = "application/x-www-form-urlencoded"
_RANGE_HEADERS = frozenset({"accept-encoding", "range", "if-range"})


def check(options: RequestOptions, items: Items, method: str | None) -> None:
    """Raise UsageError if *options* cannot be combined, with each other or with *items* and *method*."""
    _check_body(items, options.data, form=options.form)
    if items.uploads and any(name.lower() == "content-type" for name, _ in items.headers):
        raise UsageError("an upload sets its own Content-Type, which contains the boundary", hint="remove the header")
    if options.resume:
        _check_resumable(options, items, method)
    if options.sort_keys and options.pretty in ("colors", "none"):
        raise UsageError(f"--sort-keys cannot be combined with --pretty {options.pretty}", hint="write --pretty format")
    if options.filter is not None:
        _check_filters(options)
    if options.expect and (options.resume or options.pages is not None):
        other = "--continue" if options.resume else "--paginate"
        raise UsageError(f"--expect cannot be combined with {other}", hint=f"omit {other}")
    if options.until is not None:
        _check_repeats(options, items, method)
    elif options.every is not None:
        raise UsageError("--every requires --until", hint="add --until FILTER")
    if options.pages is not None:
        _check_paginates(options, items, method)
    if options.output and options.meta not in (None, "-") and _is_written_twice(options, options.meta):
        raise UsageError("-o and --meta name the same file", hint="use two different files")


def _check_body(items: Items, data: str | None, *, form: bool) -> None:
    """Raise UsageError if the parts of the body cannot be combined."""
    fields = items.fields
    has_json = any(field.is_json for field in fields)
    if data is not None and (items.fields or items.uploads):
        raise UsageError("-d cannot be combined with fields or uploads", hint="omit one of them")
    if data is not None and form:
        raise UsageError("--form cannot be combined with -d", hint=f"write -H 'Content-Type: {_FORM}'")
    if form and has_json:
        raise UsageError("a form cannot have JSON fields", hint="write = instead of :=, or omit --form")
    if items.uploads and has_json:
        raise UsageError("a request with uploads cannot have JSON fields", hint="write = instead of :=")
    if [*items.files, *(part.path for part in items.parts)].count(STDIN) + (data == f"@{STDIN}") > 1:
        raise UsageError("stdin is used more than once (@-)", hint="read one of them from a file")
    if fields and not form and not items.uploads:
        from xapi_cli.request import nested_json

        nested_json.build(fields)  # reports contradictory names


def _is_written_twice(options: RequestOptions, name: str | None) -> bool:
    """Return whether -o also writes the file *name*."""
    path = os.path.realpath(str(options.output))
    paths = [path, f"{path}.part", f"{path}.part.json"] if options.resume else [path]
    return os.path.realpath(str(name)) in paths


def _check_resumable(options: RequestOptions, items: Items, method: str | None) -> None:
    """Raise UsageError if a download cannot be resumed with these options."""
    if options.output in (None, "-"):
        raise UsageError("--continue requires -o FILE", hint="add -o FILE")
    if method not in (None, "GET") or options.data is not None or items.parts:
        raise UsageError("--continue is supported only for a GET request without a body", hint="omit --continue")
    for name, _ in items.headers:
        if name.lower() in _RANGE_HEADERS:
            raise UsageError(f"--continue sets the header {name} itself", hint="remove the header")
    for name in options.look_flags:
        raise UsageError(f"--continue cannot be combined with {name}", hint=f"omit {name}")
    if not options.check_status:
        raise UsageError(
            "--continue cannot be combined with --no-check-status", hint="an error body is not a part of the file"
        )


def _check_repeats(options: RequestOptions, items: Items, method: str | None) -> None:
    """Raise UsageError if a request cannot be repeated with these options."""
    if method not in (None, "GET") or options.data is not None or items.parts:
        raise UsageError("--until is supported only for a GET request without a body", hint="omit --until")
    for name, is_given in (("--paginate", options.pages is not None), ("--continue", options.resume)):
        if is_given:
            raise UsageError(f"--until cannot be combined with {name}", hint=f"omit {name}")


def _check_filters(options: RequestOptions) -> None:
    """Raise UsageError if a filter cannot be applied with these options."""
    if options.resume:
        raise UsageError("--jq cannot be combined with --continue", hint="omit --continue")
    if options.pages is not None and options.pages.slurp:
        raise UsageError("--jq cannot be combined with --slurp", hint="omit --slurp, or use `jq -s` in a pipe")


def _check_paginates(options: RequestOptions, items: Items, method: str | None) -> None:
    """Raise UsageError if pages cannot be requested with these options."""
    if method not in (None, "GET") or options.data is not None or items.parts:
        raise UsageError("--paginate is supported only for a GET request without a body", hint="omit --paginate")
    for name, is_given in (
        ("--include", options.include),
        ("--continue", options.resume),
        ("--no-check-status", not options.check_status),
    ):
        if is_given:
            raise UsageError(f"--paginate cannot be combined with {name}", hint=f"omit {name}")
