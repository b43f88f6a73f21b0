"""Starts an agent for a login that stores its token there."""

import subprocess
import sys
import tempfile

from xapi_cli.errors import StoreError
from xapi_cli.system.programs import UNKNOWN_EXIT, ChildProcess
from xapi_cli.system.render import printable

_TIME_LIMIT = 75.0  # seconds; more than `daemon.START_TIMEOUT`, so that an agent that does not start is killed
_COMMAND = ("-P", "-m", "xapi_cli", "agent", "start")  # -P: never import from the current directory


def start_agent() -> None:
    """Run `xapi agent start` in this environment, which contains no secrets; raise StoreError if it fails."""
    with tempfile.TemporaryFile() as errors:  # not a pipe, which the agent could keep open
        try:
            process = ChildProcess(
                [sys.executable, *_COMMAND], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        except OSError as error:
            raise StoreError(f"the agent cannot be started: {error.strerror}", hint="run `xapi agent start`") from error
        try:
            code = process.wait(_TIME_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise StoreError(
                f"the agent did not start within {_TIME_LIMIT:g} s", hint="run `xapi agent start`"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        errors.seek(0)
        reason = printable(errors.read(1000).decode(errors="replace").strip().removeprefix("xapi: error: "))
        # if the exit status is unknown, the connection to the agent shows whether it has started
        if reason if code == UNKNOWN_EXIT else code:
            raise StoreError(f"the agent cannot be started: {reason or f'exit code {code}'}")
