"""Run `xapi batch`, from the first input line to the exit code."""

import codecs
import os
import signal
import stat
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from xapi_cli.auth.token_source import TokenSource
from xapi_cli.batch import entries, results
from xapi_cli.batch.engine import Engine, InFlight
from xapi_cli.batch.entries import Entry
from xapi_cli.batch.flow import Answer, Policy
from xapi_cli.batch.journal import Journal
from xapi_cli.batch.line_reader import Line, LineReader
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.network import Network
from xapi_cli.batch.progress import Progress
from xapi_cli.batch.results import Result
from xapi_cli.batch.writer import Writer
from xapi_cli.errors import (
    AuthenticationError,
    ClientStatusError,
    Interrupted,
    NetworkError,
    ServerStatusError,
    TimeoutExpired,
    TokenRejected,
    UsageError,
    XapiError,
)
from xapi_cli.system import signals
from xapi_cli.system.render import inert_json, printable
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_DRAIN = 8.0  # seconds for requests in flight after SIGTERM or SIGHUP; SIGKILL often follows after ten
_TURN = 0.02  # seconds spent on lines that need no request before requests in flight are processed
_FAILURES: dict[int, type[XapiError]] = {
    each.exit_code: each
    for each in (UsageError, ClientStatusError, ServerStatusError, AuthenticationError, NetworkError, TimeoutExpired)
}


@dataclass(frozen=True)
class BatchOptions:
    """The options of the command line."""

    file: str | None = None
    jobs: int = 16
    ordered: bool = False
    retries: int = 0
    fail_fast: bool = False
    journal: str | None = None


