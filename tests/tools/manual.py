"""Generates the man pages from the commands: one page for each, with all its options (man(7), man-pages(7))."""

from collections.abc import Iterable, Iterator
from typing import Any

from typer.main import get_command

from xapi_cli import __version__
from xapi_cli.app import app
from xapi_cli.cli.command import split_examples
from xapi_cli.errors import XapiError, derived
from xapi_cli.feature_table import FEATURES
from xapi_cli.settings.table import SETTINGS, VARIABLES

_FILES = (
    ("config.toml", "Profiles, in XAPI_CONFIG_DIR, else in xapi/ under $XDG_CONFIG_HOME or ~/.config."),
    ("state", "Locks, and with --storage file the tokens: in xapi/ under XAPI_STATE_DIR, else in ~/.local/state/xapi."),
)
_SIGNS = {"\\": "\\e", "-": "\\-", "^": "\\(ha", "~": "\\(ti", "`": "\\(ga", "'": "\\(aq", '"': "\\(dq"}


def manual() -> dict[str, str]:
    """Return the text of each man page by file name."""
    root = get_command(app)
    context = root.make_context("xapi", [], resilient_parsing=True)
    return {f"{name}.1": _page(name, command, of) for name, command, of in commands("xapi", root, context)}


def commands(name: str, command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield *command* and its subcommands, each with the name of its page and its context."""
    yield name, command, context
    for word in command.list_commands(context) if hasattr(command, "list_commands") else ():
        inner = command.get_command(context, word)
        of = type(context)(inner, info_name=word, parent=context, **inner.context_settings)
        yield from commands(f"{name}-{word}", inner, of)


def _page(name: str, command: Any, context: Any) -> str:
    text, examples = split_examples(command.help)
    summary, _, more = text.partition("\n\n")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        '.\\" Made by `make docs` from the program: change its help, not this.',
        ".nr HY 0",  # no hyphenation
        f'.TH {_sign(name.upper())} 1 "" "xapi {__version__}" "xapi manual"',
        ".ad l\n.SH NAME",
        f"{_sign(name)} \\- {_sign(' '.join(summary.split()).rstrip('.'))}",
        f".SH SYNOPSIS\n.B {_sign(context.command_path)}",
        _sign(usage),
        ".SH DESCRIPTION",
        *_paragraphs(more or summary),
        *_subcommands(name, command, context),
        *_options(command, context),
    ]
    if name == "xapi":
        lines += [
            ".SH ENVIRONMENT",
            *_rows(_variables()),
            ".SH FILES",
            *_rows(_FILES),
            ".SH EXIT STATUS",
            *_rows(_exit_codes()),
        ]
    if examples:
        lines += [".SH EXAMPLES", *_verbatim(examples)]
    return "\n".join([*lines, *_see_also(name, command, context), ""])


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help *text*; one that \\b marks keeps its lines."""
    for paragraph in filter(None, (each.strip("\n") for each in text.split("\n\n"))):
        yield ".PP"
        if paragraph.startswith("\b"):
            yield from _verbatim(paragraph.splitlines()[1:])
        else:
            yield _line(" ".join(paragraph.split()))


def _verbatim(lines: Iterable[str]) -> Iterator[str]:
    yield from (".PP", ".EX", *(_line(line) for line in lines if line.strip(" \b")), ".EE")


def _subcommands(name: str, command: Any, context: Any) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        yield ".SH COMMANDS"
        for word in command.list_commands(context):
            summary = split_examples(command.get_command(context, word).help)[0].partition("\n\n")[0]
            yield from (f".TP\n.BR {_sign(f'{name}-{word}')} (1)", _line(" ".join(summary.split())))


def _options(command: Any, context: Any) -> Iterator[str]:
    """Yield the options under the headings of `--help`."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.param_type_name == "option":
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(record)
    for heading, rows in sections.items():
        yield f".SH {_sign(heading.upper())}"
        yield from _rows(rows)


def _variables() -> Iterator[tuple[str, str]]:
    """Yield the names of the variables of each setting, and their meaning."""
    for row in (*SETTINGS.values(), *VARIABLES):
        if row.variables:
            yield ", ".join(row.variables), row.help
    for feature in FEATURES.values():
        yield from feature.variables.items()


def _exit_codes() -> Iterator[tuple[str, str]]:
    """Yield each exit code and what the first class of errors with it stands for."""
    codes = {0: "Success."}
    classes: list[type[XapiError]] = [XapiError, *derived()]
    for each in classes:
        codes.setdefault(each.exit_code, (each.__doc__ or "").partition("\n\n")[0])
    yield from ((str(code), codes[code]) for code in sorted(codes))


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in rows:
        yield from (f".TP\n.B {_sign(name)}", _line(" ".join(meaning.split())))


def _see_also(name: str, command: Any, context: Any) -> Iterator[str]:
    words = command.list_commands(context) if hasattr(command, "list_commands") else ()
    others: list[str] = []
    while (context := context.parent) is not None:
        others.insert(0, context.command_path.replace(" ", "-"))
    others += [f"{name}-{word}" for word in words]
    if name != "xapi":
        yield ".SH EXIT STATUS"
        yield _line("0 for success; what the other codes mean is in")
        yield ".BR xapi (1)."
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {_sign(other)} (1)" for other in others)


def _line(text: str) -> str:
    """Return *text* as a line that roff does not interpret as a request."""
    result = _sign(text)
    return f"\\&{result}" if result.startswith((".", "\\(aq", " ")) else result


def _sign(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in text)
