"""When Python looks for garbage: less often than by default, because a command ends soon."""

import gc

_COLLECT_AFTER = 50_000  # objects; those loaded at startup stay alive, and collecting them repeatedly costs 8 ms


def delay() -> None:
    """Collect after 50,000 new objects instead of 700."""
    gc.set_threshold(_COLLECT_AFTER)
