"""What a terminal shows of a body: JSON indented, other text made harmless, binary only named."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from xapi_cli.body.jsontext import NotJSON, checked
from xapi_cli.render import pretty_json, printable, size

LARGEST_JSON = 4 * 1024 * 1024  # bytes; a larger document is shown as it arrives
_LOOKED_AT = 64 * 1024  # bytes; what is JSON for so long is waited for
_KEPT = "\n\t"


def shown(chunks: Iterable[bytes], *, colours: bool, note: Callable[[str], None]) -> Iterator[str]:
    """Yield the text that a terminal shows of the body in *chunks*; *note* hears of what it does not show.

    What the body is shows in its bytes, not in what a header claims. Whatever
    is not one JSON document, a stream of them for example, is shown as it arrives.
    """
    source, held = iter(chunks), bytearray()
    if _begins_as_json(source, held) and _ends_soon(source, held):
        pretty = pretty_json(held.decode("utf-8-sig", "replace"), colours=colours) if _is_text(held) else None
        if pretty is not None:
            yield from pretty
            yield "\n"
            return
    yield from _as_it_arrives(chain([bytes(held)], source), note)


def _begins_as_json(source: Iterator[bytes], held: bytearray) -> bool:
    """Move as much of *source* to *held* as it takes to see whether one JSON document begins so."""
    decoder = getincrementaldecoder("utf-8-sig")()

    def texts() -> Iterator[str]:
        for chunk in source:
            held.extend(chunk)
            yield decoder.decode(chunk)

    try:
        for _ in checked(texts()):
            if len(held) >= _LOOKED_AT:
                return True
    except (NotJSON, UnicodeDecodeError):
        return False
    return True


def _ends_soon(source: Iterator[bytes], held: bytearray) -> bool:
    """Move *source* to *held*, up to the size that is indented; tell whether that is all of it."""
    while len(held) <= LARGEST_JSON:
        chunk = next(source, None)
        if chunk is None:
            return True
        held.extend(chunk)
    return False


def _is_text(held: bytearray) -> bool:
    try:
        held.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_it_arrives(chunks: Iterable[bytes], note: Callable[[str], None]) -> Iterator[str]:
    decoder, source, seen = getincrementaldecoder("utf-8-sig")(), iter(chunks), 0
    ended, held_back = True, ""
    for chunk in source:
        text = None if b"\0" in chunk else _decoded(decoder.decode, chunk)
        if text is None:
            rest = len(chunk) + sum(len(each) for each in source)
            note(f"binary body, {size(seen + rest)}, not shown; use -o FILE, or a pipe")
            return
        seen += len(chunk)
        text = held_back + text
        held_back = "\r" if text.endswith("\r") else ""  # half of a line's end, perhaps
        if text := _visible(text.removesuffix("\r")):
            yield text
            ended = text.endswith("\n")
    if held_back:
        yield _visible(held_back)
        ended = False
    if decoder.getstate()[0]:
        note("the body ends in the middle of a character")
    if not ended:
        yield "\n"


def _decoded(decode: Callable[[bytes], str], chunk: bytes) -> str | None:
    try:
        return decode(chunk)
    except UnicodeDecodeError:
        return None


def _visible(text: str) -> str:
    return printable(text.replace("\r\n", "\n"), keep=_KEPT)
