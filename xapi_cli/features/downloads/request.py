"""The option --continue of `xapi request`."""

import json
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError
from xapi_cli.system.files import comparable

if TYPE_CHECKING:
    from contextlib import ExitStack

    from xapi_cli.features.downloads.partial_file import PartialFile
    from xapi_cli.request.plan import Plan

_RANGE_HEADERS = frozenset({"accept-encoding", "range", "if-range"})


def prepare(plan: "Plan", resume: bool) -> None:
    """Let *plan* keep a partial download, and resume it."""
    options = plan.options
    if options.output in (None, "-"):
        raise UsageError("--continue requires -o FILE", hint="add -o FILE")
    plan.require_get("--continue")
    for name, _ in plan.items.headers:
        if name.lower() in _RANGE_HEADERS:
            raise UsageError(f"--continue sets the header {name} itself", hint="remove the header")
    if not options.check_status:
        hint = "an error body is not a part of the file"
        raise UsageError("--continue cannot be combined with --no-check-status", hint=hint)
    parts = {f"{comparable(str(options.output))}{suffix}" for suffix in (".part", ".part.json")}
    for role, other in (("--meta", options.meta), ("the request log", plan.context.log_path)):
        if other and comparable(other) in parts:
            raise UsageError(f"-o and {role} are the same file", hint="use two different files")
    plan.open_output = _open
    plan.exchange_by("--continue", _download)


def _open(sending: Any, stack: "ExitStack") -> "PartialFile":
    from xapi_cli.features.downloads.partial_file import PartialFile

    file = PartialFile(str(sending.options.output), _source(sending))
    stack.callback(file.close)
    file.open()
    return file


def _source(sending: Any) -> str:
    """Return all that the content of the file depends on, including secrets: URL, account and headers."""
    context, request = sending.context, sending.request
    headers = [(name.lower(), value) for name, value in request.items.headers]
    # a renewed token of an account changes nothing
    account = None if sending.tokens is None else context.supplied_token() or context.identity
    return json.dumps([request.url, account, headers])


def _download(sending: Any) -> None:
    from xapi_cli.features.downloads.download import Download

    note = sending.context.terminal.note
    Download(sending.sender, sending.output, sending.file, received=sending.take, note=note).run(sending.call)
