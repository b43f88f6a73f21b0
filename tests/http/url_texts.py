"""Texts of which property tests make URLs, and what httpx makes of a URL."""

from collections.abc import Callable

import httpx
import pytest
from hypothesis import strategies as st

from xapi_cli.errors import XapiError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ARGUMENTS = st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))  # what argv can contain
HOSTILE = st.text(st.sampled_from("/\\:@?#%.[]ahtps0127 \n\x00é2eEfF=&;,-_~"), max_size=40)


def or_none(build: Callable[[], str], failure: type[XapiError]) -> str | None:
    """Return the URL, or None if *build* raises the expected error."""
    try:
        return build()
    except failure as error:
        return None if str(error).isprintable() else pytest.fail(f"an error with odd characters: {error!r}")


def origin_by_httpx(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of *url*, as httpx parses them."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.raw_host.decode(), parsed.port or {"http": 80, "https": 443}[parsed.scheme]
