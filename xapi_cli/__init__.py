"""Tokens for the experimental API, and requests that carry them."""

TYPE_CHECKING = False  # typing's own takes longer to import than all the rest
if TYPE_CHECKING:
    from typing import Any

    from xapi_cli.library import open_client

__all__ = ["__version__", "open_client"]
__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    """Import `open_client` when it is asked for: importing xapi_cli costs nothing."""
    if name != "open_client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xapi_cli.library import open_client

    return open_client
