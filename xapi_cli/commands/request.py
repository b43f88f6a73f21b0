"""`xapi request`: its options, its steps, and what it says about what remained of a request."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli import feature_table
from xapi_cli.cli.options import ACCOUNT, CALLS, chosen, completer, settings_flags
from xapi_cli.errors import FilterError, Interrupted, NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.hints import together
from xapi_cli.http import authorization, retry, urls
from xapi_cli.request import combinations, items
from xapi_cli.request.items import STDIN
from xapi_cli.request.options import ROWS, RequestOptions
from xapi_cli.request.plan import Plan
from xapi_cli.system.render import size

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.context import Context
    from xapi_cli.http.send import Outcome, Sender
    from xapi_cli.request.body.spool import Body
    from xapi_cli.request.output import ResponseOutput
    from xapi_cli.request.output_file import OutputFile
    from xapi_cli.request.upload import Upload
    from xapi_cli.system.terminal import Terminal

_CONCERNS_RESPONSE = (FilterError, NetworkError, TimeoutExpired)
_METHOD_REJECTED = frozenset({405, 501})
_METHOD_HINT = "a body makes it a POST: write a query parameter as name==value, or give METHOD (such as PUT) first"


Arguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] PATH [ITEM]...",
        help="The method, path and ITEMs.",
        autocompletion=completer("methods_and_paths"),
        show_default=False,
    ),
]


def _rows() -> "Mapping[str, feature_table.Flag]":
    return {**ROWS, **feature_table.request_options()}


_INSTEAD = {  # of curl
    "-I": "use the method HEAD",
    "-L": "redirects are followed",
    "-m": "use --max-time",
    "-s": "use --quiet",
    "--data-raw": "use -d",
}


@settings_flags(*ACCOUNT, *CALLS, "retry", rows=_rows, instead=_INSTEAD)
def request(ctx: typer.Context, arguments: Arguments) -> None:
    """Send a request with the stored token.

    If the token is missing or expired, xapi logs in first. If the API rejects
    it, xapi logs in and resends the request. METHOD is GET by default, or POST
    if there is a body. PATH is appended to the base URL. An ITEM is one of:

    \b
      name==value      query parameter
      Name:value       header
      name=value       JSON string field
      name:=JSON       JSON field of any type
      name[key]=value  member of an object
      name[]=value     element appended to an array
      name=@file       field with the content of a file
      name:=@file      field with the JSON in a file
      name==@file      query parameter from a file
      Name:@file       header from a file
      name@file        file upload (multipart)

    Examples:

    \b
      xapi request /x-api/projects status==active
      xapi request /x-api/echo name=Demo tags:='["a","b"]'
      xapi request PUT /x-api/echo -d @project.json
      xapi request /x-api/echo -d @- <project.json
    """
    context, values = ctx.obj, chosen(ctx)
    options = RequestOptions(arguments, **{name: values[name] for name in ROWS})
    context.verbose = options.verbose
    found = Request(context, options)
    found.plan = Plan(context, found.options, found.method, found.url, found.items)
    found.plan.prints_items = options.csv
    feature_table.prepare(found.plan, values)
    if found.plan.instead is not None:
        found.plan.instead()
    else:
        found.run()


request.__doc__ = "\n".join([(request.__doc__ or "").rstrip(), *(f"      {each}" for each in feature_table.examples())])


class Request:
    """A request with valid arguments: all of them are parsed before anything is sent or opened.

    Raises UsageError if an argument is not valid.
    """

    plan: Plan

    def __init__(self, context: "Context", options: RequestOptions) -> None:
        options = options._replace(retries=context.settings.retry)
        self.context, self.options = context, options
        self.method, self._path, self._item_arguments = items.split_arguments(options.arguments)
        if options.method is not None:
            given = items.method(options.method)
            if self.method not in (None, given):
                raise UsageError(f"METHOD is {self.method}, but -X is {given}", hint="give one of them")
            self.method = given
        self._value = cache(self._read_value)  # a pipe can be read only once
        self._parse_items(lambda path: path if path == STDIN else self._value(path))
        combinations.check(options, self.items, self.method, log=context.log_path)

    def _parse_items(self, read: Callable[[str], str]) -> None:
        options = self.options
        self.items = items.parse(
            self._item_arguments,
            headers=options.headers,
            before=len(options.arguments) - len(self._item_arguments),
            read=read,
        )
        self.has_body = self.items.has_body(options.data)
        self.items.headers[:] = items.with_defaults(self.items.headers, self.context.default_headers)
        self.url = urls.resolve(self.context.base_url, self._path, self.items.query)

    def _read_value(self, path: str) -> str:
        from xapi_cli.request.body.sources import read_value

        return read_value(path, lambda: self.context.terminal.noted_stdin("the value"))

    def read_stdin(self) -> None:
        """Read the value that is in stdin, which may block for long."""
        if STDIN in self.items.files:
            self._parse_items(self._value)

    def run(self) -> None:
        """Send the request and write the response; raises XapiError for an error status or a failed request."""
        if self.context.settings.read_only:
            from xapi_cli.request import read_only

            names = (name for name, _ in self.items.headers)
            read_only.check(self.sent_method, names, remedy="add --write")
        from xapi_cli.request.status_errors import concern

        with ExitStack() as stack:
            sending = Sending(self, stack)
            sending.run()
            sending.raise_for_status()
            try:
                for check in sending.checks:
                    check()
            except XapiError as error:
                concern(error, sending.outcome.response)
                raise

    @property
    def sent_method(self) -> str:
        """The method, which may be the default one."""
        return items.sent_method(self.method, has_body=self.has_body)


class Sending:
    """Send *request* and write its response.

    All files and filters are opened before anything is sent; *stack* closes them. A feature uses `call`, `sender`,
    `output`, `tokens` and `take`, and may append to `checks`.
    """

    def __init__(self, request: Request, stack: ExitStack) -> None:
        from xapi_cli.http.send import Call
        from xapi_cli.request.status_errors import LastResponse

        self.request, self.context, self.options = request, request.context, request.options
        self.tokens = self._new_tokens()
        if self.tokens is not None:
            self.tokens.check()  # before stdin is read
        request.read_stdin()
        self.file = self._open_output(stack)
        self._meta_file = self._open_file(stack, self.options.meta)
        body = self._new_body(stack)
        self.call = Call(request.sent_method, request.url, tuple(request.items.headers), body)
        self._upload = self._new_upload()
        self.sender = self._new_sender()
        self.output = self._new_output()
        self.last, self._started = LastResponse(), time.monotonic()
        stack.callback(self.last.close)
        self.checks: list[Callable[[], None]] = []  # after a success
        if self.options.csv:
            self._open_table()
        for opens in request.plan.opens:
            opens(self, stack)

    @property
    def outcome(self) -> "Outcome":
        """The last response."""
        assert self.last.outcome is not None  # noqa: S101 - otherwise, `run` has raised an exception
        return self.last.outcome

    def run(self) -> None:
        """Send the request and write the response; raises XapiError if there is none, or if it cannot be written."""
        try:
            if (exchange := self.request.plan.exchange) is not None:
                exchange(self)
            else:
                outcome = self.sender.send(self.call)
                self.take(outcome)
                self.output.write(outcome.response)
        except BaseException as error:
            self._report(error)
            raise
        self._write_meta()

    def raise_for_status(self) -> None:
        """Raise XapiError if the status of the last response is an error."""
        from xapi_cli.request.status_errors import status_error

        check_status, outcome = self.options.check_status, self.outcome
        error = status_error(outcome, self.tokens, check_status=check_status, body=self.output.beginning)
        if error is None:
            return
        is_default = self.request.method is None and outcome.response.request.method != "GET"
        if outcome.response.status in _METHOD_REJECTED and is_default:
            error.hint = _METHOD_HINT
        raise error

    # what is opened before anything is sent

    def _new_tokens(self) -> "TokenSource | None":
        """Return the source of the token, or None if the user sets or removes the Authorization header."""
        if authorization.is_set_by_user(self.request.items.headers):
            return None
        return self.context.tokens(automatic=self.options.automatic)

    def _open_output(self, stack: ExitStack) -> Any:
        """Open the file of -o."""
        if self.request.plan.open_output is not None:
            return self.request.plan.open_output(self, stack)
        return self._open_file(stack, self.options.output)

    def _open_file(self, stack: ExitStack, name: str | None) -> "OutputFile | None":
        """Open the file *name* before anything is sent, because a response that cannot be saved is lost."""
        if name in (None, "-"):
            return None
        from xapi_cli.request.output_file import OutputFile

        file = OutputFile(str(name))
        stack.callback(file.close)  # before it is created: a signal in between would leave a temporary file
        file.open()
        return file

    def _new_body(self, stack: ExitStack) -> "Body | None":
        if not self.request.has_body:
            return None
        from xapi_cli.request.body.build import build

        options = self.options
        body = build(
            self.request.items,
            data=options.data,
            form=options.form,
            stdin=lambda: self.context.terminal.noted_stdin("the body" if options.data else "the value"),
        )
        if body is not None:
            stack.callback(body.close)
        return body

    def _new_upload(self) -> "Upload | None":
        if not self.request.has_body:
            return None
        from xapi_cli.request.upload import Upload

        return Upload(self.context.terminal)

    def _new_sender(self) -> "Sender":
        from xapi_cli.http.send import Sender, show_nothing

        context = self.context
        return Sender(
            context.transport,
            context.base_url,
            self.tokens,
            follow=self.options.follow,
            retries=self.options.retries or 0,
            deadline=context.deadline,
            note=context.terminal.note,
            uploading=show_nothing if self._upload is None else self._upload.sending,
        )

    def _new_output(self) -> "ResponseOutput":
        from xapi_cli.request.output import ResponseOutput

        options, terminal = self.options, self.context.terminal
        return ResponseOutput(
            terminal,
            self.file,
            include=options.include or self.request.sent_method == "HEAD",
            log=self.context.verbose_log if options.verbose > 1 else None,
            error_body=options.error_body(
                has_json_messages=terminal.has_json_messages, prints_items=self.request.plan.prints_items
            ),
            writes_errors_to_file=not options.check_status,
        )

    def _open_table(self) -> None:
        from xapi_cli.request.csv_table import TableFilter, parse_fields

        self.output.filter = TableFilter(parse_fields(self.options.fields or ""), self.context.terminal.warn)

    # ways to send

    def take(self, outcome: "Outcome") -> None:
        """Take the response *outcome*; the upload has ended by then."""
        if self._upload is not None:
            self._upload.note()
        self.last.take(outcome)
        if not outcome.from_api:
            where = urls.displayed(urls.root(outcome.response.request.url))
            self.context.terminal.note(f"the response came from another origin, {where}, without the token")

    # the end

    def _report(self, error: BaseException) -> None:
        """Record in *error* what it concerns, write --meta, and state what remains of the request."""
        from xapi_cli.request.status_errors import concern_call

        if isinstance(error, _CONCERNS_RESPONSE):
            concern_call(error, self.call, self.last.outcome)
        try:
            self._write_meta()
        except XapiError as unwritten:  # it must not hide the failure
            self.context.terminal.warn(unwritten.advice)
        self._report_unfinished(error)

    def _write_meta(self) -> None:
        """Write the --meta object to its file or to stderr; raises OutputError or ClosedPipe."""
        if self.options.meta is None:
            return
        line = _meta_line(self.last.outcome, self._started, self.sender, self.output, self.tokens)
        if self._meta_file is None:
            self.context.terminal.write_result_to_stderr(line)
        else:
            self._meta_file.write(line)
            self._meta_file.commit()

    def _report_unfinished(self, error: BaseException) -> None:
        """State what remains of the download to the file: in *error*, or in a note if it is reported silently.

        Without a file, a note about an interruption states what was sent, or what a redirected stdout has received.
        """
        file, output, terminal = self.file, self.output, self.context.terminal
        sent = "" if self.last.outcome else self._unfinished_upload()
        if file is None or (sent and not file.kept):
            is_redirected = terminal.stdout_is_file and not self.request.plan.prints_items and output.size
            received = f"{size(output.size)} received; the output is incomplete" if is_redirected else ""
            _add_remainder(error, terminal, sent or received, only_if_silent=True)
            return
        if file.kept:
            _add_remainder(error, terminal, file.kept, "run the same command again to resume")
            return
        discarded = f"{size(output.size)} discarded" if output.size else ""
        _add_remainder(error, terminal, discarded, file.advice if discarded else "", only_if_silent=not file.count)

    def _unfinished_upload(self) -> str:
        """Return what is known about the body of the request if there was no response."""
        is_safe = self.request.sent_method in retry.IDEMPOTENT
        return "" if self._upload is None else self._upload.interrupted(is_safe=is_safe)


def _meta_line(
    outcome: "Outcome | None",
    started: float,
    sender: "Sender",
    output: "ResponseOutput",
    tokens: "TokenSource | None",
) -> bytes:
    """Return the line of JSON that --meta writes; *outcome* is of the last response, *started* a monotonic time."""
    import json

    from xapi_cli.http.header_syntax import joined_headers

    response = outcome.response if outcome else None
    facts = {
        "status": response.status if response else None,
        "headers": joined_headers(response.headers.raw) if response else {},
        "http_version": f"HTTP/{response.version.decode()}" if response else None,
        "elapsed_ms": round((time.monotonic() - started) * 1000),
        "attempts": sender.attempts,
        "login": tokens.login_reason if tokens else None,
        "bytes": output.size,
    }
    return json.dumps(facts).encode() + b"\n"


def _add_remainder(
    error: BaseException, terminal: "Terminal", what: str, remedy: str = "", *, only_if_silent: bool = False
) -> None:
    """State *what* was kept or discarded in the hint of *error*, and its *remedy*, unless *only_if_silent*.

    If *error* is reported silently, as an interruption is, a note states it.
    """
    from xapi_cli.system import signals

    failure = error if isinstance(error, XapiError) else getattr(error, "failure", None)
    if isinstance(failure, Interrupted) or isinstance(error, KeyboardInterrupt):
        _note_interruption(error, terminal, "; ".join(filter(None, (what, remedy))))
    elif what and failure is not None and not only_if_silent:
        signals.cancel_alarm()  # its failure would replace this one while the files are closed
        hint, link = (f"{remedy} ({what})", ", and ") if remedy else (what, "; ")
        failure.hint = together(failure.hint, link, hint) if failure.hint else hint


def _note_interruption(error: BaseException, terminal: "Terminal", text: str) -> None:
    """Write *text* on a terminal; elsewhere, signals are silent."""
    if not terminal.stderr_is_terminal or not text:
        return
    if isinstance(error, KeyboardInterrupt):
        terminal.end_interruption()
    terminal.note(f"interrupted: {text}")
