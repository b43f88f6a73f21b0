"""DURATION: a length of time as users write it, such as `90s` or `1h30m`."""

import re

from xapi_cli.errors import UsageError
from xapi_cli.system.render import decimal, printable

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}  # seconds
_WITH_UNITS = r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?"
_NUMBER = r"\d+\.?\d*|\.\d+"
_MAX_DIGITS = 12  # of a number with a unit; without a limit, conversion of a very long number is slow
_LONGEST = 10**9  # seconds, thirty years; keeps sums of time within the range of datetime
_LONGEST_LIMIT = 10**8  # seconds, three years; within the range of threads, sockets and timers
_FORMS = "90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1"


def seconds(text: str, *, name: str) -> float:
    """Return the number of seconds in *text*: `90s`, `30m`, `2h`, `7d`, `1h30m` or a plain number, such as 2.5.

    Raises UsageError, which names the option *name*, for any other text.
    """
    if (value := _parse(text)) is None:
        raise _error(text, "is not a valid duration", f"write {_FORMS}", name)
    return _limited(value, _LONGEST, text, name)


def time_limit(value: str | float, *, name: str | None = None) -> float:
    """Return the number of seconds in *value*, a DURATION or a number.

    Raises UsageError, which names the option *name* if it is given, unless the value can limit a wait.
    """
    number = _parse(value) if isinstance(value, str) else float(value)
    if number is None or not number > 0:  # not true for NaN either
        raise _error(str(value), "is not a valid duration", f"write a time above 0: {_FORMS}", name)
    return _limited(number, _LONGEST_LIMIT, str(value), name)


def text(value: float) -> str:
    """Return *value* seconds as a DURATION: `4h`, `1h30m`, `2.5`."""
    if value != int(value):
        return decimal(value)
    parts, rest = [], int(value)
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) or "0s"


def _parse(text: str) -> float | None:
    stripped = text.strip()
    if re.fullmatch(_NUMBER, stripped, re.ASCII):
        return float(stripped)
    if stripped and (match := re.fullmatch(_WITH_UNITS, stripped, re.ASCII)):
        counts = [float(count.lstrip("0")[:_MAX_DIGITS] or 0) for count in match.groups("0")]
        return sum(count * size for count, size in zip(counts, _UNITS.values(), strict=True))
    return None


def _limited(value: float, longest: int, text: str, name: str | None) -> float:
    if value > longest:
        raise _error(text, "is too long", f"write at most {longest // _UNITS['d']}d", name)
    return value


def _error(text: str, problem: str, hint: str, name: str | None) -> UsageError:
    problem = f"{printable(text)!r} {problem}"
    return UsageError(f"{name}: {problem}" if name else problem, hint=hint)
