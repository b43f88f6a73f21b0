"""Encode command-line arguments as bytes, so that arguments that are not valid UTF-8 are preserved."""

from xapi_cli.errors import UsageError

UNPAIRED_SURROGATE = "contains an unpaired surrogate"


def is_utf8(text: str) -> bool:
    """Return whether *text*, from an argument, a variable or a path, was valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_argument(text: str, subject: str) -> bytes:
    """Return *text* as UTF-8; bytes of an argument that are not valid UTF-8 are preserved (PEP 383).

    Raises UsageError for an unpaired surrogate that does not stand for such a byte. *subject* is what the message
    calls the text.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"{subject} {UNPAIRED_SURROGATE}") from None
