"""What a terminal shows of a body: JSON indented, other text made harmless, binary only named."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from xapi_cli.render import pretty_json, printable, size

LARGEST_JSON = 4 * 1024 * 1024  # bytes; a larger document is shown as it arrives
_JSON_STARTS = frozenset(b'{["-0123456789tfn')
_KEPT = "\n\t"


def shown(chunks: Iterable[bytes], *, colours: bool, note: Callable[[str], None]) -> Iterator[str]:
    """Yield the text that a terminal shows of the body in *chunks*; *note* hears of what it does not show.

    What the body is shows in its bytes, not in what a header claims.
    """
    source, held = iter(chunks), bytearray()
    for chunk in source:
        held += chunk
        if b"\0" in chunk or len(held) > LARGEST_JSON or not _may_be_one_json(held):
            yield from _as_it_arrives(chain([bytes(held)], source), note)
            return
    if (text := _text(bytes(held))) is None:
        yield from _as_it_arrives([bytes(held)], note)
    elif (pretty := pretty_json(text, colours=colours)) is not None:
        yield pretty + "\n"
    elif text:
        yield _visible(text if text.endswith("\n") else text + "\n")


def _may_be_one_json(held: bytearray) -> bool:
    """Tell whether *held* can be the beginning of one JSON document: no other text, no stream of lines."""
    start = bytes(held[:4096]).lstrip(b" \t\r\n\xef\xbb\xbf")
    if start and start[0] not in _JSON_STARTS:
        return False
    line, newline, rest = bytes(held).partition(b"\n")
    if not newline or not rest.strip() or len(line) > 65536:
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return not line.strip()


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _as_it_arrives(chunks: Iterable[bytes], note: Callable[[str], None]) -> Iterator[str]:
    from codecs import getincrementaldecoder

    decoder, source, seen = getincrementaldecoder("utf-8")(), iter(chunks), 0
    ended = True
    for chunk in source:
        try:
            if b"\0" in chunk:
                raise ValueError
            text = decoder.decode(chunk)
        except ValueError:
            rest = len(chunk) + sum(len(each) for each in source)
            note(f"binary body, {size(seen + rest)}, not shown; use -o FILE, or a pipe")
            return
        seen += len(chunk)
        if text:
            yield _visible(text)
            ended = text.endswith("\n")
    if decoder.getstate()[0]:
        note("the body ends in the middle of a character")
    if not ended:
        yield "\n"


def _visible(text: str) -> str:
    return printable(text.replace("\r\n", "\n"), keep=_KEPT)
