"""Commands of the tests with storage `agent`."""

from tests.support.program import Environ

ME = ("request", "/x-api/me")


def without_password(env: Environ) -> dict[str, str | None]:
    """Return *env* without the password."""
    return {**env, "XAPI_PASSWORD": None}
