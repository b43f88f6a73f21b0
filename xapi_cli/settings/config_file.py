"""The config file: read it strictly, and edit it without losing comments and formatting."""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system import private_files
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import ForeignLink, Place, closing, place
from xapi_cli.system.suggestions import did_you_mean

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table

KEYS: Mapping[str, type | tuple[type, ...]] = {
    "base_url": str,
    "username": str,
    "password_command": list,
    "storage": str,
    "timeout": (int, float),
    "max_time": (int, float),
    "ca_bundle": str,
}
_VARIABLE = "XAPI_CONFIG_DIR"
_LARGEST = 1024 * 1024
_HINT = "edit the file, or see `xapi profile --help`"

_TYPE_NAMES: Mapping[object, str] = {str: "a string", list: "an array of strings", (int, float): "a number"}


class Config(NamedTuple):
    """The contents of the config file; a missing file is equivalent to an empty one."""

    default_profile: str | None = None
    profiles: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def load(path: Path) -> Config:
    """Return the contents of the config file *path*; raise UsageError, which names the place, for any error in it."""
    text = _text(path)
    if text is None:
        return Config()
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{_name(path)} is not valid TOML: {printable(str(error))}", hint=_HINT) from error
    except RecursionError as error:
        raise UsageError(f"{_name(path)} is nested too deeply", hint=_HINT) from error
    return _checked(document, path)


def edit(path: Path, change: Callable[["TOMLDocument"], None]) -> None:
    """Apply *change* to the config file *path*: comments and order are preserved, and the file is replaced atomically.

    Raises UsageError if the existing file is not valid (it is not overwritten), OutputError if the file cannot be
    written.
    """
    import tomllib

    import tomlkit

    load(path)  # never edit a file that is not valid
    before = _text(path) or ""
    try:
        document = tomlkit.parse(before)
        change(document)
        after = tomlkit.dumps(document)
        changed_well = tomllib.loads(after) == document.unwrap()
    except ValueError:  # the errors of tomlkit and tomllib are subclasses
        changed_well, after = False, ""
    if not changed_well:
        raise UsageError(f"{_name(path)} is written in a way that xapi cannot change", hint="edit the file by hand")
    if after == before:
        return
    try:
        with place(path, follow=True, make=True) as file:  # may be a link into the user's dotfiles: keep the link
            private_files.write(file, after.encode())
    except OSError as error:
        raise OutputError(
            f"{_name(path)} cannot be written: {error.strerror}", hint="check the directory, or set XAPI_CONFIG_DIR"
        ) from error


def profile_table(document: "TOMLDocument", name: str) -> "Table":
    """Return the table `[profiles.NAME]` of *document*; add it if it is missing."""
    import tomlkit

    profiles = document.setdefault("profiles", tomlkit.table(is_super_table=True))
    inline = isinstance(profiles, tomlkit.items.InlineTable)  # cannot contain regular tables
    return cast("Table", profiles.setdefault(name, tomlkit.inline_table() if inline else tomlkit.table()))


def _text(path: Path) -> str | None:
    try:
        return _read(path).decode("utf-8-sig").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ForeignLink as error:
        raise private_files.Unsafe(error.problem, variable=_VARIABLE) from error
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # not specific to this file
        raise UsageError(f"{_name(path)} cannot be read: {error.strerror}", hint="check its permissions") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{_name(path)} is not UTF-8 at byte {error.start}", hint=_HINT) from error


def _read(path: Path) -> bytes:
    """Return the contents of the config file *path*; raise Unsafe if another user may have written it."""
    with place(path) as link:
        _check_directory(link)
    with place(path, follow=True) as file:
        _check_directory(file)
        opened = closing(file.open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)))  # opening a FIFO would block
    with opened as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(
                f"{_name(path)} is not a regular file", hint="set XAPI_CONFIG_DIR to the directory of config.toml"
            )
        private_files.refuse_unsafe(status, "config file", path, variable=_VARIABLE)
        if status.st_size > _LARGEST:
            raise UsageError(f"{_name(path)} is larger than 1 MiB", hint=_HINT)
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read()


def _check_directory(file: Place) -> None:
    """Raise Unsafe if other users can replace *file*."""
    private_files.refuse_unsafe(file.directory_status(), "directory", file.path.parent, variable=_VARIABLE)


def _checked(document: Mapping[str, Any], path: Path) -> Config:
    for key in document:
        if key not in ("default_profile", "profiles"):
            raise _unknown(path, key)
    default, profiles = document.get("default_profile"), document.get("profiles", {})
    if default is not None and not isinstance(default, str):
        raise UsageError(f"{_name(path)}: default_profile must be a string", hint=_HINT)
    if not isinstance(profiles, dict) or not all(isinstance(profile, dict) for profile in profiles.values()):
        raise UsageError(f"{_name(path)}: profiles must be tables, [profiles.NAME]", hint=_HINT)
    for name, profile in profiles.items():
        for key, value in profile.items():
            _check(path, name, key, value)
    return Config(default or None, profiles)


def _check(path: Path, profile: str, key: str, value: object) -> None:
    wanted = KEYS.get(key)
    if wanted is None:
        raise _unknown(path, f"profiles.{profile}.{key}")
    fits = isinstance(value, wanted) and not isinstance(value, bool)
    if isinstance(value, list):
        fits = fits and bool(value) and all(isinstance(word, str) for word in value)
    if not fits:
        raise UsageError(
            f"{_name(path)}: profiles.{printable(profile)}.{key} must be {_TYPE_NAMES[wanted]}", hint=_HINT
        )


def _unknown(path: Path, key: str) -> UsageError:
    known = list(KEYS) if "." in key else ["default_profile", "profiles"]
    return UsageError(
        f"{_name(path)}: unknown key {printable(key)}",
        hint=did_you_mean(key.rpartition(".")[2], known, f"known are {', '.join(known)}"),
    )


def _name(path: Path) -> str:
    return printable(str(path))
