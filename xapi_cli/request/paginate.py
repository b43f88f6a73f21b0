"""`--paginate`: request one page after another, and write their items."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http import urls
from xapi_cli.request import json_spans as json
from xapi_cli.request.calls import Call, displayed
from xapi_cli.request.json_stream import InvalidJSON
from xapi_cli.request.link_header import next_target
from xapi_cli.request.options import PageOptions
from xapi_cli.request.output import ResponseOutput, decoded
from xapi_cli.request.send import Outcome, Sender, status_error
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.auth.credentials import Credentials
    from xapi_cli.request.item_output import ItemOutput

MAX_PAGE = 64 * 1024 * 1024  # bytes after content decoding
_MAX_REMEMBERED = 10_000  # URLs of pages
_MAX_SHOWN = 8  # names of fields


class Pages:
    """Send a call with *sender*, and then the calls for the pages that follow, as *options* specify.

    *items* takes the items, and *output* the body of an error. *received* takes each response, which it closes later;
    *note* takes a line for the user. The next page MUST have the origin of *base_url*.
    """

    def __init__(
        self,
        sender: Sender,
        credentials: "Credentials | None",
        options: PageOptions,
        items: "ItemOutput",
        output: ResponseOutput,
        *,
        base_url: str,
        received: Callable[[Outcome], None],
        note: Callable[[str], None],
    ) -> None:
        self._sender, self._credentials, self._options = sender, credentials, options
        self._items, self._output, self._base_url = items, output, base_url
        self._received, self._note = received, note
        self._visited = Visited()
        self._has_items, self._is_modified = False, True
        self.count = 0  # of the pages whose items were written
        self.unfinished: str | None = None  # the URL of the page to go on from after a failure

    def run(self, call: Call) -> None:
        """Request the page of *call* and all pages after it.

        Raises the error of the first page that fails, and NetworkError if a page is not valid, too large, on another
        origin, or has been requested before.
        """
        next_call: Call | None = call
        while next_call is not None:
            call = next_call
            if self._visited.contains(call.url):
                raise _error(f"the pages form a loop: {call.display_url} was already requested")
            next_call = self._page(call)
            self.count += 1
            if next_call is not None and self.count == self._options.max_pages:
                self._note(f"stopped after {self.count} pages; go on from {next_call.display_url}")
                break
            if next_call is not None:
                self._sender.begin_next_call()
        if self._is_modified:
            self._items.finish()

    def _page(self, call: Call) -> Call | None:
        """Write the items of the page that *call* requests; return the call for the next page, None for the last."""
        self.unfinished = call.display_url if self.count else None
        outcome = self._sender.send(call)
        self._received(outcome)
        error = status_error(outcome, self._credentials)
        if error is not None:
            if outcome.response.status_code >= 400:
                self._output.write_body(outcome.response)
            raise error
        if outcome.response.status_code == 304:
            self._not_modified()
            return None
        text = self._text(outcome)
        if text:
            for item in self._spans(text, json.whole(text)):
                self._items.add(json.compact(text, item))
        self._items.flush()
        self.unfinished = None
        outcome.response.close()
        url = self._next_url(call, outcome, text)
        return None if url is None else call._replace(url=url)

    def _not_modified(self) -> None:
        """Leave the output unchanged after a 304 to the first page; raise NetworkError for a 304 to another page."""
        if self.count:
            raise _error(
                f"page {self.count + 1} was not sent, because it is not modified (304)", "omit conditional headers"
            )
        self._is_modified = False

    def _text(self, outcome: Outcome) -> str:
        """Return the page as a document, or an empty text for a response without a body."""
        response, page = outcome.response, bytearray()
        if response.status_code == 204:
            return ""
        for chunk in decoded(response):
            page += chunk
            if len(page) > MAX_PAGE:
                raise _error("the page is larger than 64 MiB", "request smaller pages, or omit --paginate")
        try:
            return json.document(page)
        except InvalidJSON as error:
            raise _error(f"the page is not valid JSON: {error}", "omit --paginate to see it") from None

    def _spans(self, text: str, page: json.Span) -> Iterator[json.Span]:
        """Return the spans of the items of the *page*."""
        name = self._options.items
        if json.is_array(text, page):
            return json.elements(text, page)
        if name is None:
            return iter([page])
        found = json.field(text, page, name)
        if found is not None and json.is_array(text, found):
            self._has_items = True
            return json.elements(text, found)
        if found is not None and text[slice(*found)] != "null":
            raise _error(f"the field {name} of the page is not an array", "check --items")
        if found is None and not self._has_items:  # some servers omit an array that is empty, but it may be a typo
            raise _error(f"the page has no field {name}", f"check --items; {_fields(text, page)}")
        return iter(())

    def _next_url(self, call: Call, outcome: Outcome, text: str) -> str | None:
        """Return the URL of the page after the one that *call* requested, None if it was the last one."""
        response, options = outcome.response, self._options
        if options.next_parameter is not None:
            parameter, name = options.next_parameter
            value = _field_text(text, name)
            url = None if value is None else urls.with_parameter(call.url, parameter, value)
        else:
            if options.next_field is not None:
                target = _field_text(text, options.next_field)
            else:
                raw = (value for name, value in response.headers.raw if name.lower() == b"link")
                target = next_target(value.decode("utf-8", "surrogateescape") for value in raw)
            url = None if target is None else urls.next_page(str(response.url), target)
        if url is not None:
            self._check_origin(url, outcome)
        return url

    def _check_origin(self, url: str, outcome: Outcome) -> None:
        """Raise NetworkError unless the next page, at *url*, is on the API's origin, as the page with the link was."""
        try:
            is_api = urls.same_origin(url, self._base_url)
        except UsageError:  # the host is not valid
            is_api = False
        if not is_api:
            raise _error(
                f"the next page is on another origin: {displayed(url)}",
                "the token is not sent there; check the base URL",
            )
        if not outcome.from_api:
            raise _error(
                f"the next page, {displayed(url)}, is not requested: a redirect to another origin led to its link"
            )


