"""What the shell offers for an argument. On any error, nothing is offered, because an error would break the shell."""

from typing import TYPE_CHECKING, Any

import typer

from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS

if TYPE_CHECKING:
    from xapi_cli.settings.config_file import Config


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles whose names begin with *incomplete*."""
    from xapi_cli.settings import values

    is_safe = values.is_profile_name  # the shell evaluates the completions
    return [name for name in _config().profiles if name.startswith(incomplete) and is_safe(name)]


def profile_keys() -> list[str]:
    """Return the keys of a profile."""
    return list(PROFILE_KEYS)


def stored_keys(ctx: typer.Context) -> list[str]:
    """Return the keys that the selected profile has."""
    import os

    from xapi_cli.errors import UsageError
    from xapi_cli.settings import resolve

    found = _config()
    try:
        name = resolve.selected_profile({"profile": ctx.params.get("profile")}, os.environ, found)
    except UsageError:
        return []
    return [key for key in PROFILE_KEYS if key in found.profiles.get(name, {})]


def values_of_key(ctx: typer.Context) -> list[str]:
    """Return the values of the setting whose key precedes them, if they are few."""
    setting: Any = SETTINGS.get(ctx.params.get("key") or "")
    return list(setting.choices) if setting else []


def _config() -> "Config":
    """Return the contents of the config file; an empty one if it is not valid."""
    import os

    from xapi_cli.settings import config_file, paths

    try:
        return config_file.load(paths.config_path(os.environ))
    except Exception:  # noqa: BLE001 - an invalid config file must not break the shell
        return config_file.Config()
