"""Remove secrets from all output: known secrets from text, and likely ones from headers and URLs.

The text can come from a server, which chooses it so that a search takes long. So each function passes over the text
once: percent-encoding is decoded with a record of where each byte was, however often a character is encoded, and no
pattern can match a part of the text in two ways.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from urllib.parse import quote, unquote_plus

REDACTED = "***"

_KEY_WORDS = frozenset({"code", "jwt", "key", "otp", "pass", "pin", "pwd", "sig"})
_MIN_LENGTH = 4  # characters; redacting a shorter secret would change unrelated text and reveal the secret
_LONGEST_CUT = 256  # characters; messages contain no more of a truncated text


class Redactor:
    """A set of known secrets, which a server or a backend may echo."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()  # replaced, never changed: another thread may iterate over it

    def add(self, *secrets: str | None) -> None:
        """Redact *secrets* as they are, in JSON and percent-encoded; None and very short ones are ignored."""
        for secret in secrets:
            if secret and len(secret) >= _MIN_LENGTH:
                in_json = secret.replace("\\", "\\\\").replace('"', '\\"')
                self._secrets |= {secret, in_json, quote(secret.encode("utf-8", "surrogateescape"), safe="")}

    def redact(self, text: str) -> str:
        """Return *text* with all known secrets replaced by `***`, however their characters are encoded.

        A URL can be encoded in many ways, and more than once. A secret of which only the beginning is left, before `…`
        or the `...` of jq, is replaced too.
        """
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        if self._secrets and ("%" in text or "+" in text or "…" in text or "..." in text):
            data = _encoded(text)
            plain, starts = _decoded(data)
            cuts = [(found.start(), found.end()) for found in _patterns().cut.finditer(plain)]
            encoded = set(map(_encoded, self._secrets))
            searched = {_decoded(each)[0] for each in encoded} | {each.replace(b" ", b"+") for each in encoded}
            spans = [span for secret in searched for span in _spans(secret, plain, cuts)]
            if spans:
                text = _without(data, [(starts[start], starts[end]) for start, end in sorted(spans)])
        return text


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # an unpaired surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace")


def _decoded(data: bytes) -> tuple[bytes, list[int]]:
    """Return *data* without percent-encoding and backslashes, with a plus for each space, and where each byte was."""
    data = data.replace(b" ", b"+")
    parts, lengths, end = [], [0], 0
    for found in _patterns().escape.finditer(data):
        parts += [data[end : found.start()], found[2] or bytes.fromhex(found[1].decode())]
        lengths += [1] * (found.start() - end) + [found.end() - found.start()]
        end = found.end()
    parts = [part.replace(b" ", b"+") for part in [*parts, data[end:]]]
    return b"".join(parts), list(accumulate(lengths + [1] * (len(data) - end)))


def _spans(secret: bytes, plain: bytes, cuts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where *secret* is in *plain*, and where its beginning is in front of one of *cuts*."""
    start = plain.find(secret[:_MIN_LENGTH])
    while start >= 0:
        end = start + len(secret)
        if plain.startswith(secret, start):
            yield start, end
            start = end
        else:
            following = bisect_left(cuts, (start + _MIN_LENGTH,))
            if following < len(cuts) and cuts[following][0] - start <= _LONGEST_CUT:
                end = cuts[following][0]
                if secret.startswith(plain[start:end]):
                    yield start, end
            start += 1
        start = plain.find(secret[:_MIN_LENGTH], start)


def _without(data: bytes, spans: list[tuple[int, int]]) -> str:
    """Return *data* with `***` in place of the sorted *spans*, which may overlap."""
    parts, done = [], 0
    for start, end in spans:
        if end > done:
            parts += [data[done:start], REDACTED.encode()] if start >= done else []
            done = end
    return b"".join([*parts, data[done:]]).decode("utf-8", "surrogateescape")


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
    return bool(_patterns().secret_name.search(header)) or not _KEY_WORDS.isdisjoint(words)


def redact_url(text: str) -> str:
    """Return *text*, a URL or a value with URLs in it, with user info and the values of secret parameters redacted.

    A parameter can be in a query, in a fragment or after a semicolon, and in a URL that is encoded in another one.
    """
    if "%" not in text and "@" not in text and "=" not in text:  # usual, and without the patterns
        return text
    patterns = _patterns()
    text = patterns.user_info.sub(rf"\1{REDACTED}\2", text)
    parts, done = [], 0
    for parameter in patterns.parameter.finditer(text):
        name = unquote_plus(parameter[1]).strip()
        if parameter.start() >= done and patterns.secret_name.search(name):
            parts += [text[done : parameter.end()], REDACTED]
            ending = patterns.end_of_value.search(text, parameter.end())
            done = ending.start() if ending else len(text)
    return "".join([*parts, text[done:]])


class _Patterns:
    """The patterns, compiled on first use: most commands need none, and compiling them takes a millisecond."""

    def __init__(self) -> None:
        self.secret_name = re.compile(
            r"auth|cookie|token|secret|passw|credential|session|signature|assertion|saml|ticket|api[-_]?key"
            r"|^(?:key|sig|code|pwd|jwt|otp)$",
            re.IGNORECASE,
        )
        encoded = "%(?:25)*"  # a percent sign, which can be encoded itself
        self.user_info = re.compile(
            rf"(//|{encoded}2[Ff]{encoded}2[Ff])(?:[^/?#\s<>\"%]|%(?!(?:25)*(?:2[Ff3]|3[Ff]|40)))*(@|{encoded}40)"
        )
        self.parameter = re.compile(
            rf"(?:[?&#;]|{encoded}(?:3[FfBb]|2[36]))((?:[^=?&#;%]|%(?!(?:25)*(?:3[FfBbDd]|2[36])))*)(?:=|{encoded}3[Dd])"
        )
        self.end_of_value = re.compile(r"[&#>\"]")  # >: a Link header has its URL in angle brackets
        self.escape = re.compile(rb"%(?:25)*([0-9A-Fa-f]{2})|\\([\"\\])")
        # a truncated text, perhaps after a part of an encoded character
        self.cut = re.compile(rb"(?:%(?:25)*[0-9A-Fa-f]?|\\)?(?:\xef\xbf\xbd)?(?:\xe2\x80\xa6|\.\.\.)")


_patterns = cache(_Patterns)
