"""Manage profiles (named sets of settings).

Examples:

\b
  xapi profile list
  xapi profile show --json | jq -r .base_url
  xapi profile set timeout 10
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli.options import MESSAGES, Json, completer, settings_flags
from xapi_cli.errors import UsageError, XapiError
from xapi_cli.feature_table import hooks
from xapi_cli.hints import Hint, did_you_mean, text
from xapi_cli.http import urls
from xapi_cli.settings import config_file, resolve, values
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.system.render import instant, pasteable, printable, relative
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from xapi_cli.context import Context
    from xapi_cli.system.style import Cell

_ARGUMENT: dict[str, Any] = {"show_default": False}
_PROFILE = {**_ARGUMENT, "help": "The profile.", "autocompletion": completer("profile_names")}
_KEY = {**_ARGUMENT, "metavar": "KEY", "help": "The setting.", "autocompletion": completer("profile_keys")}
_VALUE = {**_ARGUMENT, "metavar": "VALUE", "help": "The new value.", "autocompletion": completer("values_of_key")}
Name = Annotated[str, typer.Argument(metavar="NAME", **_PROFILE)]
OptionalName = Annotated[str | None, typer.Argument(metavar="[NAME]", **_PROFILE)]
Key = Annotated[str, typer.Argument(**_KEY)]
Value = Annotated[str, typer.Argument(**_VALUE)]

_HEADER = ("", "profile", "username", "base URL", "token", "expires", "mode")
_IGNORED = ("profile", "base_url", "username", "token")  # their variables select another account


@settings_flags(*MESSAGES)
def list_(ctx: typer.Context, *, json: Json = False) -> None:
    """List the profiles, and the state of their tokens.

    A star marks the selected profile. The state is that of the stored token; no
    request is sent. In a pipe, prints one line per profile: name, star or -,
    username, base URL, state, expiry and mode, separated by tabs.

    Examples:

    \b
      xapi profile list
      xapi profile list --json | jq -r '.[].name'
    """
    from xapi_cli.system.style import columns

    context: Context = ctx.obj
    terminal, found = context.terminal, config_file.load(context.config_path)
    selected = resolve.selected_profile(context.flags, context.environ, found)
    failed = set[tuple[Any, ...]]()
    rows: list[dict[str, Any]] = []
    for name, profile in found.profiles.items():
        state, expires_at = _token_state(context, name, failed)
        row = {"name": name, "current": name == selected, **_settings_of(profile), "state": state}
        rows.append({**row, "expires_at": expires_at})
    if json:
        terminal.print_json(
            [{**row, "expires_at": instant(row["expires_at"]) if row["expires_at"] else None} for row in rows]
        )
    elif not rows:
        terminal.note("no profiles; `xapi login` creates one")
    elif terminal.stdout_is_terminal:
        now = context.now()
        table = [_cells(row, lambda moment: relative(moment - now)) for row in rows]
        terminal.print(columns(table, terminal.style, header=_HEADER))
    else:
        for row in rows:
            mark, name, *others = (printable(cell.text.strip() or "-") for cell in _cells(row, instant))
            terminal.print("\t".join((name, mark, *others)))


@settings_flags("profile", *MESSAGES)
def show(ctx: typer.Context, name: OptionalName = None, *, json: Json = False) -> None:
    """Show one profile.

    Without NAME, shows the selected profile.

    Examples:

    \b
      xapi profile show
      xapi profile show staging --json | jq -r .base_url
    """
    from xapi_cli.system.style import table

    context: Context = ctx.obj
    found = config_file.load(context.config_path)
    flags = context.flags if name is None else {"profile": name}
    selected = resolve.selected_profile(flags, context.environ, found)
    if selected != "default":
        _require(selected, found)
    profile = {"name": selected, **_settings_of(found.profiles.get(selected, {}))}
    if json:
        context.terminal.print_json(profile)
    else:
        context.terminal.print(table([(key, _cell(value)) for key, value in profile.items()], context.terminal.style))


@settings_flags(*MESSAGES)
def use(ctx: typer.Context, name: Name) -> None:
    """Set the default profile.

    Examples:

    \b
      xapi profile use staging
    """
    context: Context = ctx.obj
    values.profile_name(name)

    with context.editing_config() as document:
        if name != "default":
            _require(name, document.contents())
        document.use(name)
    if (selected := context.environ.get("XAPI_PROFILE")) and selected != name:
        context.terminal.warn(f"XAPI_PROFILE still selects {printable(selected)}; unset it")
    context.terminal.note(f"the default profile is now {name}")


@settings_flags("profile", *MESSAGES)
def set_(ctx: typer.Context, key: Key, value: Value) -> None:
    """Set KEY of a profile to VALUE.

    Rejects an invalid VALUE. Creates the profile if it does not exist. KEY is one of
    PROFILE_KEYS.

    Examples:

    \b
      xapi profile set storage file
      xapi profile set timeout 10 --profile staging
      xapi profile set password_command 'pass show api'
    """
    context: Context = ctx.obj
    _check_key(key)
    stored: object = resolve.prefixed(key, SETTINGS[key].type.to_profile, value)
    with context.editing_config() as document:
        name = resolve.selected_profile(context.flags, context.environ, document.contents())
        document.set(name, key, stored)
    if key == "base_url":
        context.note_pasted_end(str(stored), urls.pasted_end(value))
    context.terminal.note(f"set {key} of profile {name}")


@settings_flags("profile", *MESSAGES)
def unset(ctx: typer.Context, key: Key) -> None:
    """Remove KEY from a profile.

    The environment variable or the default then applies. KEY is one of
    PROFILE_KEYS.

    Examples:

    \b
      xapi profile unset timeout
      xapi profile unset password_command --profile staging
    """
    context: Context = ctx.obj
    _check_key(key)
    with context.editing_config() as document:
        found = document.contents()
        name = resolve.selected_profile(context.flags, context.environ, found)
        if name != "default":
            _require(name, found)
        was_set = key in found.profiles.get(name, {})
        document.unset(name, key)
    context.terminal.note(f"removed {key} from profile {name}" if was_set else f"{key} is not set in profile {name}")


@settings_flags(*MESSAGES)
def remove(ctx: typer.Context, name: Name) -> None:
    """Remove a profile from the config file.

    The token and the password of its account remain stored; `xapi logout`
    deletes them.

    Examples:

    \b
      xapi logout -p staging && xapi profile remove staging
    """
    context: Context = ctx.obj
    with context.editing_config() as document:
        found = document.contents()
        _require(name, found)
        account = resolve.account_in_profile(name, found)
        document.remove(name)
    for removed in hooks("profile_removed", context.state_directory.path):
        removed(context.state_directory, name)
    context.terminal.note(f"removed profile {printable(name)}")
    if len(account) == len(Identity._fields):
        flags = f"--base-url {pasteable(account['base_url'])} --username {pasteable(account['username'])}"
        context.terminal.note(f"its token, if there is one, remains stored; to delete it, run `xapi logout {flags}`")


def _require(name: str, found: config_file.Config) -> None:
    """Raise UsageError if the config file does not contain the profile *name*."""
    if name not in found.profiles:
        raise resolve.missing_profile(name, found)


def _settings_of(profile: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the settings in *profile* without secrets, in the order of the table of settings."""
    return {key: SETTINGS[key].type.shown(profile[key]) for key in PROFILE_KEYS if key in profile}


