"""The types of settings: how a value is written as text and in the config file, and which values are valid."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xapi_cli.errors import UsageError
from xapi_cli.feature_table import load
from xapi_cli.system.render import listed, printable

_ON, _OFF = ("true", "yes", "on", "1"), ("0", "false", "no", "off")
_NAME_AND_PASSWORD = r"[\w.+-]+(?:@[\w.-]+)?:[^@\s]*"
_PER_REQUEST = frozenset({"authorization", "content-type", "host", "idempotency-key"})
_PROFILE_NAME = r"[\w@+.-]{1,100}"
_HEADER_FORM = "write Name: value, one header per line"
_UNITS = (86400, 3600, 60, 1)  # seconds in d, h, m, s
_WITH_UNITS = r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?"
_NUMBER = r"\d+\.?\d*|\.\d+"
_LONGEST = 10**8  # seconds, three years; within the range of datetime, threads, sockets and timers


class Text:
    """A text, converted and checked by *parse*, which raises UsageError for an invalid one.

    It is the base of all types. The methods that take text or a value from the config file raise UsageError too.
    """

    toml_types: tuple[type, ...] = (str,)
    toml_description = "a string"

    def __init__(self, parse: Callable[[str], Any] = str) -> None:
        self.parse = parse

    def accepts(self, value: object) -> bool:
        """Return whether *value* has a TOML type that is valid in the config file."""
        return type(value) in self.toml_types

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return the value for *value* in a config file in *directory*."""
        return self.parse(value)

    def to_profile(self, text: str) -> object:
        """Return what the config file contains for *text*, as given to `xapi profile set`."""
        return self.parse(text)

    def shown(self, value: Any) -> Any:
        """Return what users see of *value* in the config file."""
        return value


class Choice(Text):
    """One of *names*; *description* is what they name."""

    def __init__(self, description: str, names: Sequence[str]) -> None:
        super().__init__(self._check)
        self._description, self.names = description, tuple(names)

    def _check(self, text: str) -> str:
        if text not in self.names:
            raise UsageError(
                f"{printable(text)!r} is not a valid {self._description}",
                hint=f"use {listed(self.names)}",
            )
        return text


class TimeLimit(Text):
    """A DURATION above zero, as a number of seconds; the config file may contain it as a number or as a string."""

    toml_types = (int, float, str)
    toml_description = "a number of seconds or a duration such as '90s'"

    def __init__(self) -> None:
        super().__init__(time_limit)

    def to_profile(self, text: str) -> object:
        """Return a number for a number, otherwise the duration as it was given."""
        value = time_limit(text)
        if text.strip()[-1].isalpha():
            return text.strip()
        return int(value) if value.is_integer() else value


def seconds(text: str | float, *, name: str = "") -> float:
    """Return the number of seconds in *text*: `90s`, `30m`, `2h`, `7d`, `1h30m` or a number, such as 2.5.

    Raises UsageError, which names the option *name*, for any other text.
    """
    word, shown = str(text).strip(), _shown(text, name)
    if re.fullmatch(_NUMBER, word, re.ASCII):
        value = float(word)
    elif word and (match := re.fullmatch(_WITH_UNITS, word, re.ASCII)):
        value = sum(float(count) * size for count, size in zip(match.groups("0"), _UNITS, strict=True))
    else:
        forms = "90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1"
        raise UsageError(f"{shown} is not a valid duration", hint=f"write {forms}")
    if value > _LONGEST:
        raise UsageError(f"{shown} is too long", hint=f"write at most {_LONGEST // _UNITS[0]}d")
    return value


def time_limit(text: str | float, *, name: str = "") -> float:
    """Return the number of seconds in *text*, above zero; raises UsageError, as `seconds` does."""
    value = seconds(text, name=name)
    if value == 0:
        raise UsageError(f"{_shown(text, name)} is not a valid duration", hint="write a time above 0")
    return value


def _shown(text: str | float, name: str) -> str:
    return f"{name}: {printable(str(text))!r}" if name else repr(printable(str(text)))


class Count(Text):
    """A whole number from 0 to *highest*."""

    toml_types = (int,)
    toml_description = "a whole number"

    def __init__(self, highest: int) -> None:
        super().__init__(self._check)
        self._highest = highest

    def _check(self, text: str | int) -> int:
        word = str(text).strip()
        if not re.fullmatch(r"\d{1,9}", word, re.ASCII) or int(word) > self._highest:
            raise UsageError(f"{printable(word)!r} is not valid", hint=f"use a number from 0 to {self._highest}")
        return int(word)


class Switch(Text):
    """On or off. The flag takes no value; of the values of a variable, empty, 0, false, no and off mean off."""

    toml_types = (bool,)
    toml_description = "true or false"

    def __init__(self) -> None:
        super().__init__(lambda text: text.strip().lower() not in ("", *_OFF))

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return *value*, which is a boolean already."""
        return value

    def to_profile(self, text: str) -> object:
        """Return the boolean for *text*; unlike a variable, it must be a known word."""
        if text.strip().lower() not in _ON + _OFF:
            raise UsageError(f"{printable(text)!r} is not valid", hint="use true or false")
        return self.parse(text)


class FilePath(Text):
    """An absolute path; in the config file, a relative path is relative to the directory of that file."""

    def __init__(self) -> None:
        super().__init__(absolute)

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return *value* as an absolute path."""
        return _in_directory(value, directory)


