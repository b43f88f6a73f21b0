"""`xapi help`: the help page of a command, as `--help` prints it, or of a topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli import help_format, usage_errors
from xapi_cli.cli.help_topics import TOPICS

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def _complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the commands and topics that begin with *incomplete*, after the names that precede it."""
    current: Any = ctx.find_root()
    names = ctx.params.get("topic") or []
    for name in names:
        if name not in _subcommands(current):
            return []
        current = _subcontext(current, name)
    topics = () if names else TOPICS
    return [name for name in (*_subcommands(current), *topics) if name.startswith(incomplete)]


Topic = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="A command or a topic.", show_default=False, autocompletion=_complete),
]


def help_(ctx: typer.Context, topic: Topic = None) -> None:
    """Show help for a command or a topic.

    TOPIC is a command, such as request or token show, or one of environment,
    exit-codes and items.

    Examples:

    \b
      xapi help exit-codes
      xapi help token show
    """
    runtime: Runtime = ctx.obj
    page = _page(ctx, topic or [])
    runtime.terminal.print(help_format.styled(page, runtime.terminal.style))


def _page(ctx: typer.Context, names: list[str]) -> str:
    if len(names) == 1 and names[0] in TOPICS:
        return help_format.topic_page(ctx.make_formatter(), TOPICS[names[0]])
    return _command_page(ctx, names)


def _command_page(ctx: typer.Context, names: list[str]) -> str:
    """Return the help page of the command that *names* identify; raises UsageError if it is unknown."""
    current: Any = ctx.find_root()
    for name in names:
        commands = _subcommands(current)
        if name not in commands:
            topics = TOPICS if current.parent is None else ()
            raise usage_errors.unknown_topic(current.command_path, name, [*commands, *topics])
        current = _subcontext(current, name)
    return str(current.command.get_help(current))


def _subcommands(ctx: Any) -> list[str]:
    group = ctx.command
    return list(group.list_commands(ctx)) if hasattr(group, "list_commands") else []


def _subcontext(ctx: Any, name: str) -> Any:
    """Return the context of the subcommand *name* of the group of *ctx*."""
    command = ctx.command.get_command(ctx, name)
    return type(ctx)(command, info_name=name, parent=ctx, **command.context_settings)
