"""What the shell offers for the values of options and arguments; nothing is ever sent.

Typer has the scripts for the other shells, and offers files where a function here returns nothing. On any error,
nothing is offered, because an error would break the shell.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from xapi_cli.settings import values
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS

if TYPE_CHECKING:
    from xapi_cli.settings.config_file import Config


def methods_and_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the methods for the first argument, and the paths and query parameters that a feature knows."""
    from xapi_cli.feature_table import hooks
    from xapi_cli.request import items
    from xapi_cli.system.files import state_directory

    first = () if ctx.params.get("arguments") else items.METHODS
    found = [method for method in first if method.startswith(incomplete)]
    given = {**ctx.params, "profile": ctx.params.get("profile") or ctx.find_root().params.get("profile")}
    with suppress(Exception):  # no error may reach the shell
        for words in hooks("words", state_directory(os.environ)):
            found += words(given, incomplete)
    return found


def setting_values(ctx: typer.Context, incomplete: str, name: str) -> list[str]:
    """Return the values of the setting *name*, if they are few."""
    if name == "profile":
        return profile_names(ctx, incomplete)
    return [word for word in SETTINGS[name].choices if word.startswith(incomplete)]


def profile_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the profiles whose names begin with *incomplete*."""
    is_safe = values.is_profile_name  # the shell evaluates the words
    return [name for name in _config().profiles if name.startswith(incomplete) and is_safe(name)]


def profile_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the keys of a profile that begin with *incomplete*."""
    return [key for key in PROFILE_KEYS if key.startswith(incomplete)]


def values_of_key(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return what `setting_values` returns for the key that precedes the value."""
    key = ctx.params.get("key")
    return setting_values(ctx, incomplete, key) if key in PROFILE_KEYS else []


def _config() -> "Config":
    """Return the contents of the config file; an empty one if it is not valid."""
    from xapi_cli.settings import config_file

    try:
        return config_file.load(config_file.config_path(os.environ))
    except Exception:  # noqa: BLE001 - an invalid config file must not break the shell
        return config_file.Config()
