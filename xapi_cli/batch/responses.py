"""A complete response in memory, and the limit of its size."""

from xapi_cli.errors import BodyTooLarge
from xapi_cli.http.response_parser import ResponseHead

MAX_BODY = 10 * 1024 * 1024  # bytes of a body, before and after content decoding


def body_too_large() -> BodyTooLarge:
    """Return the error for a body of more than MAX_BODY bytes."""
    return BodyTooLarge(
        f"the body has more than {MAX_BODY // 2**20} MiB",
        hint="use `xapi request -o FILE`",
        sent=True,
        headers_received=True,
    )


class BufferedResponse:
    """A complete response; the body is empty if it was not needed."""

    __slots__ = ("body", "head", "raw_headers", "status")

    def __init__(self, head: ResponseHead, body: bytes | bytearray) -> None:
        self.head, self.body = head, body
        self.status, self.raw_headers = head.status, head.raw_headers
