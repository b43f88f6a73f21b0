"""Tell more about a command or a topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli import help_format, usage_errors
from xapi_cli.cli.help_topics import TOPICS

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def help_(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="A command or a topic.", show_default=False),
    ] = None,
) -> None:
    """Tell more about a command or a topic.

    TOPIC is a command, such as request or token show, or one of environment,
    exit-codes and items.

    Examples:

    \b
      xapi help exit-codes
      xapi help token show
    """
    runtime: Runtime = ctx.obj
    words = topic or []
    about = _of_topic(ctx, words[0]) if len(words) == 1 and words[0] in TOPICS else _of_command(ctx, words)
    runtime.terminal.out(help_format.styled(about) if runtime.terminal.colours else about)


def _of_topic(ctx: typer.Context, name: str) -> str:
    return help_format.of_topic(ctx.make_formatter(), TOPICS[name])


def _of_command(ctx: typer.Context, words: list[str]) -> str:
    """Return the page of the command that *words* name; raises UsageError where there is none."""
    found: Any = ctx.find_root()
    for word in words:
        group = found.command
        names = group.list_commands(found) if hasattr(group, "list_commands") else []
        if word not in names:
            raise usage_errors.no_such_topic(
                found.command_path, word, [*names, *(TOPICS if found.parent is None else ())]
            )
        command = group.get_command(found, word)
        found = type(found)(command, info_name=word, parent=found, **command.context_settings)
    return str(found.command.get_help(found))
