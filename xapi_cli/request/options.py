"""The options of a request: one object for sending it and for showing it as a curl command."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from xapi_cli.errors import UsageError

ErrorBody = Literal["stdout", "stderr", "none"]


class PageOptions(NamedTuple):
    """How `--paginate` finds the items and the next page: *items* and *next_field* are names of fields.

    *next_parameter* is a query parameter, and the field with its value for the next page.
    """

    items: str | None = None
    slurp: bool = False
    next_field: str | None = None
    next_parameter: tuple[str, str] | None = None
    max_pages: int | None = None


class RequestOptions(NamedTuple):
    """The arguments and options of `xapi request`."""

    arguments: Sequence[str]
    query: Sequence[str] = ()
    headers: Sequence[str] = ()
    data: str | None = None
    form: bool = False
    include: bool = False
    output: str | None = None
    retries: int = 0
    error_body: ErrorBody = "stdout"
    resume: bool = False
    meta: str | None = None
    check_status: bool = True
    follow: bool = True
    pages: PageOptions | None = None
    validate: bool = True
    filter: str | None = None
    automatic: bool = True

    def __repr__(self) -> str:
        return "RequestOptions(…)"  # the arguments, headers and data may be secrets


def page_options(
    *,
    paginate: bool,
    items: str | None = None,
    slurp: bool = False,
    next_field: str | None = None,
    next_parameter: str | None = None,
    max_pages: int | None = None,
) -> PageOptions | None:
    """Return the options of `--paginate`, None without *paginate*; raises UsageError if they are not valid."""
    given = {
        "--items": items,
        "--slurp": slurp or None,
        "--next": next_field,
        "--next-param": next_parameter,
        "--max-pages": max_pages,
    }
    for name, value in given.items():
        if value is not None and not paginate:
            raise UsageError(f"{name} requires --paginate", hint="add --paginate")
        if value == "":
            raise UsageError(f"{name} is empty", hint="write the name of a field")
    if not paginate:
        return None
    if next_field is not None and next_parameter is not None:
        raise UsageError("--next cannot be combined with --next-param", hint="use one of them")
    return PageOptions(items, slurp, next_field, _parameter(next_parameter), max_pages)


def _parameter(text: str | None) -> tuple[str, str] | None:
    """Return *text*, `PARAM=NAME`, as a pair; raises UsageError if a part is missing."""
    if text is None:
        return None
    parameter, _, name = text.partition("=")
    if not parameter or not name:
        raise UsageError("--next-param is not PARAM=NAME", hint="write it like cursor=meta.cursor")
    return parameter, name
