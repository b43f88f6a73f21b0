"""The record of a partial download, FILE.part.json: what is needed to resume it.

It contains the version of the file on the server, how many bytes have been written, and their checksum. Of the request
and the URLs, which may contain secrets, it contains salted digests.
"""

import errno
import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.request.files import ranges
from xapi_cli.request.files.ranges import Version
from xapi_cli.system import private_files
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import OpenDirectory

_MAX_SIZE = 64 * 1024  # bytes
_FIELDS = frozenset({"salt", "key", "validator", "total", "url", "length", "crc32"})


class State(NamedTuple):
    """The content of a record.

    *key* is the digest of the request with *salt*; *checksum* is the CRC-32 of the first *length* bytes of the part.
    Without a *version*, the download cannot be resumed.
    """

    salt: str
    key: str
    version: Version | None
    length: int
    checksum: int


_DAMAGED = State("", "", None, 0, 0)


class PartRecord:
    """The record in the file *name* in *directory*. The methods raise OSError."""

    def __init__(self, directory: OpenDirectory, name: str) -> None:
        self._directory, self._name = directory, name
        self._found = b""

    def read(self) -> State | None:
        """Return the state, None if there is no record; raises UsageError if xapi did not create the file.

        The state in a damaged record has no version.
        """
        try:
            self._found = self._content()
            fields = json.loads(self._found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
                raise
            fields = None
        if not isinstance(fields, dict) or fields.keys() != _FIELDS:
            shown = printable(str(self._directory.path / self._name))
            raise UsageError(f"{shown} was not created by xapi", hint="move it, or choose another file")
        return _state(fields)

    def rewrite(self) -> None:
        """Write what `read` has found, to learn whether that is possible."""
        self._write(self._found)

    def write(self, state: State) -> None:
        """Write *state* with mode 0600."""
        version = (state.version or Version("", None, ""))._asdict()
        fields = {"salt": state.salt, "key": state.key, **version, "length": state.length, "crc32": state.checksum}
        self._write(json.dumps(fields).encode())

    def remove(self, salt: str) -> None:
        """Remove the record that was written with *salt*, not that of another process."""
        with suppress(FileNotFoundError, UsageError):
            if (state := self.read()) is not None and state.salt == salt:
                self._directory.unlink(self._name)

    def remove_unfinished(self) -> None:
        """Remove what killed processes have left of their records."""
        private_files.remove_unfinished(self._directory, self._name)

    def _content(self) -> bytes:
        descriptor = self._directory.open(self._name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            private_files.check_is_private(descriptor, self._directory.path / self._name)
            return file.read(_MAX_SIZE)

    def _write(self, data: bytes) -> None:
        private_files.write(self._directory, self._name, data, sync=False, clean=False)


def digest(text: str, salt: str) -> str:
    """Return a digest of *text*, which may contain secrets that are not to be stored."""
    return sha256(f"{salt}:{text}".encode("utf-8", "surrogateescape")).hexdigest()


def _state(fields: dict[str, Any]) -> State:
    """Return the state in *fields*, without a version if a value is not valid."""
    match fields:
        case {
            "salt": str(salt),
            "key": str(key),
            "validator": str(validator),
            "total": int() | None as total,
            "url": str(url),
            "length": int(length),
            "crc32": int(checksum),
        } if length >= 0 and (total is None or length <= total):
            version = Version(validator, total, url) if ranges.is_validator(validator) else None
            return State(salt, key, version, length, checksum)
    return _DAMAGED