class Visited:
    """The URLs that were requested, in constant memory.

    The first ones are remembered as hashes. Of later ones, only one is remembered, replaced at each power of two
    (Brent's algorithm): it finds any loop, after at most three rounds.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._count, self._power, self._saved = 0, 1, 0

    def contains(self, url: str) -> bool:
        """Return whether *url* was requested before, and remember it."""
        value = hash(url)
        if value in self._hashes or (self._count and value == self._saved):
            return True
        if len(self._hashes) < _MAX_REMEMBERED:
            self._hashes.add(value)
        self._count += 1
        if self._count == self._power:
            self._power, self._saved = 2 * self._power, value
        return False


def _field_text(text: str, name: str) -> str | None:
    """Return the string or number in the field *name* of the page, None if the field is absent, null, false or empty.

    Raises NetworkError if it has another value.
    """
    found = json.field(text, json.whole(text), name) if text else None
    if found is None:
        return None
    value = text[slice(*found)]
    if value in ("null", "false", '""'):
        return None
    if value[0] in "{[t":
        raise _error(f"the field {name} of the page is neither a string nor a number", "check --next or --next-param")
    return json.string(text, found) if value[0] == '"' else value


def _fields(text: str, page: json.Span) -> str:
    names = list(islice(json.names(text, page), _MAX_SHOWN + 1)) if json.is_object(text, page) else []
    if not names:
        return "it has no fields"
    shown = ", ".join(printable(name)[:40] for name in names[:_MAX_SHOWN])
    return f"its fields: {shown}{', …' if len(names) > _MAX_SHOWN else ''}"


def _error(message: str, hint: str | None = None) -> NetworkError:
    return NetworkError(message, hint=hint, sent=True, headers_received=True)
