"""What is valid JSON (RFC 8259), and JSON as text: numbers stay as they were written.

`json.loads` would convert 1e400 to infinity, reject integers of 5000 digits, and accept NaN, so decoders come from
`strict`. A byte order mark is not valid here: the readers of files and bodies remove it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn


class InvalidJSON(ValueError):
    """The text is not valid JSON; the message states the error and its position, but does not quote the text."""


class Number(str):
    """A number in its original notation."""

    __slots__ = ()


def strict(number: Callable[[str], Any], **options: Any) -> json.JSONDecoder:
    """Return a decoder with *options* that accepts only valid JSON, and calls *number* with the text of each number."""
    return json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_reject_constant, **options)


def check(text: str) -> None:
    """Raise InvalidJSON unless *text* is a single JSON value that has at most about a thousand levels."""
    if not text.strip():
        raise InvalidJSON("it is empty")
    try:
        _checker.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").rstrip(": ")
        raise InvalidJSON(f"{what[:1].lower()}{what[1:]} at character {error.pos + 1}") from None
    except RecursionError:
        raise InvalidJSON("it has too many levels") from None


def encode_string(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the text *chunks* encoded as a single JSON string."""
    yield '"'
    for chunk in chunks:
        yield json.dumps(chunk, ensure_ascii=False)[1:-1]
    yield '"'


def _reject_constant(word: str) -> NoReturn:
    raise InvalidJSON("NaN and Infinity are not allowed")


# it keeps neither numbers nor objects, so it needs little more memory than the strings in the longest array
_checker = strict(len, object_pairs_hook=lambda _: None)
