"""The list of `--list`, and the time of the last complete run in the FILE of `--since NAME=FILE`.

The first line of FILE is the server's time when the list was asked for, the second one what was asked for. The local
clock is never used: if it were fast, changes would be missed.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import ExpectationFailed, OutputError, UsageError
from xapi_cli.features.batch.runner import Runner
from xapi_cli.features.each.output import described
from xapi_cli.features.each.rows import Row, rows
from xapi_cli.http import urls
from xapi_cli.http.header_syntax import parse_date
from xapi_cli.http.send import Call
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.media_types import codec_of, decoded_text
from xapi_cli.request.status_errors import status_error
from xapi_cli.system import lock
from xapi_cli.system.files import OutputFile, comparable
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.context import Context

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))?", re.ASCII)
_MAX_SIZE = 10_000  # bytes of FILE
_IN_MEMORY = 10 * 2**20  # bytes of the list
_NO_CONTENT = 204


class LastRun(NamedTuple):
    """The query parameter *name* with the time in *file*; *text* is that time, "" before the first run."""

    name: str
    file: str
    text: str
    subject: str  # base URL and path of the list

    def write(self, date: str) -> None:
        """Write the time *date*, which `fetched` has returned; raises OutputError."""
        with OutputFile(self.file, sync=True) as file:
            file.write(f"{date}\n{self.subject}\n".encode())
            file.commit()


def last_run(context: "Context", option: str, path: str, stack: ExitStack, *, writes: bool) -> LastRun | None:
    """Return the time in the file of *option*, the value of --since, for the list at *path*; raises UsageError.

    The file is locked. While another run has the lock, return None, after a note. If it *writes* the file, raises
    OutputError if that is not possible.
    """
    name, equals, file = option.partition("=")
    if not (name and equals and file) or _TIME.fullmatch(file):
        hint = "name the query parameter, and a file for the time of the last run"
        raise UsageError("--since is not NAME=FILE", hint=hint)
    target = os.path.realpath(file)
    if writes and not os.access(target if os.path.exists(target) else os.path.dirname(target), os.W_OK):
        raise OutputError(f"{printable(file)} cannot be written", hint="check the FILE of --since")
    if not _lock(file, context, stack):
        return None
    subject = f"{context.base_url} {path}"
    return LastRun(name, file, _time_in(file, subject), subject)


def _time_in(file: str, subject: str) -> str:
    shown = printable(file)
    try:
        with open(file, "rb") as source:
            text, _, rest = source.read(_MAX_SIZE).decode("utf-8-sig").partition("\n")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{shown} cannot be read: {reason}", hint="check the FILE of --since") from error
    if rest and rest.strip() != subject:
        raise UsageError(f"{shown} has the time of another list", hint="use another FILE for each list")
    if not (text := text.strip()):
        return ""
    try:
        datetime.fromisoformat(text if _TIME.fullmatch(text) else "")
    except ValueError:
        hint = "write a date such as 2026-11-28, or delete the file to fetch everything"
        raise UsageError(f"the first line of {shown} is not a time", hint=hint) from None
    return text


def _lock(file: str, context: "Context", stack: ExitStack) -> bool:
    """Lock *file* until *stack* is closed; return False, after a note, if another run has locked it.

    Without a usable state directory there is no lock, and a warning.
    """
    from hashlib import blake2b  # imported here because it loads OpenSSL

    name = blake2b(os.fsencode(comparable(file)), digest_size=16).hexdigest()
    lock_file = context.state_directory.lock_file(f"since-{name}")
    try:
        descriptor = stack.enter_context(lock.locked(lock_file, timeout=0))
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d" % os.getpid())
    except lock.LockTimeout:
        owner = ""
        with suppress(OSError):  # on Windows, the lock prevents reading
            owner = f" (process {(lock_file.read(limit=20) or b'').decode()})"
        context.terminal.note(f"another run is in progress for {printable(file)}{owner}; nothing was sent")
        return False
    except lock.LockUnavailable as error:
        context.warn_without_lock(error)
    return True


def fetched(
    context: "Context", runner: Runner, path: str, since: LastRun | None, items: str | None, stack: ExitStack
) -> tuple[Iterator[Row], str]:
    """Return the rows of the list at *path*, and the server's time when it was asked for, if *since*.

    The list is complete and checked. With *items*, it is the array in that field. Raises ExpectationFailed, and the
    error for the status.
    """
    query = [(since.name, since.text)] if since is not None and since.text else []
    asked = time.monotonic()
    outcome = runner.send(Call("GET", urls.resolve(context.base_url, path, query), context.default_headers))
    response, came = outcome.response, time.monotonic()
    body = Spool(response.decoded(), response.headers.get("Content-Type"), keep=_IN_MEMORY)
    stack.callback(body.close)
    if error := status_error(outcome, runner.tokens, body=body.read(0)):
        raise error
    date = "" if since is None else _server_time(response.headers.get("Date"), came - asked)
    if response.status == _NO_CONTENT:
        return iter(()), date
    for _ in _rows(body, items):
        pass
    return _rows(body, items), date


def _rows(body: Spool, items: str | None) -> Iterator[Row]:
    """Yield the rows in *body*, a list; raises ExpectationFailed."""
    kind = (body.content_type or "").lower()
    what = "the list" if "json" in kind else f"the list ({printable(described(body.read(0), kind))})"
    declares = codec_of(kind) is not None
    blocks = (text.encode() for text in decoded_text(body, kind)) if declares else body
    try:
        yield from rows(blocks, items=items, list_=what)
    except UsageError as error:
        raise ExpectationFailed(error.message, hint=error.hint if body.length else "check the path") from None


def _server_time(date: str, seconds: float) -> str:
    """Return the server's time *seconds* before *date*, the Date header of a response; raises ExpectationFailed.

    Another second is subtracted, because Date has no fractions.
    """
    try:
        found = parse_date(date).astimezone(UTC) - timedelta(seconds=seconds + 1)
    except (ValueError, OverflowError):
        hint = "omit --since, or use another server"
        raise ExpectationFailed("the response with the list has no valid Date", hint=hint) from None
    return found.strftime("%Y-%m-%dT%H:%M:%SZ")