class Command(Text):
    """A program and its arguments: an array in the config file, otherwise one text that is split as in a shell."""

    toml_description = "an array of strings that begins with a program, such as ['pass', 'show', 'api']"

    def __init__(self) -> None:
        super().__init__(self._split)

    def accepts(self, value: object) -> bool:
        """Return whether *value* is an array of strings whose first one is not empty."""
        return isinstance(value, list) and all(isinstance(word, str) for word in value) and value[:1] not in ([], [""])

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return program and arguments, a relative program path in *directory*."""
        program, *arguments = value
        return (_in_directory(program, directory) if _is_path(program) else program, *arguments)

    def to_profile(self, text: str) -> object:
        """Return an array of program and arguments."""
        return list(self._split(text))

    def _split(self, text: str) -> tuple[str, ...]:
        program, *arguments = split_command(text)
        return (absolute(program) if _is_path(program) else program, *arguments)


def split_command(text: str) -> list[str]:
    """Return the arguments in *text*, split as a shell splits them; on Windows, a backslash is no escape character.

    Raises UsageError for an unclosed quote or an empty command.
    """
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if sys.platform == "win32":
        lexer.escape = ""
    try:
        arguments = list(lexer)
    except ValueError as error:
        raise UsageError("a quote is not closed", hint="quote it as for a shell") from error
    if not arguments or not arguments[0]:
        raise UsageError("the command is empty", hint="give the command that prints the password")
    return arguments


class Headers(Text):
    """Header fields, as names and values: a table in the config file, otherwise one `Name: value` in each line."""

    toml_description = "a table of strings such as { X-Team = 'blue' }"

    def __init__(self) -> None:
        super().__init__(lambda text: tuple(_default_header(*line.partition(":")) for line in text.splitlines()))

    def accepts(self, value: object) -> bool:
        """Return whether *value* is a table of strings."""
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return the names and values in *value*."""
        return tuple(_default_header(name, ":", text) for name, text in value.items())

    def to_profile(self, text: str) -> object:
        """Return a table of the lines of *text*."""
        return dict(self.parse(text))

    def shown(self, value: Any) -> Any:
        """Return *value*, from the config file, without the values of headers whose name denotes a secret."""
        from xapi_cli.system.redact import redact_header

        return {name: redact_header(name.strip(), text) for name, text in value.items()}


class Checked(Text):
    """A text that the function *check* of a feature accepts, in a profile *stored*; see `feature_table`."""

    def __init__(self, check: str, stored: str = "") -> None:
        super().__init__(lambda text: load(check)(text))  # noqa: PLW0108 - imports the feature when it is called
        self._stored = stored or check

    def from_profile(self, value: Any, directory: Path) -> Any:
        """Return the value for *value*."""
        return load(self._stored)(value)

    def to_profile(self, text: str) -> object:
        """Return the value for *text*."""
        return load(self._stored)(text)


def _default_header(name: str, colon: str, value: str) -> tuple[str, str]:
    """Return the *name* and the *value* of a header; raise UsageError, without the value, if they are not valid."""
    from xapi_cli.http.header_syntax import check_field

    name, value = name.strip(" \t"), value.strip(" \t")
    if not colon or not value:
        raise UsageError("a header is not a name and a value", hint=_HEADER_FORM)
    check_field(name, value, "a line", hint=f"{_HEADER_FORM}, with only letters, digits and dashes in the name")
    if name.lower() in _PER_REQUEST:
        raise UsageError(f"the header {name} cannot be a default", hint="pass it with -H, for one request")
    return name, value


def username(text: str) -> str:
    """Return *text* if it is a valid username, that is, any printable text; raise UsageError otherwise.

    A name with a password, as curl takes it, is not quoted. An email address with a colon has an @ after it.
    """
    if not text.strip() or not text.isprintable():
        raise UsageError("the username is empty or contains control characters", hint="give an email address")
    if re.fullmatch(_NAME_AND_PASSWORD, text):
        raise UsageError(
            "the username looks like USERNAME:PASSWORD", hint="give only the username: no option takes a password"
        )
    return text


def access_token(text: str) -> str:
    """Return *text* if it can be sent as a bearer token, that is, visible ASCII; raise UsageError otherwise."""
    from xapi_cli.tokens import is_access_token

    if not is_access_token(text):
        raise UsageError(
            "the value contains characters that are not allowed in a token",
            hint="set it to the token alone, without spaces or a newline",
        )
    return text


def profile_name(text: str) -> str:
    """Return *text* if it is a valid profile name; raise UsageError otherwise."""
    if not is_profile_name(text):
        hint = "use at most 100 letters, digits and the characters . _ - + @"
        raise UsageError(f"{printable(text)!r} is not a valid profile name", hint=hint)
    return text


def is_profile_name(text: str) -> bool:
    """Return whether *text* is a valid profile name."""
    return re.fullmatch(_PROFILE_NAME, text) is not None


def absolute(path: str) -> str:
    """Return *path* for storage: absolute, because the next command may run elsewhere, and with `~` expanded.

    Raises UsageError if it is empty, or relative to a directory that was deleted.
    """
    if not path:
        raise UsageError("the path is empty", hint="give a path")
    try:
        return str(Path(os.path.expanduser(path)).absolute())
    except OSError as error:
        raise UsageError(
            "the path is relative, and the current directory was deleted", hint="give an absolute path"
        ) from error


def _in_directory(path: str, directory: Path) -> str:
    """Return *path*, relative to *directory*, as an absolute path: the current directory is untrusted."""
    return os.path.join(directory.absolute(), os.path.expanduser(path))


def _is_path(program: str) -> bool:
    """Return whether *program* is a path; otherwise it is searched for in PATH."""
    return bool(os.path.dirname(program))
