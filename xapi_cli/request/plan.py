"""The plan of a request: what its arguments ask for, and the slots that features fill before anything is done."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from xapi_cli.request.items import Items
    from xapi_cli.request.options import RequestOptions


class Plan:
    """A request whose arguments have been parsed: *method* is None if none was given, and values in files are not read.

    A feature sets, in its `prepare`, what differs from a single request whose response is written: *instead* prints
    something and sends nothing; `exchange_by` names what sends; *open_output* returns the file of -o, in place of one
    that is replaced; each of *opens* gets the sending before anything is sent, and may set its output or append to its
    checks, which are called after a success. With *prints_items*, stdout has items or results, so the body of an error
    goes to stderr; with *filters_items*, a filter is applied to each item.
    """

    def __init__(self, context: Any, options: "RequestOptions", method: str | None, url: str, items: "Items") -> None:
        self.context, self.options, self.method, self.url, self.items = context, options, method, url, items
        self.given: list[str] = []  # the options of features that are given
        self.instead: Callable[[], None] | None = None
        self.exchange: Callable[[Any], None] | None = None
        self.open_output: Callable[[Any, ExitStack], Any] | None = None
        self.opens: list[Callable[[Any, ExitStack], None]] = []
        self.prints_items = self.filters_items = False
        self.exchange_option = ""  # which has set the exchange

    def exchange_by(self, option: str, exchange: Callable[[Any], None]) -> None:
        """Let *exchange*, because of *option*, send the call and write what its responses are; there is one at most."""
        if self.exchange is not None:
            raise UsageError(f"{self.exchange_option} cannot be combined with {option}", hint=f"omit {option}")
        self.exchange, self.exchange_option = exchange, option

    def require_get(self, option: str) -> None:
        """Raise UsageError unless the request is a GET without a body, which *option* requires."""
        if self.method not in (None, "GET") or self.items.has_body(self.options.data):
            raise UsageError(f"{option} is supported only for a GET request without a body", hint=f"omit {option}")

    def refuse(self, option: str, **others: object) -> None:
        """Raise UsageError if an option in *others*, by the name of its field, is given together with *option*."""
        from xapi_cli.request.options import ROWS

        for name, value in others.items():
            if value not in (None, False, ()):
                raise UsageError(f"{option} cannot be combined with {ROWS[name].names[0]}", hint="omit one of them")
