"""Make the output line of each input line."""

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from xapi_cli.batch.course import Answer
from xapi_cli.batch.entries import Entry
from xapi_cli.batch.replies import LARGEST, BodyTooLarge, Head, Reply
from xapi_cli.body.jsontext import checked
from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.render import json_line
from xapi_cli.wire.decoding import decoded

_JSON_TYPE = re.compile(r"application/(?:[\w!#$&^.+-]+\+)?json|text/json", re.ASCII)
_TEXT_TYPE = re.compile(
    r"text/.*|(?:.*[/+])(?:json|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql|csv)|", re.ASCII
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:+-]+)", re.ASCII | re.IGNORECASE)
_NO_CHARSETS = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
_PIECE = 65_536
_MOST_PARSED = 1024 * 1024  # bytes; a larger text is checked piece by piece, which is slower, but needs no memory
_CODES = {"input": 2, "network": 11, "timeout": 12, "auth": 10, "size": 11}


def _no_json(word: str) -> Any:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_json)


@dataclass(slots=True)
class Result:
    """An output line, *text*, and the exit code that it stands for; *kind* is its error's, or a status."""

    number: int
    text: bytes
    code: int
    kind: str
    seen: bytes = b""
    is_kept: bool = True  # in a journal: what was not answered is to be sent again

    @property
    def is_notable(self) -> bool:
        """Whether a person should hear of it: a failure, or a redirect that was not followed."""
        return bool(self.code) or (self.kind.startswith("3") and self.kind != "304")


def answered(entry: Entry, answer: Answer, elapsed_ms: int) -> Result:
    """Return the line for an answer whose body can be shown; raises NetworkError where it cannot."""
    status = answer.reply.head.status
    start = b'{"id": %s, "line": %d, "status": %d, "headers": %s, ' % (
        entry.id.encode(),
        entry.number,
        status,
        answer.reply.head.json(),
    )
    text = b'%s%s, "elapsed_ms": %d}\n' % (start, _content(answer.reply), elapsed_ms)
    return Result(entry.number, text, _code(status), str(status), entry.seen)


def failed(entry: Entry, error: XapiError, message: str) -> Result:
    """Return the line for a call that *error* ended, of which *message* tells."""
    return _error(entry, _kind(error), message)


def refused(entry: Entry) -> Result:
    """Return the line for a bad line."""
    return _error(entry, "input", entry.flaw or "")


def _error(entry: Entry, kind: str, message: str) -> Result:
    error = json_line({"kind": kind, "message": message})
    text = f'{{"id": {entry.id}, "line": {entry.number}, "error": {error}}}\n'.encode()
    return Result(entry.number, text, _CODES[kind], kind, entry.seen, is_kept=kind == "size")


def _kind(error: XapiError) -> str:
    if isinstance(error, BodyTooLarge):
        return "size"
    if isinstance(error, NetworkError):
        return "network"
    return "timeout" if isinstance(error, TimeoutExpired) else "auth"


def _code(status: int) -> int:
    return 0 if status < 400 else 4 if status < 500 else 5


def _content(reply: Reply) -> bytes:
    """Return the member that holds the body: JSON as it is, else text, else base64."""
    body = _decoded(reply)
    content_type = (reply.head.get(b"content-type") or "").strip()
    media_type = content_type.partition(";")[0].strip().lower()
    if body and _JSON_TYPE.fullmatch(media_type) and (text := _json(body)) is not None:
        return b'"json": ' + text
    if not body or _TEXT_TYPE.fullmatch(media_type) or _CHARSET.search(content_type):
        found = _CHARSET.search(content_type)
        quoted = _quoted(body, found[1] if found else "utf-8")
        if quoted is not None:
            return b'"text": ' + quoted
    return b'"base64": "%s"' % b64encode(body)


def _decoded(reply: Reply) -> bytes | bytearray:
    coding = _joined(reply.head, b"content-encoding")
    if not coding or not reply.body:
        return reply.body
    body = bytearray()
    for block in decoded([bytes(reply.body)], coding):
        body += block
        if len(body) > LARGEST:
            raise BodyTooLarge
    return body


def _joined(head: Head, wanted: bytes) -> str:
    if wanted not in head.headers:
        return ""
    return ", ".join(value.decode("latin-1") for name, value in head.raw if name.lower() == wanted)


def _json(body: bytes | bytearray) -> bytes | None:
    """Return *body* as JSON in one line, not a character of its values changed; None when it is none."""
    try:
        text = body.decode("utf-8-sig")
        if len(text) <= _MOST_PARSED:
            _DECODER.decode(text)
        else:
            for start in checked(text[at : at + _PIECE] for at in range(0, len(text), _PIECE)):
                del start
    except (ValueError, RecursionError):  # ValueError: no UTF-8 as well
        return None
    return text.strip().replace("\r", " ").replace("\n", " ").encode()  # outside of strings, where they are blanks


def _quoted(body: bytes | bytearray, charset: str) -> bytes | None:
    """Return *body*, text in *charset*, as a JSON string; None where it is no such text."""
    import codecs

    try:
        if codecs.lookup(charset).name in _NO_CHARSETS:
            return None
        return json.dumps(body.decode(charset), ensure_ascii=False).encode()  # which fails for half a surrogate pair
    except (LookupError, ValueError):
        return None
