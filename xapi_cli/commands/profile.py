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
from xapi_cli.errors import UsageError
from xapi_cli.settings import config_file, resolve, values
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.system.render import printable
from xapi_cli.system.suggestions import did_you_mean
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from xapi_cli.runtime import Runtime

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The profile.", autocompletion=completer("profile_names"), show_default=False),
]
OptionalName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="The profile.", autocompletion=completer("profile_names"), show_default=False
    ),
]
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The setting.", autocompletion=completer("profile_keys"), show_default=False),
]
StoredKey = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The setting.", autocompletion=completer("profile_keys"), show_default=False),
]
Value = Annotated[
    str,
    typer.Argument(
        metavar="VALUE", help="The new value.", autocompletion=completer("values_of_key"), show_default=False
    ),
]


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
    from xapi_cli.usecases.profile_list import show_profiles

    runtime: Runtime = ctx.obj
    show_profiles(runtime, as_json=json)


@settings_flags("profile", *MESSAGES)
def show(ctx: typer.Context, name: OptionalName = None, *, json: Json = False) -> None:
    """Show one profile.

    Without NAME, shows the selected profile.

    Examples:

    \b
      xapi profile show
      xapi profile show staging --json | jq -r .base_url
    """
    from xapi_cli.system.layout import table

    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    flags = runtime.flags if name is None else {"profile": name}
    selected = resolve.selected_profile(flags, runtime.environ, found)
    if selected != "default":
        is_key = name in PROFILE_KEYS
        _require(selected, found, otherwise="run `xapi profile show`, which prints all keys" if is_key else None)
    profile = {"name": selected, **_settings_of(found.profiles.get(selected, {}))}
    if json:
        runtime.terminal.print_json(profile)
    else:
        runtime.terminal.print(table([(key, _cell(value)) for key, value in profile.items()], runtime.terminal.style))
    if selected not in found.profiles:
        note = f"profile {selected} has no settings; `xapi login` writes them"
        runtime.terminal.note(runtime.for_profile(note, selected))


@settings_flags(*MESSAGES)
def use(ctx: typer.Context, name: Name) -> None:
    """Set the default profile.

    Examples:

    \b
      xapi profile use staging
    """
    runtime: Runtime = ctx.obj
    values.profile_name(name)

    def change(document: "config_file.Document") -> None:
        if name != "default":
            _require(name, config_file.contents(document))
        document["default_profile"] = name

    runtime.edit_config(change)
    if (selected := runtime.environ.get("XAPI_PROFILE")) and selected != name:
        runtime.terminal.warn(f"XAPI_PROFILE still selects {printable(selected)}; unset it")
    runtime.terminal.note(f"the default profile is now {name}")


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
    runtime: Runtime = ctx.obj
    stored, name, before, account = _checked(key, value), "", dict[str, object](), dict[str, str]()

    def change(document: "config_file.Document") -> "config_file.Document":
        nonlocal name
        found = config_file.contents(document)
        name = resolve.selected_profile(runtime.flags, runtime.environ, found)
        before.update(found.profiles.get(name, {}))
        account.update(resolve.account_in_profile(name, found))
        document = config_file.with_profile(document, name)
        config_file.set_setting(document, name, key, stored)
        return document

    runtime.edit_config(change)
    if warning := _warning(key, value, stored):
        runtime.terminal.warn(warning)
    if before.get(key) != stored:
        _warn_of_new_account(runtime, name, before, key, str(stored))
    runtime.terminal.note(f"set {key} of profile {name}")
    _note_remaining_token(runtime, account)


def _warn_of_new_account(runtime: "Runtime", name: str, settings: "Collection[str]", key: str, value: str) -> None:
    """Warn, if *key* selects the account, that the secrets in the *settings* of profile *name* are for *value* now."""
    if key not in Identity._fields:
        return
    if "password_command" in settings:
        runtime.terminal.warn(f"the password_command of profile {name} now runs for {value}")
    if "headers" in settings:
        sent = "sent to" if key == "base_url" else "sent for"
        runtime.terminal.warn(f"the headers of profile {name} are now {sent} {value}")


def _note_remaining_token(runtime: "Runtime", account: "Mapping[str, str]") -> None:
    """Report what remains stored for *account*, which a profile had before a change, if no profile has it now."""
    from xapi_cli.usecases import logout

    found = config_file.load(runtime.config_path)
    is_in_use = any(resolve.account_in_profile(each, found) == account for each in found.profiles)
    is_complete = len(account) == len(Identity._fields)
    if is_complete and not is_in_use and (note := logout.remaining(runtime, Identity(**account))):
        runtime.terminal.note(note)


