"""Call the API."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.commands.options import LOCAL, WIRE, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


class ErrorBody(StrEnum):
    """Where the body of a 4xx or 5xx goes."""

    STDOUT = "stdout"
    STDERR = "stderr"
    NONE = "none"


@settings_flags(*LOCAL, *WIRE)
def request(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[METHOD] PATH [ITEM]...", help="What to ask for.", show_default=False)
    ],
    *,
    query: Annotated[
        list[str], typer.Option("--query", "-q", metavar="NAME=VALUE", help="A query parameter; repeatable.")
    ] = [],  # noqa: B006 - Typer copies it
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME:VALUE", help="A header; repeatable.")
    ] = [],  # noqa: B006 - Typer copies it
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="TEXT|@FILE|@-", help="The whole body, verbatim.")
    ] = None,
    form: Annotated[bool, typer.Option("--form", help="Send the fields as a form, not as JSON.")] = False,
    include: Annotated[
        bool, typer.Option("--include", "-i", help="Print status line and headers before the body.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the body to FILE, whole or not at all.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the heads on stderr, without secrets.")
    ] = False,
    retry: Annotated[
        int, typer.Option("--retry", metavar="N", min=0, max=100, help="Try again up to N times where that is safe.")
    ] = 0,
    error_body: Annotated[
        ErrorBody, typer.Option("--error-body", help="Where the body of a 4xx or 5xx goes.")
    ] = ErrorBody.STDOUT,
    meta: Annotated[
        str | None, typer.Option("--meta", metavar="FILE", help="Write facts about the call as JSON; - is stderr.")
    ] = None,
    no_check_status: Annotated[
        bool, typer.Option("--no-check-status", help="Exit 0 whatever the status, 401 excepted.")
    ] = False,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="Do not follow redirects: exit 3.")] = False,
    no_login: Annotated[bool, typer.Option("--no-login", help="Never log in: exit 10 instead.")] = False,
    curl: Annotated[bool, typer.Option("--curl", help="Print a curl command instead of sending.")] = False,
) -> None:
    """Call the API with the stored token; when it is rejected, log in and send the same request again.

    METHOD is GET, or POST where there is a body. PATH is appended to the base
    URL. An ITEM is one of

    \b
      name==value   query parameter       name=@file    field's value from a file
      Name:value    header                name:=@file   the same, as JSON
      name=value    JSON string field     name@file     upload (multipart)
      name:=JSON    JSON field of any type

    Examples:

    \b
      xapi request /x-api/me | jq -r .email
      xapi request /x-api/projects status==open
      xapi request /x-api/projects name=Demo tags:='["a","b"]'
      xapi request PUT /x-api/projects/1 -d @project.json
      tar c . | xapi request POST /x-api/echo -d @- Content-Type:application/x-tar
      xapi request /x-api/export -o export.bin
    """
    from xapi_cli.jobs.request import Request, Wishes

    runtime: Runtime = ctx.obj
    runtime.verbose = verbose
    wishes = Wishes(
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
    request = Request(runtime, wishes)
    if curl:
        request.print_curl()
    else:
        request.run()
