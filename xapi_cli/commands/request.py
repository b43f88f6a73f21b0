"""`xapi request`: turns the command line into RequestOptions."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli import completion
from xapi_cli.cli.options import ACCOUNT, NETWORK, settings_flags
from xapi_cli.http.retry import STATUS_LIST

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


class ErrorBody(StrEnum):
    """Destinations of the body of a 4xx or 5xx response."""

    STDOUT = "stdout"
    STDERR = "stderr"
    NONE = "none"


def _option(heading: str, *names: str, help: str, **more: Any) -> Any:  # noqa: A002 - the name that Typer uses
    return typer.Option(*names, rich_help_panel=heading, help=help, **more)


_REQUEST, _RESPONSE, _PAGES, _ERRORS = "Request options", "Response options", "Pagination options", "Error handling"

Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] PATH [ITEM]...",
        help="The method, path and ITEMs.",
        autocompletion=completion.methods_and_items,
        show_default=False,
    ),
]
Query = Annotated[
    list[str],
    _option(
        _REQUEST,
        "--query",
        "-q",
        metavar="NAME=VALUE",
        autocompletion=completion.query_parameters,
        help="Add a query parameter; repeatable.",
    ),
]
Header = Annotated[
    list[str],
    _option(
        _REQUEST,
        "--header",
        "-H",
        metavar="NAME:VALUE",
        autocompletion=completion.headers,
        help="Add a header; without a value, remove it; repeatable.",
    ),
]
Data = Annotated[
    list[str],
    _option(
        _REQUEST,
        "--data",
        "-d",
        metavar="TEXT|@FILE|@-",
        autocompletion=completion.data_files,
        help="Send TEXT, FILE or stdin (@-) as the body, verbatim.",
    ),
]
Form = Annotated[bool, _option(_REQUEST, "--form", help="Send the fields as a form instead of JSON.")]
Include = Annotated[
    bool, _option(_RESPONSE, "--include", "-i", help="Print the status line and headers before the body.")
]
Output = Annotated[
    str | None,
    _option(_RESPONSE, "--output", "-o", metavar="FILE", help="Write the body to FILE; complete or not at all."),
]
Continue = Annotated[
    bool,
    _option(
        _RESPONSE,
        "--continue",
        help="With -o: keep an interrupted download in FILE.part (and FILE.part.json), and resume it.",
    ),
]
ErrorBodyOption = Annotated[
    ErrorBody | None,
    _option(
        _RESPONSE,
        "--error-body",
        help="Where to write the body of a 4xx or 5xx response [default: stdout; stderr with --jq or --paginate].",
        show_default=False,
    ),
]
Meta = Annotated[
    str | None,
    _option(_RESPONSE, "--meta", metavar="FILE", help="Write status, headers and times as JSON to FILE; - is stderr."),
]
Paginate = Annotated[
    bool, _option(_PAGES, "--paginate", help="Request all pages, and print each item as one line of JSON.")
]
PageItems = Annotated[
    str | None,
    _option(
        _PAGES,
        "--items",
        metavar="FIELD",
        autocompletion=completion.nothing,
        help="Field that contains the array of items, such as data.items.",
    ),
]
Slurp = Annotated[bool, _option(_PAGES, "--slurp", help="Print a single JSON array of all items.")]
NextField = Annotated[
    str | None,
    _option(
        _PAGES,
        "--next",
        metavar="FIELD",
        autocompletion=completion.nothing,
        help="Field that contains the URL of the next page  [default: the Link header].",
    ),
]
NextParameter = Annotated[
    str | None,
    _option(
        _PAGES,
        "--next-param",
        metavar="PARAM=FIELD",
        autocompletion=completion.nothing,
        help="Request the next page with the query parameter PARAM set to the value of FIELD.",
    ),
]
MaxPages = Annotated[
    int | None, _option(_PAGES, "--max-pages", metavar="N", min=1, help="Request at most N pages.", show_default=False)
]
Jq = Annotated[
    str | None,
    _option(
        _RESPONSE,
        "--jq",
        metavar="FILTER",
        autocompletion=completion.nothing,
        help="Apply a jq filter to the response, or to each item with --paginate; print strings without quotes.",
    ),
]
NoFollow = Annotated[bool, _option(_RESPONSE, "--no-follow", help="Do not follow redirects; exit with code 3.")]
Retry = Annotated[
    int,
    _option(
        _ERRORS,
        "--retry",
        metavar="N",
        min=0,
        max=100,
        help=f"Retry up to N times after {STATUS_LIST} or a lost connection; never POST or PATCH.",
    ),
]
NoCheckStatus = Annotated[
    bool, _option(_ERRORS, "--no-check-status", help="Exit with code 0 for any status except 401.")
]
NoLogin = Annotated[bool, _option(_ERRORS, "--no-login", help="Do not log in automatically; exit with code 10.")]
NoValidate = Annotated[
    bool, _option(_ERRORS, "--no-validate", help="Do not compare the request with the API description.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print requests and responses on stderr, without bodies and secrets."),
]
Curl = Annotated[bool, typer.Option("--curl", help="Print the equivalent curl command instead of sending.")]


@settings_flags(*ACCOUNT, *NETWORK)
def request(
    ctx: typer.Context,
    arguments: Arguments,
    *,
    query: Query = [],  # noqa: B006 - Typer copies it
    header: Header = [],  # noqa: B006 - Typer copies it
    data: Data = [],  # noqa: B006 - Typer copies it
    form: Form = False,
    include: Include = False,
    output: Output = None,
    continue_: Continue = False,
    error_body: ErrorBodyOption = None,
    meta: Meta = None,
    jq: Jq = None,
    no_follow: NoFollow = False,
    paginate: Paginate = False,
    items: PageItems = None,
    slurp: Slurp = False,
    next_: NextField = None,
    next_param: NextParameter = None,
    max_pages: MaxPages = None,
    retry: Retry = 0,
    no_check_status: NoCheckStatus = False,
    no_validate: NoValidate = False,
    no_login: NoLogin = False,
    verbose: Verbose = False,
    curl: Curl = False,
) -> None:
    """Send a request with the stored token.

    If the token is missing, expired or rejected, xapi logs in and sends the
    same request again. METHOD is GET by default, or POST if there is a body.
    PATH is appended to the base URL. An ITEM is one of:

    \b
      name==value      query parameter
      Name:value       header
      name=value       JSON string field
      name:=JSON       JSON field of any type
      name[key]=value  member of an object
      name[0]=value    element of an array
      name[]=value     element appended to an array
      name=@file       field with the content of a file
      name:=@file      field with the JSON in a file
      name==@file      query parameter from a file
      Name:@file       header from a file
      name@file        file upload (multipart)

    See `xapi help items` for details.

    Examples:

    \b
      xapi request /x-api/me --jq .email
      xapi request /x-api/projects status==active
      xapi request /x-api/echo name=Demo tags:='["a","b"]'
      xapi request PUT /x-api/echo -d @project.json
      xapi request /x-api/echo -d @- <project.json
      xapi request /x-api/projects --paginate -o projects.json
    """
    from xapi_cli.request.options import RequestOptions, page_options
    from xapi_cli.usecases import request as usecase

    runtime: Runtime = ctx.obj
    runtime.verbose = verbose
    options = RequestOptions(
        arguments=arguments,
        query=query,
        headers=header,
        data=_only_body(data),
        form=form,
        include=include,
        output=output,
        resume=continue_,
        retries=retry,
        error_body=error_body.value if error_body else "stderr" if paginate or jq is not None else "stdout",
        meta=meta,
        check_status=not no_check_status,
        follow=not no_follow,
        pages=page_options(
            paginate=paginate,
            items=items,
            slurp=slurp,
            next_field=next_,
            next_parameter=next_param,
            max_pages=max_pages,
        ),
        validate=not no_validate,
        filter=jq,
        automatic=not no_login,
    )
    usecase.run(runtime, options, print_curl=curl)


def _only_body(values: list[str]) -> str | None:
    """Return the value of -d, None without one; the last one would replace the others, where curl joins them."""
    from xapi_cli.errors import UsageError

    if len(values) > 1:
        raise UsageError("-d is given twice", hint="give the whole body once, or its fields as ITEMs")
    return values[0] if values else None
