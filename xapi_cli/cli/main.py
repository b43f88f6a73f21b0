"""The program `xapi`: its commands, each imported on first use, and the conversion of failures to exit codes."""

import builtins
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from xapi_cli import __version__
from xapi_cli.cli.help_format import Command, Group
from xapi_cli.errors import ClosedPipe, Interrupted, OutputError, XapiError
from xapi_cli.runtime import Runtime
from xapi_cli.settings.resolve import SECRETS, relative_homes
from xapi_cli.system import safe_paths, signals
from xapi_cli.system.terminal import abandon_stdout, reserve_standard_streams

# The commands and their subcommands, if any: `commands/NAME.py` has a function for each.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "login": (),
    "logout": (),
    "token": ("show", "status"),
    "request": (),
    "batch": (),
    "exec": (),
    "profile": ("list", "show", "use", "set", "remove"),
    "doctor": (),
    "help": (),
    "sandbox": (),
    "demo": (),
}

# The groups of commands in `xapi --help`.
_HEADINGS: Mapping[str, tuple[str, ...]] = {
    "Log in": ("login", "logout", "token"),
    "Call the API": ("request", "batch", "exec"),
    "Set up, and get help": ("profile", "doctor", "help"),
    "Try it without the real API": ("demo", "sandbox"),
}
_CONTEXT = {"help_option_names": ["--help", "-h"], "max_content_width": 100}


class _Xapi(Group):
    """The top-level commands; each is created on demand."""

    headings = _HEADINGS
    footer = (
        "`xapi help COMMAND` tells more about a command, `xapi help TOPIC` about one of environment, exit-codes, items."
    )

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return typer.main.get_command(_command(cmd_name, COMMANDS[cmd_name]))


def _command(name: str, verbs: tuple[str, ...]) -> typer.Typer:
    """Return the command *name* with its subcommands *verbs*, if any."""
    module = import_module(f"xapi_cli.commands.{name}")
    command = typer.Typer(name=name, cls=Group, help=module.__doc__, add_completion=False, rich_markup_mode=None)
    if verbs:
        command.callback(invoke_without_command=True, context_settings=_CONTEXT)(_help_without_verb)
    for verb in verbs or (name,):
        # A function whose name would shadow a builtin, such as `list`, has a trailing underscore.
        function = getattr(module, f"{verb}_" if hasattr(builtins, verb) else verb)
        settings = _CONTEXT | getattr(module, "CONTEXT", {})
        command.command(verb, cls=Command, context_settings=settings)(function)
    return command


def _help_without_verb(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


app = typer.Typer(
    name="xapi", cls=_Xapi, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=_CONTEXT
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xapi {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def xapi(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Get bearer tokens from the experimental API, keep them safe, and call it.

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
    """Run the command line and end the process with its exit code."""
    reserve_standard_streams()
    # If click is installed, httpx imports its command line with rich and pygments: 35 ms without benefit.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: the import fails, as httpx expects
    _leave(run(sys.argv[1:], _environ()))


def _environ() -> Mapping[str, str]:
    """Return a copy of the environment; then remove secrets and relative home directories from `os.environ`.

    Libraries start processes, which would inherit the secrets, and run code from directories below a relative home.
    """
    environ = dict(os.environ)
    for name in (*SECRETS, *relative_homes(environ)):
        os.environ.pop(name, None)
    return environ


def run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run xapi with *args* in *environ*; return the exit code."""
    runtime = Runtime(environ, bound=signals.end_within)
    try:
        signals.obey()
        _fix_completion(args)
        code = typer.main.get_command(app).main(list(args), "xapi", standalone_mode=False, obj=runtime)
        signals.release()
        _flush()
        return code if isinstance(code, int) else 0
    except BaseException as error:  # noqa: BLE001 - the only place that converts failures to exit codes
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            return error.code if isinstance(error.code, int) else 0  # raised by completion; 1 means "none" to fish
        failure = _as_failure(error)
        if not isinstance(failure, Interrupted):  # its alarm limits the time until the exit
            signals.release()
        if isinstance(failure, OutputError | ClosedPipe):
            abandon_stdout()
        if not isinstance(failure, ClosedPipe | Interrupted):
            failure.hint = runtime.advice(failure.hint)
            runtime.terminal.fail(failure)
        if failure.exit_code == 1 and environ.get("XAPI_DEBUG") == "1":
            runtime.terminal.say(_frames(error))
        return failure.exit_code


def _fix_completion(args: Sequence[str]) -> None:
    """If *args* request a completion script, use the fixed one; install it only in the user's own home directory."""
    words = {word.partition("=")[0] for word in args[:1]}
    if "--install-completion" in words:
        _refuse_others_home()
    if {"--install-completion", "--show-completion"} & words:
        from xapi_cli.cli.completion import fix_scripts

        fix_scripts()


def _refuse_others_home() -> None:
    """Raise OutputError if Typer would create the home directory or write to that of another user."""
    home = safe_paths.home()
    try:
        found = home.stat()
    except OSError as error:
        raise OutputError(
            f"the home directory {home} cannot be used: {error.strerror}", hint="set HOME to your home directory"
        ) from error
    if not safe_paths.is_trusted(found):
        raise OutputError(f"the home directory {home} belongs to another user", hint="run it as that user, or set HOME")


def _leave(code: int) -> NoReturn:
    """End the process with *code*, without interpreter shutdown, which would take a tenth of the time of a call."""
    try:
        _flush()
    except BrokenPipeError:
        code = ClosedPipe.exit_code
    except OSError:
        code = OutputError.exit_code
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _as_failure(error: BaseException) -> XapiError:
    """Convert *error* to a failure that has an exit code and a message that is safe to show."""
    if isinstance(error, XapiError):
        return error
    if isinstance(error, signals.Ended):
        return error.failure
    if isinstance(error, KeyboardInterrupt):
        return Interrupted()
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        return ClosedPipe("the reader of stdout has gone")  # while printing the help
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    ):
        return XapiError("there is not enough memory, or too few files may be open", hint="see what `ulimit -a` allows")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF):
        return OutputError(f"stdout cannot be written: {os.strerror(error.errno)}", hint="redirect it elsewhere")
    frame = _last_frame(error)
    return XapiError(
        f"unexpected failure ({type(error).__name__}{frame})", hint="this is a bug; XAPI_DEBUG=1 shows where"
    )


def _last_frame(error: BaseException) -> str:
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _frames(error: BaseException) -> str:
    """Return the traceback of *error*: files, lines and types; no messages or values, which may contain secrets."""
    from traceback import extract_tb, format_list

    lines: list[str] = []
    current: BaseException | None = error
    while current is not None:
        lines += [*format_list(extract_tb(current.__traceback__)), f"{type(current).__name__}\n"]
        current = current.__cause__ or current.__context__
    return "".join(lines).rstrip()
