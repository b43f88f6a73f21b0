"""The flags of commands, made from the table of settings and from options classes, and others that commands share."""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from xapi_cli.cli import help_format
from xapi_cli.errors import UsageError, XapiError
from xapi_cli.settings import resolve
from xapi_cli.settings.table import SETTINGS, Setting, default_text
from xapi_cli.system import message_format, signals

if TYPE_CHECKING:
    from xapi_cli.request.options import Flag
    from xapi_cli.runtime import Runtime

ACCOUNT = tuple(name for name, setting in SETTINGS.items() if setting.flags and setting.commands == "all")
NETWORK = tuple(name for name, setting in SETTINGS.items() if setting.commands == "network")
CALLS = (*NETWORK, *(name for name, setting in SETTINGS.items() if setting.commands == "calls"))

MESSAGES = ("quiet", "error_format")  # of commands that use no account

# Options that several commands have.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MinTtl = Annotated[
    str | None,
    typer.Option("--min-ttl", metavar="DURATION", help="Renew a token that has less than DURATION left."),
]


def settings_flags(
    *names: str,
    may_create_profile: bool = False,
    suggests_login: bool = True,
    options: Callable[[], Any] | None = None,
    base_url_argument: Callable[[str], str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags of the settings *names* to a command and stores them in the runtime.

    The command does not declare the flags: it reads the resulting values from `runtime.settings`. If
    *may_create_profile*, the selected profile does not have to exist. If *suggests_login*, an error about a missing
    profile or account suggests a login. *options* returns a class whose fields with a Flag are flags too; the command
    takes their values as `**flags`. With *base_url_argument*, which checks it, the argument `url` of the command is the
    same as --base-url.

    The command gets its flags from its method `with_flags`, because the modules of *options* are needed only then.
    Given the arguments of a call, and the options *before* the command, the method adds only the flags that they
    contain: adding all those of `request` takes 4 ms.
    """
    ordered = [name for name in SETTINGS if name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def with_flags(args: Sequence[str] | None = None, before: Collection[str] = ()) -> Callable[..., None]:
            rows = _rows(options()) if options is not None else {}
            own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
            settings: Sequence[str] = ordered
            if args is not None and (given := _given(args, _names_of(own, rows, ordered))) is not None:
                rows = {name: row for name, row in rows.items() if name in given}
                settings = [name for name in ordered if name in given or name in before]
            converted = {name: each for name, each in rows.items() if each.default is True or each.row.once is not None}
            added = [_flag(*row) for row in rows.items()] + [_parameter(name) for name in settings]

            absent = dict.fromkeys(set(ordered).difference(settings))

            @wraps(command)
            def with_settings(ctx: typer.Context, **given: Any) -> None:
                runtime: Runtime = ctx.obj
                runtime.flags = {name: _text(given.pop(name)) for name in settings} | absent
                if base_url_argument and (url := given.pop("url")) is not None:
                    if runtime.flags["base_url"] is not None:
                        raise UsageError("URL and --base-url cannot be combined", hint="omit one of them")
                    runtime.flags["base_url"] = base_url_argument(url)
                runtime.command = ctx.command_path.removeprefix("xapi ")
                runtime.may_create_profile, runtime.suggests_login = may_create_profile, suggests_login
                _set_messages(runtime)
                if "max_time" in names:
                    _limit_time(runtime)
                command(ctx, **given | {name: _value(given[name], field) for name, field in converted.items()})

            with_settings.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # for inspect
            with_settings.__annotations__ = command.__annotations__ | {each.name: each.annotation for each in added}
            del with_settings.__wrapped__  # inspect would otherwise use the signature of the command
            return with_settings

        command.with_flags = with_flags  # type: ignore[attr-defined]  # for cli.main
        return command

    return decorate


class _FlagField(NamedTuple):
    """A field of an options class with its row, its type and its default value."""

    row: "Flag"
    type: Any
    default: Any


def completer(name: str) -> Callable[[typer.Context, str], list[str]]:
    """Return the function *name* of `cli.completers`, which is imported when the shell asks for words."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from xapi_cli.cli import completers

        words: list[str] = getattr(completers, name)(ctx, incomplete)
        return words

    return complete


def _value_completer(setting: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        from xapi_cli.cli import completers

        return completers.setting_values(setting, incomplete)

    return complete


def _names_of(
    own: Iterable[inspect.Parameter], rows: "dict[str, _FlagField]", settings: Iterable[str]
) -> dict[str, str]:
    """Return the parameter of each flag of a command, by the names of the flag."""
    flags = [(each.name, each.annotation.__metadata__[0].param_decls or ()) for each in own if each.name != "ctx"]
    flags += [(name, field.row.names) for name, field in rows.items()]
    flags += [(name, (*SETTINGS[name].flags, SETTINGS[name].off_flag)) for name in settings]
    return {each: parameter for parameter, names in flags for name in names if name for each in name.split("/")}


def _given(args: Sequence[str], parameters: dict[str, str]) -> set[str] | None:
    """Return those of *parameters* whose flags *args* may contain; None if one of *args* may be an unknown flag.

    A value that looks like a flag counts as one. After a flag, `--` may be its value.
    """
    found = set()
    for previous, word in zip(("", *args), args, strict=False):
        if word == "--":
            if previous.startswith("-"):
                continue
            break
        names = [word.partition("=")[0]] if word.startswith("--") else [f"-{each}" for each in word[1:]]
        for name in names if word.startswith("-") else ():
            if name not in parameters:
                return None
            found.add(parameters[name])
    return found


def _rows(options: Any) -> dict[str, _FlagField]:
    """Return the fields of the class *options* that have a Flag."""
    defaults = getattr(options, "_field_defaults", vars(options))  # of a NamedTuple or a dataclass
    return {
        name: _FlagField(annotation.__metadata__[0], annotation.__origin__, defaults[name])
        for name, annotation in options.__annotations__.items()
        if hasattr(annotation, "__metadata__")
    }


def _flag(name: str, field: _FlagField) -> inspect.Parameter:
    row, default, type_ = field.row, field.default, field.type
    if default == () or row.once:
        type_, default = list[str], []
    option = typer.Option(
        *row.names,
        help=row.help if row.setting is None else _help(row.setting, SETTINGS[row.setting]),
        metavar=row.metavar,
        min=row.min,
        max=row.max,
        show_default=row.show_default,
        autocompletion=completer(row.complete) if row.complete else None,
        rich_help_panel=row.heading,
    )
    value = False if default is True else default  # the flag makes the field False
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=Annotated[type_, option])


def _value(given: Any, field: _FlagField) -> Any:
    """Return the value of *field* for what was *given*; raise UsageError for an option that is given twice."""
    if field.row.once is None:
        return not given if field.default is True else given
    if len(given) > 1:
        raise UsageError(f"{field.row.names[-1]} is given twice", hint=field.row.once)
    return given[0] if given else None


def _parameter(name: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    is_switch = setting.is_switch
    *others, last = setting.flags
    option = typer.Option(
        *others,
        f"{last}/{setting.off_flag}" if setting.off_flag else last,
        help=_help(name, setting),
        metavar=setting.metavar,
        autocompletion=None if is_switch else _value_completer(name),
        rich_help_panel=help_format.SETTINGS,
    )
    type_: Any = bool | None if is_switch else str | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[type_, option])


def _help(name: str, setting: Setting) -> str:
    notes = [f"env: {variable}" for variable in setting.variables[:1]]
    if not setting.is_switch and (default := default_text(name)):
        notes.append(f"default: {default}")
    return f"{setting.help}.  [{'; '.join(notes)}]" if notes else f"{setting.help}."


def _text(value: str | bool | None) -> str | None:
    """Return the text that `resolve` expects for the *value* of an option."""
    return str(int(value)) if isinstance(value, bool) else value


def _set_messages(runtime: "Runtime") -> None:
    """Set the format of messages, and whether notes are omitted; raises UsageError if a value is not valid."""
    found = resolve.without_profile(MESSAGES, runtime.flags, runtime.environ)
    runtime.terminal.is_quiet = found.get("quiet", False)
    runtime.terminal.has_json_messages = found.get("error_format") == message_format.JSON


def _limit_time(runtime: "Runtime") -> None:
    """Set the alarm for --max-time; a command reports an error in the settings itself, when it needs them."""
    try:
        limit = runtime.settings.max_time
    except (XapiError, OSError):
        return
    if limit is not None:
        signals.set_alarm(limit, runtime.started)