def _cell(value: object) -> str:
    import shlex

    if isinstance(value, dict):
        return ", ".join(f"{name}: {text}" for name, text in value.items())
    if isinstance(value, list):
        return shlex.join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_key(key: str) -> None:
    if key not in PROFILE_KEYS:
        raise UsageError(
            f"unknown setting {key!r}",
            hint=did_you_mean(key, PROFILE_KEYS, f"the settings are {', '.join(PROFILE_KEYS)}"),
        )


def _cells(row: "Mapping[str, Any]", expires: "Callable[[datetime], str]") -> "tuple[Cell, ...]":
    """Return the cells of *row* of `profile list`, with the expiry as *expires* shows it; `-` is no value."""
    from xapi_cli.system.style import Cell, color_of_state

    return (
        Cell("*" if row["current"] else " ", "good"),
        Cell(row["name"], "strong" if row["current"] else None),
        Cell(str(row.get("username", "-"))),
        Cell(str(row.get("base_url", "-"))),
        Cell(row["state"] or "-", color_of_state(row["state"]) if row["state"] else "faint"),
        Cell(expires(row["expires_at"]) if row["expires_at"] else "-"),
        Cell("read-only") if row.get("read_only") else Cell("-", "faint"),
    )


def _token_state(
    context: "Context", profile: str, failed: set[tuple[Any, ...]]
) -> "tuple[str | None, datetime | None]":
    """Return the state of the stored token of *profile* and its expiry; `unknown` if the store cannot be read.

    A store that has failed is added to *failed* and not tried again, because that takes seconds.
    """
    from xapi_cli.auth.account import state_of
    from xapi_cli.store import registry
    from xapi_cli.store.repository import StoreReports

    ignored = {variable for key in _IGNORED for variable in SETTINGS[key].variables}
    environ = {name: value for name, value in context.environ.items() if name not in ignored}
    try:
        settings = resolve.resolve({"profile": profile}, environ)
    except UsageError:  # the settings of this profile are not valid, which `doctor` and its commands report
        return None, None
    if settings.base_url is None or settings.username is None:
        return None, None
    place = (settings.storage, *(settings.get(name) for name in registry.selected(settings.storage).settings))
    if place in failed:
        return "unknown", None
    reports = StoreReports()
    warnings: Sequence[Hint] = reports.warnings
    identity = Identity(settings.base_url, settings.username)
    state, expires_at = "unknown", None
    try:
        repository = context.repository(identity, settings=settings, reports=reports)
        token = record.token if (record := repository.read()) else None
        state, expires_at = state_of(token, context.now(), repository=repository), token and token.expires_at
    except XapiError as error:
        warnings = [error.advice]
    for warning in warnings:
        failed.add(place)
        of_profile = text(warning, lambda part: context.shown(part, profile=profile))
        context.terminal.warn(f"profile {profile}: {of_profile}")
    return state, expires_at


for command in (set_, unset):
    if command.__doc__:  # None with `python -OO`
        command.__doc__ = command.__doc__.replace("PROFILE_KEYS", ", ".join(PROFILE_KEYS))
