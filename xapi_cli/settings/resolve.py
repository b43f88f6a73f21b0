"""Resolve the settings, in order of precedence: flag, environment variable, profile, default."""

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.settings import config_file
from xapi_cli.system import safe_paths
from xapi_cli.system.render import printable
from xapi_cli.system.suggestions import did_you_mean

Storage = Literal["auto", "keyring", "file", "none"]
STORAGES: tuple[Storage, ...] = ("auto", "keyring", "file", "none")
SECRETS = ("XAPI_PASSWORD", "XAPI_TOKEN")  # variables that child processes must not inherit
_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
DEFAULT_TIMEOUT = 30.0
_LONGEST = 10.0**8  # seconds, three years; within the limits of threads and sockets
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_EXPANSION = re.compile(r"(?<!\\)(?:\$[\w({]|`)")
_SHELL_SYNTAX = re.compile(r"&&|\|\||[|<>;`]|\$(?=[\w({])|(?<=\s)(?:~|&(?=\s|$))")
_RUNS_SHELL = re.compile(r"(\S*/)?(ba|da|z|k|fi)?sh\s")
_PROFILE_NAME = re.compile(r"[\w@+.-]{1,100}")


class Settings(NamedTuple):
    """All settings, resolved and validated; times are in seconds."""

    profile: str
    base_url: str | None = None
    username: str | None = None
    password: str | None = None
    password_command: tuple[str, ...] | None = None
    withheld: str | None = None  # why the profile's password_command must not run
    token: str | None = None
    storage: Storage = "auto"
    timeout: float = DEFAULT_TIMEOUT
    max_time: float | None = None
    ca_bundle: str | None = None
    no_input: bool = False

    def __repr__(self) -> str:
        return f"Settings(profile={self.profile!r}, …)"  # some of the others are secrets, and more may contain one


def profile_in_use(flags: Mapping[str, str | None], environ: Mapping[str, str], found: config_file.Config) -> str:
    """Return the name of the selected profile, which may not exist."""
    if flags.get("profile") == "":
        raise _empty("--profile")
    return profile_name(flags.get("profile") or environ.get("XAPI_PROFILE") or found.default_profile or "default")


def resolve(
    flags: Mapping[str, str | None], environ: Mapping[str, str], *, may_create_profile: bool = False
) -> Settings:
    """Return the settings from *flags*, *environ* and the config file.

    *flags* maps the field names of Settings to the values given on the command line. Raises UsageError, which names
    the invalid value, for a value that is not usable and, unless *may_create_profile*, for a profile that does not
    exist.
    """
    found = config_file.load(config_path(environ))
    name = profile_in_use(flags, environ, found)
    profile = found.profiles.get(name)
    if profile is None and name != "default" and not may_create_profile:
        raise missing_profile(name, found)
    given = _Given(flags, environ, profile or {}, name, config_path(environ).parent)
    base_url, user, token = given.text("base_url", urls.base_url), given.text("username", username), _token(environ)
    if token:
        given.check_token_is_for(base_url)
    return Settings(
        profile=name,
        base_url=base_url,
        username=user,
        password=_secret(environ, "XAPI_PASSWORD"),
        password_command=given.command(),
        withheld=given.withheld(base_url, user),
        token=token,
        storage=cast("Storage", given.text("storage", storage) or "auto"),
        timeout=given.number("timeout") or DEFAULT_TIMEOUT,
        max_time=given.number("max_time"),
        ca_bundle=given.ca_bundle(),
        no_input=flags.get("no_input") is not None or switched_on(environ.get("XAPI_NO_INPUT")),
    )


def switched_on(value: str | None) -> bool:
    """Return whether a variable's *value* enables its option: unset, empty, 0, false, no and off do not."""
    return bool(value) and cast("str", value).strip().lower() not in ("", "0", "false", "no", "off")


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of `config.toml`, which may not exist."""
    if chosen := environ.get("XAPI_CONFIG_DIR"):
        return _chosen_directory("XAPI_CONFIG_DIR", chosen) / "config.toml"
    if sys.platform == "win32":
        return _absolute(environ, "APPDATA", "AppData/Roaming") / "xapi" / "config.toml"
    return _absolute(environ, "XDG_CONFIG_HOME", ".config") / "xapi" / "config.toml"


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return xapi's state directory, for locks, the file store and the index of accounts."""
    if chosen := environ.get("XAPI_STATE_DIR"):
        return _chosen_directory("XAPI_STATE_DIR", chosen) / "xapi"
    if sys.platform not in ("win32", "darwin"):
        return _absolute(environ, "XDG_STATE_HOME", ".local/state") / "xapi"
    from platformdirs import user_state_path

    return user_state_path("xapi", appauthor=False).absolute()


