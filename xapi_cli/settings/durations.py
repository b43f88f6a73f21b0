"""DURATION: a length of time as users write it."""

import re

from xapi_cli.errors import UsageError

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_LONGEST = 10**9  # seconds, thirty years; keeps sums of time within the range of datetime


def seconds(text: str, *, name: str) -> int:
    """Return the number of seconds in *text*: `90s`, `30m`, `2h`, `7d`, `1h30m` or a plain number.

    Raises UsageError, which names the setting *name*, for any other text.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        total = int(stripped[:12])
    elif stripped and (match := _DURATION.fullmatch(stripped)):
        total = sum(int(count[:12]) * size for count, size in zip(match.groups("0"), _UNITS.values(), strict=True))
    else:
        raise _wrong(text, name)
    if total > _LONGEST:
        raise _wrong(text, name)
    return total


def _wrong(text: str, name: str) -> UsageError:
    from xapi_cli.system.render import printable

    return UsageError(
        f"{name}: {printable(text)!r} is no duration", hint="write 90s, 30m, 2h, 7d, 1h30m or a number of seconds"
    )
