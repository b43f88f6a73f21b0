"""`--paginate`: request one page after another, by the Link header or a field, and write their items."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import FilterError, NetworkError, UsageError
from xapi_cli.features.pages.links import MalformedLink, next_target
from xapi_cli.features.pages.request import PageOptions
from xapi_cli.http import urls
from xapi_cli.http.send import Call, Outcome, Sender
from xapi_cli.http.urls import displayed
from xapi_cli.request.json_values import InvalidValue, JsonReader, check, loads, lookup
from xapi_cli.request.media_types import utf8
from xapi_cli.request.output import ResponseOutput, decoded
from xapi_cli.request.status_errors import status_error
from xapi_cli.system.progress import Pages as Progress
from xapi_cli.system.redact import redact_page_url
from xapi_cli.system.render import pasteable, printable, shortened

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.http.messages import Response

MAX_PAGE = 64 * 1024 * 1024  # bytes after content decoding
_BUFFERED = 64 * 1024  # characters of items that are written at once
_MAX_VALUES = 5_000_000  # of a page, which take more memory than their text
_MAX_REMEMBERED = 100_000  # URLs of pages
_MAX_SHOWN = 8  # names of fields


class Items:
    """Write items, as compact JSON, to the file of *output* or else to stdout; with *slurp*, as one array.

    If *output* has a filter, it is applied to the items of each page.
    """

    def __init__(self, output: ResponseOutput, *, slurp: bool) -> None:
        self._output, self._slurp, self._filter, self._file = output, slurp, output.filter, output.file
        is_shown = self._file is None and output.terminal.stdout_is_terminal
        self._indents = is_shown and self._filter is None
        self._write = output.destination(self._file) if self._filter is None else output.result_writer(self._file)
        self._texts: list[str] = []
        self._size = self._count = 0  # characters of the texts; items so far

    def add(self, item: str) -> None:
        """Write *item*, at the latest when `flush` is called."""
        if self._indents:
            from xapi_cli.request.display import indented

            item = "".join(indented(item, colors=self._output.stdout_colors))
        before = ("," if self._count else "[") if self._slurp else ""
        self._texts.append(f"{before}{item}{'' if self._slurp else chr(10)}")
        self._size += len(item)
        self._count += 1
        if self._size >= _BUFFERED and self._filter is None:
            self.flush()

    def flush(self) -> None:
        """Write all items that were added; raises ClosedPipe or OutputError."""
        data, self._texts, self._size = "".join(self._texts).encode("utf-8", "surrogatepass"), [], 0
        if not data:
            return
        self._output.size += len(data)  # of the items, even if a filter prints something else
        if self._filter is None:
            self._write(data)
        else:
            self._filter.apply([data], self._write)

    def finish(self) -> None:
        """Write the end of the array and complete the file, after the last page."""
        if self._slurp:
            self._texts.append("]\n" if self._count else "[]\n")
        self.flush()
        if self._filter is not None:
            self._filter.finish(self._write)
        if self._file is not None:
            self._file.commit()


class Pages:
    """Send a call with *sender*, and then the calls for the pages that follow, as *options* specify.

    *items* takes the items, and *output* the body of an error. *received* takes each response, which it closes later;
    *note* takes a line for the user. The next page MUST have the origin of *base_url*.
    """

    def __init__(
        self,
        sender: Sender,
        tokens: "TokenSource | None",
        options: PageOptions,
        output: ResponseOutput,
        *,
        base_url: str,
        received: Callable[[Outcome], None],
        note: Callable[[str], None],
    ) -> None:
        self._sender, self._tokens, self._options, self._output = sender, tokens, options, output
        self._items, self._base_url = Items(output, slurp=options.slurp), base_url
        self._received, self._note = received, note
        self._visited: set[int] = set()  # hashes of URLs
        self._has_items = self._has_next = False  # a page had the field of --items, of --next
        self._given: frozenset[str] = frozenset()  # names of the parameters of the first call
        self._unfinished: Call | None = None  # the call for the page to resume from after a failure
        self._progress = Progress()

    def run(self, call: Call) -> None:
        """Request the page of *call* and all pages after it.

        Raises the error of the first page that fails, and FilterError if a page is not valid, too large, on another
        origin, or has been requested before.
        """
        self._given = urls.parameter_names(call.url)
        terminal, started = self._output.terminal, time.monotonic()
        is_shown = self._output.file is not None or terminal.stdout_is_terminal or terminal.stdout_is_file
        with terminal.during(self._progress) if is_shown else nullcontext():
            is_modified = self._request_all(call)
        if is_modified:
            self._items.finish()
            if self._output.file is not None:
                seconds = time.monotonic() - started
                self._output.note_written(self._output.file, seconds, content=self._progress.count())

    def _request_all(self, first: Call) -> bool:
        """Request the page of *first* and all pages after it; return whether there are any, and not a 304."""
        call: Call | None = first
        while call is not None:
            self._check_not_visited(call)
            self._unfinished = call if self._progress.done else None
            outcome, text = self._response(call)
            if outcome.response.status == 304:
                return False
            for item in self._items_of(text) if text else ():
                self._items.add(item)
                self._progress.items += 1
            self._items.flush()
            self._unfinished = None
            outcome.response.close()
            call = self._next_call(call, outcome, text)
            self._progress.advance(1)
            if call is not None and self._progress.done == self._options.max_pages:
                pages = "page" if self._progress.done == 1 else "pages"
                self._note(f"stopped after {self._progress.done} {pages}; {self._how_to_continue(call)}")
                break
        return True

    def remaining(self) -> str:
        """Return how to continue after a failure, or an empty text if no page was written or the next is unknown."""
        return "" if self._unfinished is None else self._how_to_continue(self._unfinished)

    def _how_to_continue(self, call: Call) -> str:
        shown = redact_page_url(call.url, self._given)
        lost = "" if shown == call.url else ", where *** replaces secrets that are not shown"
        return f"to continue, request {pasteable(printable(shown))}{lost}"

    def _check_not_visited(self, call: Call) -> None:
        key = hash(call.url)
        if key in self._visited:
            raise _error(f"the pages form a loop: {call.display_url} was already requested", urls.STOP_BEFORE)
        if len(self._visited) < _MAX_REMEMBERED:
            self._visited.add(key)

    def _response(self, call: Call) -> tuple[Outcome, str]:
        """Return the response to *call* and its text; request it again if the body is truncated and a retry is left."""
        outcome = self._sender.send(call)
        while True:
            self._received(outcome)
            response = outcome.response
            # without a file, `remaining` states the complete URL
            is_whole = self._progress.done and self._output.file is not None
            shown = printable(redact_page_url(response.request.url, self._given)) if is_whole else None
            if response.status >= 400:
                size = self._output.size
                try:
                    self._output.write_body(response)
                finally:
                    self._output.size += size
            if error := status_error(outcome, self._tokens, shown=shown, body=self._output.beginning):
                raise error
            if response.status == 304 and self._progress.done:
                what = f"page {self._progress.done + 1} was not sent, because it is not modified (304)"
                raise _error(what, "omit conditional headers")
            try:
                return outcome, _text(response)
            except NetworkError as broken:
                resumed = self._sender.resume(call, broken)
                if resumed is None:
                    raise
                outcome = resumed

    def _items_of(self, text: str) -> Iterator[str]:
        """Yield the items of the page *text* as compact JSON."""
        name, reader = self._options.items, JsonReader([text])
        found: Iterator[Any]
        if reader.peek() == "[":
            found = reader.elements()
        elif name is None:
            found = iter([reader.value()])
        else:
            found = self._field(reader, name, text)
        for _ in found:
            yield reader.compact()

    def _field(self, reader: JsonReader, name: str, text: str) -> Iterator[Any]:
        """Yield the elements of the array in the field *name* of the page that *reader* reads."""
        try:
            if reader.peek() != "{":
                raise KeyError(name)
            yield from reader.elements_at(name)
        except KeyError:
            self._check_other(loads(text), name)
        else:
            self._has_items = True

    def _check_other(self, page: Any, name: str) -> None:
        """Raise FilterError unless *page* may lack an array in the field *name*."""
        members = page if isinstance(page, dict) else {}
        try:
            if lookup(members, name) is not None:
                raise _error(f"the field {name} of the page is not an array", "check --items")
        except KeyError:
            if not self._has_items:  # some servers omit an array that is empty, but it may be a typo
                raise _error(f"the page has no field {name}", f"check --items; {_fields(members)}") from None

    def _next_call(self, call: Call, outcome: Outcome, text: str) -> Call | None:
        """Return the call for the page after the one that *call* requested, None if it was the last one."""
        if self._options.next_field is not None:
            target = self._next_text(text, self._options.next_field)
        else:
            target = self._linked(outcome.response, text)
        if target is None:
            return None
        url = urls.next_page(outcome.response.request.url, target)
        self._check_origin(url, outcome)
        return call._replace(url=url)

    def _linked(self, response: "Response", text: str) -> str | None:
        """Return the target of the link to the next page, None if there is none; raises FilterError."""
        raw = [value for name, value in response.headers.raw if name.lower() == b"link"]
        may_be_partial = text.lstrip().startswith("{") or self._options.items is not None
        if not raw and may_be_partial and not self._progress.done:
            self._note(
                "only one page was requested, because the response has no Link header; if it names the next page in a "
                "field, use --next"
            )
        try:
            return next_target((value.decode("utf-8", "surrogateescape") for value in raw), response.request.url)
        except MalformedLink:
            problem = "the link to the next page, in the Link header, is malformed"
            raise _error(problem, "use -i instead of --paginate to see it") from None

    def _next_text(self, text: str, name: str) -> str | None:
        """Return the string or number in the field *name* of the page, None if it is absent, null, false or empty.

        Raises FilterError if it has another value.
        """
        page = loads(text) if text else None
        try:
            value = lookup(page if isinstance(page, dict) else {}, name)
        except KeyError:
            if not self._has_next:
                self._note(f"only one page was requested, because it has no field {printable(name)}; check --next")
            return None
        self._has_next = True
        if value in (None, False, ""):
            return None
        if not isinstance(value, str):
            raise _error(f"the field {name} of the page is neither a string nor a number", "check --next")
        return str(value)

    def _check_origin(self, url: str, outcome: Outcome) -> None:
        """Raise FilterError unless the next page, at *url*, is on the API's origin, as the page with the link was."""
        try:
            is_api = urls.same_origin(url, self._base_url)
        except UsageError:  # the host is not valid
            is_api = False
        if not is_api:
            what = f"the next page is on another origin: {displayed(url)}"
            raise _error(what, "the token is not sent there; check the base URL")
        if not outcome.from_api:
            what = f"the link to the next page ({displayed(url)}) was not followed, because it came from another origin"
            raise _error(f"{what} after a redirect", "check the base URL")


