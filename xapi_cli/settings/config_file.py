"""The config file: read it strictly, and edit it without losing comments and formatting."""

import codecs
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.system import files
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

    Document = MutableMapping[str, Any]  # as tomlkit or tomllib returns it
    Change = Callable[[Document], Document | None]

_VARIABLE = "XAPI_CONFIG_DIR"
_MAX_SIZE = 1024 * 1024  # bytes
_LOCK_TIMEOUT = 5.0  # seconds
_HINT = "edit the file, or see `xapi profile --help`"
TOP_LEVEL_KEYS = ("default_profile", "profiles")


class Config(NamedTuple):
    """The contents of the config file; a missing file is equivalent to an empty one."""

    default_profile: str | None = None
    profiles: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of `config.toml`, which may not exist."""
    if chosen := environ.get(_VARIABLE):
        return Path(chosen).absolute() / "config.toml"
    variable, default = ("APPDATA", "AppData/Roaming") if sys.platform == "win32" else ("XDG_CONFIG_HOME", ".config")
    return files.base_directory(environ, variable, default) / "xapi" / "config.toml"


def load(path: Path) -> Config:
    """Return the contents of the config file *path*; raise UsageError, which names the place, for any error in it."""
    text = _read_text(path)
    if text is None:
        return Config()
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))  # there is no attribute before Python 3.14
        invalid = UsageError(f"{_shown(path)} is not valid TOML: {printable(str(error))}", hint=_HINT)
        raise (invalid.concerning(line=int(found[1])) if found else invalid) from error
    except ValueError as error:  # Python limits the digits of an integer
        raise UsageError(f"{_shown(path)} contains a number with too many digits", hint=_HINT) from error
    except RecursionError as error:
        raise UsageError(f"{_shown(path)} is nested too deeply", hint=_HINT) from error
    return _validated(document, path)


def edit(path: Path, change: "Change", *, lock: "files.StateFile | None" = None) -> None:
    """Apply *change* to the config file *path*: comments and order are preserved, and the file is replaced atomically.

    *change* modifies the document, which no other process edits meanwhile, or returns another one that replaces it. It
    is also called with the plain dictionary, as which the new file must be read. *lock* is the file with which
    concurrent processes exclude each other; where it cannot be locked, they do not. Raises UsageError if the existing
    file is not valid, or cannot be edited (it is not overwritten), OutputError if the file cannot be written.
    """
    from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

    with ExitStack() as stack:
        if lock is not None:
            try:
                with suppress(LockUnavailable):
                    stack.enter_context(locked(lock, timeout=_LOCK_TIMEOUT))
            except LockTimeout as error:
                problem = f"another xapi process has been editing it for more than {_LOCK_TIMEOUT:.0f} s"
                raise OutputError(
                    f"{_shown(path)} cannot be written: {problem}", hint="try again, or end that process if it hangs"
                ) from error
        _edit(path, change)


def check_storable(place: str, value: object) -> None:
    """Raise UsageError unless *value*, given in *place*, can be written to the config file; it is not quoted."""
    from xapi_cli.system.encoding import is_utf8

    texts = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else (value,)
    if not all(is_utf8(text) for text in texts if isinstance(text, str)):
        raise UsageError(
            f"{place}: the value, or the current directory, is not valid UTF-8, which the config file requires",
            hint="use names in UTF-8",
        )


def contents(document: "Mapping[str, Any]") -> Config:
    """Return the contents of *document*, which is valid."""
    unwrap = getattr(document, "unwrap", None)  # of tomlkit
    found = unwrap() if unwrap else document
    return Config(found.get("default_profile") or None, found.get("profiles", {}))


def with_profile(document: "Document", name: str) -> "Document":
    """Return *document* with the profile *name*, which is added as `[profiles.NAME]` if it is missing."""
    import tomlkit

    if name in document.get("profiles", {}):
        return document
    if not isinstance(document, tomlkit.TOMLDocument):
        document.setdefault("profiles", {})[name] = {}
        return document
    # as text, because tomlkit cannot add a table to dotted keys, which a header at the end always can
    text = tomlkit.dumps(document)
    header = f"[profiles.{tomlkit.items.SingleKey(name).as_string()}]\n"
    return tomlkit.parse(f"{text}\n{header}" if text else header)


def set_setting(document: "Document", name: str, key: str, value: object) -> None:
    """Set *key* to *value* in the profile *name*, which exists, of *document*; its last comments stay last."""
    import tomlkit

    profile = document["profiles"][name]
    comments = _detach_comments(profile)
    profile[key] = tomlkit.item(value)
    if isinstance(value, dict):  # a table with a header would end that of the profile
        profile[key] = tomlkit.inline_table()
        profile[key].update(value)
    if comments:
        profile.value.body.extend(comments)


def remove_setting(document: "Document", name: str, key: str) -> None:
    """Remove *key* from the profile *name* of *document*; the profile remains, even if it has no other settings."""
    document.get("profiles", {}).get(name, {}).pop(key, None)


def remove_profile(document: "Document", name: str) -> None:
    """Remove the profile *name*, which exists, from *document*; another profile is the default then."""
    profiles = document["profiles"]
    names = [*profiles]
    for following in map(profiles.get, names[names.index(name) + 1 :][:1]):
        if getattr(following, "display_name", None):  # it has a header, above which its comments can be
            comments = "".join(item.as_string() for _, item in _detach_comments(profiles[name]))
            following.trivia.indent = comments + following.trivia.indent
    del profiles[name]
    if not document["profiles"]:
        del document["profiles"]
    if document.get("default_profile") == name:
        del document["default_profile"]


def _detach_comments(profile: "Document") -> "list[tuple[Key | None, Item]]":
    """Remove the comments and empty lines at the end of the table *profile* and return them.

    Usually they are about the next profile, but tomlkit assigns them to the one before.
    """
    import tomlkit

    taken: list[tuple[Key | None, Item]] = []
    if isinstance(profile, tomlkit.items.Table):
        while (body := profile.value.body) and body[-1][0] is None:
            taken.insert(0, body.pop())
    return taken


def _read_text(path: Path) -> str | None:
    """Return the text of the config file *path*, None if it does not exist; raise UsageError if it cannot be used."""
    try:
        # opening a FIFO would block
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            files.check_safe(path, variable=_VARIABLE)
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(
                    f"{_shown(path)} is not a regular file", hint="set XAPI_CONFIG_DIR to the directory of config.toml"
                )
            if status.st_size > _MAX_SIZE:
                raise UsageError(f"{_shown(path)} is larger than 1 MiB", hint=_HINT)
            return file.read().removeprefix(codecs.BOM_UTF8).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # not specific to this file
        raise UsageError(f"{_shown(path)} cannot be read: {error.strerror}", hint="check its permissions") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shown(path)} is not valid UTF-8 at byte {error.start}", hint=_HINT) from error


def _validated(document: Mapping[str, Any], path: Path) -> Config:
    """Return the contents of the TOML *document*; raise UsageError for an unknown key or a value of another type."""
    for key in document:
        if key not in TOP_LEVEL_KEYS:
            raise _unknown_key(path, key, is_table=isinstance(document[key], dict))
    if not isinstance(document.get("default_profile", ""), str):
        raise UsageError(f"{_shown(path)}: default_profile must be a string", hint=_HINT)
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict):
        raise UsageError(f"{_shown(path)}: profiles must be tables, [profiles.NAME]", hint=_HINT)
    for name, profile in profiles.items():
        if not isinstance(profile, dict):
            raise UsageError(f"{_shown(path)}: profiles.{printable(name)} must be a table", hint=_HINT)
        for key, value in profile.items():
            _check_key(path, name, key, value)
    return contents(document)


def _check_key(path: Path, profile: str, key: str, value: object) -> None:
    if key not in PROFILE_KEYS:
        raise _unknown_key(path, f"profiles.{profile}.{key}")
    expected = SETTINGS[key].type
    if not expected.accepts(value):
        raise UsageError(
            f"{_shown(path)}: profiles.{printable(profile)}.{key} must be {expected.toml_description}", hint=_HINT
        )


def _unknown_key(path: Path, key: str, *, is_table: bool = False) -> UsageError:
    from xapi_cli.system.suggestions import did_you_mean

    known = PROFILE_KEYS if "." in key else TOP_LEVEL_KEYS
    if key in PROFILE_KEYS:
        hint = "write it below the header of a profile, such as [profiles.default]"
    elif is_table:
        hint = did_you_mean(key, ("profiles",), f"the header of a profile is [profiles.{printable(key)}]")
    else:
        hint = did_you_mean(key.rpartition(".")[2], known, f"the keys are {', '.join(known)}")
    return UsageError(f"{_shown(path)}: unknown key {printable(key)}", hint=hint)


def _edit(path: Path, change: "Change") -> None:
    import tomllib

    import tomlkit

    load(path)  # never edit a file that is not valid
    given = _read_text(path) or ""
    has_crlf = 0 < given.count("\r\n") == given.count("\n")  # as some editors on Windows write them
    before = given.replace("\r\n", "\n")
    if before and not before.endswith("\n"):
        before += "\n"  # otherwise tomlkit would add a key to the last line
    expected: Document = tomllib.loads(before)
    expected = change(expected) or expected
    try:
        document: Document = tomlkit.parse(before)
        after = tomlkit.dumps(change(document) or document)
        is_intact = _meaning(tomllib.loads(after)) == _meaning(expected)
    except (ValueError, LookupError, TypeError, AttributeError):  # tomlkit has no common base class for its failures
        is_intact, after = False, ""
    if not is_intact:
        raise UsageError(f"{_shown(path)} has a form that xapi cannot edit", hint="edit the file by hand")
    if after != before:
        _write(path, after.replace("\n", "\r\n") if has_crlf else after)


def _meaning(document: "Document") -> "Document":
    """Return *document* with profiles: no profiles and an empty table of profiles mean the same."""
    return {"profiles": {}, **document}


def _write(path: Path, text: str) -> None:
    try:
        files.make_private(path.parent)
        files.check_safe(path, variable=_VARIABLE)
        with files.Replacement(path, mode=0o600, sync=True) as new:  # preserves a link into the user's dotfiles
            new.write(text.encode())
            new.commit()
    except OSError as error:
        raise OutputError(
            f"{_shown(path)} cannot be written: {error.strerror}", hint="check the directory, or set XAPI_CONFIG_DIR"
        ) from error


def _shown(path: Path) -> str:
    return printable(str(path))
