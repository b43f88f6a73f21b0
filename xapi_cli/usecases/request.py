"""Run `xapi request`, from the command-line arguments to the exit code."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from xapi_cli.errors import FilterError, NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http import authorization, retry, urls
from xapi_cli.request import combinations, items
from xapi_cli.request.items import STDIN
from xapi_cli.request.options import RequestOptions, retries_of
from xapi_cli.settings import paths
from xapi_cli.system.render import size

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.request.body.spool import Body
    from xapi_cli.request.calls import Call
    from xapi_cli.request.expectations import Expectations
    from xapi_cli.request.files.atomic_file import AtomicFile
    from xapi_cli.request.files.partial_file import PartialFile
    from xapi_cli.request.jq.filter import Filter
    from xapi_cli.request.output import ResponseOutput
    from xapi_cli.request.send import LastResponse, Outcome, Sender
    from xapi_cli.request.upload import Upload
    from xapi_cli.runtime import Runtime

_CONCERNS_RESPONSE = (FilterError, NetworkError, TimeoutExpired)
_METHOD_REJECTED = frozenset({405, 501})
_METHOD_HINT = "a body makes it a POST: write a query parameter as name==value, or give METHOD (such as PUT) first"


def run(runtime: "Runtime", options: RequestOptions) -> None:
    """Send the request of *options* or print it as a curl command; raises XapiError as `Request` does."""
    options.check_pages()
    request = Request(runtime, options)
    request.warn_of_difference()
    if options.curl:
        request.print_curl()
    else:
        request.run()


class Request:
    """A request with valid arguments: all of them are parsed before anything is sent or opened.

    Raises UsageError if an argument is not valid.
    """

    def __init__(self, runtime: "Runtime", options: RequestOptions) -> None:
        retries = retries_of(options.retries, runtime.settings.retry, unsafe=options.retry_unsafe)
        options = options._replace(retries=retries)
        self._runtime, self._options = runtime, options
        if options.filter is not None:
            from xapi_cli.request.jq.engine import check_text

            check_text(options.filter)  # after an option of jq, its filter would be reported as an ITEM
        conditions = [("--expect", text) for text in options.expect]
        if options.until is not None:
            conditions.append(("--until", options.until))
        for name, text in conditions:
            from xapi_cli.request.jq.engine import check_text

            check_text(text, name)
        self._method, self._path, self._item_arguments = items.split_arguments(options.arguments)
        self._value = cache(self._read_value)  # a pipe can be read only once
        self._key = cache(lambda: retry.key_from(os.urandom(16)))  # stays the same until the end
        self._parse_items(lambda path: path if path == STDIN else self._value(path))
        combinations.check(options, self._items, self._method)
        self._every = self._interval()

    def _parse_items(self, read: Callable[[str], str]) -> None:
        options = self._options
        self._items = items.parse(
            self._item_arguments,
            query=options.query,
            headers=options.headers,
            before=len(options.arguments) - len(self._item_arguments),
            read=read,
        )
        defaults = self._runtime.default_headers
        if options.curl:  # the values of the others may be secrets
            defaults = tuple(header for header in defaults if header not in self._secret_headers())
        self._items.headers[:] = items.with_defaults(self._items.headers, defaults)
        if options.retry_unsafe:
            self._items.headers[:] = retry.with_key(self._sent_method, self._items.headers, self._key)
        self._url = urls.resolve(self._runtime.base_url, self._path, self._items.query)

    def _secret_headers(self) -> "list[tuple[str, str]]":
        """Return the default headers whose values are secrets."""
        from xapi_cli.system.redact import secret_values

        headers = self._runtime.settings.headers
        secrets = set(secret_values(headers))
        return [header for header in headers if header[1] in secrets]

    def _read_value(self, path: str) -> str:
        from xapi_cli.request.body.sources import read_value

        return read_value(path, lambda: self._runtime.terminal.noted_stdin("the value"))

    def _read_stdin(self) -> None:
        """Read the value that is in stdin, which may block for long."""
        if STDIN in self._items.files:
            self._parse_items(self._value)

    def warn_of_difference(self) -> None:
        """Warn if the request differs from the API description of the profile, if one is loaded; never raise."""
        runtime, options = self._runtime, self._options
        if not options.validate or runtime.settings.no_validate:
            return
        try:
            if not os.path.isdir(paths.state_directory(runtime.environ) / "api"):  # the usual case: one system call
                return
        except UsageError:  # a request with XAPI_TOKEN does not need this directory
            return
        from xapi_cli.request.description_check import warning

        request = (self._method, self._url, self._items, options)
        if found := warning(lambda: runtime.state_directory, runtime.settings.profile, runtime.base_url, *request):
            runtime.terminal.warn(runtime.with_profile(found) or found)

    def run(self) -> None:
        """Send the request and write the response; raises XapiError for an error status or a failed request."""
        if self._runtime.settings.read_only:
            from xapi_cli.request import read_only

            read_only.check(self._sent_method, (name for name, _ in self._items.headers))
        with ExitStack() as stack:
            expectations = self._expectations(stack)
            outcome, tokens, output = self._send(expectations)
            self._raise_for_status(outcome, tokens, output)
            if expectations is not None:
                self._check(expectations, outcome)

    def _send(self, expectations: "Expectations | None") -> "tuple[Outcome, TokenSource | None, ResponseOutput]":
        """Send the request and write the response; return it, the source of the token, and the output."""
        from xapi_cli.request.send import LastResponse, concern_call

        with ExitStack() as stack:
            tokens = self._tokens()
            if tokens is not None:
                tokens.check()  # before stdin is read
            self._read_stdin()
            jq = self._filter(stack)
            condition = self._condition(stack)
            file = self._open_output(stack)
            meta_file = self._open_file(stack, self._options.meta)
            call = self._call(stack)
            upload = self._upload()
            sender = self._sender(tokens, upload)
            output = self._output(file, jq)
            output.expectations = expectations
            last, started = LastResponse(), time.monotonic()
            stack.callback(last.close)

            def write_meta() -> None:
                if self._options.meta is not None:
                    from xapi_cli.request import meta

                    self._write_meta(meta_file, meta.line(last.outcome, started, sender, output, tokens))

            try:
                if condition is not None:
                    self._poll(sender, output, call, condition, last.take)
                elif self._options.pages is None:
                    self._exchange(sender, output, file, call, _received(last, upload))
                else:
                    self._paginate(sender, output, call, last, tokens)
            except BaseException as error:
                if isinstance(error, _CONCERNS_RESPONSE):
                    concern_call(error, call, last.outcome)
                try:
                    write_meta()
                except XapiError as unwritten:  # it must not hide the failure
                    self._runtime.terminal.warn(str(unwritten))
                self._report_unfinished(error, output, file, "" if last.outcome else self._unfinished_upload(upload))
                raise
            write_meta()
        assert last.outcome is not None  # noqa: S101 - otherwise, an exception was raised
        return last.outcome, tokens, output

    def _exchange(
        self,
        sender: "Sender",
        output: "ResponseOutput",
        file: "AtomicFile | PartialFile | None",
        call: "Call",
        received: "Callable[[Outcome], None]",
    ) -> None:
        """Send *call* and write the body of its response, which *received* takes before."""
        if not self._options.resume:
            outcome = sender.send(call)
            received(outcome)
            output.write(outcome.response)
            return
        from xapi_cli.request.download import Download
        from xapi_cli.request.files.partial_file import PartialFile

        assert isinstance(file, PartialFile)  # noqa: S101 - see _open_output
        Download(sender, output, file, received=received, note=self._runtime.terminal.note).run(call)

    def _poll(
        self,
        sender: "Sender",
        output: "ResponseOutput",
        call: "Call",
        condition: "Filter",
        received: "Callable[[Outcome], None]",
    ) -> None:
        """Send *call* until *condition* accepts the body of its response, and write that."""
        from xapi_cli.request.polling import NotMet, Polling
        from xapi_cli.system import signals
        from xapi_cli.system.progress import Attempts

        runtime = self._runtime
        limit, deadline = runtime.max_time, runtime.deadline
        assert limit is not None  # noqa: S101 - there is a default
        assert deadline is not None  # noqa: S101 - likewise
        attempts = Attempts()
        polling = Polling(
            sender, condition, self._every, deadline=deadline, limit=limit, received=received, attempts=attempts
        )
        with polling:
            try:
                with runtime.terminal.during(attempts):
                    outcome, body = polling.run(call)
            except NotMet:
                signals.cancel_alarm()  # it would end the output of the last body
                if polling.last is not None:
                    output.write_failure(polling.last.response, polling.body)
                raise
            output.write(outcome.response, body)

    def _paginate(
        self,
        sender: "Sender",
        output: "ResponseOutput",
        call: "Call",
        last: "LastResponse",
        tokens: "TokenSource | None",
    ) -> None:
        """Send *call* and the calls for the following pages, and write the items."""
        from xapi_cli.request.pages.item_output import ItemOutput
        from xapi_cli.request.pages.paginate import Pages

        assert self._options.pages is not None  # noqa: S101 - the caller has checked it
        pages = Pages(
            sender,
            tokens,
            self._options.pages,
            ItemOutput(output, slurp=self._options.pages.slurp),
            output,
            base_url=self._runtime.base_url,
            received=last.take,
            note=self._runtime.terminal.note,
        )
        try:
            pages.run(call)
        except BaseException as error:
            if output.file is None:
                from xapi_cli.request.files import unfinished

                unfinished.report(error, self._runtime.terminal, pages.remaining())
            raise

    def print_curl(self) -> None:
        """Print the equivalent curl command."""
        from xapi_cli.request.curl import CurlCommand
        from xapi_cli.settings.table import DEFAULT_TIMEOUT

        if STDIN in self._items.files:
            raise UsageError("--curl cannot show a value that is read from stdin", hint="read it from a file")
        runtime, settings = self._runtime, self._runtime.settings
        command = CurlCommand(
            self._options,
            self._sent_method,
            self._url,
            self._items,
            flags=runtime.flags,
            verbose=runtime.verbose,
            timeout=None if settings.timeout == DEFAULT_TIMEOUT else settings.timeout,
            max_time=settings.max_time,
            ca_bundle=settings.ca_bundle,
        )
        runtime.terminal.print_command(command.text())
        if omitted := [name for name, _ in self._secret_headers()]:
            runtime.terminal.note(f"omitted from the command, because their values are secrets: {', '.join(omitted)}")
        for difference in command.differences():
            runtime.terminal.note(difference)

    def _tokens(self) -> "TokenSource | None":
        """Return the source of the token, or None if the user sets or removes the Authorization header."""
        if authorization.is_set_by_user(self._items.headers):
            return None
        return self._runtime.tokens(
            automatic=self._options.automatic, once=self._options.pages is None and self._options.until is None
        )

    def _open_output(self, stack: ExitStack) -> "AtomicFile | PartialFile | None":
        """Open the file of -o."""
        if not self._options.resume:
            return self._open_file(stack, self._options.output)
        from xapi_cli.request.files.partial_file import PartialFile

        file = PartialFile(str(self._options.output), self._source())
        stack.push(file)
        file.open()
        return file

    def _source(self) -> str:
        """Return all that the content of a resumable file depends on, including secrets: URL, account and headers."""
        import json

        runtime, headers = self._runtime, [(name.lower(), value) for name, value in self._items.headers]
        if authorization.is_set_by_user(headers):
            account: object = None
        else:
            account = runtime.supplied_token() or runtime.identity  # a renewed token of an account changes nothing
        return json.dumps([self._url, account, headers])

    def _open_file(self, stack: ExitStack, name: str | None) -> "AtomicFile | None":
        """Open the file *name* before anything is sent, because a response that cannot be saved is lost."""
        if name in (None, "-"):
            return None
        from xapi_cli.request.files.atomic_file import AtomicFile

        file = AtomicFile(str(name))
        stack.push(file)  # before the file is created: a signal in between would leave a temporary file
        file.open()
        return file

    def _call(self, stack: ExitStack) -> "Call":
        from xapi_cli.request.calls import Call

        content = self._body()
        if content is not None:
            stack.callback(content.close)
        return Call(self._sent_method, self._url, tuple(self._items.headers), content)

    @property
    def _sent_method(self) -> str:
        return items.sent_method(self._method, has_body=self._has_body)

    @property
    def _has_body(self) -> bool:
        return self._items.has_body(self._options.data)

    def _body(self) -> "Body | None":
        if not self._has_body:
            return None
        from xapi_cli.request.body.build import build

        options = self._options
        return build(
            self._items,
            data=options.data,
            form=options.form,
            stdin=lambda: self._runtime.terminal.noted_stdin("the body" if options.data else "the value"),
        )

    def _sender(self, tokens: "TokenSource | None", upload: "Upload | None") -> "Sender":
        from xapi_cli.request.send import Sender, show_nothing

        runtime = self._runtime
        return Sender(
            runtime.http_client,
            runtime.base_url,
            tokens,
            follow=self._options.follow,
            retries=self._options.retries or 0,
            unsafe=self._options.retry_unsafe,
            deadline=runtime.deadline,
            note=runtime.terminal.note,
            uploading=show_nothing if upload is None else upload.sending,
        )

    def _filter(self, stack: ExitStack) -> "Filter | None":
        """Return the filter of --jq, which *stack* closes; raises UsageError if it cannot be compiled."""
        if self._options.filter is None:
            return None
        from xapi_cli.request.jq.filter import Filter

        options, terminal = self._options, self._runtime.terminal
        is_shown = terminal.stdout_is_terminal and options.output in (None, "-")
        is_plain = not is_shown and options.look(is_terminal=False, has_colors=False).is_plain
        found = Filter(
            self._options.filter,
            self._runtime.environ,
            for_items=options.pages is not None,
            encode="tostring" if is_plain else "tojson",
        )
        stack.callback(found.close)
        return found

    def _condition(self, stack: ExitStack) -> "Filter | None":
        """Return the filter of --until, which *stack* closes; raises UsageError if it cannot be compiled."""
        if self._options.until is None:
            return None
        from xapi_cli.request.jq.filter import Filter

        found = Filter(self._options.until, self._runtime.environ, option="--until", encode="tojson")
        stack.callback(found.close)
        return found

    def _interval(self) -> float:
        """Return the seconds between two requests for --until; raises UsageError if --every is not valid."""
        if self._options.until is None:
            return 0.0
        from xapi_cli.request.polling import DEFAULT_LIMIT
        from xapi_cli.settings import durations

        self._runtime.default_max_time = DEFAULT_LIMIT
        if self._options.every is None:
            return 2.0
        every = durations.seconds(self._options.every, name="--every")
        if every <= 0:
            raise UsageError("--every must be greater than 0", hint="write a time such as 2s")
        return every

    def _expectations(self, stack: ExitStack) -> "Expectations | None":
        """Return the filters of --expect, which *stack* closes; raises UsageError if one cannot be compiled."""
        if not self._options.expect:
            return None
        from xapi_cli.request.expectations import Expectations

        return stack.enter_context(Expectations(self._options.expect, self._runtime.environ))

    def _output(self, file: "AtomicFile | PartialFile | None", jq: "Filter | None") -> "ResponseOutput":
        from xapi_cli.request.output import ResponseOutput

        options = self._options
        return ResponseOutput(
            self._runtime.terminal,
            options.look,
            file,
            include=options.include,
            error_body=options.error_body(has_json_messages=self._runtime.terminal.has_json_messages),
            writes_errors_to_file=not options.check_status,
            filter=jq,
        )

    def _report_unfinished(
        self, error: BaseException, output: "ResponseOutput", file: "AtomicFile | PartialFile | None", sent: str
    ) -> None:
        """State what remains of the download to *file*: in *error*, or in a note if it is reported silently.

        Without a file, a note about an interruption states what was *sent*, or what a redirected stdout has received.
        """
        from xapi_cli.request.files import unfinished

        if file is None or (sent and not file.kept):
            is_redirected = self._runtime.terminal.stdout_is_file and self._options.pages is None and output.size
            received = f"{size(output.size)} received; the output is incomplete" if is_redirected else ""
            unfinished.report(error, self._runtime.terminal, sent or received, only_if_silent=True)
            return
        if file.kept:
            unfinished.report(error, self._runtime.terminal, file.kept, "run the same command again to resume")
            return
        discarded = f"{size(output.size)} discarded" if output.size else ""
        if self._options.resume:
            how = "run the command again, because the server cannot resume it"
            unfinished.report(error, self._runtime.terminal, discarded, how, only_if_silent=not file.count)
        elif discarded:
            how = "" if self._options.pages else "use --continue to keep partial downloads"
            unfinished.report(error, self._runtime.terminal, discarded, how, only_if_silent=True)

    def _upload(self) -> "Upload | None":
        if not self._has_body:
            return None
        from xapi_cli.request.upload import Upload

        return Upload(self._runtime.terminal)

    def _unfinished_upload(self, upload: "Upload | None") -> str:
        """Return what is known about the body of the request if there was no response."""
        return "" if upload is None else upload.interrupted(is_safe=self._sent_method in retry.IDEMPOTENT)

    def _write_meta(self, file: "AtomicFile | None", line: bytes) -> None:
        """Write the --meta object to *file*, or to stderr if it is None; raises OutputError or ClosedPipe."""
        if file is None:
            self._runtime.terminal.write_result_to_stderr(line)
        else:
            file.write(line)
            file.commit()

    @staticmethod
    def _check(expectations: "Expectations", outcome: "Outcome") -> None:
        """Raise ExpectationFailed if the body of *outcome* does not meet *expectations*."""
        from xapi_cli.request.send import concern

        try:
            expectations.check()
        except XapiError as error:
            concern(error, outcome.response)
            raise

    def _raise_for_status(self, outcome: "Outcome", tokens: "TokenSource | None", output: "ResponseOutput") -> None:
        from xapi_cli.request.send import status_error

        error = status_error(outcome, tokens, check_status=self._options.check_status, body=output.beginning)
        if error is None:
            return
        response = outcome.response
        if response.status_code in _METHOD_REJECTED and self._method is None and response.request.method != "GET":
            error.hint = _METHOD_HINT
        raise error


def _received(last: "LastResponse", upload: "Upload | None") -> "Callable[[Outcome], None]":
    """Return what takes a response: the upload has ended by then."""

    def received(outcome: "Outcome") -> None:
        if upload is not None:
            upload.note()
        last.take(outcome)

    return received
