"""Store one text in items of a service: in a single item, or in chunks if the service rejects its size.

The text is stored in the item HEAD. If the backend rejects it there, it is split into chunks, items `#a.0`, `#a.1` …
or `#b.0` …; HEAD then holds the generation, the number of chunks and the text's SHA-256. The old text stays readable
until the new HEAD is written, because chunks are written to the generation, a or b, that HEAD does not name, and old
items are deleted last. HEAD is marked before the first chunk is written, so that the chunks of a writer that was
killed are detected and deleted.

There must be only one reader or writer at a time. The text must be a JSON object whose first member is not called
"pieces".
"""

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Protocol

HEAD = ""
_PROBE = "#probe"
CHUNK_SIZE = 1000  # characters; Windows accepts 1,280 at most
_OPENING, _MARK = "{", "~"  # every text starts with the first; the mark replaces it, so the length is the same
_MAX_CHUNKS = 2000  # more than can exist: limits every loop over them
_MAX_COPIES = 100  # likewise of one item; each takes two calls, of up to 30 ms each


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
    """A written item cannot be read back; the text is the predicate of a sentence about the service.

    *remedy* is what the user can do, None if it is not known.
    """

    def __init__(self, predicate: str = "accepts records but does not store them", remedy: str | None = None) -> None:
        super().__init__(predicate)
        self.remedy = remedy


@dataclass(frozen=True)
class _Head:
    """The content of the item HEAD: a text, or a generation of chunks; *marked* if other chunks may exist."""

    text: str | None = None
    generation: str = ""
    count: int = 0
    sha256: str = ""
    marked: bool = False

    @classmethod
    def of(cls, item: str | None) -> "_Head":
        if item is None:
            return cls()
        if item.startswith(_MARK):
            return cls(text=_OPENING + item[1:] if item[1:] else None, marked=True)
        if item.startswith('{"pieces"'):
            return cls._of_chunks(item)
        return cls(text=item or None)

    @classmethod
    def _of_chunks(cls, item: str) -> "_Head":
        try:
            members: Any = json.loads(item)
            generation, count, sha256 = members["generation"], members["pieces"], members["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls(marked=True)
        if (
            generation not in ("a", "b")
            or type(count) is not int
            or not 0 < count <= _MAX_CHUNKS
            or type(sha256) is not str
        ):
            return cls(marked=True)
        return cls(generation=generation, count=count, sha256=sha256, marked=True)


class ChunkedItem:
    """Read, replace and delete the one text that *items* store, in chunks of at most *chunk_size* characters.

    *max_copies* is the number of items that the service may have under one name.
    """

    def __init__(
        self, items: Items, *, plain: bool = False, chunk_size: int = CHUNK_SIZE, max_copies: int = _MAX_COPIES
    ) -> None:
        self._items, self._chunk_size, self._max_copies = items, chunk_size, max_copies
        self.plain = plain  # HEAD was an unmarked text, or missing: a short text can be written without reading HEAD

    def read(self) -> str | None:
        """Return the text, or None if it is missing or incomplete."""
        head = self._read_head()
        if not head.generation:
            return head.text
        chunks: list[str] = []
        for number in range(head.count):
            chunk = self._items.get(_name(head.generation, number))
            if chunk is None:
                return None
            chunks.append(chunk)
        text = "".join(chunks)
        return text if _sha256(text) == head.sha256 else None

    def write(self, text: str) -> None:
        """Replace the text, and verify it by reading it back."""
        head = _Head() if self.plain and len(text) <= self._chunk_size else self._read_head()
        if len(text) > self._chunk_size and head.generation:
            self._write_chunks(text, head)
            return
        try:
            self._write_single(text, head)
        except (ItemRejected, NotStored):
            if len(text) <= self._chunk_size:
                raise
            self._write_chunks(text, head)

    def delete(self) -> bool:
        """Delete all items; return whether there was a text."""
        head = self._read_head()
        for generation in ("a", "b"):
            self._trim(generation, 0, head)
        for _ in range(self._max_copies):  # secret services keep duplicates that other programs created
            if self._items.get(HEAD) is None:
                break
            self._items.delete(HEAD)
        else:
            if self._items.get(HEAD) is not None:
                raise NotStored("accepts deletions but does not delete the record", "delete it with another program")
        return head != _Head(marked=True) and head != _Head()

    def _read_head(self) -> _Head:
        head = _Head.of(self._items.get(HEAD))
        self.plain = not head.marked
        return head

    def _write_single(self, text: str, head: _Head) -> None:
        if head.marked:
            self._put(HEAD, _marked(text))
            self._trim("a", 0, head)
            self._trim("b", 0, head)
        self._put(HEAD, text)
        self.plain = True

    def _write_chunks(self, text: str, head: _Head) -> None:
        self.plain = False
        if not head.marked:
            self._put(HEAD, _marked(head.text or ""))
        generation, other = ("b", "a") if head.generation == "a" else ("a", "b")
        chunks = [text[start : start + self._chunk_size] for start in range(0, len(text), self._chunk_size)]
        for number, chunk in enumerate(chunks):
            self._put(_name(generation, number), chunk)
        self._put(HEAD, json.dumps({"pieces": len(chunks), "generation": generation, "sha256": _sha256(text)}))
        self._trim(other, 0, head)
        self._trim(generation, len(chunks), head)

    def _put(self, name: str, text: str) -> None:
        """Write one item and read it back; raise NotStored if the text differs."""
        self._items.set(name, text)
        stored = self._items.get(name)
        if stored is not None and not text.startswith(stored) and not self._stores_new_item():
            raise NotStored  # the old text is still there
        for _ in range(self._max_copies):
            if stored is None or text.startswith(stored):
                break
            self._items.delete(name)  # a duplicate that another program created hides the item just written
            stored = self._items.get(name)
        if stored != text:
            raise NotStored

    def _stores_new_item(self) -> bool:
        """Write a new item, read it back and delete it; return whether it was stored."""
        text = os.urandom(8).hex()  # a killed process may have left another one
        self._items.set(_PROBE, text)
        if (stored := self._items.get(_PROBE)) is not None:
            self._items.delete(_PROBE)
        return stored == text

    def _trim(self, generation: str, start: int, head: _Head) -> None:
        """Delete the chunks of *generation* from number *start* on, in descending order, so that no gap hides one.

        Chunks that *head* counts are found even behind a gap that another program has caused. Raises NotStored if a
        chunk is the text of HEAD, because the service returns the same text for every name.
        """
        counted = head.count if head.generation == generation else 0
        found = []
        for number in range(start, _MAX_CHUNKS):
            if (chunk := self._items.get(_name(generation, number))) is not None:
                if chunk == head.text:
                    raise NotStored("returns the same text for different items")
                found.append(number)
            elif number >= counted:
                break
        for number in reversed(found):
            self._items.delete(_name(generation, number))


def _marked(text: str) -> str:
    return _MARK + text[1:]


def _name(generation: str, number: int) -> str:
    return f"#{generation}.{number}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii", "backslashreplace")).hexdigest()