@settings_flags("profile", *MESSAGES)
def unset(ctx: typer.Context, key: StoredKey) -> None:
    """Remove KEY from a profile.

    The environment variable or the default then applies. KEY is one of
    PROFILE_KEYS.

    Examples:

    \b
      xapi profile unset timeout
      xapi profile unset password_command --profile staging
    """
    runtime: Runtime = ctx.obj
    _check_key(key)
    name, before, account = "", set[str](), dict[str, str]()

    def change(document: "config_file.Document") -> None:
        nonlocal name
        found = config_file.contents(document)
        name = resolve.selected_profile(runtime.flags, runtime.environ, found)
        if name != "default":
            _require(name, found, otherwise="")
        before.update(found.profiles.get(name, {}))
        account.update(resolve.account_in_profile(name, found))
        config_file.remove_setting(document, name, key)

    runtime.edit_config(change)
    if key not in before:
        runtime.terminal.note(f"{key} is not set in profile {name}")
        return
    _warn_of_new_account(runtime, name, before, key, f"any {SETTINGS[key].title}")
    runtime.terminal.note(f"removed {key} from profile {name}")
    _note_remaining_token(runtime, account)


@settings_flags(*MESSAGES)
def remove(ctx: typer.Context, name: Name) -> None:
    """Remove a profile from the config file.

    The token and the password of its account remain stored; `xapi logout`
    deletes them. The loaded API description is deleted.

    Examples:

    \b
      xapi logout -p staging && xapi profile remove staging
    """
    from xapi_cli.features.openapi import summary

    runtime: Runtime = ctx.obj
    account = dict[str, str]()

    def change(document: "config_file.Document") -> None:
        found = config_file.contents(document)
        _require(name, found, otherwise="")
        account.update(resolve.account_in_profile(name, found))
        config_file.remove_profile(document, name)

    runtime.edit_config(change)
    summary.remove(runtime.state_directory, name)
    if runtime.environ.get("XAPI_PROFILE") == name:
        runtime.terminal.warn(f"XAPI_PROFILE still selects {printable(name)}; unset it")
    runtime.terminal.note(f"removed profile {printable(name)}")
    _note_remaining_token(runtime, account)


def _require(name: str, found: config_file.Config, *, otherwise: str | None = None) -> None:
    """Raise UsageError if the config file does not contain the profile *name*; see `missing_profile`."""
    if name not in found.profiles:
        raise resolve.missing_profile(name, found, otherwise)


def _settings_of(profile: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the settings in *profile* without secrets, in the order of the table of settings."""
    return {key: SETTINGS[key].type.shown(profile[key]) for key in PROFILE_KEYS if key in profile}


def _cell(value: object) -> str:
    import shlex

    if isinstance(value, list):
        return shlex.join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_key(key: str) -> None:
    if key in SETTINGS and SETTINGS[key].top_level_key == key:
        raise UsageError(
            f"{key} is not a setting of a profile", hint="write it at the top of the config file, above the profiles"
        )
    if key not in PROFILE_KEYS:
        raise UsageError(
            f"unknown setting {key!r}",
            hint=did_you_mean(key, PROFILE_KEYS, f"the settings are {', '.join(PROFILE_KEYS)}"),
        )


def _warning(key: str, value: str, stored: object) -> str | None:
    """Return a warning about *value*, stored as *stored*, which is valid but probably mistyped; None without one."""
    if key == "password_command":
        return values.shell_syntax_warning(key, value)
    if key == "ca_bundle":
        from pathlib import Path

        from xapi_cli.http import tls

        path = Path(str(stored))
        if path.exists() and not (path.is_file() or path.is_dir()):
            return None  # a pipe may have no writer, and can be read only once
        try:
            tls.context_from_files([(key, path)])
        except UsageError as error:  # the file may be created later
            return str(error)
    return None


def _checked(key: str, text: str) -> object:
    """Return what the config file contains for *text*; raise UsageError if the key or the value is not valid."""
    _check_key(key)
    stored: object = resolve.prefixed(key, SETTINGS[key].type.to_profile, text)
    config_file.check_storable(key, stored)
    return stored


for command in (set_, unset):
    if command.__doc__:  # None with `python -OO`
        command.__doc__ = command.__doc__.replace("PROFILE_KEYS", ", ".join(PROFILE_KEYS))
