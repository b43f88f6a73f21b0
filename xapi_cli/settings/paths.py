"""The directories that xapi uses: for the config file, and for its state."""

import sys
from collections.abc import Mapping
from pathlib import Path

from xapi_cli.errors import UsageError
from xapi_cli.system import safe_paths

_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of `config.toml`, which may not exist.

    Raises UsageError if XAPI_CONFIG_DIR is relative and the current directory was deleted.
    """
    if chosen := environ.get("XAPI_CONFIG_DIR"):
        return _absolute("XAPI_CONFIG_DIR", chosen) / "config.toml"
    if sys.platform == "win32":
        return _base_directory(environ, "APPDATA", "AppData/Roaming") / "xapi" / "config.toml"
    return _base_directory(environ, "XDG_CONFIG_HOME", ".config") / "xapi" / "config.toml"


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return xapi's state directory, for locks, the file store and the index of accounts.

    Raises UsageError if XAPI_STATE_DIR is relative and the current directory was deleted.
    """
    if chosen := environ.get("XAPI_STATE_DIR"):
        return _absolute("XAPI_STATE_DIR", chosen) / "xapi"
    if sys.platform not in ("win32", "darwin"):
        return _base_directory(environ, "XDG_STATE_HOME", ".local/state") / "xapi"
    from platformdirs import user_state_path

    return user_state_path("xapi", appauthor=False).absolute()


def relative_homes(environ: Mapping[str, str]) -> list[str]:
    """Return the home and XDG variables that are set but do not contain an absolute path."""
    return [name for name in _HOMES if name in environ and not Path(environ[name]).is_absolute()]


def _absolute(variable: str, chosen: str) -> Path:
    try:
        return Path(chosen).absolute()
    except FileNotFoundError as error:
        raise UsageError(
            f"{variable} is relative, and the current directory does not exist", hint="set it to an absolute path"
        ) from error


def _base_directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # The specification says to ignore a relative XDG path: https://specifications.freedesktop.org/basedir/
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else safe_paths.home() / default
