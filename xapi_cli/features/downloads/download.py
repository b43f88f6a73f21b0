"""Download to a file that is kept when the download is interrupted, and resume it."""

from collections.abc import Callable

from xapi_cli.errors import NetworkError
from xapi_cli.features.downloads.partial_file import PartialFile
from xapi_cli.http.send import Call, Outcome, Sender
from xapi_cli.request.output import ResponseOutput
from xapi_cli.system.render import size


class Download:
    """Send a call with *sender* until its whole body is in *file*, through *output*.

    *received* takes each response, which it closes later; *note* takes a line about each restart.
    """

    def __init__(
        self,
        sender: Sender,
        output: ResponseOutput,
        file: PartialFile,
        *,
        received: Callable[[Outcome], None],
        note: Callable[[str], None],
    ) -> None:
        self._sender, self._output, self._file, self._received, self._note = sender, output, file, received, note

    def run(self, call: Call) -> None:
        """Send *call* and write its body.

        If the rest of the file does not continue the part, the download starts again. If the body is truncated, the
        rest is requested as often as the sender may retry.
        """
        if self._file.discarded:
            self._note(self._file.discarded)
        outcome: Outcome | None = self._sender.send(self._rest(call))
        while outcome is not None:
            outcome = self._write(call, outcome)

    def _rest(self, call: Call) -> Call:
        return call._replace(own_headers=self._file.headers)

    def _write(self, call: Call, outcome: Outcome) -> Outcome | None:
        """Write the body of *outcome*; return the next response, or None if it was the last one."""
        response = outcome.response
        self._received(outcome)
        problem = self._file.problem(response.status, response.headers)
        if problem is not None:
            self._restart(problem)
            return self._sender.resume(self._rest(call))
        if not response.is_success:
            self._output.write(response)
            return None
        if response.status != 206:
            reason = self._file.why_whole(response.headers)
            if reason is not None:
                self._restart(reason)
        resumed = None
        try:
            self._output.write_body(response)
        except NetworkError as error:
            resumed = self._sender.resume(self._rest(call), error)
            if resumed is None:
                self._output.write_headers(response)
                raise
        else:
            self._output.write_headers(response)  # only those of the last response
        return resumed

    def _restart(self, reason: str) -> None:
        self._note(f"{reason}; restarting the download, {size(self._file.count)} discarded")
        self._file.forget()
