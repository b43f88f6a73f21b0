"""One text in items of a service: in a single item, or in chunks if the service rejects its size.

The text is in the item HEAD. If the service rejects it there, as the Credential Locker of Windows does, it is split
into the items `#a.0`, `#a.1` …, or `#b.0` …, and HEAD contains which of both, the number of chunks and the SHA-256 of
the text. Chunks are written under the letter that HEAD does not name, and the old ones are deleted last: a process that
is killed leaves the old text or the new one. Chunks that it leaves are deleted by the next text in chunks, or with the
text.

Only one process at a time may use the items. A text MUST start with `{`.
"""

import hashlib
import re
from typing import Protocol

HEAD = ""
CHUNK_SIZE = 1000  # characters; Windows accepts 1,280 at most
_MAX_CHUNKS = 2000  # more than can exist: limits every loop
_MAX_COPIES = 10  # of the head: some services keep items of the same name that other programs have created


class Items(Protocol):
    """The items of one account, by name."""

    def get(self, name: str, /) -> str | None:
        """Return the text of the item *name*, or None if there is none."""

    def set(self, name: str, text: str, /) -> None:
        """Store *text* as the item *name*; raise ItemRejected if it is rejected."""

    def delete(self, name: str, /) -> None:
        """Delete the item *name*, which must exist."""


class ItemRejected(Exception):
    """`Items.set` rejected the text, perhaps because of its length."""


class NotStored(Exception):
    """The service does not do what it accepts to do; the text is the predicate of a sentence about it.

    *remedy* is what the user can do, None if it is not known.
    """

    def __init__(self, predicate: str, remedy: str | None = None) -> None:
        super().__init__(predicate)
        self.remedy = remedy


def read(items: Items) -> str | None:
    """Return the text, or None if it is missing or incomplete."""
    text = items.get(HEAD)
    if (head := _chunks_of(text)) is None:
        return text
    letter, count, digest = head
    chunks = [items.get(f"#{letter}.{number}") or "" for number in range(count)]
    return "".join(chunks) if _sha256("".join(chunks)) == digest else None


def write(items: Items, text: str, *, size: int = CHUNK_SIZE) -> None:
    """Replace the text, and verify it by reading it back; chunks have at most *size* characters."""
    head = _chunks_of(items.get(HEAD))
    if head is None or len(text) <= size:
        try:
            _put(items, HEAD, text)
        except (ItemRejected, NotStored):
            if len(text) <= size:
                raise
        else:
            if head is not None:
                _trim(items, head[0])
            return
    letter, other = ("b", "a") if head and head[0] == "a" else ("a", "b")
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    for number, chunk in enumerate(chunks):
        _put(items, f"#{letter}.{number}", chunk)
    _put(items, HEAD, f"#{letter} {len(chunks)} {_sha256(text)}")
    _trim(items, letter, start=len(chunks))
    _trim(items, other)


def delete(items: Items) -> bool:
    """Delete all items; return whether there was a text."""
    for letter in ("a", "b"):
        _trim(items, letter)
    for number in range(_MAX_COPIES):
        if items.get(HEAD) is None:
            return number > 0
        items.delete(HEAD)
    raise NotStored("accepts deletions but does not delete the record", "delete it with another program")


def _chunks_of(head: str | None) -> tuple[str, int, str] | None:
    """Return the letter, the number of chunks and the digest in *head*, None if it is the text itself."""
    found = re.fullmatch(r"#([ab]) (\d{1,4}) ([0-9a-f]{64})", head or "")
    return (found[1], min(int(found[2]), _MAX_CHUNKS), found[3]) if found else None


def _put(items: Items, name: str, text: str) -> None:
    items.set(name, text)
    if items.get(name) != text:
        raise NotStored("accepts records but does not store them")


def _trim(items: Items, letter: str, *, start: int = 0) -> None:
    """Delete the chunks from number *start* on, the last one first, so that no gap hides others."""
    end = start
    while end < _MAX_CHUNKS and items.get(f"#{letter}.{end}") is not None:
        end += 1
    for number in reversed(range(start, end)):
        items.delete(f"#{letter}.{number}")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii", "backslashreplace")).hexdigest()