class Batch:
    """Send the requests of the input lines concurrently, and print one line of output for each."""

    def __init__(self, runtime: "Runtime", options: BatchOptions) -> None:
        self._runtime, self._options, self._terminal = runtime, options, runtime.terminal
        self._base_url = runtime.base_url
        self._shared = TokenSource(runtime.credentials())
        self._tally = _Tally()
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # for output to a terminal
        self._ending: XapiError | None = None  # why the remaining lines are not sent
        self._has_failed_fast = False
        self._drained = float("inf")  # after a signal: when requests in flight are canceled

    def run(self) -> None:
        """Run the batch; raises the error for the worst line, or the reason why lines were not sent."""
        with ExitStack() as stack:
            self._terminal.write(b"")  # raises if stdout is closed, before anything is sent
            source = self._source(stack)
            self._progress = self._new_progress(source)
            self._journal = self._opened_journal(stack, source)
            budget = MemoryBudget()
            self._writer = Writer(self._write, self._journal, budget, ordered=self._options.ordered)
            self._engine = self._new_engine(stack, budget)
            self._lines = LineReader(source, self._engine.wake, digests=self._journal is not None)
            with self._flying(), signals.gently(self._interrupt):
                self._lines.start()
                while self._engine.step(has_more=self._has_more):
                    self._writer.flush()
                    self._show_progress()
                    self._check_time()
        self._tell()

    # setup
    def _source(self, stack: ExitStack) -> BinaryIO:
        name = self._options.file
        if name in (None, "-"):
            stdin = self._terminal.stdin()
            if stdin is None:
                raise UsageError("stdin is closed, so there are no lines", hint="give a FILE")
            if stdin.isatty():
                self._terminal.note("reading lines from the keyboard; Ctrl-D ends them")
            return stdin
        shown = printable(str(name))
        try:
            file = open(str(name), "rb", buffering=0)  # noqa: SIM115 - the exit stack closes it
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name is not valid"
            raise UsageError(f"{shown} cannot be read: {reason}", hint="check the name of FILE") from error
        stack.enter_context(file)
        if self._terminal.writes_to(os.fstat(file.fileno())):
            raise UsageError(f"stdout is {shown} itself", hint="redirect it to another file")
        return file

    def _new_progress(self, source: BinaryIO) -> Progress | None:
        if not self._terminal.shows_progress or source.isatty():
            return None
        found = os.fstat(source.fileno())
        total = found.st_size if stat.S_ISREG(found.st_mode) else None
        return Progress(self._terminal.say_bytes, total, lambda: self._terminal.columns)

    def _opened_journal(self, stack: ExitStack, source: BinaryIO) -> Journal | None:
        if self._options.journal is None:
            return None
        with suppress(OSError, ValueError):  # the file does not exist yet
            found = os.stat(self._options.journal)
            if os.path.samestat(found, os.fstat(source.fileno())):
                raise UsageError("FILE and --journal are the same file", hint="choose two names")
            if self._terminal.writes_to(found):
                raise UsageError("stdout and --journal are the same file", hint="choose two names")
        account = Identity(self._base_url, self._runtime.settings.username or "")
        journal = stack.enter_context(Journal(self._options.journal, account.key))
        if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            journal.check_input(source)
        return journal

    def _new_engine(self, stack: ExitStack, budget: MemoryBudget) -> Engine:
        runtime = self._runtime
        timeout, deadline = runtime.settings.timeout, runtime.deadline
        network = Network(
            timeout=timeout, ca_bundle=runtime.settings.ca_bundle, environ=runtime.environ, deadline=deadline
        )
        engine = Engine(
            network,
            Policy(self._base_url, self._shared, self._options.retries, deadline, self._note),
            jobs=self._options.jobs,
            timeout=timeout,
            budget=budget,
            take=self._take,
            landed=self._landed,
            ordered=self._options.ordered,
            interactive=self._terminal.interactive,
            logging_in=self._logging_in,
        )
        stack.callback(engine.close)
        return engine

    @contextmanager
    def _flying(self) -> Iterator[None]:
        """Print the available results, however the block ends."""
        try:
            yield
        except XapiError as error:
            self._hide_progress()
            if error.exit_code not in (14, 141):
                self._writer.flush()
            raise
        else:
            self._writer.end()
        finally:
            self._hide_progress()

    # input

    def _has_more(self) -> bool:
        return not self._lines.has_ended

    def _take(self) -> Entry | None:
        """Return the next entry to send, or None if there is none yet; print the results of lines that are not sent."""
        end = time.monotonic() + _TURN
        while time.monotonic() < end:
            if not self._writer.has_room or self._ending is not None or self._has_failed_fast:
                return None
            try:
                line = self._lines.take()
                if line is None:
                    self._end_input()
                    return None
                entry = self._entry(line)
            except UsageError as error:  # the input has changed or cannot be read
                self._stop(error)
                return None
            if entry is not None:
                return entry
        self._writer.flush()
        self._show_progress()
        self._engine.wake()
        return None

    def _end_input(self) -> None:
        if self._lines.has_ended and self._journal is not None:
            self._journal.end_input(self._lines.number, self._lines.digest())

    def _entry(self, line: Line) -> Entry | None:
        """Return the entry of *line*, or None if the journal has its result or the line is not valid."""
        kept = self._journal.answer(line.number, line.seen) if self._journal else None
        self._writer.announce(line.number)
        if kept is not None:
            self._settle(kept, is_new=False)
            return None
        entry = entries.read(line, self._base_url)
        if entry.call is None:
            self._settle(results.refused(entry))
            return None
        return entry

    # output

    def _landed(self, flight: InFlight, outcome: Answer | XapiError) -> Iterator[None] | None:
        """Print the result of *flight*; if its body is long, return the steps that remain instead."""
        entry = flight.entry
        if isinstance(outcome, Answer) and outcome.reply.head.status == 401 and outcome.from_api:
            outcome = self._rejected(entry)
        if isinstance(outcome, XapiError):
            self._settle(self._failed(entry, outcome))
            return None
        try:
            result = results.answered(entry, outcome, flight.elapsed_ms)
        except NetworkError as error:  # the body cannot be decoded
            result = self._failed(entry, error)
        if isinstance(result, Result):
            self._settle(result)
            return None
        return self._settle_long(entry, result)

    def _settle_long(self, entry: Entry, steps: Generator[None, None, Result]) -> Iterator[None]:
        try:
            result = yield from steps
        except NetworkError as error:  # the body cannot be decoded or is too large after decoding
            result = self._failed(entry, error)
        self._settle(result)

    def _rejected(self, entry: Entry) -> TokenRejected:
        assert entry.call is not None  # noqa: S101 - it has been sent
        said = f"{entry.call.method} {printable(entry.call.url.partition('?')[0])} answered 401"
        if entry.is_authorized:
            return TokenRejected(said, hint="the line has or removes Authorization, so xapi did not log in")
        self._shared.refused()
        return TokenRejected(said, hint=self._shared.advice())

    def _failed(self, entry: Entry, error: XapiError) -> Result:
        return results.failed(entry, error, self._terminal.without_secrets(str(error)))

    def _settle(self, result: Result, *, is_new: bool = True) -> None:
        self._writer.add(result, is_new=is_new)
        self._tally.count(result, is_new=is_new)
        if result.code and self._options.fail_fast:
            self._has_failed_fast = True
            self._engine.stop()

    def _write(self, data: bytes) -> None:
        if self._terminal.stdout_is_terminal:
            self._hide_progress()
            text = self._decoder.decode(data)
            data = "\n".join(map(inert_json, text.split("\n"))).encode()
        self._terminal.write(data)

    # early end

    def _stop(self, why: XapiError) -> None:
        """Send no more requests, because of *why*; those in flight can finish."""
        self._ending = self._ending or why
        self._engine.stop()

    def _interrupt(self, number: int) -> bool:
        """Stop gracefully after the signal *number*; return False to stop immediately, during an interactive login."""
        if self._engine.is_asking:
            return False
        self._stop(Interrupted(number))
        self._drained = time.monotonic() + (_DRAIN if number != signal.SIGINT else self._runtime.settings.timeout)
        count = self._engine.in_flight
        self._note(f"interrupted: {count} requests under way are finished first; a second Ctrl-C ends them too")
        self._engine.wake()
        return True

    def _check_time(self) -> None:
        if self._ending is not None and time.monotonic() >= self._drained:
            raise self._ending
        deadline = self._runtime.deadline
        if deadline is not None and time.monotonic() >= deadline:
            limit = f"{self._runtime.settings.max_time:g} s"
            self._stop(TimeoutExpired(f"the batch was not over within {limit}", hint="raise --max-time"))
            self._engine.give_up(TimeoutExpired("no answer before --max-time ran out", hint="raise --max-time"))

    # messages

    def _tell(self) -> None:
        """Report the outcome in one line; if the batch failed, raise an error with that line."""
        told, code = self._tally.told() + self._damage(), self._tally.code
        if isinstance(self._ending, Interrupted):
            self._terminal.note(f"{told}; {self._how_to_go_on()}")
            raise self._ending
        if self._ending is not None:
            raise type(self._ending)(f"{self._ending.message}; {told}", hint=self._ending.hint)
        if code:
            hint = "nothing more was sent (--fail-fast)" if self._has_failed_fast else "their lines on stdout say why"
            raise _FAILURES[code](told, hint=hint)
        self._terminal.note(told)

    def _damage(self) -> str:
        damaged = self._journal.damaged if self._journal else 0
        what = "damaged line in the journal: what it" if damaged == 1 else "damaged lines in the journal: what they"
        return f"; {damaged:,} {what} held was sent again" if damaged else ""

    def _how_to_go_on(self) -> str:
        if self._journal is None:
            return "what is printed is done; with --journal FILE a batch can be resumed"
        return "run the same command again to go on from here"

    def _note(self, text: str) -> None:
        self._hide_progress()
        self._terminal.note(text)

    def _logging_in(self, begins: bool) -> None:
        if begins:
            self._hide_progress()
        elif self._shared.known is not None:
            self._terminal.hide(self._shared.known.access_token)

    def _show_progress(self) -> None:
        if self._progress is not None and not self._engine.is_renewing:
            self._progress.show(self._lines.position, self._tally.lines, self._tally.failed)

    def _hide_progress(self) -> None:
        if self._progress is not None:
            self._progress.hide()


class _Tally:
    """Count lines and their outcomes."""

    def __init__(self) -> None:
        self.lines = 0
        self.failed = 0
        self.code = 0
        self._kept = 0
        self._notable: Counter[str] = Counter()
        self._started = time.monotonic()

    def count(self, result: Result, *, is_new: bool) -> None:
        """Count one line; *is_new* is False if its result is from the journal."""
        self.lines += 1
        self._kept += not is_new
        self.code = max(self.code, result.code)
        self.failed += bool(result.code)
        if result.is_notable:
            self._notable[result.kind] += 1

    def told(self) -> str:
        """Return the counts as text for the user."""
        seconds = max(0.001, time.monotonic() - self._started)
        text = f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}"
        if self.failed:
            text = f"{self.failed:,} of {text} failed"
        kept = f", {self._kept:,} from the journal" if self._kept else ""
        kinds = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(self._notable.items()))
        return f"{text} in {seconds:.1f} s ({self.lines / seconds:,.0f}/s{kept})" + (f": {kinds}" if kinds else "")
