"""The format of `--help`: plain text that fits the terminal, with styled headings and names where supported.

A help page ends with its examples, so that they are next to the prompt on a terminal. The styled page adds only colors
to the plain one: terminals, pipes and screen readers receive the same text.
"""

import inspect
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.cli.help_topics import Topic
    from xapi_cli.system.style import Style

SETTINGS = "Settings"
_OPTIONS = "Options"
_EXAMPLES = "Examples:"
_HYPHEN = "\u2011"  # in place of one within a word, while a page is wrapped: a name is not broken there
_WIDE = 70  # columns; on a narrower terminal, a long name has its own line
_HEADING = r"(?m)^(\S[^\n]*):$|^(Usage): "
_NAME = r"(?m)^(  |    )(-[^\s,]+(?: / --\S+|, --\S+)*(?=\n| )|\S+(?=  ))"


class Command(TyperCommand):
    """A command; its help has a description, grouped options and examples."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage in the conventional form: NAME, not {NAME}."""
        return [piece[1:-1] if piece.startswith("{") else piece for piece in super().collect_usage_pieces(ctx)]

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the summary, complete, as shells show it."""
        return summary(self.help)

    def get_help(self, ctx: Any) -> str:
        """Return the help page, styled if stdout supports it."""
        return _styled_for(ctx, super().get_help(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, options, examples."""
        text, examples = split_examples(self.help)
        self.format_usage(ctx, formatter)
        _write_text(formatter, text)
        _write_options(self, ctx, formatter)
        _write_examples(formatter, examples)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; raise UsageError, with a hint for this command, if they are not valid."""
        profile = ctx.find_root().params.get("profile")
        has_profile = "profile" in [each.name for each in self.params]
        if profile is not None and has_profile:  # before the command; one after it takes precedence
            ctx.default_map = {"profile": profile}
        with _converted_errors(ctx):
            self._check_opposites(ctx, args)
            rest = super().parse_args(ctx, args)
        if profile is not None and not has_profile:
            raise UsageError(f"`{ctx.command_path}` does not use a profile", hint="omit --profile")
        return rest

    def _check_opposites(self, ctx: Any, args: Sequence[str]) -> None:
        """Raise UsageError if *args* contain both flags of a switch, such as --read-only and --write."""
        words = set(args)
        for switch in self.params:
            if words.isdisjoint(switch.secondary_opts) or words.isdisjoint(switch.opts):
                continue
            _, _, given = self.make_parser(ctx).parse_args(list(args))  # one may be a value, or an argument of COMMAND
            if given.count(switch) > 1:
                on, off = ([each for each in names if each in words] for names in (switch.opts, switch.secondary_opts))
                raise UsageError(f"{on[0]} cannot be combined with {off[0]}", hint="omit one of them")

    def invoke(self, ctx: Any) -> Any:
        """Run the command in the runtime that `ctx.obj`, inherited from the program, returns."""
        ctx.obj = ctx.obj()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # which Typer makes an exit code
            ctx.obj.terminal.end_interruption()
            raise


class Group(TyperGroup):
    """A group of commands, listed under `headings`; the error for an unknown command contains a suggestion."""

    headings: Mapping[str, Collection[str]] = {"Commands": ()}
    summaries: Mapping[str, str] = MappingProxyType({})  # of commands that need not be imported for that
    footer = ""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the summary, complete, as shells show it."""
        return summary(self.help)

    def get_help(self, ctx: Any) -> str:
        """Return the help page, styled if stdout supports it."""
        return _styled_for(ctx, super().get_help(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, commands, options, examples, footer."""
        text, examples = split_examples(self.help)
        self.format_usage(ctx, formatter)
        _write_text(formatter, text)
        for heading, names in self.headings.items():
            rows = [(name, self._summary(ctx, name)) for name in names or self.list_commands(ctx)]
            _write_section(formatter, heading, rows)
        _write_options(self, ctx, formatter)
        _write_examples(formatter, examples)
        _write_text(formatter, self.footer)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the command; raise UsageError, with a hint for this group, if they are invalid."""
        with _converted_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that *args* begin with; raise UsageError, with a suggestion, if it is unknown."""
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            from xapi_cli.cli import usage_errors

            raise usage_errors.unknown_command(ctx.command_path, args, names, lambda name: self._subcommands(ctx, name))
        return super().resolve_command(ctx, args)

    def _subcommands(self, ctx: Any, name: str) -> Collection[str]:
        command = self.get_command(ctx, name)
        return command.list_commands(ctx) if isinstance(command, Group) else ()

    def _summary(self, ctx: Any, name: str) -> str:
        if name in self.summaries:
            return self.summaries[name]
        command = self.get_command(ctx, name)
        return summary(command.help) if command is not None else ""


@contextmanager
def _converted_errors(ctx: Any) -> Iterator[None]:
    """Convert the errors that Typer raises while it parses the arguments of *ctx* to UsageError."""
    try:
        yield
    except TyperException as error:
        from xapi_cli.cli import usage_errors

        raise usage_errors.as_usage_error(error, ctx) from error


def topic_page(formatter: Any, topic: "Topic") -> str:
    """Return the help page of *topic*."""
    with formatter.section(topic.title):
        formatter.write_text(_unbroken(topic.text))
        formatter.write_paragraph()
        _write_rows(formatter, topic.rows)
        if topic.after:
            formatter.write_paragraph()
            formatter.write_text(_unbroken(topic.after))
    return str(formatter.getvalue()).replace(_HYPHEN, "-").rstrip("\n")


def summary(text: str | None) -> str:
    """Return the first paragraph of the help *text* of a command, in one line."""
    return split_examples(text)[0].partition("\n\n")[0].replace("\n", " ")


def split_examples(text: str | None) -> tuple[str, list[str]]:
    """Split the help *text* of a command; return the text without the examples, and the lines of the examples."""
    description, _, examples = inspect.cleandoc(text or "").partition(_EXAMPLES)
    return description.strip("\n"), [line for line in examples.splitlines() if line.strip(" \b")]


def styled(page: str, style: "Style") -> str:
    """Return the plain *page* with its headings and names, and the commands in its text, set off by *style*."""
    page = re.sub(_NAME, lambda found: found[1] + style("name", found[2]), page)
    page = re.sub(_HEADING, lambda found: found[0].replace(*_both(style, found[1] or found[2])), page)
    return style.commands(page)


def _styled_for(ctx: Any, page: str) -> str:
    from xapi_cli.system import standard_streams
    from xapi_cli.system.style import Style, is_wanted

    style = Style(enabled=is_wanted(os.environ, is_terminal=standard_streams.is_terminal(1)))
    ctx.color = style.enabled or None  # True: Typer does not remove the colors if stdout is not a terminal
    return styled(page.replace(_HYPHEN, "-"), style)


def _both(style: "Style", heading: str) -> tuple[str, str]:
    """Return *heading*, plain and as a heading."""
    return heading, style("heading", heading)


def _write_text(formatter: Any, text: str) -> None:
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_unbroken(text))


def _unbroken(text: str) -> str:
    return text.replace("-", _HYPHEN)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the options under their headings; the settings, which most commands share, are last."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and parameter.param_type_name == "option":
            heading = getattr(parameter, "rich_help_panel", None) or _OPTIONS
            sections.setdefault(heading, []).append((record[0], _range_in_words(record[1])))
    last = [(heading, sections.pop(heading, [])) for heading in (_OPTIONS, SETTINGS)]
    for heading, rows in (*sections.items(), *last):
        _write_section(formatter, heading, rows)


def _range_in_words(text: str) -> str:
    """Return *text* with the range of a number, such as 1<=x<=9, in words."""
    return re.sub(r"\b(\d+)<=x<=(\d+)\b", r"\1 to \2", re.sub(r"\bx>=(\d+)\b", r"at least \1", text))


def _write_section(formatter: Any, heading: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            _write_rows(formatter, rows)


def _write_examples(formatter: Any, examples: list[str]) -> None:
    if examples:
        with formatter.section(_EXAMPLES.rstrip(":")):
            formatter.write("".join(f"{line}\n" for line in examples))


def _write_rows(formatter: Any, rows: Sequence[tuple[str, str]]) -> None:
    """Write *rows* of names and descriptions, with the descriptions aligned in one column."""
    described = [(name, _unbroken(text)) for name, text in rows]
    formatter.write_dl(described, col_max=30 if formatter.width >= _WIDE else 16)
