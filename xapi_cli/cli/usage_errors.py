"""Convert Typer's usage errors to UsageError: one line, with a hint.

An argument that is not an option may be a misplaced secret, so messages never repeat it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from typer.exceptions import TyperException

from xapi_cli.errors import UsageError
from xapi_cli.settings.table import SETTINGS
from xapi_cli.system.render import listed, printable
from xapi_cli.system.suggestions import closest

# Commands of other tools and their equivalents in xapi, by the path of the command group.
SYNONYMS: Mapping[str, Mapping[str, str]] = {
    "xapi": {
        **dict.fromkeys(("get", "post", "put", "patch", "delete", "head", "options"), "request"),
        **dict.fromkeys(("call", "curl", "fetch", "http", "send"), "request"),
        **dict.fromkeys(("status", "whoami", "who", "info", "expiry", "expires"), "token status"),
        **dict.fromkeys(("show", "print", "bearer", "tokens"), "token show"),
        **dict.fromkeys(("refresh", "renew"), "token show --fresh"),
        **dict.fromkeys(("auth", "authenticate", "signin", "log_in", "sign_in", "connect", "init", "setup"), "login"),
        **dict.fromkeys(("signout", "log_out", "sign_out", "revoke", "forget"), "logout"),
        **dict.fromkeys(("config", "configure", "settings", "set", "account", "accounts"), "profile"),
        "auth login": "login",
        "auth logout": "logout",
        "auth status": "token status",
        "auth token": "token show",
        "auth refresh": "token show --fresh",
        "auth switch": "profile use",
        "auth list": "profile list",
        **dict.fromkeys(("run", "env", "with"), "exec"),
        **dict.fromkeys(("check", "diagnose", "diagnostics", "health", "ping", "test", "verify"), "doctor"),
        **dict.fromkeys(("serve", "server", "mock", "fake"), "sandbox"),
        **dict.fromkeys(("version", "v"), "--version"),
        **dict.fromkeys(("completion", "completions"), "--install-completion"),
        **dict.fromkeys(("man", "usage"), "help"),
    },
    "xapi api": {
        **dict.fromkeys(("ls", "paths", "operations", "search", "find"), "list"),
        **dict.fromkeys(("import", "add", "fetch", "update"), "load"),
        **dict.fromkeys(("get", "describe", "info", "help"), "show"),
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
        **dict.fromkeys(("clear", "reset"), "unset"),
        **dict.fromkeys(("rm", "del", "delete"), "remove"),
    },
}
# Words for what the help page of a command describes, and that command.
_SUBJECTS = {
    **dict.fromkeys(("pages", "page", "paginate", "pagination"), "request"),
    **dict.fromkeys(("jq", "filter", "filters", "download", "downloads", "upload", "uploads", "retry"), "request"),
    **dict.fromkeys(("openapi", "swagger", "description"), "api"),
}
# Suggested only for a command of another tool, not for a typo.
_DESTRUCTIVE = frozenset({"logout", "remove", "unset"})
_REDIRECTS = "redirects are followed by default, unless --no-follow is given"
_ERRORS = "a status of 400 or higher is an error by default, unless --no-check-status is given"
_NO_COOKIES = "send a cookie as a header: -H 'Cookie: name=value'"
_TOKEN_IS_SENT = "the stored token is sent by default, or the one in XAPI_TOKEN"
# Options of curl, wget, HTTPie and gh that `xapi request` expresses differently.
_EQUIVALENTS = {
    **dict.fromkeys(("-X", "--request", "--method"), "give METHOD before PATH: `xapi request POST /path`"),
    **dict.fromkeys(("-I", "--head"), "give HEAD before PATH: `xapi request HEAD /path`"),
    **dict.fromkeys(("-G", "--get"), "write query parameters as name==value"),
    **dict.fromkeys(
        ("--json", "-j", "--field", "--raw-field"),
        "write fields as ITEMs: name=value, name:=JSON; use -d for a whole body",
    ),
    **dict.fromkeys(("-F", "--form-string", "--multipart"), "write an upload as name@file; use --form for form fields"),
    **dict.fromkeys(("--data-raw", "--data-binary", "--data-ascii", "--raw"), "use -d, which sends TEXT as it is"),
    "--data-urlencode": "write form fields as name=value, with --form",
    **dict.fromkeys(("-T", "--upload-file", "--input"), "use -d @FILE, or -d @- for stdin"),
    **dict.fromkeys(("-C", "-c", "--continue-at", "--resume"), "use --continue, with -o FILE"),
    **dict.fromkeys(("-s", "--silent", "-S", "--show-error"), "use --quiet, which omits notes and progress"),
    **dict.fromkeys(("-O", "--remote-name", "--output-document", "--download"), "name the file: -o FILE"),
    **dict.fromkeys(("-L", "--location", "--follow"), _REDIRECTS),
    **dict.fromkeys(("--fail", "--fail-with-body", "--check-status"), _ERRORS),
    "-f": "use --form for form fields, and omit the -f of curl, which is the default",
    **dict.fromkeys(("-b", "--cookie", "--cookie-jar", "--session"), _NO_COOKIES),
    **dict.fromkeys(("-a", "--auth", "--auth-type", "--bearer", "--oauth2-bearer"), _TOKEN_IS_SENT),
    **dict.fromkeys(("-A", "--user-agent"), "use -H 'User-Agent: NAME'"),
    **dict.fromkeys(("-e", "--referer"), "use -H 'Referer: URL'"),
    "--compressed": "compressed responses are requested and decoded by default",
    **dict.fromkeys(("-w", "--write-out"), "use --meta FILE for the status, the headers and the time"),
    **dict.fromkeys(("-D", "--dump-header"), "use -i, -v or --meta FILE"),
    **dict.fromkeys(("-t", "--template"), "use --jq FILTER"),
    **dict.fromkeys(("-Z", "--parallel"), "use `xapi batch`"),
    **dict.fromkeys(("-n", "--netrc", "--netrc-file"), "run `xapi login`, because ~/.netrc is not read"),
    "--offline": "use --curl, which prints the request instead of sending it",
    "--ignore-stdin": "stdin is read only for @-",
}
_SENDING = ("xapi", "xapi api", "xapi request")  # where they are used
# Likewise, of all commands that send requests.
_NETWORK_EQUIVALENTS = {
    **dict.fromkeys(("-k", "--insecure", "--verify"), "certificates are always verified: use --ca-bundle FILE"),
    **dict.fromkeys(("--cacert", "--capath"), "use --ca-bundle FILE"),
    **dict.fromkeys(("-x", "--proxy"), "set HTTPS_PROXY or HTTP_PROXY"),
    "--connect-timeout": "use --timeout DURATION",
    "-m": "use --max-time DURATION",
    **dict.fromkeys(("--host", "--hostname", "--server", "--url"), "use --base-url URL, or -p NAME for a profile"),
}
# Likewise, of `xapi batch`, whose lines are records and not one body.
_BATCH_EQUIVALENTS = dict.fromkeys(("-o", "--output"), "redirect stdout: `xapi batch FILE >OUTPUT`")
_NO_PASSWORD = "no option takes a password: use --password-stdin, XAPI_PASSWORD or the prompt of `xapi login`"
_NO_TOKEN = "no option takes a token: set XAPI_TOKEN or XAPI_TOKEN_FILE"
_SECRET_OPTIONS = {
    "--password": _NO_PASSWORD,
    **dict.fromkeys(("--token", "--with-token", "--access-token"), _NO_TOKEN),
}


def unknown_command(
    path: str, args: Sequence[str], names: Sequence[str], subcommands: Callable[[str], Collection[str]]
) -> UsageError:
    """Return the error for *args*, which do not begin with one of the commands *names* under *path*.

    *subcommands* returns the subcommands of one of *names*.
    """
    if path == "xapi api" and _is_path(args[0]):  # as with `gh api`
        return UsageError(f"unknown command of `{path}`", hint="did you mean `xapi request PATH`?")
    words = " ".join(args[:2])
    suggestion = SYNONYMS.get(path, {}).get(words) or _equivalent(path, args[0], names)
    subcommand = args[1] if len(args) > 1 and args[1] not in _DESTRUCTIVE else ""
    if suggestion and suggestion in names and subcommand in subcommands(suggestion):
        suggestion += f" {subcommand}"
    hint = f"did you mean `{path} {suggestion}`?" if suggestion else f"see `{path} --help`"
    return UsageError("unknown command" if path == "xapi" else f"unknown command of `{path}`", hint=hint)


def unknown_topic(path: str, word: str, names: Sequence[str]) -> UsageError:
    """Return the error for *word*, which is not one of the topics *names* of `xapi help`, under the command *path*."""
    suggestion = closest(word, names) if path != "xapi" else _SUBJECTS.get(word.lower()) or closest(word, names)
    corrected = " ".join(filter(None, ("xapi help", path.partition(" ")[2], suggestion)))
    hint = f"did you mean `{corrected}`?" if suggestion else "see `xapi help` for the commands and topics"
    return UsageError("unknown command or topic", hint=hint)


def as_usage_error(error: TyperException, ctx: Any) -> UsageError:
    """Convert *error*, which Typer raised for the arguments of *ctx*, to UsageError."""
    see_help = f"see `{ctx.command_path} --help`"
    option = printable(getattr(error, "option_name", None) or "")
    match type(error).__name__:  # the classes are in a private module
        case "NoSuchOption" if ctx.command_path == "xapi profile set" and re.match(r"-\d", option):
            return UsageError("a value cannot begin with -", hint=f"{see_help} for the keys and their values")
        case "NoSuchOption":
            return UsageError(f"unknown option {option}", hint=_alternative(option, ctx) or see_help)
        case "BadOptionUsage" if "requires" in str(error):
            return UsageError(f"{option} requires a value", hint=_accepted_by(option, ctx) or see_help)
        case "BadOptionUsage":
            return UsageError(f"{option} does not take a value", hint=see_help)
        case "MissingParameter":
            usage = " ".join(ctx.command.collect_usage_pieces(ctx)[1:])
            return UsageError(f"missing argument {_required(error)}", hint=f"usage: `{ctx.command_path} {usage}`")
        case "BadParameter":
            return UsageError(f"{_name(error)}: {_reason(error)}", hint=_accepted(error) or see_help)
    if "unexpected extra argument" in str(error):
        if ctx.command_path == "xapi profile set" and ctx.params.get("key") == "headers":
            return UsageError("unexpected argument", hint="give all headers in one argument, one header per line")
        usage = " ".join(ctx.command.collect_usage_pieces(ctx)[1:])
        if not usage and "--profile" in _options(_with_all_flags(ctx), ctx):
            see_help = f"`{ctx.command_path} -p NAME` selects a profile"
        return UsageError("unexpected argument", hint=f"usage: `{ctx.command_path} {usage}`" if usage else see_help)
    return UsageError(printable(error.format_message()), hint=see_help)


def _alternative(option: str, ctx: Any) -> str | None:
    """Return a hint for *option*, which the command of *ctx* does not have, or None."""
    if option in _SECRET_OPTIONS:
        return _SECRET_OPTIONS[option]
    is_group, long_options = hasattr(ctx.command, "list_commands"), _long_options(ctx)
    if ctx.command_path in _SENDING and option in _EQUIVALENTS and not (is_group and _is_of_command(option, ctx)):
        return _EQUIVALENTS[option]
    if option in _NETWORK_EQUIVALENTS and (is_group or "--ca-bundle" in long_options):
        return _NETWORK_EQUIVALENTS[option]
    if ctx.command_path == "xapi batch" and option in _BATCH_EQUIVALENTS:
        return _BATCH_EQUIVALENTS[option]
    if is_group:
        return _alternative_of_group(option, ctx)
    others = _options(ctx.find_root().command, ctx)  # the user may mean an option that this command does not have
    match = closest(option, [*(name for name in others if name.startswith("--")), *long_options])
    return f"did you mean {match}?" if match in long_options else None


def _alternative_of_group(option: str, ctx: Any) -> str | None:
    """Return a hint for *option* before a command of the group of *ctx*: it belongs after one, or is one."""
    names = ctx.command.list_commands(ctx)
    if not _is_of_command(option, ctx):
        if match := closest(option, _long_options(ctx)):
            return f"did you mean {match}?"
        word = option.removeprefix("--")
        if word in {*names, *SYNONYMS.get(ctx.command_path, {})} and (
            name := _equivalent(ctx.command_path, word, names)
        ):
            return f"did you mean `{ctx.command_path} {name}`?"
        return None
    return f"put options after the command: `{ctx.command_path} COMMAND {option}`"


def _is_of_command(option: str, ctx: Any) -> bool:
    """Return whether a command of the group of *ctx* has *option*."""
    commands = (ctx.command.get_command(ctx, name) for name in ctx.command.list_commands(ctx))
    return any(option in _options(each, ctx) for each in commands)


def _long_options(ctx: Any) -> list[str]:
    """Return the long options of the command of *ctx*."""
    return [name for name in _options(ctx.command, ctx) if name.startswith("--")]


def _is_path(word: str) -> bool:
    return word.startswith("/") or "://" in word


def _with_all_flags(ctx: Any) -> Any:
    """Return the command of *ctx* with all its flags: `ctx.command` may have only those in the arguments."""
    return ctx.command if ctx.parent is None else _with_all_flags(ctx.parent).get_command(ctx.parent, ctx.info_name)


def _options(command: Any, ctx: Any) -> list[str]:
    """Return the options of *command*; those of a group include the options of its commands."""
    own = [name for each in command.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
    nested = command.list_commands(ctx) if hasattr(command, "list_commands") and command is not ctx.command else ()
    return own + [option for name in nested for option in _options(command.get_command(ctx, name), ctx)]


def _name(error: Any) -> str:
    """Return the name of the parameter of *error* as it is written on the command line."""
    parameter = error.param
    if parameter is None:
        return "an argument"
    return str(max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar)


def _required(error: Any) -> str:
    """Return the required arguments only, for example PATH of `[METHOD] PATH [ITEM]...`."""
    return re.sub(r"\[[^\]]*\]|\.\.\.|-- ", "", _name(error)).strip()


def _reason(error: Any) -> str:
    """Return what is wrong with the value; the value of a choice or a number option is not a secret."""
    text = printable(error.message).rstrip(".")
    if "is not a valid" in text:
        return f"{text.partition(' is not a valid')[0]} is not a whole number"
    if "is not one of" in text:
        return f"{text.partition(' is not one of')[0]} is not a valid value"
    if "is not in the range" in text:
        return f"{text.partition(' is not in the range')[0]} is out of range"
    return text


def _accepted(error: Any) -> str | None:
    """Return a hint on the values that the parameter accepts, or None."""
    kind = getattr(error.param, "type", None)
    if choices := _choices(error.param):
        return f"use {listed(choices)}"
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is None:
        return None
    return f"use a number from {least} to {most}" if most is not None else f"use a number of at least {least}"


def _accepted_by(option: str, ctx: Any) -> str | None:
    """Return a hint on the values that *option* of the command of *ctx* accepts if they are few, or None."""
    choices = next((_choices(each) for each in ctx.command.get_params(ctx) if option in each.opts), [])
    return f"use {listed(choices)}" if choices else None


def _choices(parameter: Any) -> list[str]:
    """Return the values that *parameter* can have, if they are few."""
    choices = getattr(getattr(parameter, "type", None), "choices", None) or ()
    setting = SETTINGS.get(getattr(parameter, "name", None) or "")
    return [str(getattr(each, "value", each)) for each in choices or (setting.choices if setting else ())]


def _equivalent(path: str, word: str, names: Sequence[str]) -> str | None:
    """Return the xapi equivalent of *word*, or None if it is unknown or only resembles a destructive command."""
    synonyms = SYNONYMS.get(path, {})
    if path == "xapi" and _is_path(word):
        return "request PATH"
    known = {**synonyms, **{name: name for name in names}}
    match = closest(word, (name for name in known if " " not in name))
    if match is None or (known[match] in _DESTRUCTIVE and word not in synonyms):
        return None
    return known[match]
