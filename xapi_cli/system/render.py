"""Format values as text that is safe to show on a terminal, and arguments as bytes; this module prints nothing."""

import json
import re
from datetime import datetime, timedelta
from functools import cache

from xapi_cli.errors import UsageError

TYPE_CHECKING = False  # importing `typing` takes longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

UNPAIRED_SURROGATE = "contains an unpaired surrogate"
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))  # seconds
# `{id}` is not expanded, unlike `{a,b}` and `{a..b}`. bash expands a tilde after `=` and `:`, and zsh a word after `=`.
_SHELL_WORD = r"(?!=)(?:[\w@%+=:./-]|\{\+?[A-Za-z_][\w-]*\})+"
_SPACES = frozenset("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")


def printable(text: str, *, keep: str = "") -> str:
    """Return *text* with control, format and bidi characters escaped, except those in *keep*.

    All text from a server, a backend or a file MUST pass through this function before it is shown (CWE-150).
    """
    if text.isprintable():
        return text
    return text.translate(_escapes(keep, _escaped))


def shortened(text: str, limit: int) -> str:
    """Return the *text* of a server or a filter as `printable` does, and after *limit* characters, `…` instead.

    Text for a message MUST be truncated only here: `Redactor` recognizes the beginning of a secret by the `…`.
    """
    shown = printable(text)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def is_readable(char: str) -> bool:
    """Return whether *char* is shown as it is, and not as an escape."""
    return char.isprintable() or char in _SPACES  # not printable for Python, but French and Japanese use them


class _Escapes(dict[int, str]):
    """A table for `str.translate`, filled as needed: the text of a server may consist of such characters."""

    def __init__(self, keep: str, escape: "Callable[[str], str]") -> None:
        self._keep, self._escape = keep, escape

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = shown = char if char in self._keep or is_readable(char) else self._escape(char)
        return shown


_escapes = cache(_Escapes)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_line(value: object) -> str:
    """Return *value* as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _json_escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def escape_json(line: str) -> str:
    """Return the JSON *line* with control characters, except tabs, as JSON escapes."""
    if line.isprintable():
        return line
    return line.translate(_escapes("\t", _json_escape))


def instant(moment: datetime) -> str:
    """Return *moment*, aware UTC, as RFC 3339 with `Z` and whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def until(moment: datetime | None, now: datetime) -> str:
    """Return *moment* as absolute time and relative to *now*: `2026-12-21 08:00 UTC (in 29 days)`."""
    if moment is None:
        return "an unknown time"
    return f"{moment:%Y-%m-%d %H:%M} UTC ({relative(moment - now)})"


def relative(span: timedelta) -> str:
    """Return *span* as relative time: `in 30 days`, `36 hours ago`, `now`.

    The value is rounded to the nearest multiple of the largest unit of which *span* has at least two. So 30 days are
    still 30 days one second later, and the result is never off by more than a quarter.
    """
    seconds = int(abs(span.total_seconds()) + 0.5)
    if seconds == 0:
        return "now"
    unit, length = next(((name, length) for name, length in _UNITS if seconds >= 2 * length), _UNITS[-1])
    count = (2 * seconds + length) // (2 * length)
    amount = f"{count} {unit}" + ("" if count == 1 else "s")
    return f"in {amount}" if span > timedelta(0) else f"{amount} ago"


def decimal(value: float) -> str:
    """Return *value* as text with six significant digits, such as `2.5` or `0.00001`, never with an exponent."""
    text = f"{value:g}"
    return f"{value:.12f}".rstrip("0").rstrip(".") if "e" in text else text


def listed(names: "Sequence[str]", word: str = "or") -> str:
    """Return *names* as text, the last two joined by *word*: `auto, keyring or file`."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def counted(number: int, noun: str) -> str:
    """Return *number* with its *noun*: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int) -> str:
    """Return *count* bytes in human-readable form: `1.5 MiB`."""
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    if count == 1:
        return "1 byte"
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def pasteable(text: str) -> str:
    """Return *text* as one word for a POSIX shell, in single quotes only if a shell would change it."""
    return text if re.fullmatch(_SHELL_WORD, text) else shell_quoted(text)


def shell_quoted(text: str) -> str:
    """Return *text* as one word for a POSIX shell, always in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def exports(variables: "Mapping[str, str]", *, unset: "Iterable[str]" = ()) -> str:
    """Return lines with which a POSIX shell exports *variables*, and unsets the variables *unset*."""
    lines = [f"export {name}={shell_quoted(value)}" for name, value in variables.items()]
    return "\n".join([*lines, *(f"unset {name}" for name in unset)])


def encode_argument(text: str, subject: str) -> bytes:
    """Return *text* as UTF-8; bytes of an argument that are not valid UTF-8 are preserved (PEP 383).

    Raises UsageError for an unpaired surrogate that does not stand for such a byte. *subject* is what the message
    calls the text.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"{subject} {UNPAIRED_SURROGATE}") from None
