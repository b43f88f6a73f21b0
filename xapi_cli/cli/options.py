"""Options that commands share: the flags of the settings, made from the table of settings, and others."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli import help_format
from xapi_cli.cli.completion import setting_values
from xapi_cli.errors import XapiError
from xapi_cli.settings import resolve
from xapi_cli.settings.table import SETTINGS, Setting, default_text
from xapi_cli.system import signals

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

ACCOUNT = tuple(name for name, setting in SETTINGS.items() if setting.flags and setting.commands == "all")
NETWORK = tuple(name for name, setting in SETTINGS.items() if setting.commands == "network")

# Options that several commands have.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MinTtl = Annotated[
    str | None,
    typer.Option("--min-ttl", metavar="DURATION", help="Renew a token that has less than DURATION left."),
]


def settings_flags(
    *names: str, may_create_profile: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags of the settings *names* to a command and stores them in the runtime.

    The command does not declare the flags: it reads the resulting values from `runtime.settings`. If
    *may_create_profile*, the selected profile does not have to exist.
    """
    ordered = [name for name in SETTINGS if name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own, added = inspect.signature(command), [_parameter(name) for name in ordered]

        @wraps(command)
        def with_settings(ctx: typer.Context, **given: Any) -> None:
            runtime: Runtime = ctx.obj
            runtime.flags = {name: _text(given.pop(name)) for name in ordered}
            runtime.may_create_profile = may_create_profile
            runtime.terminal.is_quiet = resolve.is_quiet(runtime.flags, runtime.environ)
            if set(ACCOUNT) <= set(names):
                _limit_time(runtime)
            command(ctx, **given)

        with_settings.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]  # for inspect
        with_settings.__annotations__ = command.__annotations__ | {each.name: each.annotation for each in added}
        del with_settings.__wrapped__  # inspect would otherwise use the signature of the command
        return with_settings

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    option = typer.Option(
        *setting.flags,
        help=_help(name, setting),
        metavar=setting.metavar,
        autocompletion=None if setting.is_switch else lambda incomplete: setting_values(name, incomplete),
        rich_help_panel=help_format.SETTINGS,
    )
    type_: Any = bool if setting.is_switch else str | None
    default = False if setting.is_switch else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, option])


def _help(name: str, setting: Setting) -> str:
    notes = [f"env: {variable}" for variable in setting.variables[:1]]
    if not setting.is_switch and (default := default_text(name)):
        notes.append(f"default: {default}")
    return f"{setting.help}.  [{'; '.join(notes)}]" if notes else f"{setting.help}."


def _text(value: str | bool | None) -> str | None:
    """Return the text that `resolve` expects for the *value* of an option."""
    return ("1" if value else None) if isinstance(value, bool) else value


def _limit_time(runtime: "Runtime") -> None:
    """Set the alarm for --max-time; a command reports an error in the settings itself, when it needs them."""
    try:
        limit = runtime.settings.max_time
    except (XapiError, OSError):
        return
    if limit is not None:
        signals.set_alarm(limit, runtime.started)
