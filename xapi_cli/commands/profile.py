"""Show and change the stored settings."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli.options import profile_names, settings_flags
from xapi_cli.errors import UsageError
from xapi_cli.settings import config_file, password_command, resolve, values
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.system.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tomlkit import TOMLDocument

    from xapi_cli.runtime import Runtime

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=profile_names, show_default=False)
]
OptionalName = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="The profile.", autocompletion=profile_names, show_default=False),
]
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The setting.", autocompletion=lambda: list(PROFILE_KEYS), show_default=False),
]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="The new value.", show_default=False)]


@settings_flags("quiet")
def list_(ctx: typer.Context, *, json: Json = False) -> None:
    """List the profiles.

    A star marks the selected profile.

    Examples:

    \b
      xapi profile list
      xapi profile list --json | jq -r '.[].name'
    """
    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    selected = resolve.selected_profile(runtime.flags, runtime.environ, found)
    if json:
        runtime.terminal.print_json(_list_as_json(found, selected))
    elif found.profiles:
        runtime.terminal.print(_list_as_table(found, selected))
    else:
        runtime.terminal.note("no profiles; `xapi login` creates one")


@settings_flags("profile", "quiet")
def show(ctx: typer.Context, name: OptionalName = None, *, json: Json = False) -> None:
    """Show one profile.

    Without NAME, shows the selected profile.

    Examples:

    \b
      xapi profile show
      xapi profile show staging --json | jq -r .base_url
    """
    from xapi_cli.system.render import table

    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    flags = runtime.flags if name is None else {"profile": name}
    selected = resolve.selected_profile(flags, runtime.environ, found)
    if selected != "default":
        _require(selected, found)
    profile = {"name": selected, **_settings_of(found.profiles.get(selected, {}))}
    if json:
        runtime.terminal.print_json(profile)
    else:
        runtime.terminal.print(table([(key, _cell(value)) for key, value in profile.items()]))
    if selected not in found.profiles:
        runtime.terminal.note(f"profile {selected} has no settings; `xapi login` writes them")


@settings_flags("quiet")
def use(ctx: typer.Context, name: Name) -> None:
    """Set the default profile.

    Examples:

    \b
      xapi profile use staging
    """
    runtime: Runtime = ctx.obj
    values.profile_name(name)
    if name != "default":
        _require(name, config_file.load(runtime.config_path))

    def change(document: "TOMLDocument") -> None:
        document["default_profile"] = name

    runtime.edit_config(change)
    runtime.terminal.note(f"the default profile is now {name}")


@settings_flags("profile", "quiet")
def set_(ctx: typer.Context, key: Key, value: Value) -> None:
    """Set KEY of a profile to VALUE.

    Checks VALUE first. Creates the profile if it does not exist. KEY is one of
    PROFILE_KEYS.

    Examples:

    \b
      xapi profile set storage file
      xapi profile set timeout 10 --profile staging
      xapi profile set password_command 'pass show api'
    """
    runtime: Runtime = ctx.obj
    stored = _checked(key, value)
    name = resolve.selected_profile(runtime.flags, runtime.environ, config_file.load(runtime.config_path))

    def change(document: "TOMLDocument") -> None:
        config_file.profile_table(document, name)[key] = stored

    runtime.edit_config(change)
    if key == "password_command" and (warning := password_command.shell_syntax_warning(key, value)):
        runtime.terminal.warn(warning)
    runtime.terminal.note(f"set {key} of profile {name}")


if set_.__doc__:  # None with `python -OO`
    set_.__doc__ = set_.__doc__.replace("PROFILE_KEYS", ", ".join(PROFILE_KEYS))


@settings_flags("quiet")
def remove(ctx: typer.Context, name: Name) -> None:
    """Remove a profile from the config file.

    The token and the password of its account remain stored; `xapi logout`
    deletes them.

    Examples:

    \b
      xapi logout -p staging && xapi profile remove staging
    """
    runtime: Runtime = ctx.obj
    _require(name, config_file.load(runtime.config_path))

    def change(document: "TOMLDocument") -> None:
        del document["profiles"][name]
        if document.get("default_profile") == name:
            del document["default_profile"]

    runtime.edit_config(change)
    runtime.terminal.note(f"removed profile {name}")


def _require(name: str, found: config_file.Config) -> None:
    """Raise UsageError if the config file does not contain the profile *name*."""
    if name not in found.profiles:
        raise resolve.missing_profile(name, found)


def _list_as_json(found: config_file.Config, selected: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "current": name == selected, **_settings_of(profile)} for name, profile in found.profiles.items()
    ]


def _list_as_table(found: config_file.Config, selected: str) -> str:
    from xapi_cli.system.render import columns

    return columns(
        [
            (
                "*" if name == selected else " ",
                name,
                str(profile.get("username", "-")),
                str(profile.get("base_url", "-")),
            )
            for name, profile in found.profiles.items()
        ]
    )


def _settings_of(profile: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the settings in *profile*, in the order of the table of settings."""
    return {key: profile[key] for key in PROFILE_KEYS if key in profile}


def _cell(value: object) -> str:
    import shlex

    return shlex.join(value) if isinstance(value, list) else str(value)


def _checked(key: str, text: str) -> object:
    """Return what the config file contains for *text*; raise UsageError if the key or the value is not valid."""
    if key not in PROFILE_KEYS:
        raise UsageError(
            f"unknown setting {key!r}",
            hint=did_you_mean(key, PROFILE_KEYS, f"the settings are {', '.join(PROFILE_KEYS)}"),
        )
    return resolve.prefixed(key, SETTINGS[key].type.to_profile, text)
