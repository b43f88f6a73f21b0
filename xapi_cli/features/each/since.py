"""The time of the last complete run, in the file of `--since NAME=FILE`.

The first line is the server's time when the list was asked for, the second one what was asked for. The local clock is
never used: if it were fast, changes would be missed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import ExpectationFailed, UsageError
from xapi_cli.system.files import Replacement, comparable, writing
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.system.files import StateDirectory

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d))?", re.ASCII)
_MAX_SIZE = 10_000  # bytes of the file


class Since(NamedTuple):
    """The query parameter *name*, with the time in *file*; *text* is that time, None before the first run."""

    name: str
    file: str
    text: str | None
    subject: str  # base URL and path of the list

    def write(self, date: str) -> None:
        """Write the time *date*, which `server_time` has returned; raises OutputError."""
        with writing(self.file), Replacement(self.file, sync=True) as replacement:
            replacement.write(f"{date}\n{self.subject}\n".encode())
            replacement.commit()


def read(option: str, subject: str) -> Since:
    """Return the time in the file of *option*, the value of --since, for the list *subject*; raises UsageError."""
    name, equals, file = option.partition("=")
    if not (name and equals and file):
        raise UsageError(
            "--since is not NAME=FILE", hint="name the query parameter, and a file for the time of the last run"
        )
    shown = printable(file)
    try:
        with open(file, "rb") as source:
            lines = source.read(_MAX_SIZE).decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{shown} cannot be read: {reason}", hint="check the FILE of --since") from error
    text = lines[0].strip() if lines else ""
    if len(lines) > 1 and lines[1] != subject:
        raise UsageError(f"{shown} has the time of another list", hint="use another FILE for each list")
    if not text:
        return Since(name, file, None, subject)
    if not _TIME.fullmatch(text):
        hint = "write a date such as 2026-11-28, or delete the file to fetch everything"
        raise UsageError(f"the first line of {shown} is not a time", hint=hint)
    return Since(name, file, text, subject)


def server_time(date: str, asked: float, came: float) -> str:
    """Return the server's time at *asked*, from *date*, the Date header of a response that *came* later.

    Both are times of the monotonic clock. A second is subtracted, because Date has no fractions. Raises
    ExpectationFailed.
    """
    try:
        found = parsedate_to_datetime(date).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        hint = "omit --since, or use another server"
        raise ExpectationFailed("the response with the list has no valid Date", hint=hint) from None
    earlier = found - timedelta(seconds=came - asked + 1)
    return earlier.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def locked(file: str, state: "StateDirectory") -> Iterator[int | None]:
    """Hold the lock for *file* during a `with` block; yield None, or the process number of the run that holds it."""
    from hashlib import blake2b

    from xapi_cli.system import lock

    name = f"since-{blake2b(os.fsencode(comparable(file)), digest_size=16).hexdigest()}"
    try:
        descriptor = state.lock_file(name).open(os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise lock.state_error(state.path, error) from error
    try:
        if not lock.try_lock(descriptor):
            found = os.read(descriptor, 20)
            yield int(found) if found.isdigit() else 0
            return
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d" % os.getpid())
        yield None
    finally:
        os.close(descriptor)
