"""Read an object member by member, with each value as it was written too."""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, missing in typeshed
from typing import Any

from xapi_cli.request.json.syntax import WHITESPACE, WHITESPACE_CHARACTERS, InvalidJSON, Number, strict, validated

_OPENING = re.compile(rf"{WHITESPACE.pattern}{{{WHITESPACE.pattern}")
# the fast path of a name and its colon
_USUAL_NAME = re.compile(rf'"([a-z_]*)"{WHITESPACE.pattern}:{WHITESPACE.pattern}')


class TooDeep:
    """A value with more levels than Python's decoder supports."""


class DuplicateName(InvalidJSON):
    """The object has two members with the name *name*."""

    def __init__(self, name: str) -> None:
        super().__init__("a name appears twice")
        self.name = name


class ExtraData(InvalidJSON):
    """Something follows the object, at character *position*."""

    def __init__(self, position: int) -> None:
        super().__init__(f"extra data, character {position}")
        self.position = position


# faster than raw_decode
_scan = strict(Number).scan_once  # type: ignore[attr-defined]  # public, missing in typeshed
_scan_pairs = strict(Number, object_pairs_hook=list).scan_once  # type: ignore[attr-defined]  # the same


def members(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of the members of *text*, and their texts; raises InvalidJSON.

    The first character of *text*, apart from whitespace, is an opening brace. A number is a Number. A value that is
    nested too deeply for Python's decoder is a TooDeep.
    """
    if (flat := _flat(text)) is not None:
        return flat
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    try:
        end = _read(text, _OPENING.match(text).end(), values, texts)  # type: ignore[union-attr]  # see above
    except json.JSONDecodeError as error:
        for _ in validated([text.rstrip(WHITESPACE_CHARACTERS)]):  # raises InvalidJSON with its own message
            pass
        raise AssertionError("the decoder rejects valid JSON") from error
    if end != len(text):
        raise ExtraData(end + 1)
    return values, texts


def _flat(text: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Return what `members` does if all values are numbers or strings without escapes, else None.

    Most lines of a batch are like this. The decoder reads such an object as a whole, twice as fast, because the
    values tell their texts.
    """
    if text.rfind("{") != 0 or "[" in text or "\\" in text:  # an object within it, an array, or an escape
        return None
    try:
        pairs, end = _scan_pairs(text, 0)
    except (ValueError, StopIteration):  # `_read` reports it
        return None
    values = dict(pairs)
    if len(values) != len(pairs) or text[end:].strip(WHITESPACE_CHARACTERS):
        return None
    texts = {}
    for name, value in pairs:
        if not isinstance(value, str):
            return None
        texts[name] = value if isinstance(value, Number) else f'"{value}"'
    return values, texts


def _read(text: str, at: int, values: dict[str, Any], texts: dict[str, str]) -> int:
    """Read the members of the object from position *at*; return the position after the object."""
    while not text.startswith("}", at):
        if values:
            at = _expect(text, at, ",")
        usual = _USUAL_NAME.match(text, at)
        if usual is not None:
            name, at = usual[1], usual.end()
        else:
            name, at = _name(text, at)
            at = _expect(text, at, ":")
        value, end = _value(text, at)
        if name in values:
            raise DuplicateName(name)
        values[name], texts[name] = value, text[at:end]
        at = end if text[end : end + 1] > " " else _skip(text, end)
    return at + 1 if at + 1 == len(text) else _skip(text, at + 1)


def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the value at position *at* and the position after it."""
    try:
        found: tuple[Any, int] = _scan(text, at)
    except StopIteration as error:
        raise json.JSONDecodeError("Expecting value", text, error.value) from None
    except RecursionError:
        from xapi_cli.request.json.spans import end_of_container

        end = end_of_container(text, at) or len(text)
    else:
        return found
    try:
        for _ in validated([text[at:end]]):
            pass
    except InvalidJSON as error:
        raise InvalidJSON(f"{error}, counted from character {at + 1}") from None
    return TooDeep(), end


def _name(text: str, at: int) -> tuple[str, int]:
    if not text.startswith('"', at):
        raise json.JSONDecodeError("expected a quoted name", text, at)
    name, end = scanstring(text, at + 1)
    return name, _skip(text, end)


def _expect(text: str, at: int, character: str) -> int:
    if not text.startswith(character, at):
        raise json.JSONDecodeError(f"expected {character!r}", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = WHITESPACE.match(text, at)
    return match.end() if match else at
