"""Convert the headers of a response to text for JSON output."""

from collections.abc import Iterable


def joined_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lowercase name; the values of a repeated header are joined by `, ` (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "backslashreplace")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