def _chosen_directory(name: str, chosen: str) -> Path:
    try:
        return Path(chosen).absolute()
    except FileNotFoundError as error:
        raise UsageError(
            f"{name} is relative, and the current directory does not exist", hint="set it to an absolute path"
        ) from error


def relative_homes(environ: Mapping[str, str]) -> list[str]:
    """Return the home and XDG variables that are set but do not contain an absolute path."""
    return [name for name in _HOMES if name in environ and not Path(environ[name]).is_absolute()]


def _absolute(environ: Mapping[str, str], name: str, default: str) -> Path:
    # The specification says to ignore a relative XDG path: https://specifications.freedesktop.org/basedir/
    chosen = Path(environ.get(name, ""))
    return chosen if chosen.is_absolute() else safe_paths.home() / default


def is_profile_name(name: str) -> bool:
    """Return whether *name* is a valid profile name."""
    return _PROFILE_NAME.fullmatch(name) is not None


def profile_name(name: str) -> str:
    """Return *name* if it is a valid profile name; raise UsageError otherwise."""
    if not is_profile_name(name):
        raise UsageError(f"{printable(name)!r} is no profile name", hint="use letters, digits and . _ - + @")
    return name


def missing_profile(name: str, found: config_file.Config) -> UsageError:
    """Return the error for a profile that is not in the config file."""
    known = ", ".join(printable(each) for each in found.profiles) or "none yet"
    return UsageError(
        f"there is no profile {printable(name)!r}",
        hint=did_you_mean(name, found.profiles, f"known: {known}; `xapi login --profile NAME` makes one"),
    )


def username(text: str) -> str:
    """Return *text* if it is a valid username, that is, any printable text; raise UsageError otherwise."""
    if not text.strip() or not text.isprintable():
        raise UsageError("it is empty or holds control characters", hint="give the e-mail address of the user")
    return text


def storage(text: str) -> str:
    """Return *text* if it is the name of a storage; raise UsageError otherwise."""
    if text not in STORAGES:
        raise UsageError(f"{printable(text)!r} is no storage", hint=f"use {', '.join(STORAGES[:-1])} or {STORAGES[-1]}")
    return text


