"""The environment for another Python process that must run in the same mode as this one."""

import sys
from collections.abc import Mapping

_TARGETS = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})  # the locales that Python selects in place of C (PEP 538)


def undone(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of *environ*, the environment of this process, with the locale that this process was started in.

    With the locale C, Python sets LC_CTYPE and switches to its UTF-8 mode (PEP 538 and 540). A process that inherits
    this LC_CTYPE has another mode.
    """
    found = dict(environ)
    is_chosen = "utf8" in sys._xoptions or environ.get("PYTHONUTF8")  # noqa: SLF001 - no public name
    if sys.flags.utf8_mode and not is_chosen and environ.get("LC_CTYPE") in _TARGETS:
        found["LC_CTYPE"] = "C"
    return found
