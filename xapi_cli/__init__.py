"""Obtain tokens for the experimental API and send authenticated requests."""

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from xapi_cli.library import open_client

__all__ = ["__version__", "open_client"]
__version__ = "1.0.0"


def __getattr__(name: str) -> "Any":
    """Import `open_client` on first access, so that importing xapi_cli is fast."""
    if name != "open_client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xapi_cli.library import open_client

    return open_client
