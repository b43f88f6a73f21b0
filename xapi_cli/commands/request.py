"""`xapi request`: its options, its steps, and what it says about what remained of a request."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xapi_cli import feature_table
from xapi_cli.cli.options import ACCOUNT, CALLS, chosen, completer, settings_flags
from xapi_cli.errors import FilterError, Interrupted, NetworkError, TimeoutExpired, XapiError
from xapi_cli.hints import together
from xapi_cli.http import authorization, urls
from xapi_cli.request.options import ROWS, RequestOptions
from xapi_cli.request.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.http.messages import Body
    from xapi_cli.http.send import Outcome, Sender
    from xapi_cli.request.output import ResponseOutput
    from xapi_cli.system.files import OutputFile
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


_INSTEAD = {  # of curl, gh and HTTPie
    "-F": "write name=value",
    "-G": "write name==value",
    "-I": "use the method HEAD",
    "-L": "redirects are followed",
    "-O": "use -o FILE",
    "-k": "use --ca-bundle FILE",
    "-m": "use --max-time",
    "-q": "use --jq",
    "-s": "use --quiet",
    "-w": "use --meta FILE",
    "--data-raw": "use -d",
    "--fail": "a status of 400 or higher is an error",
    "--input": "use -d @FILE",
    "--insecure": "use --ca-bundle FILE",
    "--json": "write name=value, or use -d",
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
    plan = Plan(context, options)
    feature_table.prepare(plan, values)
    if plan.instead is not None:
        plan.instead()
        return
    if context.settings.read_only:
        from xapi_cli.request import read_only

        read_only.check(plan.sent_method, (name for name, _ in plan.items.headers), remedy="add --write")
    with ExitStack() as stack:
        Sending(plan, stack).run()


request.__doc__ = "\n".join([(request.__doc__ or "").rstrip(), *(f"      {each}" for each in feature_table.examples())])


class Sending:
    """Send the request of *plan* and write its response.

    All files and filters are opened before anything is sent; *stack* closes them. A feature uses `call`, `sender`,
    `output`, `tokens` and `take`, and may append to `checks`.
    """

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        from xapi_cli.http.send import Call

        self.plan, self.context, self.options = plan, plan.context, plan.options
        self.tokens: TokenSource | None = None  # without one, the user sets or removes the Authorization header
        if not authorization.is_set_by_user(plan.items.headers):
            self.tokens = self.context.tokens(automatic=self.options.automatic)
            self.tokens.check()  # before stdin is read
        plan.read_stdin()
        opened = plan.open_output
        self.file: Any = opened(self, stack) if opened is not None else _open_file(stack, self.options.output)
        self._meta_file = _open_file(stack, self.options.meta)
        body = self._new_body(stack)
        self.call = Call(plan.sent_method, plan.url, tuple(plan.items.headers), body)
        self.sender = self._new_sender()
        self.output = self._new_output()
        self.last: Outcome | None = None  # the last response
        self._other_origin = ""  # from which a response came, after a note
        self._started = time.monotonic()
        stack.callback(self._close_last)
        self.checks: list[Callable[[], None]] = []  # after a success
        for opens in plan.opens:
            opens(self, stack)

    def run(self) -> None:
        """Send the request and write the response; raises XapiError for an error status or a failed request."""
        from xapi_cli.request.status_errors import concern, concern_call

        try:
            if self.plan.exchange is not None:
                self.plan.exchange(self)
            else:
                outcome = self.sender.send(self.call)
                self.take(outcome)
                self.output.write(outcome.response)
        except BaseException as error:
            if isinstance(error, _CONCERNS_RESPONSE):
                concern_call(error, self.call, self.last)
            try:
                self._write_meta()
            except XapiError as unwritten:  # it must not hide the failure
                self.context.terminal.warn(unwritten.advice)
            raise
        self._write_meta()
        assert self.last is not None  # noqa: S101 - otherwise, an exception was raised
        self._raise_for_status(self.last)
        try:
            for check in self.checks:
                check()
        except XapiError as error:
            concern(error, self.last.response)
            raise

    def _raise_for_status(self, outcome: "Outcome") -> None:
        from xapi_cli.request.status_errors import status_error

        check_status = self.options.check_status
        error = status_error(outcome, self.tokens, check_status=check_status, body=self.output.beginning)
        if error is None:
            return
        is_default = self.plan.method is None and outcome.response.request.method != "GET"
        if outcome.response.status in _METHOD_REJECTED and is_default:
            error.hint = _METHOD_HINT
        raise error

    def take(self, outcome: "Outcome") -> None:
        """Take the response *outcome*, which is closed when the next one arrives."""
        self._close_last()
        self.last = outcome
        where = "" if outcome.from_api else urls.displayed(urls.root(outcome.response.request.url))
        if where not in ("", self._other_origin):
            self._other_origin = where
            self.context.terminal.note(f"the response came from another origin, {where}, without the token")

    def _close_last(self) -> None:
        if self.last is not None:
            self.last.response.close()

    def add_remainder(self, error: BaseException, what: str) -> None:
        """State *what* is left to do after *error* in its hint, or in a note on a terminal if it is an interruption."""
        from xapi_cli.system import signals

        terminal: Terminal = self.context.terminal
        failure = error if isinstance(error, XapiError) else getattr(error, "failure", None)
        if isinstance(failure, Interrupted) or isinstance(error, KeyboardInterrupt):
            if what and terminal.stderr_is_terminal:
                if isinstance(error, KeyboardInterrupt):
                    terminal.end_interruption()
                terminal.note(f"interrupted: {what}")
        elif what and failure is not None:
            signals.cancel_alarm()  # its failure would replace this one while the files are closed
            failure.hint = together(failure.hint, "; ", what) if failure.hint else what

    # what is made before anything is sent

    def _new_body(self, stack: ExitStack) -> "Body | None":
        if not self.plan.has_body:
            return None
        from xapi_cli.request.body.build import build
        from xapi_cli.request.body.spool import Shown

        options = self.options
        body = build(
            self.plan.items,
            data=options.data,
            form=options.form,
            stdin=lambda: self.context.terminal.noted_stdin("the body" if options.data else "the value"),
        )
        if body is None:
            return None
        stack.callback(body.close)
        return Shown(body, self.context.terminal) if self.context.terminal.shows_progress else body

    def _new_sender(self) -> "Sender":
        from xapi_cli.http.send import Sender

        context = self.context
        return Sender(
            context.transport,
            context.base_url,
            self.tokens,
            follow=self.options.follow,
            retries=context.settings.retry,
            deadline=context.deadline,
            note=context.terminal.note,
        )

    def _new_output(self) -> "ResponseOutput":
        from xapi_cli.request.output import ResponseOutput

        options, terminal = self.options, self.context.terminal
        error_body = options.errors_to or "stdout"
        if options.errors_to is None and self.plan.prints_items:  # stdout has items or results
            error_body = "none" if terminal.has_json_messages else "stderr"
        output = ResponseOutput(
            terminal,
            self.file,
            include=options.include or self.plan.sent_method == "HEAD",
            log=self.context.verbose_log if options.verbose > 1 else None,
            error_body=error_body,
            writes_errors_to_file=not options.check_status,
        )
        if options.csv:
            from xapi_cli.request.csv_table import TableFilter, parse_fields

            output.filter = TableFilter(parse_fields(options.fields or ""), terminal.warn)
        return output

    def _write_meta(self) -> None:
        """Write the --meta object to its file or to stderr; raises OutputError or ClosedPipe."""
        if self.options.meta is None:
            return
        line = _meta_line(self.last, self._started, self.sender, self.output, self.tokens)
        if self._meta_file is None:
            self.context.terminal.write_result_to_stderr(line)
        else:
            self._meta_file.write(line)
            self._meta_file.commit()


def _open_file(stack: ExitStack, name: str | None) -> "OutputFile | None":
    """Open the file *name* before anything is sent, because a response that cannot be saved is lost."""
    if name is None or name == "-":
        return None
    from xapi_cli.system.files import OutputFile

    file = OutputFile(name)
    stack.callback(file.close)  # before it is created: a signal in between would leave a temporary file
    file.open()
    return file


def _meta_line(
    outcome: "Outcome | None",
    started: float,
    sender: "Sender",
    output: "ResponseOutput",
    tokens: "TokenSource | None",
) -> bytes:
    """Return the line of JSON that --meta writes; *outcome* is of the last response, *started* a monotonic time."""
    import json

    response = outcome.response if outcome else None
    facts = {
        "status": response.status if response else None,
        "headers": response.headers.joined() if response else {},
        "http_version": f"HTTP/{response.version.decode()}" if response else None,
        "elapsed_ms": round((time.monotonic() - started) * 1000),
        "attempts": sender.attempts,
        "login": tokens.login_reason if tokens else None,
        "bytes": output.size,
    }
    return json.dumps(facts).encode() + b"\n"
