"""A command and a group of commands: how they are made from functions, and their `--help`.

A help page begins with the options of the command itself and ends with its examples, next to the prompt of a terminal.
The settings that many commands have are described once, in `xapi --help`.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from xapi_cli.cli import options
from xapi_cli.cli.options import Uses
from xapi_cli.feature_table import Flag
from xapi_cli.settings.table import SETTINGS

CONTEXT = {"help_option_names": ["--help", "-h"], "max_content_width": 100}
_EXAMPLES = "Examples:"
_HYPHEN = "\u2011"  # in place of one within a word, while a page is wrapped: a name is not broken there


class _Base:
    """What commands and groups have in common."""

    help: str | None

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the summary, complete, as shells show it."""
        return summary(self.help)

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        page: str = super().get_help(ctx)  # type: ignore[misc]  # of Typer's class
        return page.replace(_HYPHEN, "-")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, options, examples."""
        command: Any = self
        text, examples = split_examples(self.help)
        command.format_usage(ctx, formatter)
        _write_text(formatter, text)
        command.format_options(ctx, formatter)
        write_examples(formatter, examples)


class Command(_Base, TyperCommand):
    """A command, whose options from rows are those in `uses` and `rows`."""

    uses = Uses()
    rows: Mapping[str, Flag] = {}

    def invoke(self, ctx: Any) -> Any:
        """Run the command in the context that `ctx.obj`, inherited from the program, returns."""
        ctx.obj = ctx.obj()
        options.take(ctx, self.uses, self.rows, ctx.obj)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # which Typer makes an exit code
            ctx.obj.terminal.end_interruption()
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage in the conventional form: NAME, not {NAME}."""
        return [piece[1:-1] if piece.startswith("{") else piece for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the names of the settings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each, record in _records(self, ctx).items():
            if each.name not in options.SHARED:
                sections.setdefault(getattr(each, "rich_help_panel", None) or "Options", []).append(record)
        last = sections.pop("Options")
        for heading, rows in (*sections.items(), ("Options", last)):
            write_section(formatter, heading, rows)
        if shared := [name for name in self.uses.settings if name in options.SHARED]:
            names = ", ".join(
                "/".join(filter(None, (SETTINGS[name].flags[0], SETTINGS[name].off_flag))) for name in shared
            )
            _write_text(formatter, f"Settings, which `xapi --help` describes: {names}.")


class Group(_Base, TyperGroup):
    """A group of commands, each of which `make` returns when it is needed."""

    names: tuple[str, ...] = ()
    make: Callable[[str], Any]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(self.names)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command *cmd_name*, None if it is unknown."""
        return self.make(cmd_name) if cmd_name in self.names else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, and the options of the group itself."""
        self.format_commands(ctx, formatter)
        write_section(formatter, "Options", list(_records(self, ctx).values()))
        self.format_epilog(ctx, formatter)


def command(name: str, function: Callable[..., Any], **settings: Any) -> Command:
    """Return the command *name* that runs *function*, with these *settings* of its context."""
    info = CommandInfo(name, cls=Command, callback=function, context_settings=CONTEXT | settings)
    made: Any = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    made.uses = getattr(function, "uses", made.uses)
    made.rows = made.uses.rows()
    made.params += options.made(made.uses, made.rows)
    return made  # type: ignore[no-any-return]  # it is a Command


def group(name: str, text: str | None, names: tuple[str, ...], make: Callable[[str], Any]) -> Group:
    """Return the group *name* with the help *text*, whose commands *names* are made by *make*."""
    made = Group(
        name=name,
        help=inspect.cleandoc(text or ""),
        invoke_without_command=True,
        callback=typer.main.get_callback(callback=print_help, context_param_name="ctx", pretty_exceptions_short=True),
        context_settings=CONTEXT,
        rich_markup_mode=None,
    )
    made.names, made.make = names, make
    return made


def _records(command: Any, ctx: Any) -> dict[Any, tuple[str, str]]:
    """Return the options of *command* with their names and descriptions."""
    found = {each: each.get_help_record(ctx) for each in command.get_params(ctx) if each.param_type_name == "option"}
    return {each: record for each, record in found.items() if record is not None}


def print_help(ctx: typer.Context) -> None:
    """Print the help page of a group that is called without a command."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def summary(text: str | None) -> str:
    """Return the first paragraph of the help *text* of a command, in one line."""
    return split_examples(text)[0].partition("\n\n")[0].replace("\n", " ")


def split_examples(text: str | None) -> tuple[str, list[str]]:
    """Split the help *text* of a command; return the text without the examples, and the lines of the examples."""
    description, _, examples = inspect.cleandoc(text or "").partition(_EXAMPLES)
    return description.strip("\n"), [line for line in examples.splitlines() if line.strip(" \b")]


def write_section(formatter: Any, heading: str, rows: list[tuple[str, str]]) -> None:
    """Write *rows* of names and descriptions below *heading*."""
    if rows:
        with formatter.section(heading):
            formatter.write_dl([(name, text.replace("-", _HYPHEN)) for name, text in rows], col_max=30)


def write_examples(formatter: Any, examples: list[str]) -> None:
    """Write the lines of *examples* as they are."""
    if examples:
        with formatter.section(_EXAMPLES.rstrip(":")):
            formatter.write("".join(f"{line}\n" for line in examples))


def _write_text(formatter: Any, text: str) -> None:
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text.replace("-", _HYPHEN))
