"""The tasks and results of a run, the output line of a result, and the count of all results.

The body of a response becomes a member of its line: JSON as the server sent it, else text, else base64.
"""

import json
import re
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli import errors
from xapi_cli.errors import RedirectError, XapiError
from xapi_cli.http.messages import Headers
from xapi_cli.request.json_values import check
from xapi_cli.request.media_types import codec_of, media_type
from xapi_cli.system.render import counted, json_line

if TYPE_CHECKING:
    from xapi_cli.http.send import Call
    from xapi_cli.request.body.spool import Spool

MAX_BODY = 10 * 1024 * 1024  # bytes of a body, before and after content decoding
_JSON_TYPE = re.compile(r"application/(?:[\w!#$&^.+-]+\+)?json|text/json", re.ASCII)
_TEXT_TYPE = re.compile(
    r"text/.*|(?:.*[/+])(?:json|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql|csv)|", re.ASCII
)
_ONE_LINE = str.maketrans("\r\n", "  ")


class Task(NamedTuple):
    """The request *call* with the number *number*, or the *failure* that is its result without sending anything.

    Without both, the result is known to the caller, and *code* is its exit code. *begin* is called immediately before
    the request is first sent. *source* is what the caller needs together with the result.
    """

    number: int
    call: "Call | None" = None
    failure: XapiError | None = None
    code: int = 0
    begin: Callable[[], None] | None = None
    source: Any = None


class Result(NamedTuple):
    """The response to *task*, or the *error* that is its result instead; *retries* is how often it was sent again.

    The call of *task* no longer has its body.
    """

    task: Task
    error: XapiError | None = None
    status: int = 0
    headers: Headers = Headers(())
    body: "Spool | None" = None
    elapsed_ms: int = 0
    retries: int = 0

    @property
    def code(self) -> int:
        """The exit code; a redirect that was not followed is not a failure."""
        if self.error is not None or not self.status:
            return self.task.code if self.error is None else self.error.exit_code
        failure = errors.of_status(self.status)
        return 0 if failure is None or issubclass(failure, RedirectError) else failure.exit_code

    def read(self) -> bytes:
        """Return the body, once."""
        if self.body is None:
            return b""
        data = b"".join(self.body)
        self.body.close()
        return data

    @property
    def kind(self) -> str:
        """The kind of the error, or the status code."""
        return str(self.status) if self.error is None else self.error.kind


def output_line(result: Result, ident: str, redact: Callable[[str], str], *, more: bytes = b"") -> bytes:
    """Return the output line of *result*, without its newline; reads the body.

    *ident*, the id of the task, is JSON text. *more* are other members of the line, each followed by a comma. *redact*
    removes secrets from the message of an error.
    """
    start = b'{"id": %s, "line": %d, %s' % (ident.encode(), result.task.number, more)
    if result.error is not None:
        error = json_line({"kind": result.kind, "message": redact(str(result.error))})
        return b'%s"error": %s}' % (start, error.encode("utf-8", "backslashreplace"))
    headers = result.headers.joined()
    return b'%s"status": %d, "headers": %s, %s, "elapsed_ms": %d}' % (
        start,
        result.status,
        json_line(headers).encode("utf-8", "backslashreplace"),
        body_member(result.read(), headers.get("content-type", "")),
        result.elapsed_ms,
    )


def body_member(body: bytes, content_type: str) -> bytes:
    """Return the member `json`, `text` or `base64` for *body*."""
    kind, codec = media_type(content_type), codec_of(content_type)
    try:
        text = body.decode(codec or "utf-8")
        if text and _JSON_TYPE.fullmatch(kind) and (value := _json(text)) is not None:
            return b'"json": ' + value.encode()
        if codec or not body or _TEXT_TYPE.fullmatch(kind):
            return b'"text": ' + json.dumps(text, ensure_ascii=False).encode()
    except ValueError:  # its charset is not the declared one, or it has a lone surrogate
        pass
    return b'"base64": "%s"' % b64encode(body)


def _json(text: str) -> str | None:
    """Return *text* as JSON in one line, with all values as they are; None if it is not valid, or has many levels."""
    text = text.removeprefix("\ufeff").strip(" \t\r\n")
    try:
        check(text)
    except ValueError:
        return None
    return text.translate(_ONE_LINE) if "\n" in text or "\r" in text else text  # only outside strings, as whitespace


class Tally:
    """The number of *lines*, of *failed* and *restored* ones and of *retries*; *exit_code* is the highest of all."""

    def __init__(self) -> None:
        self.lines = self.failed = self.retries = self.restored = self.exit_code = 0
        self._kinds: Counter[str] = Counter()  # of failures, and of redirects that were not followed
        self._started = time.monotonic()

    def count(self, code: int, kind: str) -> None:
        """Count one line."""
        self.lines += 1
        self.failed += code > 0
        self.exit_code = max(self.exit_code, code)
        if code or (kind.startswith("3") and kind != "304"):
            self._kinds[kind] += 1

    def summary(self) -> str:
        """Return the counts as text for the user."""
        seconds = max(0.001, time.monotonic() - self._started)
        text = counted(self.lines, "line")
        if self.failed:
            text = f"{self.failed:,} of {text} failed"
        more = [f"{(self.lines - self.restored) / seconds:,.0f}/s"]
        more += [f"{self.restored:,} from the journal"] if self.restored else []
        more += ["1 retry" if self.retries == 1 else f"{self.retries:,} retries"] if self.retries else []
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(self._kinds.items()))
        return f"{text} in {seconds:.1f} s ({', '.join(more)})" + (f": {kinds}" if kinds else "")
