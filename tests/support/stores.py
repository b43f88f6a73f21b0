"""What the tests of stores share."""

from tests.support.program import Xapi

Env = dict[str, str | None]
ME = ("request", "/x-api/me")


def lines(xapi: Xapi, name: str) -> int:
    """Return the number of lines of the file *name* in the home directory, 0 if there is none."""
    path = xapi.home / name
    return path.read_bytes().count(b"\n") if path.exists() else 0
