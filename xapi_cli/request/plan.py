"""The plan of a request: what its arguments ask for, and the slots that features fill before anything is done."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.http.header_syntax import with_defaults
from xapi_cli.request import items
from xapi_cli.request.items import STDIN
from xapi_cli.request.options import ROWS, RequestOptions
from xapi_cli.system.files import comparable
from xapi_cli.system.redact import secret_values

if TYPE_CHECKING:
    from contextlib import ExitStack


class Plan:
    """A request whose arguments have been parsed, before anything is sent or opened; raises UsageError.

    *method* is None if none was given. A value of a header or parameter that is in stdin is read by `read_stdin`.

    A feature sets, in its `prepare`, what differs from a single request whose response is written: *instead* prints
    something and sends nothing; `exchange_by` names what sends; *open_output* returns the file of -o, in place of one
    that is replaced; each of *opens* gets the sending before anything is sent, and may set its output or append to its
    checks, which are called after a success. With *prints_items*, stdout has items or results, so the body of an error
    goes to stderr; with *filters_items*, a filter is applied to each item.
    """

    def __init__(self, context: Any, options: RequestOptions) -> None:
        self.context, self.options = context, options
        self.method, self._path, self._arguments = items.split_arguments(options.arguments)
        self.method = items.one_method(self.method, options.method)
        self._value = cache(self._read_value)  # a pipe can be read only once
        self._parse(lambda path: path if path == STDIN else self._value(path))
        self._check_body()
        self._check_files()
        self.given: list[str] = []  # the options of features that are given
        self.instead: Callable[[], None] | None = None
        self.exchange: Callable[[Any], None] | None = None
        self.open_output: Callable[[Any, ExitStack], Any] | None = None
        self.opens: list[Callable[[Any, ExitStack], None]] = []
        self.prints_items, self.filters_items = options.csv, False
        self.exchange_option = ""  # which has set the exchange

    def _parse(self, read: Callable[[str], str]) -> None:
        options = self.options
        before = len(options.arguments) - len(self._arguments)
        self.items = items.parse(self._arguments, headers=options.headers, before=before, read=read)
        given = ((name, value) for name, value in self.items.headers if value)
        self.context.terminal.redactor.add(*secret_values(given))
        self.items.headers[:] = with_defaults(self.items.headers, self.context.default_headers)
        self.has_body = self.items.has_body(options.data)
        self.sent_method = items.sent_method(self.method, has_body=self.has_body)
        self.url = urls.resolve(self.context.base_url, self._path, self.items.query)

    def _read_value(self, path: str) -> str:
        from xapi_cli.request.body.sources import read_value

        return read_value(path, lambda: self.context.terminal.noted_stdin("the value"))

    def read_stdin(self) -> None:
        """Read the value that is in stdin, which may block for long."""
        if STDIN in self.items.files:
            self._parse(self._value)

    # for features

    def exchange_by(self, option: str, exchange: Callable[[Any], None]) -> None:
        """Let *exchange*, because of *option*, send the call and write what its responses are; there is one at most."""
        if self.exchange is not None:
            raise UsageError(f"{self.exchange_option} cannot be combined with {option}", hint=f"omit {option}")
        self.exchange, self.exchange_option = exchange, option

    def require_get(self, option: str) -> None:
        """Raise UsageError unless the request is a GET without a body, which *option* requires."""
        if self.method not in (None, "GET") or self.has_body:
            raise UsageError(f"{option} is supported only for a GET request without a body", hint=f"omit {option}")

    def refuse(self, option: str, **others: object) -> None:
        """Raise UsageError if an option in *others*, by the name of its field, is given together with *option*."""
        for name, value in others.items():
            if value not in (None, False, ()):
                raise UsageError(f"{option} cannot be combined with {ROWS[name].names[0]}", hint="omit one of them")

    # what cannot be combined

    def _check_body(self) -> None:
        fields, uploads = self.items.fields, self.items.uploads
        data, form = self.options.data, self.options.form
        has_json = any(field.is_json for field in fields)
        if data is not None and self.items.parts:
            raise UsageError("-d cannot be combined with fields or uploads", hint="omit one of them")
        if data is not None and form:
            from xapi_cli.request.body.build import FORM

            raise UsageError("--form cannot be combined with -d", hint=f"write -H 'Content-Type: {FORM}'")
        if form and has_json:
            raise UsageError("a form cannot have JSON fields", hint="write = instead of :=, or omit --form")
        if uploads and has_json:
            raise UsageError("a request with uploads cannot have JSON fields", hint="write = instead of :=")
        files = [*self.items.files, *(part.path for part in self.items.parts)]
        if files.count(STDIN) + (data == f"@{STDIN}") > 1:
            raise UsageError("stdin is used more than once (@-)", hint="read one of them from a file")
        if fields and not form and not uploads:
            from xapi_cli.request import nested_json

            nested_json.build(fields)  # reports contradictory names
        if uploads and any(name.lower() == "content-type" for name, _ in self.items.headers):
            raise UsageError(
                "an upload sets its own Content-Type, which contains the boundary", hint="remove the header"
            )

    def _check_files(self) -> None:
        """Raise UsageError if two of the files that the request writes are the same."""
        if self.options.fields is not None and not self.options.csv:
            raise UsageError("--fields requires --csv", hint="add --csv")
        written = {"-o": self.options.output, "--meta": self.options.meta, "the request log": self.context.log_path}
        roles: dict[str, str] = {}
        for role, name in written.items():
            if name in (None, "", "-"):
                continue
            path = comparable(str(name))
            if path in roles:
                raise UsageError(f"{roles[path]} and {role} are the same file", hint="use two different files")
            roles[path] = role
