"""The option --continue of `xapi request`: a download that is kept when it is interrupted, and resumed."""

import json
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.features.downloads.partial_file import PartialFile
from xapi_cli.system.render import size

if TYPE_CHECKING:
    from contextlib import ExitStack

    from xapi_cli.http.send import Call, Outcome
    from xapi_cli.request.plan import Plan

_RANGE_HEADERS = frozenset({"accept-encoding", "range", "if-range"})
_RANGE_NOT_SATISFIABLE = 416


def prepare(plan: "Plan", resume: bool) -> None:
    """Let *plan* keep a partial download, and resume it."""
    if plan.options.output in (None, "-"):
        raise UsageError("--continue requires -o FILE", hint="add -o FILE")
    plan.require_get("--continue")
    # the part would have a table, or the body of an error
    plan.refuse("--continue", csv=plan.options.csv, check_status=not plan.options.check_status)
    for name, _ in plan.items.headers:
        if name.lower() in _RANGE_HEADERS:
            raise UsageError(f"--continue sets the header {name} itself", hint="remove the header")
    plan.open_output = _open
    plan.exchange_by("--continue", _exchange)


def _open(sending: Any, stack: "ExitStack") -> PartialFile:
    file = PartialFile(str(sending.options.output), _source(sending))
    stack.callback(file.close)
    file.open()
    return file


def _source(sending: Any) -> str:
    """Return all that the content of the file depends on, including secrets: URL, account and headers."""
    context, plan = sending.context, sending.plan
    headers = [(name.lower(), value) for name, value in plan.items.headers]
    # a renewed token of an account changes nothing
    account = None if sending.tokens is None else context.supplied_token() or context.identity
    return json.dumps([plan.url, account, headers])


def _exchange(sending: Any) -> None:
    try:
        _download(sending)
    except BaseException as error:
        if kept := sending.file.kept:
            sending.add_remainder(error, f"run the same command again to resume ({kept})")
        raise


def _download(sending: Any) -> None:
    """Send the call of *sending* until its whole body is in the file.

    If a response does not continue the part, the download starts again. If the body is truncated, the rest is requested
    as often as the sender may retry.
    """
    file, sender, output, note = sending.file, sending.sender, sending.output, sending.context.terminal.note

    def rest() -> "Call":
        call: Call = sending.call._replace(own_headers=file.headers)
        return call

    if file.discarded:
        note(file.discarded)
    outcome: Outcome | None = sender.send(rest())
    while outcome is not None:
        sending.take(outcome)
        response = outcome.response
        is_of_file = response.is_success or response.status == _RANGE_NOT_SATISFIABLE
        if file.count and is_of_file and not file.is_continued_by(response.status, response.headers):
            discarded = size(file.count)
            note(f"the server did not send the rest of the same file; restarting the download, {discarded} discarded")
            file.forget()
            if response.status in (206, _RANGE_NOT_SATISFIABLE):
                outcome = sender.resume(rest())
                continue
        if not response.is_success:
            output.write(response)
            return
        try:
            file.begin(response.status, response.headers)
            output.write_body(response)
        except NetworkError as error:
            outcome = sender.resume(rest(), error)
            if outcome is None:
                output.write_headers(response)
                raise
        else:
            output.write_headers(response)  # only those of the last response
            return
