"""Remove secrets from all output: known secrets from text, and likely ones from headers and URLs.

The text can come from a server, which chooses it so that a search takes long. So each function passes over the text a
fixed number of times, however often a character is encoded, and no pattern can match a part of it in two ways.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import quote, unquote_plus

REDACTED = "***"

_KEY_WORDS = frozenset({"code", "jwt", "key", "otp", "pass", "pin", "pwd", "sig"})
_MIN_LENGTH = 4  # bytes; redacting a shorter secret would change unrelated text and reveal the secret

# Patterns, which `re` compiles on first use: most commands need none, and compiling them takes a millisecond.
_SECRET_NAME = (
    r"(?i)auth|cookie|token|secret|passw|credential|session|signature|assertion|saml|ticket|api[-_]?key"
    r"|^(?:key|sig|code|pwd|jwt|otp)$"
)
_PERCENT = "%(?:25)*"  # a percent sign, which can be encoded itself
_USER_INFO = rf"(//|{_PERCENT}2[Ff]{_PERCENT}2[Ff])(?:[^/?#\s<>\"%]|%(?!(?:25)*(?:2[Ff3]|3[Ff]|40)))*(@|{_PERCENT}40)"
_PARAMETER = (
    rf"(?:[?&#;]|{_PERCENT}(?:3[FfBb]|2[36]))((?:[^=?&#;%]|%(?!(?:25)*(?:3[FfBbDd]|2[36])))*)(?:=|{_PERCENT}3[Dd])"
)
_END_OF_VALUE = re.compile(r"[&#>\"]")  # >: a Link header has its URL in angle brackets
_ENCODED = rb"%(?:25)*([0-9A-Fa-f]{2})"
# Where a text was truncated, perhaps within an encoded character.
_CUT = rb"((?:%(?:25)*[0-9A-Fa-f]?|\\|\xef\xbf\xbd)?(?:\xe2\x80\xa6|\.\.\.))"


class Redactor:
    """A set of known secrets, which a server or a backend may echo."""

    def __init__(self) -> None:
        # replaced, never changed: another thread may iterate over them
        self._secrets: frozenset[bytes] = frozenset()
        self._plain: frozenset[bytes] = frozenset()  # as they are in a decoded text

    def add(self, *secrets: str | None) -> None:
        """Redact *secrets* as they are, in JSON and percent-encoded; None and very short ones are ignored."""
        for secret in secrets:
            if not secret or len(secret) < _MIN_LENGTH:
                continue
            for text in {secret, secret.replace("\\", "\\\\").replace('"', '\\"')}:
                data = _as_bytes(text)
                self._secrets |= {data, quote(data, safe="").encode()}
                self._plain |= {each for each in (data.replace(b"+", b" "), _decoded(data)) if len(each) >= _MIN_LENGTH}

    def redact(self, text: str) -> str:
        """Return *text* with all known secrets replaced by `***`, however their characters are encoded.

        A URL can be encoded in many ways, and more than once: a text in which only decoding it reveals a secret is
        returned decoded. A secret of which only the beginning is left, before `…` or the `...` of jq, is replaced too.
        """
        if not self._secrets:
            return text
        data = _as_bytes(text)
        shown = _without(self._secrets, data)
        if b"%" in shown or b"+" in shown:
            plain = _decoded(shown)
            if (redacted := _without(self._plain, plain)) != plain:
                shown = redacted
        return text if shown == data else shown.decode("utf-8", "surrogateescape")


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # an unpaired surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace")


def _decoded(data: bytes) -> bytes:
    """Return *data* without percent-encoding, and with a space for each plus."""
    return re.sub(_ENCODED, lambda found: bytes.fromhex(found[1].decode()), data).replace(b"+", b" ")


def _without(secrets: Collection[bytes], data: bytes) -> bytes:
    """Return *data* with `***` in place of *secrets*, and of the beginning of one where the text was truncated."""
    for secret in secrets:
        data = data.replace(secret, REDACTED.encode())
    if b"\xe2\x80\xa6" not in data and b"..." not in data:
        return data
    parts = re.split(_CUT, data)
    return b"".join([*(_without_beginning(secrets, part) for part in parts[:-1]), parts[-1]])


def _without_beginning(secrets: Collection[bytes], data: bytes) -> bytes:
    """Return *data* with `***` in place of the beginning of a secret at its end."""
    for secret in secrets:
        start = data.find(secret[:_MIN_LENGTH], max(0, len(data) - len(secret)))
        while start >= 0:
            if secret.startswith(data[start:]):
                return data[:start] + REDACTED.encode()
            start = data.find(secret[:_MIN_LENGTH], start + 1)
    return data


def redact_header(name: str, value: str) -> str:
    """Return the header *value* for display: redacted if *name* denotes a secret, else with its URLs redacted."""
    if not _denotes_secret(name) or name.lower() == "www-authenticate":
        return redact_url(value)
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {REDACTED}" if space and name.lower().endswith("authorization") else REDACTED


def secret_values(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the values of those *headers* whose name denotes a secret."""
    for name, value in headers:
        if _denotes_secret(name):
            yield value


def _denotes_secret(header: str) -> bool:
    """Return whether the name of *header* denotes a secret; a parameter with such a word is often a cursor."""
    words = re.split("[-_]", header.lower())
    return bool(re.search(_SECRET_NAME, header)) or not _KEY_WORDS.isdisjoint(words)


def redact_url(text: str) -> str:
    """Return *text*, a URL or a value with URLs in it, with user info and the values of secret parameters redacted.

    A parameter can be in a query, in a fragment or after a semicolon, and in a URL that is encoded in another one.
    """
    if "%" not in text and "@" not in text and "=" not in text:  # usual, and without the patterns
        return text
    text = re.sub(_USER_INFO, rf"\1{REDACTED}\2", text)
    parts, done = [], 0
    for parameter in re.finditer(_PARAMETER, text):
        name = unquote_plus(parameter[1]).strip()
        if parameter.start() >= done and re.search(_SECRET_NAME, name):
            parts += [text[done : parameter.end()], REDACTED]
            ending = _END_OF_VALUE.search(text, parameter.end())
            done = ending.start() if ending else len(text)
    return "".join([*parts, text[done:]])
