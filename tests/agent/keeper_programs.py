"""Commands of the tests with storage `agent`."""

from tests.program import Environ

ME = ("request", "/x-api/me")


def without_password(env: Environ) -> dict[str, str | None]:
    """Return *env* without the password."""
    return {**env, "XAPI_PASSWORD": None}
