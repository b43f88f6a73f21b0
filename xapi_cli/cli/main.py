"""The program `xapi`: its commands, each imported on first use."""

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from xapi_cli import __version__
from xapi_cli.cli.help_format import Command, Group
from xapi_cli.errors import ClosedPipe, OutputError
from xapi_cli.system import signals

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


class Entry(NamedTuple):
    """The row of a command: its summary, which is the first line of its help, and its subcommands."""

    summary: str
    subcommands: tuple[str, ...] = ()


# The command table: each command below its heading in `xapi --help`, which imports no command. The file
# `commands/NAME.py` has a function for each command or subcommand; a hyphen in NAME is an underscore there.
HEADINGS: Mapping[str, Mapping[str, Entry]] = {
    "Authentication": {
        "login": Entry("Log in and store the token."),
        "logout": Entry("Delete the stored token and password."),
        "token": Entry("Show the token or its status.", ("show", "status")),
    },
    "Requests": {
        "request": Entry("Send a request with the stored token."),
        "each": Entry("Send one request for each row of a list."),
        "batch": Entry("Send many requests concurrently, one for each line of JSON."),
        "exec": Entry("Run a command with the token in its environment."),
        "proxy": Entry("Serve the API to other programs without giving them the token."),
        "api": Entry("Load, look up and compare API descriptions (OpenAPI).", ("load", "list", "show", "diff")),
    },
    "Configuration and help": {
        "profile": Entry(
            "Manage profiles (named sets of settings).", ("list", "show", "use", "set", "unset", "remove")
        ),
        "doctor": Entry("Diagnose problems and suggest fixes."),
        "help": Entry("Show help for a command or a topic."),
    },
    "Testing": {
        "demo": Entry("Show the main workflow on a local test server."),
        "sandbox": Entry("Run a local test server that behaves like the API."),
    },
}
_ENTRIES = {name: entry for commands in HEADINGS.values() for name, entry in commands.items()}
COMMANDS: Mapping[str, tuple[str, ...]] = {name: entry.subcommands for name, entry in _ENTRIES.items()}
_CONTEXT = {"help_option_names": ["--help", "-h"], "max_content_width": 100}


