"""Read JSON values (RFC 8259) one at a time from text that arrives in parts, and write them.

Numbers stay as they were written: `json.loads` would convert 1e400 to infinity, reject integers of 5000 digits, and
accept NaN. A byte order mark is not valid here: the readers of files and bodies remove it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

MAX_VALUE = 10 * 2**20  # characters of one value
_SPACE = re.compile(r"[ \t\r\n]*")
_SPACE_OR_STRING = re.compile(r'[ \t\r\n]++|("(?:[^"\\]++|\\.)*+")')


class Number(str):
    """A number in its original notation."""

    __slots__ = ()


class InvalidValue(ValueError):
    """The text is not valid JSON, ends inside a value, or has a value that is too large; *line* is where.

    The message does not quote the text, which may have secrets.
    """

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def strict(number: Callable[[str], Any], **options: Any) -> json.JSONDecoder:
    """Return a decoder with *options* that accepts only valid JSON, and calls *number* with the text of each number."""
    return json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_reject, **options)


_scan = strict(Number).scan_once  # type: ignore[attr-defined]  # public, missing in typeshed
# it keeps neither numbers nor objects, so it needs little more memory than the strings in the longest array
_checker = strict(len, object_pairs_hook=lambda _: None)


def check(text: str) -> None:
    """Raise InvalidValue unless *text* is a single JSON value that has at most about a thousand levels."""
    if not text.strip():
        raise InvalidValue("it is empty")
    try:
        _checker.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at").rstrip(": ")
        raise InvalidValue(f"{what[:1].lower()}{what[1:]} at character {error.pos + 1}") from None
    except ValueError as error:  # a constant such as NaN
        raise InvalidValue(str(error)) from None
    except RecursionError:
        raise InvalidValue("it has too many levels") from None


def loads(text: str) -> Any:
    """Return the value of *text*; raises InvalidValue."""
    reader = JsonReader([text])
    value = reader.value()
    if reader.peek():
        raise InvalidValue("there is more than one value", reader.line)
    return value


def dumps(value: Any) -> str:
    """Return the JSON text of *value*, as `loads` has returned it, in one line."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(name)}: {dumps(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def lookup(value: dict[str, Any], name: str) -> Any:
    """Return the field *name* of *value*, the exact name first, then dotted for nested objects; raises KeyError."""
    if name in value:
        return value[name]
    first, dot, rest = name.partition(".")
    while dot:
        if isinstance(inner := value.get(first), dict):
            try:
                return lookup(inner, rest)
            except KeyError:
                pass
        more, dot, rest = rest.partition(".")
        first = f"{first}.{more}"
    raise KeyError(name)


class JsonReader:
    """Read the values in *parts* one by one; *line* is the current line, *value_line* the first of the last value."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._parts = iter(parts)
        self._text, self._at = "", 0
        self._start = 0  # of the last value
        self._has_ended = False
        self.line = self.value_line = 1

    def peek(self) -> str:
        """Return the next character after whitespace, which is consumed; "" at the end."""
        while True:
            if self._at == len(self._text) and not self._fill(1):
                return ""
            if (found := self._text[self._at]) not in " \t\r\n":
                return found
            space = _SPACE.match(self._text, self._at)
            self._advance(space.end() if space else self._at)

    def skip(self, characters: str) -> str:
        """Consume the next character, which must be one of *characters*, and return it; raises InvalidValue."""
        if (found := self.peek()) not in characters or not found:
            expected = " or ".join(characters)
            raise self._error(f"expected {expected}" if found else "the input ends inside a value")
        self._advance(self._at + 1)
        return found

    def value(self) -> Any:
        """Consume the next value and return it; raises InvalidValue."""
        ends_itself = self.peek() in ('"', "[", "{")  # a number or a literal may go on after what has arrived
        value, end, self.value_line = None, self._at, self.line
        while True:
            size = len(self._text) - self._at
            try:
                value, end = _scan(self._text, self._at)
                if ends_itself or end + len("e+") < len(self._text) or self._has_ended:
                    break
            except RecursionError:
                raise self._error("the value is nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._has_ended:
                    raise self._error_at(error.pos, is_cut=error.msg.startswith("Unterminated")) from None
            except StopIteration as error:  # no value starts at this position, or what has arrived ends inside it
                if self._has_ended or error.value + len("-Infinity") <= len(self._text):
                    raise self._error_at(error.value) from None
            except ValueError as error:  # a constant such as NaN
                raise self._error(str(error)) from None
            if size > MAX_VALUE:
                raise self._error(f"a value has more than {MAX_VALUE // 2**20} MiB")
            self._fill(size)
        self._start = self._at
        self._advance(end)
        return value

    def written(self) -> str:
        """Return the last value as it was written."""
        return self._text[self._start : self._at]

    def compact(self) -> str:
        """Return the last value as it was written, without the whitespace between its tokens."""
        return _SPACE_OR_STRING.sub(lambda found: found[1] or "", self.written())

    def elements(self) -> Iterator[Any]:
        """Consume an array, and yield its elements as they arrive; raises InvalidValue."""
        self.skip("[")
        if self.peek() == "]":
            self.skip("]")
            return
        while True:
            yield self.value()
            if self.skip(",]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Consume an object, and yield the name of each member; the caller consumes its value."""
        self.skip("{")
        if self.peek() == "}":
            self.skip("}")
            return
        while True:
            if self.peek() != '"':
                raise self._error('expected "')
            name = self.value()
            self.skip(":")
            yield name
            if self.skip(",}") == "}":
                return

    def elements_at(self, path: str) -> Iterator[Any]:
        """Consume an object, and yield the elements of the array at the dotted *path*; raises KeyError without it."""
        found = False
        for name in self.members():
            rest = path.removeprefix(f"{name}.")
            if name == path and not found and self.peek() == "[":
                found = True
                yield from self.elements()
            elif rest != path and not found and self.peek() == "{":
                try:
                    yield from self.elements_at(rest)
                    found = True
                except KeyError:
                    pass
            else:
                self.value()
        if not found:
            raise KeyError(path)

    def _error(self, reason: str) -> InvalidValue:
        return InvalidValue(reason, self.line)

    def _error_at(self, position: int, *, is_cut: bool = False) -> InvalidValue:
        is_cut = is_cut or position >= len(self._text.rstrip())
        self._advance(position)
        return self._error("the input ends inside a value" if is_cut else "not valid JSON")

    def _advance(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _fill(self, size: int) -> bool:
        """Read at least *size* more characters; return False if there are none."""
        parts, count = [self._text[self._at :]], 0
        while count < size and (part := next(self._parts, None)) is not None:
            parts.append(part)
            count += len(part)
        self._text, self._at = "".join(parts), 0
        self._has_ended = count < size
        return count > 0
