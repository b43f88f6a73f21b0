"""Run `xapi batch`, from the first input line to the exit code."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from xapi_cli import errors
from xapi_cli.auth.token_source import MAX_REPLAYS
from xapi_cli.batch import rate_limiter
from xapi_cli.batch.engine import Engine, Steps
from xapi_cli.batch.in_flight import InFlight, Outcome
from xapi_cli.batch.input import entries
from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.input.line_reader import Line, LineReader
from xapi_cli.batch.journal.journal import Journal
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.options import BatchOptions
from xapi_cli.batch.output import results
from xapi_cli.batch.output.results import Result, Tally
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.batch.source_files import check_roles, open_failed, open_input, open_journal, parse_shard, size_of
from xapi_cli.batch.writer import Writer
from xapi_cli.errors import (
    ClosedPipe,
    Interrupted,
    InvalidLine,
    OutputError,
    TimeoutExpired,
    TokenRejected,
    UsageError,
    XapiError,
)
from xapi_cli.http import authorization, retry
from xapi_cli.http.flow import FinalResponse, Policy
from xapi_cli.http.network import Network
from xapi_cli.request import read_only
from xapi_cli.request.calls import Call, displayed_without_query
from xapi_cli.request.items import with_defaults
from xapi_cli.request.redirects import redirected_call
from xapi_cli.system import own_process, signals
from xapi_cli.system.render import decimal, printable
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from xapi_cli.batch.output.call_lines import CallLines
    from xapi_cli.runtime import Runtime
    from xapi_cli.system.progress import Lines

_TRANSIENT = frozenset(map(str, retry.STATUSES))  # the kinds of results that --retry repeats
_GRACE_PERIOD = 8.0  # seconds for requests in flight after SIGTERM or SIGHUP; SIGKILL often follows after ten
_OTHER_DESCRIPTORS = 32  # those that this process has open, and those of a login
_TURN = 0.02  # seconds spent on lines that need no request before requests in flight are processed


def run(runtime: "Runtime", options: BatchOptions) -> None:
    """Run the batch; raises the error for the worst line, or the reason why lines were not sent."""
    with ExitStack() as stack:
        batch = Batch(runtime, options, stack)
        batch.send()
    batch.report()


class Batch:
    """Send the requests of the input lines concurrently, and print one line of output for each.

    *stack* closes what it opens. All arguments are checked, and all files are open, before anything is sent.
    """

    def __init__(self, runtime: "Runtime", options: BatchOptions, stack: ExitStack) -> None:
        self._runtime, self._options, self._terminal = runtime, options, runtime.terminal
        self._retries = runtime.settings.retry if options.retries is None else options.retries
        self._default_headers = runtime.default_headers
        if runtime.settings.read_only:
            read_only.check("GET", (name for name, _ in self._default_headers), remedy=runtime.write_remedy)
        self._write_remedy = runtime.write_remedy if runtime.settings.read_only else None
        self._base_url, self._deadline, self._max_time = runtime.base_url, runtime.deadline, runtime.max_time
        self._shard = None if options.shard is None else parse_shard(options.shard)
        rate = None if options.rate is None else rate_limiter.parse_rate(options.rate)
        self._limiter = RateLimiter(rate, pauses=self._retries > 0)
        runtime.keeps_connections = False  # the server may serve one connection at a time: that of the engine
        self._tokens = runtime.tokens()
        self._tally = Tally()
        self._call_lines = self._new_call_lines()
        self._stop_reason: XapiError | None = None  # why the remaining lines are not sent
        self._has_rest = False  # there are remaining lines, and a signal is the reason
        self._has_failed_fast = False
        self._has_sent = False
        self._has_refused_retries = False  # of methods that are not idempotent
        self._lines_taken = 0  # from the input, without blank lines
        self._cancel_time = float("inf")  # after a signal: when requests in flight are canceled
        self._terminal.write(b"")  # raises if stdout is closed
        source = open_input(options.file, self._terminal, stack)
        self._progress = None
        if self._terminal.shows_progress and not source.isatty():
            from xapi_cli.system.progress import Lines

            self._progress = stack.enter_context(self._terminal.during(Lines(size_of(source))))
        files = {"--failed": options.failed, "--journal": options.journal}
        check_roles(files, runtime.log_path, source, self._terminal)
        self._failed = None if options.failed is None else open_failed(options.failed, stack)
        self._journal = self._open_journal(source, stack)
        jobs = self._possible_jobs(own_process.raise_descriptor_limit())
        budget = MemoryBudget()
        self._writer = Writer(
            self._terminal.write,
            self._journal,
            budget,
            ordered=options.ordered,
            shown=self._call_lines.line if self._call_lines else None,
            failed=self._keep_source if self._failed else None,
        )
        self._engine = self._new_engine(budget, stack, jobs)
        self._lines = LineReader(source, self._engine.wake, digests=self._journal is not None)

    def send(self) -> None:
        """Send the requests, and print the lines; raises the errors that end the batch."""
        with self._completing_failed(), self._flushing_results(), signals.graceful_stop(self._on_signal):
            self._lines.start()
            while self._engine.step(has_more=self._has_more):
                self._writer.flush()
                if self._progress is not None:
                    self._show_progress(self._progress)
                if self._stop_reason is not None or self._deadline is not None:
                    self._check_time_limits()
            if isinstance(self._stop_reason, Interrupted):
                is_of_shard = self._shard.contains if self._shard else bool
                self._has_rest = self._engine.holds_line or self._lines.has_rest(is_of_shard)

    # setup

    def _open_journal(self, source: BinaryIO, stack: ExitStack) -> Journal | None:
        name = self._options.journal
        if name is None:
            return None
        identity = Identity(self._base_url, self._runtime.settings.username or "")
        return open_journal(name, identity, self._shard, source, stack)

    def _new_call_lines(self) -> "CallLines | None":
        """Return what shows the calls if stdout is a terminal; otherwise None, and programs get JSON."""
        if not self._terminal.stdout_is_terminal:
            return None
        from xapi_cli.batch.output.call_lines import CallLines

        return CallLines(self._base_url, lambda: self._terminal.stdout_columns, self._terminal.style)

    def _possible_jobs(self, descriptors: int | None) -> int:
        """Return how many requests can be in flight: each needs one of *descriptors*, which are unlimited if None."""
        jobs, others = self._options.jobs, _OTHER_DESCRIPTORS
        if descriptors is None or jobs <= (possible := max(1, descriptors - others)):
            return jobs
        requests = "one request" if possible == 1 else f"{possible} requests"
        self._terminal.warn(
            f"the limit of {descriptors} open files allows {requests} at a time, not {jobs};"
            f" use --jobs {possible}, or raise the hard limit (`ulimit -H -n`)"
        )
        return possible

    def _new_engine(self, budget: MemoryBudget, stack: ExitStack, jobs: int) -> Engine:
        runtime = self._runtime
        timeout, deadline = runtime.settings.timeout, self._deadline
        network = Network(timeout=timeout, ca_bundle=runtime.ca_bundle, environ=runtime.environ, deadline=deadline)
        engine = Engine(
            network,
            self._policy(),
            self._tokens,
            jobs=jobs,
            timeout=timeout,
            budget=budget,
            next_entry=self._next_entry,
            on_done=self._finish,
            limiter=self._limiter,
            ordered=self._options.ordered,
            interactive=self._terminal.interactive,
            on_login=self._on_login,
            log=runtime.request_log,
            on_pause=self._count_pause,
        )
        stack.callback(engine.close)
        return engine

    def _policy(self) -> Policy[Call]:
        return Policy(
            self._base_url,
            replays=MAX_REPLAYS,
            retries=self._retries,
            deadline=self._deadline,
            tokens=self._tokens,
            redirected=partial(redirected_call, base_url=self._base_url),
            note=self._count_retry,
        )

    @contextmanager
    def _flushing_results(self) -> Iterator[None]:
        """Print the available results, however the block ends."""
        try:
            yield
        except XapiError as error:
            if not isinstance(error, OutputError | ClosedPipe):
                self._writer.flush()
            raise
        else:
            self._writer.end()

    def _keep_source(self, line: bytes) -> None:
        """Write *line*, an input line that failed, to the file of --failed, which is completed only if that works."""
        assert self._failed is not None  # noqa: S101 - without --failed, the writer does not get this function
        try:
            self._failed.write(line)
        except OutputError:
            self._failed = None
            raise

    @contextmanager
    def _completing_failed(self) -> Iterator[None]:
        """Complete the file of --failed, however the block ends; its failure must not hide another one."""
        try:
            yield
        except BaseException:
            try:
                self._commit_failed()
            except OutputError as error:
                self._terminal.warn(str(error))
            raise
        self._commit_failed()

    def _commit_failed(self) -> None:
        if self._failed is not None:
            self._failed.commit()

    # input

    def _has_more(self) -> bool:
        return not self._lines.has_ended

    def _next_entry(self) -> Entry | None:
        """Return the next entry to send, or None if there is none yet; print the results of lines that are not sent."""
        end = float("inf")
        while True:
            if not self._writer.has_room or self._stop_reason is not None or self._has_failed_fast:
                return None
            try:
                line = self._lines.next_line()
                if line is None:
                    self._end_input()
                    return None
                entry = self._entry_of(line)
            except UsageError as error:  # the input has changed or cannot be read
                self._stop(error)
                return None
            if entry is not None:
                return entry
            now = time.monotonic()
            end = min(end, now + _TURN)
            if now >= end:
                break
        self._writer.flush()
        if self._progress is not None:
            self._show_progress(self._progress)
        self._engine.wake()
        return None

    def _end_input(self) -> None:
        if self._lines.has_ended and self._journal is not None and self._lines.digest is not None:
            self._journal.end_input(self._lines.digest)

    def _entry_of(self, line: Line) -> Entry | None:
        """Return the entry of *line*, or None if it is in another shard or the journal, or is not valid."""
        if self._shard is not None and not self._shard.contains(line.number):
            return None
        restored = self._journal.restore(line.number, line.digest) if self._journal else None
        if self._options.ordered:
            self._writer.expect(line.number)
        self._lines_taken += 1
        entry = self._parsed(line) if restored is None or self._call_lines or restored.kind in _TRANSIENT else None
        if restored is not None and not self._is_sent_again(restored, entry):
            self._add_result(restored, line.data, is_new=False)
            return None
        assert entry is not None  # noqa: S101 - it was parsed
        if entry.call is None:
            self._add_result(self._failure(entry, InvalidLine(entry.error or "")), line.data)
            return None
        if self._options.failed is not None and line.data is not None:
            entry.source = line.data
            entry.size += len(line.data)
        self._has_sent = True
        return entry

    def _is_sent_again(self, restored: Result, entry: Entry | None) -> bool:
        """Return whether *entry*, whose result is *restored*, is sent again: what a retry would have repeated."""
        if restored.kind not in _TRANSIENT or entry is None or entry.call is None:
            return False
        return entry.call.method in retry.IDEMPOTENT

    def _parsed(self, line: Line) -> Entry:
        entry = entries.parse(line, self._base_url, write_remedy=self._write_remedy)
        if self._default_headers and entry.call is not None:
            entry.call = entry.call._replace(headers=with_defaults(entry.call.headers, self._default_headers))
        if self._call_lines is not None:
            self._call_lines.add(entry)
        return entry

    # output

    def _finish(self, request: InFlight, outcome: Outcome) -> Steps | None:
        """Print the result of *request*; if more is to be done, return the steps that remain instead."""
        entry = request.entry
        if isinstance(outcome, FinalResponse) and outcome.is_rejection:
            outcome = self._rejection(entry)
        if isinstance(outcome, XapiError):
            self._add_result(self._failure(entry, outcome), entry.source)
            return None
        self._has_refused_retries = self._has_refused_retries or outcome.refused_retry is not None
        elapsed_ms = round((time.monotonic() - request.started) * 1000)
        try:
            result = results.response_line(entry, outcome.response, elapsed_ms)
        except XapiError as error:  # the body cannot be decoded
            result = self._failure(entry, error)
        if isinstance(result, Result):
            self._add_result(result, entry.source)
            return None
        return self._add_long_result(entry, result)

    def _add_long_result(self, entry: Entry, steps: results.Steps) -> Steps:
        try:
            result = yield from steps
        except XapiError as error:  # for example, the body is too large after decoding
            result = self._failure(entry, error)
        self._add_result(result, entry.source)

    def _rejection(self, entry: Entry) -> TokenRejected:
        assert entry.call is not None  # noqa: S101 - it has been sent
        message = f"{entry.call.method} {displayed_without_query(entry.call.url)} responded with 401"
        if authorization.is_set_by_user(entry.call.headers):
            return TokenRejected(message, hint=authorization.no_login_hint("line"))
        self._engine.record_rejection()
        return TokenRejected(message, hint=self._tokens.advice())

    def _failure(self, entry: Entry, error: XapiError) -> Result:
        """Return the result of *entry*, whose call failed with *error*; raise *error* if it ends the batch."""
        failure = errors.of_line(error)
        if failure is None:
            raise error
        return results.error_line(entry, failure, self._terminal.redactor.redact(str(failure)))

    def _add_result(self, result: Result, source: bytes | None, *, is_new: bool = True) -> None:
        """Count and print *result*, which is that of the input line *source*; None if that is too long to keep."""
        if result.code and self._options.failed is not None:
            result.source = source or b""
            if source is None:
                file = printable(self._options.failed)
                self._terminal.warn(f"line {result.number:,} is too long and was not written to {file}")
        self._writer.add(result, is_new=is_new)
        self._tally.count(result, is_new=is_new)
        if result.code and self._options.fail_fast:
            self._has_failed_fast = True
            self._engine.stop()

    # early end

    def _stop(self, reason: XapiError) -> None:
        """Send no more requests, because of *reason*; those in flight can finish."""
        self._stop_reason = self._stop_reason or reason
        self._engine.stop()

    def _on_signal(self, number: int) -> bool:
        """Stop gracefully after the signal *number*; return False to stop immediately, during an interactive login."""
        if self._engine.is_prompting:
            return False
        self._stop(Interrupted(number))
        self._cancel_time = time.monotonic() + (
            _GRACE_PERIOD if number != signal.SIGINT else self._runtime.settings.timeout
        )
        count = self._engine.in_flight - len(self._engine.delayed)
        if number == signal.SIGINT:
            self._terminal.begin_line()
        requests, them = ("request", "it") if count == 1 else ("requests", "them")
        limit = f" for at most {_GRACE_PERIOD:.0f} s"
        if number == signal.SIGINT:
            limit = f"; press Ctrl-C again to cancel {them}"
        doing = f": finishing {count} {requests} in flight{limit}" if count else ""
        self._terminal.note(f"{'interrupted' if number == signal.SIGINT else 'terminated'}{doing}")
        self._engine.wake()
        return True

    def _check_time_limits(self) -> None:
        if self._stop_reason is not None and time.monotonic() >= self._cancel_time:
            raise self._stop_reason
        deadline, limit = self._deadline, self._max_time
        if deadline is not None and limit is not None and time.monotonic() >= deadline:
            self._stop(TimeoutExpired(f"the batch did not finish within {decimal(limit)} s", hint="raise --max-time"))
            self._engine.cancel(TimeoutExpired("no response before --max-time expired", hint="raise --max-time"))

    # messages

    def report(self) -> None:
        """Report the outcome in one line; if the batch failed, raise an error with that line.

        On a terminal, the lines that failed may be far above, and are repeated before.
        """
        if self._call_lines is not None:
            self._terminal.write(self._call_lines.failures(self._terminal.stdout_rows))
        summary, code = self._tally.summary() + self._damage_note(), self._tally.exit_code
        if isinstance(self._stop_reason, Interrupted):
            self._terminal.note(f"{self._interrupted_summary(summary)}; {self._resume_hint()}")
            raise self._stop_reason
        if self._stop_reason is not None:
            raise type(self._stop_reason)(f"{self._stop_reason.message}; {summary}", hint=self._stop_reason.hint)
        if code:
            message, hint = self._common_error()
            summary += f": {message}" if message else ""
            raise errors.of_exit_code(code)(summary, hint=self._failure_hint(hint))
        self._terminal.note(summary)

    def _common_error(self) -> tuple[str | None, str | None]:
        """Return the message and the hint that several failed lines share, None for what differs or a table shows."""
        tally = self._tally
        if tally.failed < 2 or self._call_lines is not None:
            return None, None
        is_rejected = tally.exit_code == TokenRejected.exit_code  # the message names the URL of the line
        return tally.message, tally.hint if tally.message or is_rejected else None

    def _failure_hint(self, common: str | None) -> str:
        """Return what to do about the lines that failed; *common* is their own hint."""
        if self._has_failed_fast:
            return "no more lines were sent (--fail-fast)"
        failed = None if self._options.failed is None else printable(self._options.failed)
        if common is not None:
            return common + ("" if failed is None else f", then send {failed} again")
        lines = "its line" if self._tally.failed == 1 else "their lines"
        hint = f"see {lines} on stdout"
        if failed is not None and self._tally.invalid:
            what = "line" if self._tally.invalid == 1 else "lines"
            hint += f", correct the invalid {what} in {failed}, then send {failed}"
        elif failed is not None:
            hint += f", or send {failed} again"
        return retry.explained(hint, retry.REFUSALS if self._has_refused_retries else None) or hint

    def _damage_note(self) -> str:
        damaged = self._journal.damaged if self._journal else 0
        if not damaged:
            return ""
        what = "line in the journal was" if damaged == 1 else "lines in the journal were"
        consequence = ", so requests may have been sent again" if self._has_sent else ""
        return f"; {damaged:,} damaged {what} ignored{consequence}"

    def _interrupted_summary(self, summary: str) -> str:
        """Return *summary* with what is missing because of a signal, which may have come after the last line."""
        missing = []
        if unfinished := self._lines_taken - self._tally.lines - self._engine.holds_line:
            missing.append(f"{unfinished:,} {'line has' if unfinished == 1 else 'lines have'} no result")
        if self._has_rest:
            missing.append("the remaining lines were not sent")
        return f"stopped early: {'; '.join((summary, *missing))}" if missing else summary

    def _resume_hint(self) -> str:
        if self._journal is None:
            return "the lines on stdout are complete; use --journal FILE to be able to resume a batch"
        return "run the same command again to resume"

    def _on_login(self, begins: bool) -> None:
        self._terminal.pause_progress(begins)

    def _count_retry(self, text: str) -> None:
        """Count a retry; a line about each would hide everything else."""
        self._tally.retries += 1

    def _count_pause(self, text: str) -> None:
        """Count a pause; print *text* for the first one only."""
        self._tally.pauses += 1
        if self._tally.pauses == 1:
            self._terminal.note(text)

    def _show_progress(self, progress: "Lines") -> None:
        progress.retries = self._tally.retries
        progress.lines, progress.failed = self._tally.lines, self._tally.failed
        ended = self._tally.lines / max(1, self._lines_taken)  # the others are in flight
        progress.done = int(self._lines.position * ended) if self._lines_taken else self._lines.position