def number_of_seconds(text: str) -> float:
    """Return *text* as a number of seconds; raise UsageError unless it is a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST or "_" in text:
        raise UsageError(f"{printable(text)!r} is no number of seconds above 0", hint="write it like 30 or 2.5")
    return value


class _Given:
    """The three sources of a setting (flag, variable, profile), and its name in each."""

    def __init__(
        self,
        flags: Mapping[str, str | None],
        environ: Mapping[str, str],
        profile: Mapping[str, Any],
        name: str,
        directory: Path,
    ) -> None:
        self._flags, self._environ, self._profile, self._name = flags, environ, profile, name
        self._directory = directory  # the directory of the config file

    def text(self, key: str, check: Any) -> str | None:
        for where, value in self._places(key):
            if value not in (None, ""):
                return cast("str", _checked(where, check, str(value)))
        return None

    def number(self, key: str) -> float | None:
        for where, value in self._places(key):
            if value not in (None, ""):
                return cast("float", _checked(where, number_of_seconds, str(value)))
        return None

    def ca_bundle(self) -> str | None:
        """Return the CA bundle of the flag, else of the profile.

        Returns None if SSL_CERT_FILE or SSL_CERT_DIR, which `tls` reads, takes precedence over the profile.
        """
        if given := self._given_flag("--ca-bundle", "ca_bundle"):
            return cast("str", _checked("--ca-bundle", absolute, given))
        between = self._environ.get("SSL_CERT_FILE") or self._environ.get("SSL_CERT_DIR")
        kept = None if between else self._profile.get("ca_bundle")
        return self._beside_config(kept) if kept else None

    def command(self) -> tuple[str, ...] | None:
        if words := self._given_flag("--password-command", "password_command"):
            return cast("tuple[str, ...]", _checked("--password-command", split_command, words))
        first, *others = self._profile.get("password_command") or [""]
        return (self._beside_config(first) if _has_directory(first) else first, *others) if first else None

    def _beside_config(self, path: str) -> str:
        """Return *path*, relative to the config file, as an absolute path: the current directory is untrusted."""
        return os.path.join(self._directory.absolute(), os.path.expanduser(path))

    def withheld(self, base_url: str | None, user: str | None) -> str | None:
        """Return why the profile's password_command must not run for *base_url* and *user*, or None if it may.

        A secret source of a profile belongs to the base URL and the username of that profile, as far as it sets them:
        a flag or variable must not send the password elsewhere. A command from a flag is not restricted.
        """
        if self._flags.get("password_command") or not self._profile.get("password_command"):
            return None
        for key, check, selected in (("base_url", urls.base_url, base_url), ("username", username, user)):
            own = self._of_profile(key, check)
            if own is not None and own != selected:
                return f"it belongs to {printable(own)}, not to {printable(str(selected))}"
        return None

    def check_token_is_for(self, base_url: str | None) -> None:
        """Raise UsageError if XAPI_TOKEN_BASE_URL differs from *base_url*, or from that of a profile selected by name.

        `exec` also sets XAPI_BASE_URL, which takes precedence over a profile: without the second comparison,
        `--profile` and XAPI_PROFILE would be without effect in its command.
        """
        text = self._environ.get("XAPI_TOKEN_BASE_URL")
        if not text:
            return
        bound = _checked("XAPI_TOKEN_BASE_URL", urls.base_url, text)
        is_named = (self._flags.get("profile") or self._environ.get("XAPI_PROFILE")) and not self._flags.get("base_url")
        of_profile = self._of_profile("base_url", urls.base_url) if is_named else None
        for selected in (base_url, of_profile):
            if selected is not None and selected != bound:
                raise UsageError(
                    f"XAPI_TOKEN is for {bound}, but the settings select {selected}",
                    hint="select the same base URL, or unset XAPI_TOKEN and XAPI_TOKEN_BASE_URL",
                )

    def _of_profile(self, key: str, check: Any) -> str | None:
        """Return *key* from the profile alone, without flags and variables."""
        where, value = self._places(key)[-1]
        return cast("str", _checked(where, check, str(value))) if value else None

    def _places(self, key: str) -> list[tuple[str, Any]]:
        flag, variable = f"--{key.replace('_', '-')}", f"XAPI_{key.upper()}"
        return [
            (flag, self._given_flag(flag, key)),
            (variable, self._environ.get(variable)),
            (f"profile {printable(self._name)}, {key}", self._profile.get(key)),
        ]

    def _given_flag(self, flag: str, key: str) -> str | None:
        value = self._flags.get(key)
        if value == "":
            raise _empty(flag)
        return value


def split_command(words: str) -> tuple[str, ...]:
    """Return *words* split as a POSIX shell splits them, with the path of the program, if given, made absolute.

    Raises UsageError for an unclosed quote, an empty command, or a relative path in a directory that was deleted.
    """
    import shlex

    try:
        first, *others = shlex.split(words) or [""]
    except ValueError as error:
        raise UsageError("a quote is not closed", hint="quote it as for a shell") from error
    if not first:
        raise UsageError("it is empty", hint="give the command that prints the password")
    return (absolute(first) if _has_directory(first) else first, *others)


def shell_syntax(words: str) -> str | None:
    """Return the first part of the password command *words* that only a shell understands, or None."""
    runs_shell = _RUNS_SHELL.match(words) is not None

    def without_quotes(match: re.Match[str]) -> str:
        return "" if runs_shell or match[0][0] != '"' else " ".join(_EXPANSION.findall(match[0]))

    found = _SHELL_SYNTAX.search(_QUOTED.sub(without_quotes, words))
    return found[0] if found else None


def absolute(path: str) -> str:
    """Return *path* for storage: absolute, because the next command may run elsewhere, and with `~` expanded."""
    if not path:
        raise UsageError("it is empty", hint="give a path")
    try:
        return str(Path(os.path.expanduser(path)).absolute())
    except OSError as error:
        raise UsageError(
            "the path is relative, and the current directory was deleted", hint="give an absolute path"
        ) from error


def _has_directory(word: str) -> bool:
    return bool(os.path.dirname(word))  # otherwise the program is searched for in PATH


def _checked(where: str, check: Any, value: str) -> object:
    try:
        return check(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def _empty(flag: str) -> UsageError:
    return UsageError(f"{flag} is empty", hint="give it a value, or leave it out")


def _secret(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name) or None


def _token(environ: Mapping[str, str]) -> str | None:
    token = _secret(environ, "XAPI_TOKEN")
    if token is not None and not is_token(token):
        raise UsageError(
            "XAPI_TOKEN holds characters that no token can have", hint="set it to the bare token: no blanks, no newline"
        )
    return token


def is_token(text: str) -> bool:
    """Return whether *text* can be sent as a bearer token: visible ASCII, and not empty."""
    return bool(text) and all("!" <= char <= "~" for char in text)
