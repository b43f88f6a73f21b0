"""Release the connections and locks of the parent process in a child process of os.fork()."""

import os
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """An object with a resource that a child process must not share with its parent."""

    def after_fork(self) -> None:
        """Release the resource; called in the child process, which has only the thread that resource."""


_registered: "WeakSet[ForkAware]" = WeakSet()
register = _registered.add  # `after_fork` of a resource is then called in each child process while the resource exists


def _call_after_fork() -> None:
    for resource in list(_registered):
        resource.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_call_after_fork)
