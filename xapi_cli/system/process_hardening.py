"""Keep secrets from who reads the memory of a process: core dumps (CWE-528), and other processes of the same user."""

import sys

_PR_SET_DUMPABLE = 4  # prctl(2)
_before: tuple[int, int] | None = None


def forbid() -> None:
    """Let no core be dumped, of xapi or of a child that it starts for a password, and let nobody look into xapi."""
    global _before  # noqa: PLW0603  # the limit is the process's, and so is what it was
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        _before = soft, hard
    if sys.platform == "linux":
        _make_undumpable()


def _make_undumpable() -> None:
    """Close /proc/PID/environ and the memory to other processes of the user, as ssh-agent does; execve() undoes it.

    It also stops a core that is piped to a program, to which the limit does not apply.
    """
    try:
        import _ctypes  # ctypes, which imports it, takes 2 ms instead of 0.5 ms

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None is the program itself
        _ctypes.call_function(prctl, (_PR_SET_DUMPABLE, 0, 0, 0, 0))
    except (ImportError, OSError):
        pass  # a Python without ctypes: the limit is all there is


def allow_again() -> None:
    """Restore what the person had allowed, for a program that takes xapi's place."""
    if sys.platform != "win32" and _before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, _before)
