"""Report what an incomplete request kept or discarded."""

from typing import TYPE_CHECKING

from xapi_cli.errors import Interrupted, XapiError
from xapi_cli.system import signals

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal


def report(error: BaseException, terminal: "Terminal", kept: str, discarded: str = "") -> None:
    """State what is *kept* in *error*.

    If *error* is reported silently, as an interruption is, a note states what is *kept* or else *discarded*.
    """
    failure = error if isinstance(error, XapiError) else getattr(error, "failure", None)
    if isinstance(failure, Interrupted) or isinstance(error, KeyboardInterrupt):
        _note_interruption(error, terminal, kept or discarded)
    elif kept and failure is not None:
        signals.cancel_alarm()  # its failure would replace this one while the files are closed
        failure.hint = f"{failure.hint}; {kept}" if failure.hint else kept


def _note_interruption(error: BaseException, terminal: "Terminal", text: str) -> None:
    """Write *text* on a terminal; elsewhere, signals are silent."""
    if not terminal.stderr_is_terminal or not text:
        return
    note = terminal.note_interruption if isinstance(error, KeyboardInterrupt) else terminal.note
    note(f"interrupted: {text}")
