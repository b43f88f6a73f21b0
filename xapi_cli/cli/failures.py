"""The one place where a failure becomes a line on stderr and an exit code."""

import errno
import os
from typing import TYPE_CHECKING, Any

from typer.exceptions import TyperException

from xapi_cli.cli.options import Uses
from xapi_cli.errors import ClosedPipe, Interrupted, OutputError, UsageError, XapiError, unexpected
from xapi_cli.system import signals
from xapi_cli.system.render import listed, printable

if TYPE_CHECKING:
    from xapi_cli.context import Context

_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def report(error: BaseException, context: "Context") -> int:
    """Report *error* on stderr, unless it is of a silent kind; return the exit code."""
    if isinstance(error, SystemExit) and not _is_closed_pipe(error):
        return error.code if isinstance(error.code, int) else 0  # raised by completion
    failure = _as_xapi_error(error)
    if not isinstance(failure, Interrupted):  # its alarm limits the time until the exit
        signals.cancel_alarm()
    if not isinstance(failure, ClosedPipe | Interrupted):
        context.terminal.fail(failure)
    if failure.exit_code == XapiError.exit_code and context.environ.get("XAPI_DEBUG") == "1":
        context.terminal.log(_traceback(error))
    return failure.exit_code


def _as_xapi_error(error: BaseException) -> XapiError:
    """Return *error* as an exception that has an exit code and a message without secrets."""
    if isinstance(error, XapiError):
        return error
    if isinstance(error, signals.Terminated):
        return error.failure
    if isinstance(error, TyperException):
        return _usage_error(error)
    if isinstance(error, KeyboardInterrupt):
        return Interrupted()
    if _is_closed_pipe(error):
        return ClosedPipe("stdout was closed early")
    number = error.errno if isinstance(error, OSError) else None
    if number in _WRITE_ERRORS:
        return OutputError(f"stdout cannot be written: {os.strerror(number)}", hint="redirect it elsewhere")
    return unexpected(error)


def _usage_error(error: Any) -> UsageError:
    """Return the error for what Typer has refused; an argument may be a misplaced secret, so it is not repeated."""
    message = printable(error.format_message()).rstrip(".").replace("int range", "whole number")
    message, context = message[:1].lower() + message[1:], error.ctx
    if context is None:  # an option without its value, or a switch with one
        return UsageError(message, hint="see the --help of the command")
    see_help = f"see `{context.command_path} --help`"
    usage = " ".join((context.command_path, *context.command.collect_usage_pieces(context)[1:]))
    match type(error).__name__:  # the classes are in a private module
        case "NoSuchOption":
            names = sorted(error.possibilities or ())
            similar = f"did you mean {listed(names)}?" if names else see_help
            uses: Uses = getattr(context.command, "uses", Uses())
            hint = uses.instead.get(error.option_name, similar)
            return UsageError(f"unknown option {printable(error.option_name)}", hint=hint)
        case "MissingParameter":
            return UsageError("missing argument", hint=f"usage: `{usage}`")
    if "unexpected extra argument" in message:
        return UsageError("unexpected argument", hint=f"usage: `{usage}`")
    if "no such command" in message:
        return UsageError("unknown command", hint=see_help)
    return UsageError(message, hint=see_help)


def _is_closed_pipe(error: BaseException) -> bool:
    """Return whether Typer ended the program because stdout was closed while it printed the help."""
    return isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)


def _traceback(error: BaseException) -> str:
    """Return the traceback of *error*: files, lines and types; no messages or values, which may contain secrets."""
    from traceback import extract_tb, format_list

    lines: list[str] = []
    current: BaseException | None = error
    while current is not None:
        lines += [*format_list(extract_tb(current.__traceback__)), f"{type(current).__name__}\n"]
        current = current.__cause__ or current.__context__
    return "".join(lines).rstrip()
