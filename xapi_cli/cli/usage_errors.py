"""Convert Typer's usage errors to UsageError: one line, with a hint.

An argument that is not an option may be a misplaced secret, so messages never repeat it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from typer.exceptions import TyperException

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable
from xapi_cli.system.suggestions import closest

# Commands of other tools and their equivalents in xapi, by the path of the command group.
CALLED_HERE: Mapping[str, Mapping[str, str]] = {
    "xapi": {
        **dict.fromkeys(("get", "post", "put", "patch", "delete", "head", "options"), "request"),
        **dict.fromkeys(("api", "call", "curl", "fetch", "http", "send"), "request"),
        **dict.fromkeys(("status", "whoami", "who", "info", "expiry", "expires"), "token status"),
        **dict.fromkeys(("show", "print", "bearer", "tokens"), "token show"),
        **dict.fromkeys(("refresh", "renew"), "token show --fresh"),
        **dict.fromkeys(("auth", "authenticate", "signin", "log_in", "sign_in", "connect", "init", "setup"), "login"),
        **dict.fromkeys(("signout", "log_out", "sign_out", "revoke", "forget"), "logout"),
        **dict.fromkeys(("config", "configure", "settings", "set", "account", "accounts"), "profile"),
        **dict.fromkeys(("run", "env", "with"), "exec"),
        **dict.fromkeys(("check", "diagnose", "diagnostics", "health", "ping", "test", "verify"), "doctor"),
        **dict.fromkeys(("serve", "server", "mock", "fake"), "sandbox"),
        **dict.fromkeys(("version", "v"), "--version"),
        **dict.fromkeys(("completion", "completions"), "--install-completion"),
        **dict.fromkeys(("man", "usage"), "help"),
    },
    "xapi token": {
        **dict.fromkeys(("get", "print", "cat", "header", "json", "env"), "show"),
        **dict.fromkeys(("refresh", "renew", "new"), "show --fresh"),
        **dict.fromkeys(("check", "info", "expiry", "expires", "ls", "list"), "status"),
    },
    "xapi profile": {
        **dict.fromkeys(("ls", "all"), "list"),
        **dict.fromkeys(("get", "cat", "current", "print", "status"), "show"),
        **dict.fromkeys(("switch", "select", "default", "activate"), "use"),
        **dict.fromkeys(("add", "create", "edit", "new", "config"), "set"),
        **dict.fromkeys(("rm", "del", "delete"), "remove"),
    },
}
# Options of curl and HTTPie that xapi expresses differently.
_ELSEWHERE = {
    **dict.fromkeys(("-X", "--request", "--method"), "METHOD stands before PATH: `xapi request POST /path`"),
    **dict.fromkeys(("--json", "-j"), "fields are ITEMs: name=value, name:=JSON; -d takes a whole body"),
    **dict.fromkeys(("-F", "--form-string", "--multipart"), "write an upload as name@file, form fields with --form"),
    **dict.fromkeys(("-k", "--insecure", "--verify"), "certificates are always verified: use --ca-bundle FILE"),
}
_SECRET_FLAGS = {
    "--password": "no flag takes a password: use --password-stdin, XAPI_PASSWORD or the prompt of `xapi login`",
    "--token": "no flag takes a token: set XAPI_TOKEN",
}


@contextmanager
def of(ctx: Any) -> Iterator[None]:
    """Convert the errors that Typer raises while it parses the arguments of *ctx* to UsageError."""
    try:
        yield
    except TyperException as error:
        raise as_usage_error(error, ctx) from error


def no_such_command(path: str, word: str, names: Sequence[str]) -> UsageError:
    """Return the error for *word*, which is not one of the commands *names* under *path*."""
    called = _meant(path, word, names)
    hint = f"did you mean `{path} {called}`?" if called else f"see `{path} --help`"
    return UsageError("there is no such command" if path == "xapi" else f"`{path}` has no such command", hint=hint)


def no_such_topic(path: str, word: str, names: Sequence[str]) -> UsageError:
    """Return the error for *word*, which is not one of the topics *names* of `xapi help`, under the command *path*."""
    called = closest(word, names)
    about = " ".join(filter(None, ("xapi help", path.partition(" ")[2], called)))
    hint = f"did you mean `{about}`?" if called else "`xapi help` lists commands and topics"
    return UsageError("there is no help on that", hint=hint)


def _meant(path: str, word: str, names: Sequence[str]) -> str | None:
    """Return the xapi equivalent of *word*, or None if it is unknown."""
    called = CALLED_HERE.get(path, {})
    if path == "xapi" and (word.startswith("/") or "://" in word):
        return "request PATH"
    known = {**called, **{name: name for name in names}}
    close = closest(word, known)
    return known[close] if close else None


def as_usage_error(error: TyperException, ctx: Any) -> UsageError:
    """Convert *error*, which Typer raised for the arguments of *ctx*, to UsageError."""
    page = f"see `{ctx.command_path} --help`"
    option = printable(getattr(error, "option_name", None) or "")
    match type(error).__name__:  # the classes are in a private module
        case "NoSuchOption":
            return UsageError(f"there is no option {option}", hint=_instead_of(option, ctx) or page)
        case "BadOptionUsage" if "requires" in str(error):
            return UsageError(f"{option} needs a value", hint=page)
        case "BadOptionUsage":
            return UsageError(f"{option} takes no value", hint=page)
        case "MissingParameter":
            usage = " ".join(ctx.command.collect_usage_pieces(ctx)[1:])
            return UsageError(f"{_needed(error)} is missing", hint=f"write `{ctx.command_path} {usage}`")
        case "BadParameter":
            return UsageError(f"{_name(error)}: {_value(error)}", hint=_wanted(error) or page)
    if "unexpected extra argument" in str(error):
        return UsageError("there is an argument too many", hint=page)
    return UsageError(printable(error.format_message()), hint=page)


def _instead_of(option: str, ctx: Any) -> str | None:
    """Return a hint for *option*, which the command of *ctx* does not have, or None."""
    if option in _SECRET_FLAGS:
        return _SECRET_FLAGS[option]
    if option in _ELSEWHERE and ctx.command_path == "xapi request":
        return _ELSEWHERE[option]
    if close := closest(option, _flags(ctx)):
        return f"did you mean {close}?"
    if hasattr(ctx.command, "list_commands"):
        return f"flags come after the command: `{ctx.command_path} COMMAND {option}`"
    return None


def _flags(ctx: Any) -> list[str]:
    """Return the long options of the command of *ctx*."""
    found = [name for each in ctx.command.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
    return [name for name in found if name.startswith("--")]


def _name(error: Any) -> str:
    """Return the name of the parameter of *error* as it is written on the command line."""
    parameter = error.param
    if parameter is None:
        return "an argument"
    return str(max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar)


def _needed(error: Any) -> str:
    """Return the required arguments only, for example PATH of `[METHOD] PATH [ITEM]...`."""
    return re.sub(r"\[[^\]]*\]|\.\.\.|-- ", "", _name(error)).strip()


def _value(error: Any) -> str:
    """Return the error with the value; the value of a choice or number option is not a secret."""
    text = printable(error.message).rstrip(".")
    if "is not a valid" in text:
        return f"{text.partition(' is not a valid')[0]} is no whole number"
    if "is not one of" in text:
        return f"{text.partition(' is not one of')[0]} is none of its values"
    if "is not in the range" in text:
        return f"{text.partition(' is not in the range')[0]} is out of range"
    return text


def _wanted(error: Any) -> str | None:
    """Return a hint on the values that the parameter accepts, or None."""
    kind = getattr(error.param, "type", None)
    if choices := getattr(kind, "choices", None):
        values = [getattr(choice, "value", choice) for choice in choices]
        return f"use {', '.join(map(str, values[:-1]))} or {values[-1]}"
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is None:
        return None
    return f"give a whole number from {least} to {most}" if most is not None else f"give a whole number from {least} on"
