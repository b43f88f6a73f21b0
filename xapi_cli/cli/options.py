"""The options of a command: Typer makes those that its function declares; the others come from rows.

The rows are those of the table of settings, of an options class such as that of `request`, and of the features.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer
from typer.core import TyperOption
from typer.main import get_click_type, get_param_completion

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.settings import resolve
from xapi_cli.settings.table import SETTINGS, Setting, default_text
from xapi_cli.system import message_format, signals

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.feature_table import Flag

ACCOUNT = tuple(name for name, setting in SETTINGS.items() if setting.flags and setting.commands == "all")
NETWORK = tuple(name for name, setting in SETTINGS.items() if setting.commands == "network")
CALLS = (*NETWORK, *(name for name, setting in SETTINGS.items() if setting.commands == "calls"))

MESSAGES = ("quiet", "error_format")  # of commands that use no account
SHARED = (*ACCOUNT, *CALLS)  # settings that many commands have: the help of each only names their flags

# Options that several commands declare.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MinTtl = Annotated[
    str | None,
    typer.Option("--min-ttl", metavar="DURATION", help="Renew a token that has less than DURATION left."),
]
F = TypeVar("F", bound=Callable[..., None])


class Uses(NamedTuple):
    """What a command has besides the parameters of its function."""

    settings: tuple[str, ...] = ()  # the command has their flags, and the values are in `context.settings`
    may_create_profile: bool = False  # the selected profile does not have to exist
    rows: "Callable[[], Mapping[str, Flag]]" = dict  # returns more options, whose values are in `chosen`
    base_url_argument: Callable[[str], str] | None = None  # checks the argument `url`, the same as --base-url
    instead: Mapping[str, str] = MappingProxyType({})  # hints for options of similar programs that it does not have


def settings_flags(*names: str, **others: Any) -> Callable[[F], F]:
    """Return a decorator that adds the flags of the settings *names* to a command, and *others* of `Uses`."""

    def decorate(function: F) -> F:
        ordered = tuple(name for name in SETTINGS if name in names)
        function.uses = Uses(ordered, **others)  # type: ignore[attr-defined]  # for cli.command
        return function

    return decorate


def chosen(ctx: typer.Context) -> dict[str, Any]:
    """Return the values of the options that the rows of the command of *ctx* have added, by name."""
    values: dict[str, Any] = ctx.meta["xapi_cli.chosen"]
    return values


def made(uses: Uses, rows: "Mapping[str, Flag]") -> list[TyperOption]:
    """Return the options of the settings in *uses* and of *rows*."""
    return [_of_row(name, row) for name, row in rows.items()] + [_of_setting(name) for name in uses.settings]


def take(ctx: Any, uses: Uses, rows: "Mapping[str, Flag]", context: "Context") -> None:
    """Move the values of the options that `made` has returned out of the parameters of *ctx*, most to *context*."""
    values, flags = ctx.params, {name: _text(ctx.params.pop(name)) for name in uses.settings}
    ctx.meta["xapi_cli.chosen"] = {name: _value(row, values.pop(name)) for name, row in rows.items()}
    if (profile := ctx.find_root().params.get("profile")) is not None:  # before the command; one after it comes first
        if "profile" not in flags:
            raise UsageError(f"`{ctx.command_path}` does not use a profile", hint="omit --profile")
        flags["profile"] = profile if flags["profile"] is None else flags["profile"]
    if uses.base_url_argument and (url := values.pop("url")) is not None:
        if flags["base_url"] is not None:
            raise UsageError("URL and --base-url cannot be combined", hint="omit one of them")
        flags["base_url"] = uses.base_url_argument(url)
    context.flags = flags
    context.command = ctx.command_path.removeprefix("xapi ")
    context.may_create_profile = uses.may_create_profile
    found = resolve.without_profile(MESSAGES, flags, context.environ)
    context.terminal.is_quiet = found.get("quiet", False)
    context.terminal.has_json_messages = found.get("error_format") == message_format.JSON
    if "max_time" in uses.settings:
        _limit_time(context)


def completer(name: str, *arguments: Any) -> Callable[..., list[str]]:
    """Return the function *name* of `cli.completers`, which is imported when the shell asks for words."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from xapi_cli.cli import completers

        words: list[str] = getattr(completers, name)(ctx, incomplete, *arguments)
        return words

    return complete


def help_of(name: str, setting: Setting) -> str:
    """Return what the help says about the *setting* with this *name*."""
    notes = [f"env: {variable}" for variable in setting.variables[:1]]
    if not setting.is_switch and (default := default_text(name)):
        notes.append(f"default: {default}")
    return f"{setting.help}.  [{'; '.join(notes)}]" if notes else f"{setting.help}."


def _of_setting(name: str) -> TyperOption:
    setting = SETTINGS[name]
    *others, last = setting.flags
    return TyperOption(
        param_decls=[name, *others, f"{last}/{setting.off_flag}" if setting.off_flag else last],
        is_flag=setting.is_switch,
        help=help_of(name, setting),
        metavar=setting.metavar,
        autocompletion=None if setting.is_switch else get_param_completion(completer("setting_values", name)),
    )


def _of_row(name: str, row: "Flag") -> TyperOption:
    is_switch = row.kind in ("switch", "off")
    type_: Any = Literal[row.choices] if row.choices else int if row.kind in ("count", "repeat") else None
    least = 1 if row.kind == "count" else None
    return TyperOption(
        param_decls=[name, *row.names],
        type=get_click_type(annotation=type_, parameter_info=typer.Option(min=least)) if type_ else None,
        is_flag=is_switch,
        count=row.kind == "repeat",
        default=False if is_switch else 0 if row.kind == "repeat" else None,
        multiple=row.kind == "texts" or bool(row.once),
        help=row.help,
        metavar=row.metavar,
        rich_help_panel=row.heading,
    )


def _value(row: "Flag", given: Any) -> Any:
    """Return the value of the option of *row* for what was *given*; raise UsageError if it is given twice."""
    if row.kind == "off":
        return not given
    if not row.once:
        return given
    if len(given or ()) > 1:
        raise UsageError(f"{row.names[-1]} is given twice", hint=row.once)
    return given[0] if given else None


def _text(value: str | bool | None) -> str | None:
    """Return the text that `resolve` expects for the *value* of an option."""
    return str(int(value)) if isinstance(value, bool) else value


def _limit_time(context: "Context") -> None:
    """Set the alarm for --max-time; a command reports an error in the settings itself, when it needs them."""
    try:
        limit = context.settings.max_time
    except (XapiError, OSError):
        return
    if limit is not None:
        signals.set_alarm(limit, context.started)
