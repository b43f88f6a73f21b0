"""The journal of a batch: results that the same command, run again, prints without sending their requests again.

It is an SQLite database, which one process at a time has open. A result is stored before it is printed, so it survives
a crash of the process; a crash of the machine can lose the last ones, whose requests are then sent again. The table
`lines` also has the POST and PATCH requests that are about to be sent: lines without an output. The table `facts` has
what must be the same in each run: the account with the shard and, once it has ended, the input.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.features.batch.lines import Line

_APPLICATION = 0x78415049  # another one for another format
_SCHEMA = f"""
    PRAGMA application_id = {_APPLICATION};
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
    CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY, seen BLOB, code INTEGER, kind TEXT, output BLOB);
"""


class Journal:
    """The journal in the file *name* for *account*, a text; *shard* is the shard of the input, "" for all lines.

    `begun` are the numbers of the lines whose request may have been sent, without a result. The methods raise
    UsageError for a journal of something else, and OutputError if it cannot be read or written.
    """

    def __init__(self, name: str, account: str, shard: str = "") -> None:
        self._shown = printable(name) or "a file without a name"
        self._turn = Lock()  # a thread restores while the main thread stores
        self._hash, self._last = blake2b(), 0  # of the input so far, and its last line
        with self._errors():
            os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
            if not os.path.isfile(name):  # the mode of a device must stay
                raise ValueError("it is not a regular file")
            self._database = sqlite3.connect(
                os.path.realpath(name), timeout=0, isolation_level=None, check_same_thread=False
            )
        try:
            self._open(name, f"{account} {shard}")
        except BaseException:
            self._database.close()
            raise
        self.begun: list[int] = [number for (number,) in self._rows("SELECT number FROM lines WHERE output IS NULL")]
        known = self._rows("SELECT value FROM facts WHERE name = 'input'")
        self._count = int(known[0][0].partition(" ")[0]) if known else None  # of the lines, if the input has ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._database.close()

    def restore(self, line: "Line") -> tuple[int, str] | None:
        """Return the exit code and the kind of the result of *line*, None without one.

        It is called for each line, in the order of the input.
        """
        data, self._last = line.data or b"", line.number
        self._hash.update(b"%d %d " % (line.number, len(data)))
        self._hash.update(data)
        if self._count is not None and line.number > self._count:
            raise self._input_changed()
        found = self._rows("SELECT seen, code, kind FROM lines WHERE number = ? AND output NOT NULL", line.number)
        if not found:
            return None
        seen, code, kind = found[0]
        if seen != blake2b(data).digest():
            raise self._input_changed(f" in line {line.number:,}")
        return code, kind

    def output(self, number: int) -> bytes:
        """Return the output line of line *number*, which has a result."""
        return bytes(self._rows("SELECT output FROM lines WHERE number = ?", number)[0][0])

    def store(self, line: "Line", code: int, kind: str, output: bytes) -> None:
        """Store the *output* line of *line*, with its exit *code* and *kind*."""
        seen = blake2b(line.data or b"").digest()
        self._rows("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", line.number, seen, code, kind, output)

    def begin(self, number: int) -> None:
        """Record that the request of line *number*, which may not be repeated, is about to be sent."""
        self._rows("INSERT OR IGNORE INTO lines (number) VALUES (?)", number)

    def end_input(self) -> None:
        """Record that the input has ended; raises UsageError if it has changed. Another pass over it may follow."""
        whole = f"{self._last} {self._hash.hexdigest()}"
        self._hash = blake2b()
        if self._rows("SELECT 1 FROM lines WHERE number > ?", self._last) or self._fact("input", whole) != whole:
            raise self._input_changed()

    def _fact(self, name: str, value: str) -> str:
        """Return the value that *name* got first, which is *value* in a new journal."""
        self._rows("INSERT OR IGNORE INTO facts VALUES (?, ?)", name, value)
        return str(self._rows("SELECT value FROM facts WHERE name = ?", name)[0][0])

    def _open(self, name: str, run: str) -> None:
        self._rows("PRAGMA locking_mode = EXCLUSIVE")
        if self._rows("PRAGMA application_id") != [(_APPLICATION,)] and self._rows("SELECT 1 FROM sqlite_master"):
            raise self._not_a_journal()
        with self._errors():
            os.chmod(name, 0o600)
            self._database.executescript(_SCHEMA)
        if self._fact("run", run) != run:
            problem = f"the journal {self._shown} belongs to another account, base URL or shard"
            raise UsageError(problem, hint="use those of the first run, or pass another --journal")

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._turn, self._errors():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_BUSY:
                problem = f"another xapi process is writing to the journal {self._shown}"
                raise UsageError(problem, hint="wait for it, or pass another --journal") from error
            if code == sqlite3.SQLITE_NOTADB:
                raise self._not_a_journal() from error
            reason = getattr(error, "strerror", None) or error
            raise OutputError(
                f"the journal {self._shown} cannot be written: {reason}", hint="pass another --journal"
            ) from error

    def _not_a_journal(self) -> UsageError:
        return UsageError(f"{self._shown} is not a journal of xapi", hint="pass a new file to --journal")

    def _input_changed(self, where: str = "") -> UsageError:
        return UsageError(
            f"the input has changed{where} since the journal {self._shown} was created",
            hint="use the input of the first run, or another journal for another input",
        )
