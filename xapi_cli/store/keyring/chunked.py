"""One text over items of a keyring: a single item, or pieces where the backend refuses the size.

The text is in the item HEAD. A backend that refuses it there gets it in pieces, items `#a.0`, `#a.1` … or `#b.0` …;
HEAD then tells which, how many, and the text's SHA-256. The old text stays readable until the new HEAD is written,
because pieces go to the generation, a or b, that HEAD does not name, and what is old is deleted last. HEAD is marked
before the first piece is written, so that pieces of a writer who was killed are known to lie about and swept.

There must be one reader or writer at a time, and the text must be a JSON object, the first member not called "pieces".
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

HEAD = ""
SIZE = 1000  # characters; Windows takes 1,280 at most
_OPENING, _MARK = "{", "~"  # every text starts with the first; in its place the other marks, and costs no length
_MOST = 2000  # more pieces, or duplicates, than there can be: ends every loop over them


class Items(Protocol):
    """The items of one account, by name."""

    def get(self, name: str, /) -> str | None:
        """Return the text of the item *name*."""

    def set(self, name: str, text: str, /) -> None:
        """Keep *text* as the item *name*."""

    def delete(self, name: str, /) -> None:
        """Delete the item *name*, which is there."""


class Refused(Exception):
    """Report, from `Items.set`, that the text was not taken, perhaps for its length."""


class Forgotten(Exception):
    """Report that an item written does not read back."""


@dataclass(frozen=True)
class _Head:
    """What the item HEAD says: a text of its own, or a generation of pieces; *marked* when others may lie about."""

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
            return cls._of_pieces(item)
        return cls(text=item or None)

    @classmethod
    def _of_pieces(cls, item: str) -> "_Head":
        try:
            members: Any = json.loads(item)
            generation, count, sha256 = members["generation"], members["pieces"], members["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls(marked=True)
        if generation not in ("a", "b") or type(count) is not int or not 0 < count <= _MOST or type(sha256) is not str:
            return cls(marked=True)
        return cls(generation=generation, count=count, sha256=sha256, marked=True)


class ChunkedItem:
    """Read, replace and delete the one text that *items* keep."""

    def __init__(self, items: Items, *, plain: bool = False) -> None:
        self._items = items
        self.plain = plain  # HEAD had a text of its own, or none, and no mark: writing a short one need not look first

    def read(self) -> str | None:
        """Return the text, or None when there is none, or not all of it."""
        head = self._look()
        if not head.generation:
            return head.text
        pieces: list[str] = []
        for number in range(head.count):
            piece = self._items.get(_name(head.generation, number))
            if piece is None:
                return None
            pieces.append(piece)
        text = "".join(pieces)
        return text if _sha256(text) == head.sha256 else None

    def write(self, text: str) -> None:
        """Replace the text, and read back what was written."""
        head = _Head() if self.plain and len(text) <= SIZE else self._look()
        if len(text) > SIZE and head.generation:
            self._write_pieces(text, head)
            return
        try:
            self._write_whole(text, head)
        except (Refused, Forgotten):
            if len(text) <= SIZE:
                raise
            self._write_pieces(text, head)

    def delete(self) -> bool:
        """Leave nothing behind; tell whether there was anything."""
        head = self._look()
        for generation in ("a", "b"):
            self._trim(generation, 0, head)
        for _ in range(_MOST):  # secret services keep duplicates that other programs made
            if self._items.get(HEAD) is None:
                return head != _Head(marked=True) and head != _Head()
            self._items.delete(HEAD)
        raise Forgotten

    def _look(self) -> _Head:
        head = _Head.of(self._items.get(HEAD))
        self.plain = not head.marked
        return head

    def _write_whole(self, text: str, head: _Head) -> None:
        if head.marked:
            self._put(HEAD, _marked(text))
            self._trim("a", 0, head)
            self._trim("b", 0, head)
        self._put(HEAD, text)
        self.plain = True

    def _write_pieces(self, text: str, head: _Head) -> None:
        self.plain = False
        if not head.marked:
            self._put(HEAD, _marked(head.text or ""))
        generation, other = ("b", "a") if head.generation == "a" else ("a", "b")
        pieces = [text[start : start + SIZE] for start in range(0, len(text), SIZE)]
        for number, piece in enumerate(pieces):
            self._put(_name(generation, number), piece)
        self._put(HEAD, json.dumps({"pieces": len(pieces), "generation": generation, "sha256": _sha256(text)}))
        self._trim(other, 0, head)
        self._trim(generation, len(pieces), head)

    def _put(self, name: str, text: str) -> None:
        """Write one item and read it back."""
        self._items.set(name, text)
        back = self._items.get(name)
        for _ in range(_MOST):
            if back == text:
                return
            if back is None or text.startswith(back):
                raise Forgotten
            self._items.delete(name)  # a duplicate that another program made hides the item just written
            back = self._items.get(name)
        raise Forgotten

    def _trim(self, generation: str, start: int, head: _Head) -> None:
        """Delete the pieces of *generation* from number *start* on, the highest first: no gap ever hides one.

        Those that *head* counts are looked for behind any gap that others have made.
        """
        counted = head.count if head.generation == generation else 0
        there = []
        for number in range(start, _MOST):
            if self._items.get(_name(generation, number)) is not None:
                there.append(number)
            elif number >= counted:
                break
        for number in reversed(there):
            self._items.delete(_name(generation, number))


def _marked(text: str) -> str:
    return _MARK + text[1:]


def _name(generation: str, number: int) -> str:
    return f"#{generation}.{number}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii", "backslashreplace")).hexdigest()
