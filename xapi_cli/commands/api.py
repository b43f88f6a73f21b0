"""Load, look up and compare API descriptions (OpenAPI).

Examples:

\b
  xapi api load /openapi.json
  xapi api show POST /x-api/echo
  xapi api diff
"""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, Json, completer, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|PATH|-",
        help="The API description: a file, a PATH of the API, or - for stdin.",
        show_default=False,
    ),
]
Word = Annotated[
    str | None,
    typer.Argument(
        metavar="[WORD]",
        help="List operations that contain WORD.",
        show_default=False,
    ),
]
Current = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE|PATH|-]",
        help="The API description to compare with; by default, the loaded one, read again from its source.",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] PATH",
        help="The method and path.",
        autocompletion=completer("methods_and_paths"),
        show_default=False,
    ),
]


@settings_flags(*ACCOUNT, *NETWORK)
def load(ctx: typer.Context, source: Source) -> None:
    """Load an API description (OpenAPI 3 or Swagger 2).

    Reads FILE, or stdin if it is -. If FILE does not exist and the argument
    starts with a slash or is a URL below the base URL, requests it from the API
    with the token. Exits with code 11 if the response is not an API
    description. Stores an index of the operations for the profile. YAML
    requires the extra `yaml`.

    Examples:

    \b
      xapi api load /openapi.json
      xapi api load openapi.yaml -p staging
    """
    from xapi_cli.usecases import api_description

    runtime: Runtime = ctx.obj
    api_description.load(runtime, source)


@settings_flags(*ACCOUNT)
def list_(ctx: typer.Context, word: Word = None, *, json: Json = False) -> None:
    """List the operations of the loaded API description.

    With WORD, lists only operations whose method, path or summary contains it.
    In a pipe, prints one tab-separated line per operation: method, path,
    summary. Sends no request.

    Examples:

    \b
      xapi api list
      xapi api list project
      xapi api list --json | jq -r '.[].path'
    """
    from xapi_cli.usecases import api_show

    runtime: Runtime = ctx.obj
    api_show.list_operations(runtime, word, as_json=json)


@settings_flags(*ACCOUNT)
def show(ctx: typer.Context, arguments: Arguments, *, json: Json = False) -> None:
    """Show an operation of the loaded API description.

    Prints its parameters, body fields, responses and an example call. Without
    METHOD, shows all methods of PATH. PATH can contain placeholders, as in
    /users/{id}, or values, as in /users/7. Sends no request.

    Examples:

    \b
      xapi api show POST /x-api/echo
      xapi api show /x-api/projects
    """
    from xapi_cli.usecases import api_show

    runtime: Runtime = ctx.obj
    api_show.show_operations(runtime, arguments, as_json=json)


@settings_flags(*ACCOUNT, *NETWORK)
def diff(ctx: typer.Context, source: Current = None, *, json: Json = False) -> None:
    """Compare an API description with the loaded one.

    Reads the description again from where it was loaded, or another one, and
    prints which operations were added, removed or changed: their parameters,
    bodies, fields, types and statuses. A change is breaking if a valid request
    may fail, or if a successful response may lack something that it had. In a
    pipe, prints one tab-separated line per change: breaking or -, method, path,
    change. Exits with code 0 if nothing has changed, and with 1 if something
    has. The loaded description is not replaced; `xapi api load` does that.

    Examples:

    \b
      xapi api diff
      xapi api diff new.json --json | jq 'any(.[]; .breaking)'
    """
    from xapi_cli.usecases import api_description

    runtime: Runtime = ctx.obj
    raise typer.Exit(api_description.diff(runtime, source, as_json=json))
