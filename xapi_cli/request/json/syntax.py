"""What is valid JSON (RFC 8259), and JSON as text: numbers stay as they were written.

`json.loads` would convert 1e400 to infinity, reject integers of 5000 digits, and accept NaN, so decoders come from
`strict`. They need many times the memory of the text and have a limit of levels, so `validated` processes input of any
size in chunks. A byte order mark is not valid here: the readers of files and bodies remove it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

WHITESPACE_CHARACTERS = " \t\r\n"
WHITESPACE = re.compile(rf"[{WHITESPACE_CHARACTERS}]*")
_STRING = re.compile(r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*')
_LITERAL = re.compile(r'[^ \t\r\n{}\[\],:"]+')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_ESCAPE = len(r"\u0000")
_LONGEST_LITERAL = 65_536
MAX_DEPTH = 100_000
_MAX_BACKOFF = 512  # characters

_VALUE, _VALUE_OR_END, _KEY, _KEY_OR_END, _COLON, _COMMA_OR_END, _NOTHING = range(7)
_EXPECTATIONS = ["a value", "a value or ]", "a quoted name", "a quoted name or }", ":", "a comma or an end", "the end"]
_VALUE_MAY_START = (_VALUE, _VALUE_OR_END)
_KEY_MAY_START = (_KEY, _KEY_OR_END)


class InvalidJSON(ValueError):
    """The text is not valid JSON; the message states the error and its position, but does not quote the text."""


class Number(str):
    """A number in its original notation."""

    __slots__ = ()


def strict(number: Callable[[str], Any], **options: Any) -> json.JSONDecoder:
    """Return a decoder with *options* that accepts only valid JSON, and calls *number* with the text of each number."""
    return json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_reject_constant, **options)


def check(text: str) -> None:
    """Raise ValueError unless *text* is a JSON value; raise RecursionError for more levels than a decoder supports."""
    text = text.strip(WHITESPACE_CHARACTERS)
    try:
        _, end = _scan(text, 0)
    except StopIteration:
        raise InvalidJSON("there is no value") from None
    if end != len(text):
        raise InvalidJSON("there is more than one value")


def validated(chunks: Iterable[str], depth: int = 0) -> Iterator[str]:
    """Yield *chunks* unchanged.

    Raises InvalidJSON, after the last chunk at the latest, unless they form a single JSON value that has at most
    `MAX_DEPTH` levels, including *depth* levels around it.
    """
    parser = _Parser(MAX_DEPTH - depth)
    for chunk in chunks:
        parser.feed(chunk)
        yield chunk
    parser.finish()


def encode_string(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the text *chunks* encoded as a single JSON string."""
    yield '"'
    for chunk in chunks:
        yield json.dumps(chunk, ensure_ascii=False)[1:-1]
    yield '"'


