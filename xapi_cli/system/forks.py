"""Release the connections and locks of the parent process in a child process of os.fork()."""

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object with a resource that a child process must not share with its parent."""

    def after_fork(self) -> None:
        """Release the resource; called in the child process, which has only the thread that forked."""


_watched: "WeakSet[Forked]" = WeakSet()


def watch(forked: Forked) -> None:
    """Register *forked*, so that its `after_fork` is called in each child process while *forked* exists."""
    _watched.add(forked)


def _tell_all() -> None:
    for forked in list(_watched):
        forked.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_tell_all)
