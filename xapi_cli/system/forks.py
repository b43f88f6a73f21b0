"""Let a child process of os.fork() begin without the connections and locks of its parent."""

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Have something that a child process must not share with its parent."""

    def after_fork(self) -> None:
        """Give it up: this is the child, and the thread that forked is its only one."""


_watched: "WeakSet[Forked]" = WeakSet()


def watch(forked: Forked) -> None:
    """Have `after_fork` of *forked* called in each child process, as long as *forked* exists."""
    _watched.add(forked)


def _tell_all() -> None:
    for forked in list(_watched):
        forked.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_tell_all)
