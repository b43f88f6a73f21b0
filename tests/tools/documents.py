"""Generates documents from the program: `make docs` writes them, tests compare them."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from typer._completion_shared import get_completion_script

from tests.tools.manual import manual
from tests.tools.surface import surface
from xapi_cli import errors
from xapi_cli.app import COMMANDS, program
from xapi_cli.errors import XapiError
from xapi_cli.feature_table import FEATURES
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS, VARIABLES, Setting, default_text

ROOT = Path(__file__).parents[2]
SETTINGS_PAGE = ROOT / "docs" / "settings.md"
EXIT_CODES_PAGE = ROOT / "docs" / "exit-codes.md"
MANUAL = ROOT / "docs" / "man"
SURFACE = ROOT / ".surface"

# The file names that shells expect for completions.
COMPLETIONS = {"bash": "xapi.bash", "zsh": "_xapi", "fish": "xapi.fish", "powershell": "xapi.ps1"}

GROUPS = {(command,) for command, row in COMMANDS.items() if row.subcommands}  # commands that only have subcommands


def invocations() -> Iterator[tuple[str, ...]]:
    """Yield the arguments before `--help` of each command and group."""
    yield ()
    for command, row in COMMANDS.items():
        yield (command,)
        yield from ((command, verb) for verb in row.subcommands)


@cache
def help_of(*args: str) -> str:
    """Return the help page of the command *args*, 80 columns wide."""
    context = program().make_context("xapi", [], resilient_parsing=True)
    for name in args:
        command = context.command.get_command(context, name)
        context = type(context)(command, info_name=name, parent=context, **command.context_settings)
    return f"{context.command.get_help(context)}\n"


def settings_table() -> str:
    """Return the table of settings in `docs/settings.md`."""
    lines = ["| setting | flag | environment | profile key | default |", "| --- | --- | --- | --- | --- |"]
    lines += [_settings_row(each, default_text(name)) for name, each in SETTINGS.items()]
    lines += [_settings_row(each) for each in VARIABLES]
    for feature in FEATURES.values():
        lines += [f"| {text} | | `{name}` | | |" for name, text in feature.variables.items()]
    return "".join(f"{line}\n" for line in lines)


def _settings_row(setting: Setting, default: str = "") -> str:
    where = {"all": "", "network": "", "calls": " (`request`, `each`, `batch` and `proxy`)"}
    where["sends"] = " (`request`, `each` and `batch`)"
    only = where.get(setting.commands, f" (`{setting.commands}` only)") if setting.flags else ""
    flags = _code(*setting.flags, *([setting.off_flag] if setting.off_flag else [])) + only
    shown = default if setting.is_switch else _code(default) if default else setting.default
    cells = [setting.help, flags, _code(*setting.variables), _profile_key(setting), shown]
    return re.sub(" +", " ", f"| {' | '.join(cells)} |")


def _code(*args: str) -> str:
    return ", ".join(f"`{word}`" for word in args)


def _profile_key(setting: Setting) -> str:
    if setting is SETTINGS["profile"]:
        return "`default_profile`, at the top of the file"
    return _code(*(name for name in PROFILE_KEYS if SETTINGS[name] is setting))


def settings_page() -> str:
    """Return the text of `docs/settings.md` with the current table of settings."""
    table = re.compile(r"^\| setting \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
    return table.sub(lambda _: settings_table(), SETTINGS_PAGE.read_text())


def exit_codes_page() -> str:
    """Return the text of `docs/exit-codes.md` with the current table of kinds."""
    table = re.compile(r"^\| kind \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
    return table.sub(lambda _: kinds_table(), EXIT_CODES_PAGE.read_text())


def kinds_table() -> str:
    """Return the table in `docs/exit-codes.md` of the kinds of failures; the first class of a kind describes it."""
    first: dict[str, type[XapiError]] = {XapiError.kind: XapiError}
    for each in errors.derived():
        first.setdefault(each.kind, each)
    silent = (errors.Interrupted.kind, errors.ClosedPipe.kind)
    rows = sorted((each.exit_code, kind, each) for kind, each in first.items() if kind not in silent)
    lines = [f"| `{kind}` | {code} | {_first_sentence(each)} |" for code, kind, each in rows]
    return "".join(f"{line}\n" for line in ("| kind | code | meaning |", "| --- | --- | --- |", *lines))


def _first_sentence(of: type[XapiError]) -> str:
    text = (of.__doc__ or "").partition("\n\n")[0].removesuffix(".")
    text = "an unexpected failure of xapi itself" if of is XapiError else text[:1].lower() + text[1:]
    return " ".join(text.split()).replace("--jq", "`--jq`").replace("--expect", "`--expect`")


def completion(shell: str) -> str:
    """Return the script that the program prints for *shell*."""
    program()  # which replaces the script for bash
    return f"{get_completion_script(prog_name='xapi', complete_var='_XAPI_COMPLETE', shell=shell)}\n"


def write_docs() -> None:
    """Write the generated pages of `docs/`."""
    SETTINGS_PAGE.write_text(settings_page())
    EXIT_CODES_PAGE.write_text(exit_codes_page())


def write_completions() -> None:
    """Write the scripts in `completions/`."""
    for shell, name in COMPLETIONS.items():
        (ROOT / "completions" / name).write_text(completion(shell))


def write_man() -> None:
    """Write the man pages in `docs/man/`."""
    MANUAL.mkdir(exist_ok=True)
    for old in MANUAL.iterdir():
        old.unlink()
    for name, text in manual().items():
        (MANUAL / name).write_text(text)


def write_surface() -> None:
    """Write `.surface`, the list of what a script can depend on."""
    SURFACE.write_text(surface())


if __name__ == "__main__":
    writers = {"docs": write_docs, "man": write_man, "completions": write_completions, "surface": write_surface}
    for name in sys.argv[1:] or writers:
        writers[name]()
