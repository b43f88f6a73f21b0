"""Show and change the settings you keep."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli.cli.options import profile_names, settings_flags
from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from tomlkit import TOMLDocument

    from xapi_cli.runtime import Runtime

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=profile_names, show_default=False)
]


def list_(ctx: typer.Context, *, json: Json = False) -> None:
    """List the profiles.

    The one in use is marked with a star.

    Examples:

    \b
      xapi profile list
      xapi profile list --json | jq -r '.[].name'
    """
    from xapi_cli.system.render import columns

    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    current = resolve.profile_in_use(runtime.flags, runtime.environ, found)
    if json:
        rows = [
            {"name": name, "current": name == current, **_shown(profile)} for name, profile in found.profiles.items()
        ]
        runtime.terminal.out_json(rows)
    elif found.profiles:
        runtime.terminal.out(
            columns(
                [
                    (
                        "*" if name == current else " ",
                        name,
                        str(profile.get("username", "-")),
                        str(profile.get("base_url", "-")),
                    )
                    for name, profile in found.profiles.items()
                ]
            )
        )
    else:
        runtime.terminal.note("there are no profiles yet; `xapi login` makes one")


@settings_flags("profile")
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The profile.", autocompletion=profile_names, show_default=False),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show one profile.

    Without NAME, the one in use.

    Examples:

    \b
      xapi profile show
      xapi profile show staging --json | jq -r .base_url
    """
    from xapi_cli.system.render import table

    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    chosen = resolve.profile_in_use({"profile": name} if name is not None else runtime.flags, runtime.environ, found)
    if chosen not in found.profiles and chosen != "default":
        raise resolve.missing_profile(chosen, found)
    profile = {"name": chosen, **_shown(found.profiles.get(chosen, {}))}
    if json:
        runtime.terminal.out_json(profile)
    else:
        runtime.terminal.out(table([(key, _cell(value)) for key, value in profile.items()]))
    if chosen not in found.profiles:
        runtime.terminal.note(f"profile {chosen} has no settings yet; `xapi login` gives it some")


def use(ctx: typer.Context, name: Name) -> None:
    """Choose the profile used by default.

    Examples:

    \b
      xapi profile use staging
    """
    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    if resolve.profile_name(name) not in found.profiles and name != "default":
        raise resolve.missing_profile(name, found)

    def change(document: "TOMLDocument") -> None:
        document["default_profile"] = name

    runtime.edit_config(change)
    runtime.terminal.note(f"profile {name} is used from now on")


@settings_flags("profile")
def set_(
    ctx: typer.Context,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="The setting.", autocompletion=lambda: list(config_file.KEYS), show_default=False
        ),
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What to set it to.", show_default=False)],
) -> None:
    """Set KEY of a profile to VALUE.

    VALUE is checked first. A profile that does not exist is made. KEY is one
    of base_url, username, password_command, storage, timeout, max_time,
    ca_bundle.

    Examples:

    \b
      xapi profile set storage file
      xapi profile set timeout 10 --profile staging
      xapi profile set password_command 'pass show api'
    """
    runtime: Runtime = ctx.obj
    checked = _checked(key, value)
    name = resolve.profile_in_use(runtime.flags, runtime.environ, config_file.load(runtime.config_path))

    def change(document: "TOMLDocument") -> None:
        config_file.profile_table(document, name)[key] = checked

    runtime.edit_config(change)
    if key == "password_command":
        runtime.warn_of_shell_syntax(key, value)
    runtime.terminal.note(f"{key} of profile {name} is set")


def remove(ctx: typer.Context, name: Name) -> None:
    """Remove a profile from the config file.

    What is stored for its account stays, until `xapi logout`.

    Examples:

    \b
      xapi logout -p staging && xapi profile remove staging
    """
    runtime: Runtime = ctx.obj
    found = config_file.load(runtime.config_path)
    if name not in found.profiles:
        raise resolve.missing_profile(name, found)

    def change(document: "TOMLDocument") -> None:
        del document["profiles"][name]
        if document.get("default_profile") == name:
            del document["default_profile"]

    runtime.edit_config(change)
    runtime.terminal.note(f"profile {name} is removed")


def _shown(profile: "Any") -> dict[str, Any]:
    return {key: profile[key] for key in config_file.KEYS if key in profile}


def _cell(value: object) -> str:
    import shlex

    return shlex.join(value) if isinstance(value, list) else str(value)


def _checked(key: str, value: str) -> object:
    """Return *value* as the config file keeps it; raises UsageError for a key or value that cannot be used."""
    checks: dict[str, Callable[[str], object]] = {
        "base_url": urls.base_url,
        "username": resolve.username,
        "password_command": lambda words: list(resolve.split_command(words)),
        "storage": resolve.storage,
        "timeout": _number,
        "max_time": _number,
        "ca_bundle": resolve.absolute,
    }
    if key not in checks:
        raise UsageError(
            f"there is no setting {key!r}", hint=did_you_mean(key, checks, f"known are {', '.join(checks)}")
        )
    try:
        return checks[key](value)
    except UsageError as error:
        raise UsageError(f"{key}: {error.message}", hint=error.hint) from error


def _number(text: str) -> float | int:
    value = resolve.number_of_seconds(text)
    return int(value) if value.is_integer() else value