def _text(response: "Response") -> str:
    """Return the body of *response* as a JSON document, empty if there is none; raises FilterError."""
    if response.status in (204, 304):
        return ""
    page, content_type = bytearray(), response.headers.get("Content-Type")
    for chunk in utf8(decoded(response), content_type, reader="--paginate"):
        page += chunk
        if len(page) > MAX_PAGE:
            raise _error("the page is larger than 64 MiB", "request smaller pages, or omit --paginate")
    text = page.decode()
    try:
        if sum(map(text.count, "[{,")) > _MAX_VALUES:
            raise InvalidValue(f"it has more than {_MAX_VALUES:,} values")
        check(text)
    except InvalidValue as error:
        kind = content_type.partition(";")[0].strip()
        if kind and not kind.lower().endswith(("/json", "+json")):
            problem = f"the response is not JSON (Content-Type {shortened(kind, 80)})"
            raise _error(problem, "check PATH, or omit --paginate to see it") from None
        raise _error(f"the page is not valid JSON: {error}", "omit --paginate to see it") from None
    return text


def _fields(page: dict[str, Any]) -> str:
    if not page:
        return "it has no fields"
    shown = ", ".join(shortened(name, 40) for name in islice(page, _MAX_SHOWN))
    return f"its fields: {shown}{', …' if len(page) > _MAX_SHOWN else ''}"


def _error(message: str, hint: str) -> FilterError:
    return FilterError(message, hint=hint)
