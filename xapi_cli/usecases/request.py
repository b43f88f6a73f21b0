"""Run `xapi request`, from the command-line arguments to the exit code."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.http import urls
from xapi_cli.request import items
from xapi_cli.request.body import build as body

if TYPE_CHECKING:
    from xapi_cli.auth.account import Credentials
    from xapi_cli.request.atomic_file import AtomicFile
    from xapi_cli.request.body.build import Body
    from xapi_cli.request.calls import Call
    from xapi_cli.request.output import ErrorBody, ResponseOutput
    from xapi_cli.request.send import Answer, Exchange
    from xapi_cli.runtime import Runtime


_WRONG_METHODS = frozenset({405, 501})
_WHY_POST = "a body makes it a POST: for a query parameter write name==value; another METHOD goes before PATH"


@dataclass(frozen=True)
class RequestOptions:
    """The arguments and options of the command line."""

    words: Sequence[str] = field(repr=False)
    query: Sequence[str] = field(default=(), repr=False)
    headers: Sequence[str] = field(default=(), repr=False)
    data: str | None = field(default=None, repr=False)
    form: bool = False
    include: bool = False
    output: str | None = None
    retries: int = 0
    error_body: "ErrorBody" = "stdout"
    meta: str | None = None
    check_status: bool = True
    follow: bool = True
    automatic: bool = True


class Request:
    """Parse all arguments first, so that nothing is sent or opened if they are not valid."""

    def __init__(self, runtime: "Runtime", options: RequestOptions) -> None:
        self._runtime, self._options = runtime, options
        method, path, words = items.split_words(options.words)
        before = len(options.words) - len(words)
        self._items = items.parse(words, query=options.query, headers=options.headers, before=before)
        self._url = urls.resolve(runtime.base_url, path, self._items.query)
        self._method = method
        self._refuse_contradictions()

    def run(self) -> None:
        """Send the request and write the response; raises XapiError for an error status or a failed request."""
        with ExitStack() as stack:
            credentials = self._credentials()
            if credentials is not None:
                credentials.check()  # before stdin is read, which may block for long
            file = self._file(stack, self._options.output)
            meta = self._file(stack, self._options.meta)
            call = self._call(stack)
            exchange = self._exchange(credentials)
            delivery = self._delivery(file)
            report = _Report(self._runtime, exchange, delivery, credentials)
            try:
                report.answer = exchange.send(call)
                stack.callback(report.answer.response.close)
                delivery.deliver(report.answer.response)
            except BaseException:
                self._report_failure(report, meta)
                raise
            self._report(report, meta)
        self._raise_failure(report.answer, credentials)

    def print_curl(self) -> None:
        """Print the equivalent curl command."""
        from xapi_cli.request.curl import CurlCommand
        from xapi_cli.settings.resolve import DEFAULT_TIMEOUT

        options, settings = self._options, self._runtime.settings
        command = CurlCommand(
            self._method,
            self._url,
            self._items,
            data=options.data,
            form=options.form,
            flags=self._runtime.flags,
            include=options.include,
            output=None if options.output == "-" else options.output,
            follow=options.follow,
            check_status=options.check_status,
            automatic=options.automatic,
            retries=options.retries,
            error_body=options.error_body,
            meta=options.meta is not None,
            verbose=self._runtime.verbose,
            timeout=None if settings.timeout == DEFAULT_TIMEOUT else settings.timeout,
            max_time=settings.max_time,
            ca_bundle=settings.ca_bundle,
        )
        self._runtime.terminal.out_command(command.text())
        for difference in command.differences():
            self._runtime.terminal.note(difference)

    def _refuse_contradictions(self) -> None:
        options = self._options
        body.refuse_contradictions(self._items, options.data, form=options.form)
        if self._items.uploads and any(name.lower() == "content-type" for name, _ in self._items.headers):
            raise UsageError(
                "an upload makes its own Content-Type, which names the boundary", hint="leave the header out"
            )
        both = options.output and options.meta and options.meta != "-"
        if both and os.path.realpath(str(options.output)) == os.path.realpath(str(options.meta)):
            raise UsageError("-o and --meta name the same file", hint="choose two names")

    def _credentials(self) -> "Credentials | None":
        """Return the source of the token, or None if the user sets or removes the Authorization header."""
        if any(name.lower() == "authorization" for name, _ in self._items.headers):
            return None
        return self._runtime.credentials(automatic=self._options.automatic)

    def _file(self, stack: ExitStack, name: str | None) -> "AtomicFile | None":
        """Open the file *name* before anything is sent, because a response that cannot be saved is lost."""
        if name in (None, "-"):
            return None
        from xapi_cli.request.atomic_file import AtomicFile

        file = AtomicFile(str(name))
        stack.push(file)  # before the file is created: a signal in between would leave a temporary file
        file.open()
        return file

    def _call(self, stack: ExitStack) -> "Call":
        from xapi_cli.request.calls import Call

        content = self._body()
        if content is not None:
            stack.callback(content.close)
        method = self._method or ("GET" if content is None else "POST")
        return Call(method, self._url, tuple(self._items.headers), content)

    def _body(self) -> "Body | None":
        return body.build(
            self._items, data=self._options.data, form=self._options.form, stdin=self._runtime.terminal.stdin
        )

    def _exchange(self, credentials: "Credentials | None") -> "Exchange":
        from xapi_cli.request.send import Exchange

        runtime = self._runtime
        return Exchange(
            runtime.wire,
            runtime.base_url,
            credentials,
            follow=self._options.follow,
            retries=self._options.retries,
            deadline=runtime.deadline,
            note=runtime.terminal.note,
        )

    def _delivery(self, file: "AtomicFile | None") -> "ResponseOutput":
        from xapi_cli.request.output import ResponseOutput

        options = self._options
        return ResponseOutput(
            self._runtime.terminal,
            file,
            include=options.include,
            error_body=options.error_body,
            file_takes_errors=not options.check_status,
        )

    def _report_failure(self, report: "_Report", file: "AtomicFile | None") -> None:
        """Write the --meta report of a failed call; an error in writing it must not hide the failure."""
        try:
            self._report(report, file)
        except XapiError as error:
            self._runtime.terminal.warn(str(error))

    def _report(self, report: "_Report", file: "AtomicFile | None") -> None:
        if self._options.meta is not None:
            report.write(file)

    def _raise_failure(self, answer: "Answer | None", credentials: "Credentials | None") -> None:
        from xapi_cli.request.send import failure

        if answer is not None:
            error = failure(answer, credentials, check_status=self._options.check_status)
            if error is not None:
                if answer.status in _WRONG_METHODS and self._method is None and answer.response.request.method != "GET":
                    error.hint = _WHY_POST
                raise error


class _Report:
    """The data that --meta writes about a call, whether it succeeds or fails."""

    def __init__(
        self, runtime: "Runtime", exchange: "Exchange", delivery: "ResponseOutput", credentials: "Credentials | None"
    ) -> None:
        self._runtime, self._exchange, self._delivery, self._credentials = runtime, exchange, delivery, credentials
        self._started = time.monotonic()
        self.answer: Answer | None = None

    def write(self, file: "AtomicFile | None") -> None:
        """Write the data to *file*, or to stderr if it is None; raises OutputError or ClosedPipe."""
        import json

        line = json.dumps(self._facts())
        if file is None:
            self._runtime.terminal.answer_aside(line.encode() + b"\n")
        else:
            file.write(line.encode() + b"\n")
            file.keep()

    def _facts(self) -> dict[str, Any]:
        from xapi_cli.request.verbose import joined_headers

        response = self.answer.response if self.answer else None
        return {
            "status": response.status_code if response else None,
            "headers": joined_headers(response.headers.raw) if response else {},
            "http_version": str(response.extensions.get("http_version", b""), "ascii") if response else None,
            "elapsed_ms": round((time.monotonic() - self._started) * 1000),
            "attempts": self._exchange.attempts,
            "login": self._credentials.login_reason if self._credentials else None,
            "bytes": self._delivery.delivered,
        }
