"""Open the input and the journal of a batch; refuse files with two roles, one of which would destroy the other.

Parse --shard, which selects a part of the input.
"""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from xapi_cli.batch.journal.journal import Journal
from xapi_cli.errors import UsageError
from xapi_cli.system.files import comparable
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from xapi_cli.request.files.atomic_file import AtomicFile

_MAX_DIGITS = 7


class Shard(NamedTuple):
    """The part of an input that process *number* of *total* sends; the first *number* is 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def contains(self, line: int) -> bool:
        """Return whether the line with number *line* is in the shard; each line is in exactly one of the shards."""
        return (line - 1) % self.total == self.number - 1


def parse_shard(text: str) -> Shard:
    """Return the shard that *text*, as in `2/8`, names; raise UsageError if it is not valid."""
    match = re.fullmatch(rf"(\d{{1,{_MAX_DIGITS}}})/(\d{{1,{_MAX_DIGITS}}})", text, re.ASCII)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.number <= shard.total:
        raise UsageError(
            f"--shard: {printable(text)!r} is not a valid shard",
            hint="write I/N, such as 2/8, with I from 1 to N",
        )
    return shard


def open_input(name: str | None, terminal: Terminal, stack: ExitStack) -> BinaryIO:
    """Return the file *name*, which *stack* closes, or stdin if it is None or `-`; raises UsageError."""
    if name is None or name == "-":
        return _open_stdin(terminal)
    shown = printable(name)
    try:
        file = open(name, "rb", buffering=0)  # noqa: SIM115 - the exit stack closes it
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not valid"
        raise UsageError(f"{shown} cannot be read: {reason}", hint="check the name of FILE") from error
    stack.enter_context(file)
    if terminal.stdout_is(os.fstat(file.fileno())):
        raise UsageError(f"stdout is redirected to {shown}, the input file", hint="redirect it to another file")
    return file


def check_roles(options: Mapping[str, str | None], log: str | None, source: BinaryIO, terminal: Terminal) -> None:
    """Raise UsageError if the files of *options*, the *log* of requests, the input and stdout are not different files.

    The log may be the same file as stdout, for example the log of a CI job.
    """
    roles: dict[str, str] = {}
    for role, name in (*options.items(), ("the request log", log)):
        if name is None:
            continue
        with suppress(OSError, ValueError):  # the file does not exist yet
            status = os.stat(name)
            if os.path.samestat(status, os.fstat(source.fileno())):
                raise _two_roles("FILE", role)
            if role in options and terminal.stdout_is(status):
                raise _two_roles("stdout", role)
        if (other := roles.setdefault(comparable(name), role)) != role:
            raise _two_roles(other, role)


def size_of(source: BinaryIO) -> int | None:
    """Return the size of *source* in bytes, or None if it is not a regular file."""
    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def open_journal(name: str, identity: Identity, shard: Shard | None, source: BinaryIO, stack: ExitStack) -> Journal:
    """Return the journal *name* for requests of *identity* in *shard* of *source*; *stack* closes it.

    Raises UsageError if it belongs to another account, shard or input.
    """
    journal = stack.enter_context(Journal(name, identity.key, shard=str(shard) if shard else None))
    if size_of(source) is not None:
        journal.check_input(source)
    return journal


def open_failed(name: str, stack: ExitStack) -> "AtomicFile":
    """Return the file *name* for the input lines that fail; *stack* closes it. Raises OutputError."""
    from xapi_cli.request.files.atomic_file import AtomicFile

    file = AtomicFile(name)
    stack.push(file)  # before the file is created: a signal in between would leave a temporary file
    file.open()
    return file


def _two_roles(one: str, other: str) -> UsageError:
    return UsageError(f"{one} and {other} are the same file", hint="use two different files")


def _open_stdin(terminal: Terminal) -> BinaryIO:
    stdin = terminal.noted_stdin("lines")
    if stdin is None:
        raise UsageError("stdin is closed", hint="name an input FILE")
    return stdin
