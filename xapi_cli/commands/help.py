"""`xapi help`: the help page of a command, as `--help` prints it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.context import Context

Names = Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="A command.", show_default=False)]


def help_(ctx: typer.Context, names: Names = None) -> None:
    """Show the help of a command.

    Examples:

    \b
      xapi help token show
    """
    context: Context = ctx.obj
    current: Any = ctx.find_root()
    for name in names or ():
        group = current.command
        command = group.get_command(current, name) if hasattr(group, "get_command") else None
        if command is None:
            raise UsageError("unknown command", hint=f"see `{current.command_path} --help`")
        current = type(ctx)(command, info_name=name, parent=current, **command.context_settings)
    context.terminal.print(current.command.get_help(current))
