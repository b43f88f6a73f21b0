"""The completers: functions that return what the shell offers for the value of an option or an argument.

`Flag.complete` in `request/options.py` names one; other options and arguments have it as `autocompletion`. Without
one, the metavar determines whether the shell offers files: see `completion_replies`. On any error, nothing is offered,
because an error would break the shell.
"""

from typing import TYPE_CHECKING, Self

import typer

from xapi_cli.settings import values
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xapi_cli.settings.config_file import Config


class Native(str):
    """An incomplete word that the shell completes itself, as one of these kinds.

    `files`: the name of a file, which starts after *number* characters. `command`: a command and its arguments, of
    which *number* words precede this one. `nothing`: no completion.
    """

    __slots__ = ("kind", "number")

    kind: str
    number: int

    def __new__(cls, incomplete: str, kind: str, number: int = 0) -> Self:
        """Return *incomplete* with its *kind*."""
        word = super().__new__(cls, incomplete)
        word.kind, word.number = kind, number
        return word


def nothing(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return no completions, for a value whose metavar would otherwise make the shell offer files."""
    return []


class Word(str):
    """A word that is offered; if it ends with a separator, the shell adds no space, because a value follows."""

    __slots__ = ()

    @property
    def is_complete(self) -> bool:
        """Whether the next word follows."""
        return not self.endswith("==")


def methods_and_items(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the methods, paths and ITEMs for an argument of `request`, and for an ITEM that names a file its files.

    Paths and query parameters come from the API description.
    """
    from xapi_cli.request import items

    if ctx.params.get("arguments") and (start := items.file_position(incomplete)) is not None:
        return [Native(incomplete, "files", start)]
    return methods_and_paths(ctx, incomplete)


def methods_and_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the methods for the first argument, and what the API description contains."""
    from xapi_cli.openapi.words import words
    from xapi_cli.request import items

    first: Sequence[str] = () if ctx.params.get("arguments") else items.METHODS
    methods = [method for method in first if method.startswith(incomplete)]
    return methods + [Word(word) for word in words(ctx.params, incomplete)]


def data_files(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the files for the value `@FILE` of `--data`."""
    return [Native(incomplete, "files", 1)] if incomplete.startswith("@") else []


def command_words(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the command of `exec`, or an argument of it."""
    return [Native(incomplete, "command", len(ctx.params.get("command") or ()))]


def setting_values(name: str, incomplete: str) -> list[str]:
    """Return the values of the setting *name*, if they are few, and the files if it is a file or a command."""
    setting = SETTINGS[name]
    if name == "profile":
        return profile_names(incomplete)
    is_file = isinstance(setting.type, values.FilePath | values.Command)
    return [Native(incomplete, "files")] if is_file else list(setting.choices)


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles whose names begin with *incomplete*."""
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


def values_of_key(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return what `setting_values` returns for the key that precedes the value."""
    key = ctx.params.get("key")
    return setting_values(key, incomplete) if key in PROFILE_KEYS else []


def _config() -> "Config":
    """Return the contents of the config file; an empty one if it is not valid."""
    import os

    from xapi_cli.settings import config_file

    try:
        return config_file.load(config_file.config_path(os.environ))
    except Exception:  # noqa: BLE001 - an invalid config file must not break the shell
        return config_file.Config()
