"""The program `xapi`: the Typer application, and the command table; each command is imported when it is called."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from xapi_cli import __version__
from xapi_cli.cli import command
from xapi_cli.cli.options import completer
from xapi_cli.feature_table import FEATURES, REQUESTS, TESTING, Command
from xapi_cli.system import signals

if TYPE_CHECKING:
    from xapi_cli.context import Context

_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
_AUTHENTICATION, _CONFIGURATION = "Authentication", "Configuration and help"
_HEADINGS = (_AUTHENTICATION, REQUESTS, _CONFIGURATION, TESTING)
COMMANDS: Mapping[str, Command] = {
    "login": Command(_AUTHENTICATION, "Log in and store the token.", "xapi_cli.commands.login"),
    "logout": Command(_AUTHENTICATION, "Delete the stored token and password.", "xapi_cli.commands.logout"),
    "token": Command(_AUTHENTICATION, "Show the token or its status.", "xapi_cli.commands.token", ("show", "status")),
    "request": Command(REQUESTS, "Send a request with the stored token.", "xapi_cli.commands.request"),
    "exec": Command(REQUESTS, "Run a command with the token in its environment.", "xapi_cli.commands.exec"),
    "profile": Command(
        _CONFIGURATION,
        "Manage profiles (named sets of settings).",
        "xapi_cli.commands.profile",
        ("list", "show", "use", "set", "unset", "remove"),
    ),
    "doctor": Command(_CONFIGURATION, "Diagnose problems and suggest fixes.", "xapi_cli.commands.doctor"),
    "help": Command(_CONFIGURATION, "Show the help of a command.", "xapi_cli.commands.help"),
    **{
        name: row._replace(module=f"xapi_cli.features.{feature}.{row.module}")
        for feature, entry in FEATURES.items()
        for name, row in entry.commands.items()
    },
}


class _Xapi(command.Group):
    """The top-level commands, listed under their headings."""

    names = tuple(COMMANDS)

    @staticmethod
    def make(name: str) -> Any:
        return _command(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the command table, which imports no command."""
        for heading in _HEADINGS:
            rows = [(name, row.summary) for name, row in COMMANDS.items() if row.heading == heading]
            command.write_section(formatter, heading, rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the settings that many commands have, and the variables of the environment."""
        from xapi_cli.cli.options import help_of
        from xapi_cli.settings.table import SETTINGS, VARIABLES

        rows = []
        for name, row in SETTINGS.items():
            flags = ", ".join(sorted(row.flags, key=len)) + (f" / {row.off_flag}" if row.off_flag else "")
            if row.flags and row.commands != "login":
                rows.append((f"{flags} {row.metavar or ''}".rstrip(), help_of(name, row)))
        command.write_section(formatter, "Settings, as flags after COMMAND", rows)
        others = [row for row in SETTINGS.values() if row.variables and (not row.flags or row.commands == "login")]
        rows = [(", ".join(row.variables), f"{row.help}.") for row in (*others, *VARIABLES)]
        rows += [(name, f"{text}.") for feature in FEATURES.values() for name, text in feature.variables.items()]
        command.write_section(formatter, "Environment", rows)


@cache
def _command(name: str) -> Any:
    """Return the command *name*, with its subcommands."""
    row = COMMANDS[name]
    module = import_module(row.module)

    def make(function: str) -> Any:
        return command.command(function, _function(module, function), **getattr(module, "CONTEXT", {}))

    return command.group(name, module.__doc__, row.subcommands, cache(make)) if row.subcommands else make(name)


def _function(module: Any, name: str) -> Callable[..., Any]:
    """Return the function *name* of *module*; it has an underscore if it would shadow a builtin, such as `list`."""
    found: Callable[..., Any] = getattr(module, f"{name}_", None) or getattr(module, name)
    return found


app = typer.Typer(
    name="xapi", cls=_Xapi, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=command.CONTEXT
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"xapi {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def xapi(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME",
            help="Profile to use; can also follow COMMAND.",
            autocompletion=completer("profile_names"),
        ),
    ] = None,
) -> None:
    """Call the API from your shell, with automatic login.

    Examples:

    \b
      xapi login --base-url https://api.example.com
      xapi request /x-api/me | jq -r .email
      xapi token show --header |
        curl -H @- https://api.example.com/x-api/me
    """
    command.print_help(ctx)


def main() -> NoReturn:
    """Run the command line and end the process with its exit code, without interpreter shutdown.

    The shutdown would take a tenth of the time of a call.
    """
    os._exit(execute())


def execute() -> int:
    """Run the command line of this process; return the exit code.

    The context is created when a command or a failure needs it: the version and the help need none.
    """

    @cache
    def context() -> "Context":
        from xapi_cli.context import Context
        from xapi_cli.system import message_format

        made = Context(_take_environ())
        made.terminal.has_json_messages = message_format.is_json(sys.argv[1:], made.environ)
        return made

    code = _run(sys.argv[1:], context)
    if context.cache_info().currsize:  # it was needed
        context().close(at_end=True)
    with suppress(OSError):  # it was reported
        _flush()
    return code


def _run(args: Sequence[str], context: "Callable[[], Context]") -> int:
    """Run xapi with *args* in what *context* returns; return the exit code."""
    try:
        signals.install_handlers()
        code = program().main(list(args), "xapi", standalone_mode=False, obj=context)
        signals.cancel_alarm()
        _flush()
    except BaseException as error:  # noqa: BLE001 - the only place that catches every exception
        from xapi_cli.cli import failures

        return failures.report(error, context())
    return code if isinstance(code, int) else 0


# In place of Typer's script: bash splits words at `=` and `:`, and replaces only the part after the last one (`$2`).
_BASH_SCRIPT = r"""
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} words word
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    word=${words[-1]}
    local IFS=$'\n'
    COMPREPLY=($(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) \
        %(autocomplete_var)s=complete_bash "$1" 2>/dev/null))
    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *== ]] && compopt -o nospace # a value follows
    COMPREPLY=("${COMPREPLY[@]#"${word%%"$2"}"}")
}

complete -o default -F %(complete_func)s %(prog_name)s
"""


@cache
def program() -> Any:
    """Return the application as a command, which completes words itself if a shell asks for them."""
    from typer._completion_shared import _completion_scripts  # which Typer has loaded

    _completion_scripts["bash"] = _BASH_SCRIPT
    return typer.main.get_command(app)


def _take_environ() -> Mapping[str, str]:
    """Return a copy of the environment; then remove secrets and relative home directories from `os.environ`.

    Libraries start processes, which would inherit the secrets, and run code from directories below a relative home.
    """
    from xapi_cli.settings.table import SECRET_VARIABLES

    environ = dict(os.environ)
    relative = [name for name in _HOMES if not os.path.isabs(environ.get(name, ""))]
    for name in (*SECRET_VARIABLES, *relative):
        os.environ.pop(name, None)
    return environ


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
