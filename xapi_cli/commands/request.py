"""Call the API."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_SENT, _ANSWER, _FAILURES = "What is sent", "The answer", "When it goes wrong"


class ErrorBody(StrEnum):
    """Where the body of a 4xx or 5xx goes."""

    STDOUT = "stdout"
    STDERR = "stderr"
    NONE = "none"


@settings_flags(*LOCAL, *WIRE)
def request(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="[METHOD] PATH [ITEM]...", help="What to ask for, see above.", show_default=False),
    ],
    *,
    query: Annotated[
        list[str],
        typer.Option(
            "--query", "-q", metavar="NAME=VALUE", rich_help_panel=_SENT, help="Add a query parameter; repeatable."
        ),
    ] = [],  # noqa: B006 - Typer copies it
    header: Annotated[
        list[str],
        typer.Option(
            "--header",
            "-H",
            metavar="NAME:VALUE",
            rich_help_panel=_SENT,
            help="Add a header, or without a value remove one; repeatable.",
        ),
    ] = [],  # noqa: B006 - Typer copies it
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="TEXT|@FILE|@-",
            rich_help_panel=_SENT,
            help="Send this as the body, verbatim; @- is stdin.",
        ),
    ] = None,
    form: Annotated[
        bool, typer.Option("--form", rich_help_panel=_SENT, help="Send the fields as a form, not as JSON.")
    ] = False,
    include: Annotated[
        bool,
        typer.Option(
            "--include", "-i", rich_help_panel=_ANSWER, help="Print status line and headers too, before the body."
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=_ANSWER,
            help="Write the body to FILE, whole or not at all.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show requests and responses on stderr, without bodies and secrets.")
    ] = False,
    retry: Annotated[
        int,
        typer.Option(
            "--retry",
            metavar="N",
            min=0,
            max=100,
            rich_help_panel=_FAILURES,
            help="Try again up to N times after 429, 502 to 504 or a lost connection, but no POST or PATCH.",
        ),
    ] = 0,
    error_body: Annotated[
        ErrorBody, typer.Option("--error-body", rich_help_panel=_ANSWER, help="Where the body of a 4xx or 5xx goes.")
    ] = ErrorBody.STDOUT,
    meta: Annotated[
        str | None,
        typer.Option(
            "--meta",
            metavar="FILE",
            rich_help_panel=_ANSWER,
            help="Write status, headers, times as JSON to FILE; - is stderr.",
        ),
    ] = None,
    no_check_status: Annotated[
        bool,
        typer.Option(
            "--no-check-status", rich_help_panel=_FAILURES, help="Exit with 0 whatever the status is, 401 excepted."
        ),
    ] = False,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", rich_help_panel=_ANSWER, help="Do not follow redirects: exit with 3.")
    ] = False,
    no_login: Annotated[
        bool, typer.Option("--no-login", rich_help_panel=_FAILURES, help="Never log in: exit with 10 instead.")
    ] = False,
    curl: Annotated[bool, typer.Option("--curl", help="Print a curl command instead of sending.")] = False,
) -> None:
    """Call the API with the stored token.

    When the token is missing, expired or rejected, xapi logs in and sends the
    same request again. METHOD is GET, or POST where there is a body. PATH is
    appended to the base URL. An ITEM is one of

    \b
      name==value   query parameter
      Name:value    header
      name=value    JSON string field
      name:=JSON    JSON field of any type
      name=@file    field's value from a file
      name:=@file   the same, as JSON
      name@file     upload (multipart)

    `xapi help items` tells more about them.

    Examples:

    \b
      xapi request /x-api/me | jq -r .email
      xapi request /x-api/projects status==active
      xapi request /x-api/echo name=Demo tags:='["a","b"]'
      xapi request PUT /x-api/echo -d @project.json
      xapi request /x-api/echo -d @- <project.json
      xapi request /x-api/projects -o projects.json
    """
    from xapi_cli.usecases.request import Request, RequestOptions

    runtime: Runtime = ctx.obj
    runtime.verbose = verbose
    options = RequestOptions(
        words=words,
        query=query,
        headers=header,
        data=data,
        form=form,
        include=include,
        output=output,
        retries=retry,
        error_body=error_body.value,
        meta=meta,
        check_status=not no_check_status,
        follow=not no_follow,
        automatic=not no_login,
    )
    request = Request(runtime, options)
    if curl:
        request.print_curl()
    else:
        request.run()
