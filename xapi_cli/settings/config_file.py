"""The config file: read it strictly, and edit it without losing comments and formatting."""

import codecs
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.system import files
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

_VARIABLE = "XAPI_CONFIG_DIR"
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
    return _config(path, _read_text(path))


@contextmanager
def editing(path: Path, *, lock: "files.StateFile | None" = None) -> Iterator["Document"]:
    """Yield the config file *path*; after the block, its changes are written, atomically.

    *lock* is the file with which concurrent processes exclude each other; where it cannot be locked, they do not.
    Raises UsageError if the existing file is not valid, or cannot be edited (it is not overwritten), OutputError if the
    file cannot be written.
    """
    import tomllib

    from tomlkit.exceptions import TOMLKitError

    from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

    with ExitStack() as stack:
        if lock is not None:
            with suppress(LockTimeout, LockUnavailable):
                stack.enter_context(locked(lock, timeout=_LOCK_TIMEOUT))
        given = _read_text(path)
        _config(path, given)  # never edit a file that is not valid
        end = "\r\n" if "\r\n" in given else "\n"  # as some editors on Windows write lines
        before = given.replace("\r\n", "\n")
        if before and not before.endswith("\n"):
            before += "\n"  # otherwise tomlkit would add a key to the last line
        refusal = UsageError(f"{_shown(path)} has a form that xapi cannot edit", hint="edit the file by hand")
        try:
            document = Document(before)
            yield document
            after = document.text()
            meaning = tomllib.loads(after)
        except (TOMLKitError, tomllib.TOMLDecodeError) as error:
            raise refusal from error
        if meaning != document.values():
            raise refusal
        if after != before:
            _write(path, after.replace("\n", end))


class Document:
    """The config file while it is edited: what is not changed stays as it is, comments and order included."""

    def __init__(self, text: str) -> None:
        import tomlkit

        self._document = tomlkit.parse(text)

    @property
    def _profiles(self) -> Any:
        return self._document.get("profiles", {})

    def values(self) -> dict[str, Any]:
        """Return what the file means."""
        return self._document.unwrap()

    def contents(self) -> Config:
        """Return the contents."""
        return _contents(self.values())

    def text(self) -> str:
        """Return the text of the file."""
        return self._document.as_string()

    def use(self, name: str) -> None:
        """Let *name* be the default profile."""
        self._document["default_profile"] = name

    def set(self, name: str, key: str, value: object) -> None:
        """Set *key* to *value* in the profile *name*, which is added as `[profiles.NAME]` if it is missing."""
        import tomlkit

        if name not in self._profiles:
            # as text, because tomlkit cannot add a table to dotted keys, which a header at the end always can
            text, header = self.text(), f"[profiles.{tomlkit.items.SingleKey(name).as_string()}]\n"
            self._document = tomlkit.parse(f"{text}\n{header}" if text else header)
        profile = self._profiles[name]
        if profile.get(key) == value:
            return
        comments = _detach_comments(profile)
        profile[key] = value
        if isinstance(value, dict):  # a table with a header would end that of the profile
            profile[key] = tomlkit.inline_table()
            profile[key].update(value)
        if comments:
            profile.value.body.extend(comments)

    def unset(self, name: str, key: str) -> None:
        """Remove *key* from the profile *name*, which remains, even if it has no other settings."""
        self._profiles.get(name, {}).pop(key, None)

    def remove(self, name: str) -> None:
        """Remove the profile *name*, which exists; another profile is the default then."""
        profiles = self._profiles
        for before, after in pairwise(profiles):
            if before == name and getattr(
                profiles[after], "display_name", None
            ):  # it has a header, with comments above
                comments = "".join(item.as_string() for _, item in _detach_comments(profiles[name]))
                profiles[after].trivia.indent = comments + profiles[after].trivia.indent
        del profiles[name]
        if not profiles:
            del self._document["profiles"]
        if self._document.get("default_profile") == name:
            del self._document["default_profile"]


def _detach_comments(profile: Any) -> "list[tuple[Key | None, Item]]":
    """Remove the comments and empty lines at the end of the table *profile* and return them.

    Usually they are about the next profile, but tomlkit assigns them to the one before.
    """
    import tomlkit

    taken: list[tuple[Key | None, Item]] = []
    if isinstance(profile, tomlkit.items.Table):
        while (body := profile.value.body) and body[-1][0] is None:
            taken.insert(0, body.pop())
    return taken


def _config(path: Path, text: str) -> Config:
    """Return the contents of the config file *path* with this *text*; raises UsageError."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # Python limits the digits of an integer
        invalid = UsageError(f"{_shown(path)} is not valid TOML: {printable(str(error))}", hint=_HINT)
        found = re.search(r"\(at line (\d+)", str(error))  # there is no attribute before Python 3.14
        raise (invalid.concerning(line=int(found[1])) if found else invalid) from error
    for problem, what_to_do in _problems(document):
        raise UsageError(f"{_shown(path)}: {printable(problem)}", hint=printable(what_to_do))
    return _contents(document)


def _contents(document: Mapping[str, Any]) -> Config:
    return Config(document.get("default_profile") or None, document.get("profiles", {}))


def _read_text(path: Path) -> str:
    """Return the text of the config file *path*, empty if it does not exist; raise UsageError if it cannot be read."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UsageError(f"{_shown(path)} cannot be read: {error.strerror}", hint="check its permissions") from error
    files.check_safe(path, variable=_VARIABLE)
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shown(path)} is not valid UTF-8 at byte {error.start}", hint=_HINT) from error


def _problems(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is not valid in the TOML *document*, and what to do: an unknown key, or a value of another type."""
    from xapi_cli.hints import did_you_mean

    for key, value in document.items():
        if key not in TOP_LEVEL_KEYS:
            hint = f"the keys are {', '.join(TOP_LEVEL_KEYS)}"
            if key in PROFILE_KEYS:
                hint = "write it below the header of a profile, such as [profiles.default]"
            elif isinstance(value, dict):
                hint = did_you_mean(key, ("profiles",), f"the header of a profile is [profiles.{key}]")
            yield f"unknown key {key}", hint
    if not isinstance(document.get("default_profile", ""), str):
        yield "default_profile must be a string", _HINT
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict):
        yield "profiles must be tables, [profiles.NAME]", _HINT
    for name, profile in profiles.items():
        if not isinstance(profile, dict):
            yield f"profiles.{name} must be a table", _HINT
        else:
            yield from _problems_of(name, profile)


def _problems_of(name: str, profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from xapi_cli.hints import did_you_mean

    for key, value in profile.items():
        place = f"profiles.{name}.{key}"
        if key not in PROFILE_KEYS:
            yield f"unknown key {place}", did_you_mean(key, PROFILE_KEYS, f"the keys are {', '.join(PROFILE_KEYS)}")
        elif not SETTINGS[key].type.accepts(value):
            yield f"{place} must be {SETTINGS[key].type.toml_description}", _HINT


def _write(path: Path, text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        problem = "a value, or the current directory, is not valid UTF-8, which the config file requires"
        raise UsageError(f"{_shown(path)} cannot be written: {problem}", hint="use names in UTF-8") from error
    try:
        files.make_private(path.parent)
        files.check_safe(path, variable=_VARIABLE)
        with files.Replacement(path, mode=0o600, sync=True) as new:  # preserves a link into the user's dotfiles
            new.write(data)
            new.commit()
    except OSError as error:
        raise OutputError(
            f"{_shown(path)} cannot be written: {error.strerror}", hint="check the directory, or set XAPI_CONFIG_DIR"
        ) from error


def _shown(path: Path) -> str:
    return printable(str(path))