class _Parser:
    """An incremental RFC 8259 parser; its state is one byte for each nesting level and an incomplete token."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._levels = bytearray()  # an open { or [ for each level
        self._expected = _VALUE
        self._in_string = False
        self._text = ""  # the current text, from the first unparsed token on
        self._at = 0  # the position in it
        self._no_skip_before, self._backoff = 0, 1  # in characters: the backoff after a failed attempt to skip a run
        self._before = 0  # the number of characters before it

    def feed(self, chunk: str) -> None:
        """Parse the complete tokens of *chunk*; raise InvalidJSON if they are not valid."""
        self._before += self._at
        self._text, self._at = self._text[self._at :] + chunk, 0
        while self._step(last=False):
            pass

    def finish(self) -> None:
        """Parse the rest at the end of the text; raise InvalidJSON if the value is incomplete."""
        while self._step(last=True):
            pass
        if self._expected != _NOTHING or self._in_string:
            count = self._before + self._at
            characters = "1 character" if count == 1 else f"{count} characters"
            raise InvalidJSON(f"it is truncated after {characters}" if count else "it is empty")

    def _step(self, *, last: bool) -> bool:
        """Parse one token; return False if the text is exhausted or ends within a token."""
        if self._in_string:
            return self._string(last=last)
        self._at = self._match(WHITESPACE)
        if self._at == len(self._text):
            return False
        if self._skip_run():
            return True
        character = self._text[self._at]
        if character in '{[]},:"':
            self._punctuation(character)
            self._at += 1
            return True
        return self._literal(last=last)

    def _match(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        return match.end() if match else self._at

    def _skip_run(self) -> bool:
        """Parse many complete elements or members in one step, or else one complete nested value.

        Return whether it succeeded. A failed attempt is wasted work, so the interval until the next attempt doubles
        with each failure.
        """
        run, then = self._next_run()
        is_nested = self._expected in _VALUE_MAY_START and self._text[self._at] in "{["
        if not (run or is_nested):
            return False
        here = self._before + self._at
        if here < self._no_skip_before or self._text[self._at] in "]}":
            return False
        deepest = len(self._levels) + (len(self._text) - self._at) // 2
        if len(self._text) > _LONGEST_LITERAL or deepest > self._max_depth:
            return False  # the single steps enforce the limits
        before = self._at
        if run and (end := self._match(run)) > before:
            self._at, self._expected = end, then
        elif is_nested:
            self._skip_nested()
        if self._at > before:
            self._backoff = 1
            return True
        self._no_skip_before = here + self._backoff
        self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
        return False

    def _next_run(self) -> tuple[re.Pattern[str] | None, int]:
        """Return the pattern for the elements or members that are allowed here, and what is expected after them."""
        elements, members = _runs()
        if self._expected in _KEY_MAY_START:
            return members, _KEY
        if self._expected in _VALUE_MAY_START and self._levels[-1:] == b"[":
            return elements, _VALUE
        return None, _VALUE

    def _skip_nested(self) -> None:
        with suppress(ValueError, StopIteration, RecursionError):
            _, self._at = _scan(self._text, self._at)
            self._value_ended()

    def _string(self, *, last: bool) -> bool:
        self._at = self._match(_STRING)
        left = len(self._text) - self._at
        if left == 0 or (self._text[self._at] == "\\" and left < _MAX_ESCAPE and not last):
            return False
        if self._text[self._at] != '"':
            raise self._error("an invalid escape" if self._text[self._at] == "\\" else "an unescaped control character")
        self._at += 1
        self._in_string = False
        if self._expected in _KEY_MAY_START:
            self._expected = _COLON
        else:
            self._value_ended()
        return True

    def _literal(self, *, last: bool) -> bool:
        end = self._match(_LITERAL)
        if end - self._at > _LONGEST_LITERAL:
            raise self._error(f"a number of more than {_LONGEST_LITERAL:,} characters")
        if end == len(self._text) and not last:
            return False
        if self._expected not in _VALUE_MAY_START:
            raise self._unexpected()
        if not _SCALAR.fullmatch(self._text, self._at, end):
            raise self._error("neither a number nor true, false or null")
        self._at = end
        self._value_ended()
        return True

    def _punctuation(self, character: str) -> None:
        expected = self._expected
        if character == '"' and expected in (*_VALUE_MAY_START, *_KEY_MAY_START):
            self._in_string = True
        elif character in "{[" and expected in _VALUE_MAY_START:
            self._open(character)
        elif character == ":" and expected == _COLON:
            self._expected = _VALUE
        elif character == "," and expected == _COMMA_OR_END:
            self._expected = _KEY if self._levels[-1:] == b"{" else _VALUE
        elif character in "}]" and self._may_close(character):
            self._levels.pop()
            self._value_ended()
        else:
            raise self._unexpected()

    def _open(self, bracket: str) -> None:
        if len(self._levels) >= self._max_depth:
            raise self._error(f"more than {MAX_DEPTH:,} levels")
        self._levels += bracket.encode()
        self._expected = _KEY_OR_END if bracket == "{" else _VALUE_OR_END

    def _may_close(self, bracket: str) -> bool:
        if bracket == "}":
            return self._levels[-1:] == b"{" and self._expected in (_KEY_OR_END, _COMMA_OR_END)
        return self._levels[-1:] == b"[" and self._expected in (_VALUE_OR_END, _COMMA_OR_END)

    def _value_ended(self) -> None:
        self._expected = _COMMA_OR_END if self._levels else _NOTHING

    def _unexpected(self) -> InvalidJSON:
        return self._error(f"expected {_EXPECTATIONS[self._expected]}")

    def _error(self, what: str) -> InvalidJSON:
        return InvalidJSON(f"{what} at character {self._before + self._at + 1}")


@cache
def _runs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns, without backtracking, for elements of arrays and members of objects, each with its comma."""
    whitespace = r"[ \t\r\n]*+"
    text = rf'"(?>{_STRING.pattern})"'
    scalar = rf"(?>{text}|{_SCALAR.pattern})"
    member = rf"{text}{whitespace}:{whitespace}{scalar}{whitespace}"
    array = rf"\[{whitespace}(?>{scalar}{whitespace}(?>,{whitespace}{scalar}{whitespace})*+)?+\]"
    members = rf"\{{{whitespace}(?>{member}(?>,{whitespace}{member})*+)?+\}}"
    value = rf"(?>{scalar}|{array}|{members}){whitespace},{whitespace}"
    return re.compile(rf"(?>{value})*+"), re.compile(rf"(?>{text}{whitespace}:{whitespace}{value})*+")


def _reject_constant(word: str) -> NoReturn:
    raise InvalidJSON("NaN and Infinity are not allowed")


_scan = strict(len).scan_once  # type: ignore[attr-defined]  # public; `len` is fastest, and does not convert a number
