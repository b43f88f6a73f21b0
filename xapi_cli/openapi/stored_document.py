"""The document that was loaded, as it is stored: a line of JSON about it, and its compressed text."""

import json
import zlib
from typing import NamedTuple

from xapi_cli.openapi.documents import MAX_SIZE

_START = b"xapi-document 1 "


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


def encode(document: StoredDocument) -> bytes:
    """Return *document* as bytes."""
    head = json.dumps(document[1:]).encode()
    return _START + head + b"\n" + zlib.compress(document.data, 1)


def decode(data: bytes) -> StoredDocument:
    """Return the document that `encode` has written; raises InvalidDocument if *data* is something else."""
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
