"""`--paginate`: request one page after another, by the Link header or a field, and write their items."""

import re
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import FilterError, NetworkError
from xapi_cli.features.pages.request import PageOptions
from xapi_cli.http import urls
from xapi_cli.http.send import Call, Outcome
from xapi_cli.http.urls import displayed
from xapi_cli.request.json_values import InvalidValue, JsonReader, check, loads, lookup
from xapi_cli.request.media_types import utf8
from xapi_cli.request.output import decoded
from xapi_cli.request.status_errors import status_error
from xapi_cli.system.progress import Activity
from xapi_cli.system.render import counted, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xapi_cli.http.messages import Response

MAX_PAGE = 64 * 1024 * 1024  # bytes after content decoding
_STOP_BEFORE = "use --max-pages to stop before it"  # a next page that cannot be requested
_MAX_VALUES = 5_000_000  # of a page, which take more memory than their text
# A link of the Link header and its parameters (RFC 8288), of which each value is quoted or not.
_LINK = re.compile(r'<([^<>]*+)>((?:[^",<]|"(?:[^"\\]|\\.)*+")*+)')
_PARAMETER = re.compile(r';\s*([^\s=;]+)\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s;]*))')


class Progress(Activity):
    """The pages of a response, and their *items*."""

    items = 0

    def text(self, now: float) -> str:
        """Return the numbers of pages and items, and their rate."""
        return f"{self.count()}, {self.rate(self.items, now):,.0f} items/s"

    def count(self) -> str:
        """Return the numbers of pages and items as a text."""
        return f"{counted(self.done, 'page')}, {counted(self.items, 'item')}"


