"""`--paginate`: request one page after another, by the Link header (RFC 8288) or a field, and write their items."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http import urls
from xapi_cli.http.send import Call, Outcome, Sender
from xapi_cli.http.urls import displayed
from xapi_cli.request.json import spans as json
from xapi_cli.request.json.syntax import InvalidJSON
from xapi_cli.request.options import PageOptions
from xapi_cli.request.output import ResponseOutput, decoded
from xapi_cli.request.status_errors import status_error
from xapi_cli.system.progress import Pages as Progress
from xapi_cli.system.redact import redact_page_url
from xapi_cli.system.render import pasteable, printable, shortened

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.http.messages import Response
    from xapi_cli.request.pages.item_output import ItemOutput

MAX_PAGE = 64 * 1024 * 1024  # bytes after content decoding
_MAX_REMEMBERED = 10_000  # URLs of pages
_MAX_SHOWN = 8  # names of fields
_LINK = re.compile(r"[ \t,]*<([^>]*)>[ \t]*")
_PARAMETER = re.compile(
    r";[ \t]*([^ \t;,=<]*)[ \t]*"  # the name
    r'(?:=[ \t]*(?:"((?:[^"\\]++|\\.)*+)"?|([^ \t;,<>]*)))?[ \t]*',  # the value: quoted or not, or none
    re.DOTALL,
)
# Relation types in text that is not a link: quoted or not.
_RELATIONS = re.compile(r'(?<![^;,> \t])rel[ \t]*+=[ \t]*+(?:"([^",;<>=]*+)|([^ \t",;<>=]*+))', re.IGNORECASE)
_NOT_IN_TARGET = re.compile(r'[<" \t]')  # characters that no URI contains (RFC 3986)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


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
        items: "ItemOutput",
        output: ResponseOutput,
        *,
        base_url: str,
        received: Callable[[Outcome], None],
        note: Callable[[str], None],
    ) -> None:
        self._sender, self._tokens, self._options = sender, tokens, options
        self._items, self._output, self._base_url = items, output, base_url
        self._received, self._note = received, note
        self._visited = Visited()
        self._has_items, self._has_next, self._is_modified = False, False, True
        self._given: frozenset[str] = frozenset()  # names of the parameters of the first call
        self._may_be_partial = False  # the only page is an object, or has --items, and there was no Link header
        self._unfinished: Call | None = None  # the call for the page to resume from after a failure
        self.count = 0  # of the pages whose items were written
        self._progress = Progress()

    def run(self, call: Call) -> None:
        """Request the page of *call* and all pages after it.

        Raises the error of the first page that fails, and NetworkError if a page is not valid, too large, on another
        origin, or has been requested before.
        """
        self._given = urls.parameter_names(call.url)
        terminal, started = self._output.terminal, time.monotonic()
        is_shown = self._output.file is not None or terminal.stdout_is_terminal or terminal.stdout_is_file
        with terminal.during(self._progress) if is_shown else nullcontext():
            next_call = self._request_all(call)
        if self._is_modified:
            self._items.finish()
            if self._output.file is not None:
                seconds = time.monotonic() - started
                self._output.note_written(self._output.file, seconds, content=self._progress.count())
        if next_call is None:
            self._note_missing_field()

    def _request_all(self, call: Call) -> Call | None:
        """Request the page of *call* and all pages after it; return the call for the next one, None after the last."""
        next_call: Call | None = call
        while next_call is not None:
            call = next_call
            if self._visited.contains(call.url):
                raise _error(f"the pages form a loop: {call.display_url} was already requested", urls.STOP_BEFORE)
            next_call = self._page(call)
            self.count += 1
            self._progress.advance(1)
            if next_call is not None and self.count == self._options.max_pages:
                pages = "page" if self.count == 1 else "pages"
                self._note(f"stopped after {self.count} {pages}; {self._how_to_continue(next_call)}")
                break
        return next_call

    def remaining(self) -> str:
        """Return how to continue after a failure, or an empty text if no page was written or the next is unknown."""
        if self._unfinished is None:
            return ""
        printed = self._items.printed_of_page()
        return self._how_to_continue(self._unfinished) + (f"; {printed}" if printed else "")

    def _how_to_continue(self, call: Call) -> str:
        shown = redact_page_url(call.url, self._given)
        lost = "" if shown == call.url else ", where *** replaces secrets that are not shown"
        return f"to continue, request {pasteable(printable(shown))}{lost}"

    def _note_missing_field(self) -> None:
        """Note that nothing led to a second page: --next may be missing, or its field be wrong."""
        options = self._options
        name = options.next_field
        if name is None and self._may_be_partial:
            self._note(
                "only one page was requested, because the response has no Link header; if it names the next page in a "
                "field, use --next"
            )
        elif name is not None and self._is_modified and not self._has_next:
            self._note(f"only one page was requested, because it has no field {printable(name)}; check --next")

    def _page(self, call: Call) -> Call | None:
        """Write the items of the page that *call* requests; return the call for the next page, None for the last."""
        self._unfinished = call if self.count else None
        self._items.begin_page()
        outcome, body = self._response(call)
        if outcome.response.status == 304:
            self._not_modified()
            return None
        text = "" if outcome.response.status == 204 else _text(body, outcome.response)
        if text:
            for item in self._spans(text, json.whole(text)):
                self._items.add(json.compact(text, item))
                self._progress.items += 1
        self._items.flush()
        self._unfinished = None
        outcome.response.close()
        url = self._next_url(outcome, text)
        return None if url is None else call._replace(url=url)

    def _response(self, call: Call) -> tuple[Outcome, bytearray]:
        """Return the response to *call* and its body; request it again if the body is truncated and a retry is left."""
        outcome = self._sender.send(call)
        while True:
            self._received(outcome)
            # without a file, `remaining` states the complete URL
            is_whole = self.count and self._output.file is not None
            shown = printable(redact_page_url(outcome.response.request.url, self._given)) if is_whole else None
            self._write_error(outcome)
            error = status_error(outcome, self._tokens, shown=shown, body=self._output.beginning)
            if error is not None:
                raise error
            try:
                return outcome, _body(outcome.response)
            except NetworkError as broken:
                resumed = self._sender.resume(call, broken)
                if resumed is None:
                    raise
                outcome = resumed

    def _write_error(self, outcome: Outcome) -> None:
        if outcome.response.status < 400:
            return
        size = self._output.size
        try:
            self._output.write_body(outcome.response)
        finally:
            self._output.size += size

    def _not_modified(self) -> None:
        """Leave the output unchanged after a 304 to the first page; raise NetworkError for a 304 to another page."""
        if self.count:
            raise _error(
                f"page {self.count + 1} was not sent, because it is not modified (304)", "omit conditional headers"
            )
        self._is_modified = False

    def _spans(self, text: str, page: json.Span) -> Iterator[json.Span]:
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

    def _next_url(self, outcome: Outcome, text: str) -> str | None:
        """Return the URL of the page after the one that *call* requested, None if it was the last one."""
        response, options = outcome.response, self._options
        if options.next_field is not None:
            target = self._next_text(text, options.next_field)
        else:
            target = self._linked(response, text)
        url = None if target is None else urls.next_page(response.request.url, target)
        if url is not None:
            self._check_origin(url, outcome)
        return url

    def _linked(self, response: "Response", text: str) -> str | None:
        """Return the target of the link to the next page, None if there is none; raises NetworkError."""
        raw = [value for name, value in response.headers.raw if name.lower() == b"link"]
        is_object = bool(text) and json.is_object(text, json.whole(text))
        self._may_be_partial = not self.count and not raw and (is_object or self._options.items is not None)
        try:
            return next_target((value.decode("utf-8", "surrogateescape") for value in raw), response.request.url)
        except MalformedLink:
            problem = "the link to the next page, in the Link header, is malformed"
            raise _error(problem, "use -i instead of --paginate to see it") from None

    def _next_text(self, text: str, name: str) -> str | None:
        """Return the string or number in the field *name* of the page, None if it is absent, null, false or empty.

        Raises NetworkError if it has another value.
        """
        found = json.field(text, json.whole(text), name) if text else None
        if found is None:
            return None
        self._has_next = True
        value = text[slice(*found)]
        if value in ("null", "false", '""'):
            return None
        if value[0] in "{[t":
            raise _error(f"the field {name} of the page is neither a string nor a number", "check --next")
        return json.string(text, found) if value[0] == '"' else value

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
                f"the link to the next page ({displayed(url)}) was not followed, because it came from another origin"
                " after a redirect",
                "check the base URL",
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


def _body(response: "Response") -> bytearray:
    """Return the body of *response*, which is too large if it has more than MAX_PAGE bytes; raises NetworkError."""
    page = bytearray()
    for chunk in decoded(response):
        page += chunk
        if len(page) > MAX_PAGE:
            break
    return page


def _text(page: bytearray, response: "Response") -> str:
    """Return the *page*, the body of *response*, as a document; raises NetworkError."""
    if len(page) > MAX_PAGE:
        raise _error("the page is larger than 64 MiB", "request smaller pages, or omit --paginate")
    try:
        return json.document(page)
    except InvalidJSON as error:
        kind = response.headers.get("Content-Type").partition(";")[0].strip()
        if kind and not kind.lower().endswith(("/json", "+json")):
            problem = f"the response is not JSON (Content-Type {shortened(kind, 80)})"
            raise _error(problem, "check PATH, or omit --paginate to see it") from None
        raise _error(f"the page is not valid JSON: {error}", "omit --paginate to see it") from None


def _fields(text: str, page: json.Span) -> str:
    names = list(islice(json.names(text, page), _MAX_SHOWN + 1)) if json.is_object(text, page) else []
    if not names:
        return "it has no fields"
    shown = ", ".join(shortened(name, 40) for name in names[:_MAX_SHOWN])
    return f"its fields: {shown}{', …' if len(names) > _MAX_SHOWN else ''}"


def _error(message: str, hint: str) -> NetworkError:
    return NetworkError(message, hint=hint, sent=True, headers_received=True)


class MalformedLink(ValueError):
    """The header has the relation `next`, but not in a link."""


class Link(NamedTuple):
    """One link: its target as sent, perhaps relative, and its parameters by lowercase name, the first of each name.

    *end* is the index after it in the header.
    """

    target: str
    parameters: dict[str, str]
    end: int

    @property
    def relations(self) -> set[str]:
        """The relation types, in lowercase."""
        return _relations(self.parameters.get("rel", ""))


def next_target(values: Iterable[str], url: str) -> str | None:
    """Return the target of the first link with the relation `next` in the header *values*, None if there is none.

    *url* is that of the response. A link whose anchor is another URL describes another resource (RFC 8288, 3.2), and is
    ignored. Raises MalformedLink if there is no such link, but the relation is in text that is not a link: ignoring it
    would lose pages.
    """
    is_malformed = False
    for value in values:
        end = 0
        for link in links(value):
            if "next" in link.relations and _is_anchored_at(url, link.parameters.get("anchor", "")):
                return link.target
            end = link.end
            if _NOT_IN_TARGET.search(link.target):  # without its `>`, it contains parameters
                is_malformed = is_malformed or _has_next(link.target)
        is_malformed = is_malformed or _has_next(value, end)
    if is_malformed:
        raise MalformedLink
    return None


def _has_next(text: str, start: int = 0) -> bool:
    """Return whether *text*, from *start*, has the relation `next`, although it is not a link."""
    return any("next" in _relations(quoted or plain) for quoted, plain in _RELATIONS.findall(text, start))


def _relations(text: str) -> set[str]:
    """Return the relation types in *text*, the value of the parameter `rel`; some servers use single quotes."""
    return set(text.lower().replace("'", " ").split())


def _is_anchored_at(url: str, anchor: str) -> bool:
    try:
        return not anchor or urljoin(url, anchor) == url
    except ValueError:  # such as a malformed IPv6 address
        return False


def links(value: str) -> Iterator[Link]:
    """Yield the links in the header *value*, up to the first text that is not a link (RFC 8288, appendix B.2)."""
    at = 0
    while found := _LINK.match(value, at):
        at = found.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(value, at):
            at = parameter.end()
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted is not None else plain or "")
        yield Link(found[1].strip(" \t"), parameters, at)
        if not value.startswith(",", at):
            return
