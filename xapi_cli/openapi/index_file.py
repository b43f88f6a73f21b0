"""The files of the API description of each profile: its index `api/NAME` and the document `api/NAME.document`.

Both are in the state directory. The document is what `xapi api diff` compares another one with. It is stored as a
line of JSON about it, followed by its compressed text.
"""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.openapi.index import Index, InvalidIndex, decode
from xapi_cli.system.private_files import StateDirectory, StateFile
from xapi_cli.system.render import printable

LOAD_AGAIN = "run `xapi api load` again"  # the hint if what is stored cannot be used
_MAX_SIZE = 96 * 1024 * 1024  # bytes
_MAX_NAME = 200  # bytes; with the suffix of a file that is being written, 255 are allowed
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_START = b"xapi-document 1 "  # of a stored document, with the version of the format


def index_of(state: StateDirectory, profile: str) -> StateFile:
    """Return the file of the index of *profile* in the directory *state*; different names have different files.

    Only lowercase letters, digits, - and _ are written as they are, because some file systems ignore the case. Of a
    name that is too long for a file, the hash is used.
    """
    encoded = profile.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if chr(byte) in _KEPT else f"%{byte:02x}" for byte in encoded)
    if len(name) > _MAX_NAME:
        from hashlib import sha256

        name = f"={sha256(encoded).hexdigest()}"
    return state.directory("api").file(name)


def document_of(state: StateDirectory, profile: str) -> StateFile:
    """Return the file of the document of *profile*."""
    index = index_of(state, profile)
    return index.directory.file(f"{index.name}.document")


def exists(state: StateDirectory, profile: str) -> bool:
    """Return whether there is an index for *profile*; this takes one system call."""
    return os.path.exists(index_of(state, profile).path)


@contextmanager
def open_index(state: StateDirectory, profile: str) -> Iterator[Index | None]:
    """Open the index of *profile*; yield None if there is none. Its operations are read when they are needed.

    Raises InvalidIndex if it is damaged or cannot be read, and Unsafe for a directory that others can write to.
    """
    try:
        descriptor = index_of(state, profile).open_existing()
    except OSError as error:
        raise InvalidIndex(f"it cannot be read: {error.strerror or type(error).__name__}") from error
    if descriptor is None:
        yield None
        return
    with open(descriptor, "rb", buffering=0) as file:
        if os.fstat(descriptor).st_size > _MAX_SIZE:
            raise InvalidIndex("it is damaged")
        yield decode(file)


def read_document(state: StateDirectory, profile: str) -> bytes | None:
    """Return the content of the file of the document of *profile*, None if there is none; raises UsageError."""
    try:
        return document_of(state, profile).read(limit=_MAX_SIZE)
    except OSError as error:
        raise UsageError(f"the API description cannot be read: {error.strerror}", hint=LOAD_AGAIN) from error


def write(state: StateDirectory, profile: str, index: bytes, document: bytes) -> None:
    """Store *index* and *document* of *profile*, each atomically; raises OutputError."""
    file = index_of(state, profile)
    if len(index) > _MAX_SIZE:
        raise UsageError("the index of the API description is too large", hint="load a smaller description")
    try:
        file.replace(index)
        document_of(state, profile).replace(document)
    except OSError as error:
        raise _failure("stored", error) from error


def remove(state: StateDirectory, profile: str) -> bool:
    """Delete the description of *profile*; return whether there was one; raises OutputError."""
    try:
        document_of(state, profile).remove()
        return exists(state, profile) and index_of(state, profile).remove()
    except OSError as error:
        raise _failure("deleted", error) from error


def unusable(profile: str, reason: object) -> UsageError:
    """Return the error for the description of *profile*, which cannot be used for this *reason*."""
    return UsageError(f"the API description of profile {printable(profile)} cannot be used: {reason}", hint=LOAD_AGAIN)


def nothing_loaded(profile: str) -> UsageError:
    """Return the error for *profile*, which has no API description."""
    hint = "run `xapi api load FILE`, or `xapi api load /openapi.json` if the API serves one"
    return UsageError(f"no API description is loaded for profile {printable(profile)}", hint=hint)


def _failure(what: str, error: OSError) -> OutputError:
    return OutputError(
        f"the API description cannot be {what}: {error.strerror}",
        hint="check the state directory, or set XAPI_STATE_DIR",
    )


class InvalidDocument(ValueError):
    """The data is not a document of this version; the message states why."""


class StoredDocument(NamedTuple):
    """The text *data* of a document, what messages call it, and where it came from.

    *file* is the absolute path of its file, and *path* the PATH of the API; both are empty if it cannot be read again
    from there. *location* is the path of its URL, if it came from the API.
    """

    data: bytes
    name: str
    file: str = ""
    path: str = ""
    location: str | None = None


def encode_document(document: StoredDocument) -> bytes:
    """Return *document* as bytes."""
    head = json.dumps(document[1:]).encode()
    return _START + head + b"\n" + zlib.compress(document.data, 1)


def decode_document(data: bytes) -> StoredDocument:
    """Return the document that `encode_document` has written; raises InvalidDocument if *data* is something else."""
    from xapi_cli.openapi.documents import MAX_SIZE

    head, _, text = data.partition(b"\n")
    if not head.startswith(_START):
        raise InvalidDocument("it was written by another version of xapi")
    try:
        fields = json.loads(head.removeprefix(_START))
        decompressor = zlib.decompressobj()
        document = StoredDocument(decompressor.decompress(text, MAX_SIZE + 1), *fields)
    except (ValueError, TypeError, zlib.error) as error:
        raise InvalidDocument("it is damaged") from error
    if not decompressor.eof:
        raise InvalidDocument("it is damaged")
    return document