class Pages:
    """Request the pages of a list with *sending*, as *options* specify, and write their items.

    The items are compact JSON, one per line or, with --slurp, in one array. If the output has a filter, it is applied
    to the items of each page.
    """

    def __init__(self, sending: Any, options: PageOptions) -> None:
        self._sending, self._options, self._output = sending, options, sending.output
        self._filter, self._file = self._output.filter, self._output.file
        is_shown = self._file is None and self._output.terminal.stdout_is_terminal
        self._indents = is_shown and self._filter is None
        to = self._output.destination if self._filter is None else self._output.result_writer
        self._write = to(self._file)
        self._visited: set[int] = set()  # hashes of URLs
        self._has_items = self._has_next = False  # a page had the field of --items, of --next
        self._progress = Progress()

    def run(self) -> None:
        """Request the first page and all pages after it.

        Raises the error of the first page that fails, and FilterError if a page is not valid, too large, on another
        origin, or has been requested before.
        """
        terminal, started = self._output.terminal, time.monotonic()
        is_shown = self._file is not None or terminal.stdout_is_terminal or terminal.stdout_is_file
        with terminal.during(self._progress) if is_shown else nullcontext():
            self._request_all()
        if self._options.slurp:
            self._write_text("]\n" if self._progress.items else "[]\n")
        if self._filter is not None:
            self._filter.finish(self._write)
        if self._file is not None:
            self._file.commit()
            self._output.note_written(self._file, time.monotonic() - started, content=self._progress.count())

    def _request_all(self) -> None:
        call: Call | None = self._sending.call
        while call is not None:
            if hash(call.url) in self._visited:
                raise _error(f"the pages form a loop: {call.display_url} was already requested", _STOP_BEFORE)
            self._visited.add(hash(call.url))
            outcome, text = self._response(call)
            self._write_items(self._items(text))
            outcome.response.close()
            call = self._next_call(call, outcome, text)
            self._progress.advance(1)
            if call is not None and self._progress.done == self._options.max_pages:
                self._note(f"stopped after --max-pages {self._progress.done}; there are more pages")
                break

    def _response(self, call: Call) -> tuple[Outcome, str]:
        """Return the response to *call* and its text; request it again if the body is truncated and a retry is left."""
        sending = self._sending
        outcome = sending.sender.send(call)
        while True:
            sending.take(outcome)
            response = outcome.response
            if response.status >= 300:
                self._output.write_body(response)
            if error := status_error(outcome, sending.tokens, body=self._output.beginning):
                raise error
            if response.status == 304:
                raise _error("the page is not modified (304)", "omit conditional headers")
            try:
                return outcome, _text(response)
            except NetworkError as broken:
                resumed = sending.sender.resume(call, broken)
                if resumed is None:
                    raise
                outcome = resumed

    def _items(self, text: str) -> list[str]:
        """Return the items of the page *text* as compact JSON."""
        if not text:
            return []
        name, reader = self._options.items, JsonReader([text])
        found: Iterator[Any]
        if reader.peek() == "[":
            found = reader.elements()
        elif name is None:
            found = iter([reader.value()])
        elif reader.peek() == "{":
            found = reader.elements_at(name)
        else:
            raise _error("the page is not an object", "omit --items")
        try:
            items = [reader.compact() for _ in found]
        except KeyError:
            if not self._has_items:  # some servers omit an array that is empty, but it may be a typo
                raise _error(f"the page has no array in the field {printable(str(name))}", "check --items") from None
            return []
        self._has_items = True
        return items

    def _write_items(self, items: list[str]) -> None:
        if self._indents:
            from xapi_cli.request.display import indented

            items = ["".join(indented(item, colors=self._output.terminal.style.enabled)) for item in items]
        if self._options.slurp and items:
            self._write_text(("," if self._progress.items else "[") + ",".join(items))
        elif items:
            self._write_text("\n".join([*items, ""]))
        self._progress.items += len(items)

    def _write_text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._output.size += len(data)  # of the items, even if a filter prints something else
        if self._filter is None:
            self._write(data)
        else:
            self._filter.apply([data], self._write)

    def _next_call(self, call: Call, outcome: Outcome, text: str) -> Call | None:
        """Return the call for the page after the one that *call* requested, None if it was the last one."""
        if self._options.next_field is not None:
            target = self._next_text(text, self._options.next_field)
        else:
            target = self._linked(outcome.response, text)
        if target is None:
            return None
        try:
            url = urls.join(outcome.response.request.url, target)
        except urls.InvalidURL as error:
            raise _error(f"the next page has a URL that {error}", _STOP_BEFORE) from None
        self._check_origin(url, outcome)
        return call._replace(url=url)

    def _linked(self, response: "Response", text: str) -> str | None:
        """Return the target of the link to the next page, None if there is none."""
        values = [value.decode("utf-8", "surrogateescape") for name, value in response.headers.raw if _is_link(name)]
        may_be_partial = text.lstrip().startswith("{") or self._options.items is not None
        if not values and may_be_partial and not self._progress.done:
            self._note(
                "only one page was requested, because the response has no Link header; if it names the next page in a "
                "field, use --next"
            )
        return next_target(", ".join(values))

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
        if not urls.same_origin(url, self._sending.context.base_url):
            what = f"the next page is on another origin: {displayed(url)}"
            raise _error(what, "the token is not sent there; check the base URL")
        if not outcome.from_api:
            what = f"the link to the next page ({displayed(url)}) was not followed, because it came from another origin"
            raise _error(f"{what} after a redirect", "check the base URL")

    def _note(self, text: str) -> None:
        self._sending.context.terminal.note(text)


def next_target(value: str) -> str | None:
    """Return the target of the first link with the relation `next` in *value*, of the Link header (RFC 8288)."""
    for target, parameters in _LINK.findall(value):
        for name, quoted, plain in _PARAMETER.findall(parameters):
            if name.lower() == "rel":
                if "next" in (quoted or plain.strip("'")).lower().split():  # some servers use single quotes
                    return str(target.strip())
                break  # only the first one counts
    return None


def _is_link(name: bytes) -> bool:
    return name.lower() == b"link"


def _text(response: "Response") -> str:
    """Return the body of *response* as a JSON document, empty if there is none; raises FilterError."""
    if response.status == 204:
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


def _error(message: str, hint: str) -> FilterError:
    return FilterError(message, hint=hint)
