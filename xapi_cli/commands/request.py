"""`xapi request`: turns the command line into RequestOptions."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, chosen, completer, settings_flags
from xapi_cli.feature_table import examples, request_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xapi_cli.feature_table import Flag

Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] PATH [ITEM]...",
        help="The method, path and ITEMs.",
        autocompletion=completer("methods_and_paths"),
        show_default=False,
    ),
]


def _rows() -> "Mapping[str, Flag]":
    from xapi_cli.request.options import ROWS

    return {**ROWS, **request_options()}


@settings_flags(*ACCOUNT, *CALLS, "retry", rows=_rows)
def request(ctx: typer.Context, arguments: Arguments) -> None:
    """Send a request with the stored token.

    If the token is missing or expired, xapi logs in first. If the API rejects
    it, xapi logs in and resends the request. METHOD is GET by default, or POST
    if there is a body. PATH is appended to the base URL. An ITEM is one of:

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

    Examples:

    \b
      xapi request /x-api/projects status==active
      xapi request /x-api/echo name=Demo tags:='["a","b"]'
      xapi request PUT /x-api/echo -d @project.json
      xapi request /x-api/echo -d @- <project.json
    """
    from xapi_cli.usecases import request as usecase

    usecase.run(ctx.obj, chosen(ctx), arguments)


request.__doc__ = "\n".join([(request.__doc__ or "").rstrip(), *(f"      {each}" for each in examples())])
