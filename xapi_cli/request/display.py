"""The display of a body on a terminal: indented JSON, text without control sequences, or a note on binary data.

A single JSON document up to a limit is indented as a whole: numbers, the order of names and duplicate names do not
change, control characters become JSON escapes, and escapes of readable characters become these characters.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from io import IncrementalNewlineDecoder
from itertools import chain

from xapi_cli.errors import XapiError
from xapi_cli.request.json_values import InvalidValue, check
from xapi_cli.request.media_types import decoded_text, is_record_stream
from xapi_cli.system.render import escape_json, is_readable, printable, size

MAX_INDENTED = 4 * 1024 * 1024  # characters; a larger document is shown unformatted, as it arrives
_MAX_INDENT = 40  # levels; without a limit, deeply nested JSON would grow to many times its size
_KEPT_CHARACTERS = "\n\t"
_BINARY = re.compile(
    r"\s*(image/(?!svg)|audio/|video/|font/|application/(pdf|zip|gzip|x-(gzip|tar|bzip2?|xz|7z-compressed))\s*(;|$))",
    re.IGNORECASE,
)
_MAY_BE_DOCUMENT = re.compile(r"\s*(?:[{\[]|$)")
_RESET, _KEY, _STRING, _NUMBER, _WORD = "\x1b[0m", "\x1b[1;34m", "\x1b[32m", "\x1b[36m", "\x1b[35m"
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


def displayed(
    chunks: Iterable[bytes],
    *,
    colors: bool,
    note: Callable[[str], None],
    content_type: str = "",
    length: int | None = None,
) -> Iterator[str]:
    """Yield the text that a terminal shows for the body in *chunks*; report to *note* what is not shown.

    An object or array is shown when it is complete, unless *content_type* is that of a stream of records; other text is
    shown as it arrives. Binary data, which a type such as image/png or the bytes show, is read no further; *length* is
    the size of the body, if it is known.
    """
    if _BINARY.match(content_type):
        note(_binary(length))
        return
    is_line_ended = True
    try:
        for part in _shown(_decoded(chunks, content_type), content_type, colors=colors, note=note):
            yield part
            is_line_ended = part.endswith("\n") if part else is_line_ended
    except (UnicodeError, XapiError) as error:
        if not is_line_ended:
            yield "\n"
        if isinstance(error, XapiError):  # the body is truncated
            raise
        note(_binary(length))
        return
    if not is_line_ended:
        yield "\n"


def result_lines(lines: bytes, *, colors: bool) -> Iterator[str]:
    """Yield the text for complete *lines*, each of which is a result of a filter: a JSON value.

    A result that is a string is shown without quotes.
    """
    for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
        if line.startswith('"'):
            text: str = json.loads(line, strict=False)
            yield printable(text, keep=_KEPT_CHARACTERS)
        elif len(line) > MAX_INDENTED:
            yield escape_json(line)
        else:
            yield from indented(line, colors=colors)
        yield "\n"


def _decoded(chunks: Iterable[bytes], content_type: str) -> Iterator[str]:
    """Yield the text of *chunks*; raises UnicodeError if it is binary."""
    lines = IncrementalNewlineDecoder(None, translate=True)
    for text in decoded_text(chunks, content_type):
        if "\0" in text:
            raise UnicodeError
        if text:
            yield lines.decode(text)
    yield lines.decode("", final=True)


def _shown(texts: Iterator[str], content_type: str, *, colors: bool, note: Callable[[str], None]) -> Iterator[str]:
    buffered: list[str] = []
    count, is_complete = 0, False
    try:
        while not is_record_stream(content_type) and count <= MAX_INDENTED:
            if (text := next(texts, None)) is None:
                is_complete = True
                break
            buffered.append(text)
            count += len(text)
            if not _MAY_BE_DOCUMENT.match(buffered[0]):
                break
    except XapiError:  # show what has arrived
        yield printable("".join(buffered), keep=_KEPT_CHARACTERS)
        raise
    if is_complete and _is_json("".join(buffered)):
        yield from indented("".join(buffered), colors=colors)
        yield "\n"
        return
    if count > MAX_INDENTED:
        note(f"JSON of more than {size(MAX_INDENTED)} is not indented; pipe it into jq")
    for text in chain(buffered, texts):
        yield printable(text, keep=_KEPT_CHARACTERS)


def _is_json(text: str) -> bool:
    try:
        check(text)
    except InvalidValue:
        return False
    return True


def _binary(length: int | None) -> str:
    amount = "" if length is None else f"{size(length)}, "
    return f"binary body, {amount}not shown; use -o FILE, or a pipe"


def indented(text: str, *, colors: bool) -> Iterator[str]:
    """Yield the valid JSON document *text* with indentation and colors, in many parts."""
    levels: list[str] = []  # an open { or [ for each level
    expects_name = has_opened = False  # in an object, the next string is a name; the last token was { or [
    for found in _TOKEN.finditer(text):
        token = found[0]
        if has_opened and token not in "}]":
            yield _line_break(levels)
        if token in "{[":
            levels.append(token)
            yield token
        elif token in "}]":
            levels.pop()
            yield token if has_opened else _line_break(levels) + token
        elif token == ",":
            yield "," + _line_break(levels)
        elif token == ":":
            yield ": "
        else:
            yield _scalar(token, is_name=expects_name, colors=colors)
        has_opened = token in "{["
        expects_name = token == "{" or (token == "," and levels[-1] == "{")


def _line_break(levels: list[str]) -> str:
    return "\n" + "  " * min(len(levels), _MAX_INDENT)


def _scalar(token: str, *, is_name: bool, colors: bool) -> str:
    shown = escape_json(_ESCAPE.sub(_unescaped, token) if "\\" in token else token)
    if not colors:
        return shown
    color = _KEY if is_name else _STRING if token[0] == '"' else _WORD if token[0] in "tfn" else _NUMBER
    return f"{color}{shown}{_RESET}"


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character of *escape* if it is readable and need not be escaped."""
    if escape[0][1] != "u":
        return "/" if escape[0] == "\\/" else escape[0]
    character: str = json.loads(f'"{escape[0]}"')
    return character if len(character) == 1 and is_readable(character) and character not in '"\\' else escape[0]