class _Xapi(Group):
    """The top-level commands; each is created on demand."""

    headings = HEADINGS
    summaries = MappingProxyType({name: entry.summary for name, entry in _ENTRIES.items()})
    footer = "More: `xapi help COMMAND`, `xapi help environment`, `xapi help exit-codes`, `xapi help items`."

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that *args* begin with, with the flags in *args*; raise UsageError if it is unknown."""
        name, *rest = args
        if name in COMMANDS and name not in _with_all_flags and not ctx.resilient_parsing:
            before = [option for option, value in ctx.params.items() if value is not None]
            return name, typer.main.get_command(_command(name, rest, before)), rest
        return super().resolve_command(ctx, args)


_with_all_flags: dict[str, Any] = {}  # commands


def command(name: str) -> Any:
    """Return the command *name* with its subcommands and all flags, as Typer runs it."""
    if name not in _with_all_flags:
        _with_all_flags[name] = typer.main.get_command(_command(name))
    return _with_all_flags[name]


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def _command(name: str, args: Sequence[str] | None = None, preceding: Collection[str] = ()) -> typer.Typer:
    """Return the command *name* with its subcommands, if any, and all flags.

    With *args*, it has at least the flags in *args* and those of the options in *preceding*, which the user gave before
    the command. It has only the subcommand with which *args* begins, or all if *args* begins with something else, such
    as a flag.
    """
    module, subcommands = _module(name), COMMANDS[name]
    names = subcommands or (name,)
    if subcommands and args and args[0] in subcommands:
        names = (args[0],)
    elif subcommands:
        args = None  # it is not known which subcommand they are for
    command = typer.Typer(name=name, cls=Group, help=module.__doc__, add_completion=False, rich_markup_mode=None)
    if subcommands:
        command.callback(invoke_without_command=True, context_settings=_CONTEXT)(_print_help)
    for subcommand in names:
        function = _function(module, subcommand)
        with_flags = getattr(function, "with_flags", None)
        settings = _CONTEXT | getattr(module, "CONTEXT", {})
        command.command(subcommand, cls=Command, context_settings=settings)(
            with_flags(args, preceding) if with_flags else function
        )
    return command


def _module(name: str) -> Any:
    return import_module(f"xapi_cli.commands.{name.replace('-', '_')}")


def _function(module: Any, name: str) -> Any:
    """Return the function *name* of *module*; it has an underscore if it would shadow a builtin, such as `list`."""
    return getattr(module, f"{name}_", None) or getattr(module, name)


def _print_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


app = typer.Typer(
    name="xapi", cls=_Xapi, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=_CONTEXT
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"xapi {__version__}")
        raise typer.Exit


def _profiles(incomplete: str) -> list[str]:
    from xapi_cli.cli.completers import profile_names

    return profile_names(incomplete)


@app.callback(invoke_without_command=True)
def xapi(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", metavar="NAME", help="Profile to use; can also follow COMMAND.", autocompletion=_profiles
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
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> NoReturn:
    """Run the command line and end the process with its exit code, without interpreter shutdown.

    The shutdown would take a tenth of the time of a call.
    """
    os._exit(execute())


def execute() -> int:
    """Run the command line of this process; return the exit code.

    The runtime is created when a command or a failure needs it: the version and the help need none.
    """

    @cache
    def runtime() -> "Runtime":
        from xapi_cli.runtime import Runtime
        from xapi_cli.system import message_format

        made = Runtime(_take_environ())
        made.terminal.has_json_messages = message_format.is_json(sys.argv[1:], made.environ)
        return made

    code = run(sys.argv[1:], runtime)
    if runtime.cache_info().currsize:  # it was needed
        runtime().close_log()
    return _flushed(code)


def run(args: Sequence[str], runtime: "Callable[[], Runtime]") -> int:
    """Run xapi with *args* in what *runtime* returns; return the exit code."""
    try:
        return _invoke(args, runtime)
    except BaseException as error:  # noqa: BLE001 - the only place that catches every exception
        from xapi_cli.cli import failures

        return failures.report(error, runtime())


def _take_environ() -> Mapping[str, str]:
    """Return a copy of the environment; then remove secrets and relative home directories from `os.environ`.

    Libraries start processes, which would inherit the secrets, and run code from directories below a relative home.
    """
    from xapi_cli.settings.table import SECRET_VARIABLES
    from xapi_cli.system.files import relative_homes

    environ = dict(os.environ)
    for name in (*SECRET_VARIABLES, *relative_homes(environ)):
        os.environ.pop(name, None)
    return environ


def _invoke(args: Sequence[str], runtime: "Callable[[], Runtime]") -> int:
    signals.install_handlers()
    _prepare_completion_options(args, runtime)
    program = _program()
    if "_XAPI_COMPLETE" in os.environ:
        _prepare_completion_replies(runtime)
    code = program.main(list(args), "xapi", standalone_mode=False, obj=runtime)
    signals.cancel_alarm()
    _flush()
    return code if isinstance(code, int) else 0


def _prepare_completion_replies(runtime: "Callable[[], Runtime]") -> None:
    """Use our replies to completion scripts; Typer has registered its own when it created the program."""
    from xapi_cli.cli.completion_replies import register

    runtime()  # the child processes of libraries get no secrets
    register()


def _prepare_completion_options(args: Sequence[str], runtime: "Callable[[], Runtime]") -> None:
    """Use our completion scripts, and install them only in the user's own home directory.

    Typer must not have created the program yet, because its options depend on whether they take the name of a shell.
    """
    options = {argument.partition("=")[0] for argument in args[:1]}
    if "--install-completion" in options:
        _check_home()
    if {"--install-completion", "--show-completion"} & options:
        from xapi_cli.cli.completion_scripts import fix_scripts, take_shells

        fix_scripts(runtime().terminal.note)
        if len(args) > 1 or "=" in args[0]:
            take_shells()


def _check_home() -> None:
    """Raise OutputError if Typer would create the home directory or write to that of another user."""
    from xapi_cli.system import files

    home = files.home()
    try:
        status = home.stat()
    except OSError as error:
        raise OutputError(
            f"the home directory {home} cannot be used: {error.strerror}", hint="set HOME to your home directory"
        ) from error
    if not files.is_trusted(status):
        raise OutputError(
            f"the home directory {home} belongs to another user", hint="run xapi as that user, or set HOME"
        )


def _flushed(code: int) -> int:
    """Flush the standard streams; return *code*, or the exit code of a failure to do so."""
    try:
        _flush()
    except BrokenPipeError:
        return ClosedPipe.exit_code
    except OSError:
        return OutputError.exit_code
    return code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
