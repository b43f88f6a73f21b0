"""Report what an incomplete request kept or discarded."""

from typing import TYPE_CHECKING

from xapi_cli.errors import Interrupted, XapiError
from xapi_cli.system import signals

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal


def report(
    error: BaseException, terminal: "Terminal", what: str, remedy: str = "", *, only_if_silent: bool = False
) -> None:
    """State *what* was kept or discarded in the hint of *error*, and its *remedy*, unless *only_if_silent*.

    If *error* is reported silently, as an interruption is, a note states it.
    """
    failure = error if isinstance(error, XapiError) else getattr(error, "failure", None)
    if isinstance(failure, Interrupted) or isinstance(error, KeyboardInterrupt):
        _note_interruption(error, terminal, "; ".join(filter(None, (what, remedy))))
    elif what and failure is not None and not only_if_silent:
        signals.cancel_alarm()  # its failure would replace this one while the files are closed
        hint, link = (f"{remedy} ({what})", ", and ") if remedy else (what, "; ")
        failure.hint = f"{failure.hint}{link}{hint}" if failure.hint else hint


def _note_interruption(error: BaseException, terminal: "Terminal", text: str) -> None:
    """Write *text* on a terminal; elsewhere, signals are silent."""
    if not terminal.stderr_is_terminal or not text:
        return
    note = terminal.note_interruption if isinstance(error, KeyboardInterrupt) else terminal.note
    note(f"interrupted: {text}")
