"""Keep secrets out of core dumps (CWE-528): what a process knows would lie on the disk as plain text."""

import sys

_before: tuple[int, int] | None = None


def forbid() -> None:
    """Let no core be dumped, of xapi or of a child that it starts for a password."""
    global _before  # noqa: PLW0603  # the limit is the process's, and so is what it was
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        _before = soft, hard


def allow_again() -> None:
    """Restore what the person had allowed, for a program that takes xapi's place."""
    if sys.platform != "win32" and _before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, _before)
