"""The options of a request, which are the flags of `xapi request`: one object for sending it and for `--curl`.

Each field with a Flag is a row: `cli.options` makes the flag of the command from it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from xapi_cli.feature_table import RESPONSE as _RESPONSE
from xapi_cli.feature_table import Flag

ErrorBody = Literal["stdout", "stderr", "none"]
_REQUEST, _ERRORS = "Request options", "Error handling"


class RequestOptions(NamedTuple):
    """The arguments and options of `xapi request`."""

    arguments: Sequence[str]
    method: Annotated[
        str | None, Flag(("--request", "-X"), "The METHOD, which can also precede PATH.", _REQUEST, metavar="METHOD")
    ] = None
    headers: Annotated[
        Sequence[str],
        Flag(
            ("--header", "-H"),
            "Add a header (repeatable). Without VALUE, remove it.",
            _REQUEST,
            metavar="NAME:VALUE",
            kind="texts",
        ),
    ] = ()
    data: Annotated[
        str | None,
        Flag(
            ("--data", "-d"),
            "Send TEXT, FILE or stdin (@-) as the body, verbatim.",
            _REQUEST,
            metavar="TEXT|@FILE|@-",
            once="give the whole body once, or its fields as ITEMs",  # curl joins the values
        ),
    ] = None
    form: Annotated[bool, Flag(("--form",), "Send the fields as a form instead of JSON.", _REQUEST, kind="switch")] = (
        False
    )
    include: Annotated[
        bool, Flag(("--include", "-i"), "Print the status line and headers before the body.", _RESPONSE, kind="switch")
    ] = False
    output: Annotated[
        str | None,
        Flag(
            ("--output", "-o"),
            "Write the body to FILE. If the request fails, FILE is unchanged.",
            _RESPONSE,
            metavar="FILE",
        ),
    ] = None
    errors_to: Annotated[
        ErrorBody | None,
        Flag(
            ("--error-body",),
            "Where to write the body of a failure.  [default: stdout; stderr if stdout has items or a table]",
            _RESPONSE,
            choices=("stdout", "stderr", "none"),
        ),
    ] = None
    meta: Annotated[
        str | None,
        Flag(("--meta",), "Write status, headers and times as JSON to FILE; - is stderr.", _RESPONSE, metavar="FILE"),
    ] = None
    csv: Annotated[
        bool, Flag(("--csv",), "Print a JSON array of objects as CSV with a header row.", _RESPONSE, kind="switch")
    ] = False
    fields: Annotated[
        str | None,
        Flag(("--fields",), "With --csv: the columns, such as id,owner.email.", _RESPONSE, metavar="LIST"),
    ] = None
    follow: Annotated[
        bool, Flag(("--no-follow",), "Do not follow redirects; exit with code 3.", _RESPONSE, kind="off")
    ] = True
    check_status: Annotated[
        bool, Flag(("--no-check-status",), "Exit with code 0 for any status except 401.", _ERRORS, kind="off")
    ] = True
    automatic: Annotated[
        bool, Flag(("--no-login",), "Exit with code 10 instead of logging in.", _ERRORS, kind="off")
    ] = True
    verbose: Annotated[
        int,
        Flag(
            ("--verbose", "-v"),
            "Print requests and responses on stderr; -vv: bodies too.",
            kind="repeat",
        ),
    ] = 0

    def __repr__(self) -> str:
        return "RequestOptions(…)"  # the arguments, headers and data may be secrets


def rows_of(options: type) -> Mapping[str, Flag]:
    """Return the rows of *options*, a class such as `RequestOptions`, by the names of its fields."""
    return {
        name: row
        for name, annotation in options.__annotations__.items()
        for row in getattr(annotation, "__metadata__", ())
    }


ROWS = rows_of(RequestOptions)
