"""Remove secrets from all output: known secrets from text, and likely ones from headers and URLs."""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from urllib.parse import quote, unquote_plus

REDACTED = "***"

_BEGINNING = 128  # characters of a secret that identify it
_LONGEST_CUT = 256  # characters; messages contain no more of a truncated text
_CUT = r"(?=(?:%(?:25)*[0-9A-Fa-f]?|\\)?\ufffd?(?:…|\.\.\.))"  # perhaps after a part of an encoded character
_MAX_ENCODED = 100_000  # characters of a text; a longer one is no URL, and searching it takes long
_KEY_WORDS = frozenset({"code", "jwt", "key", "otp", "pass", "pin", "pwd", "sig"})
_MIN_LENGTH = 4  # characters; redacting a shorter secret would change unrelated text and reveal the secret


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
        """Return *text* with all known secrets replaced by `***`; in a short one, however their characters are encoded.

        A URL can be encoded in many ways, and more than once. A secret of which only the beginning is left, before `…`
        or the `...` of jq, is replaced too.
        """
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        if ("%" in text or "+" in text) and len(text) <= _MAX_ENCODED:
            for secret in self._secrets:
                text = _encoded_pattern(secret).sub(REDACTED, text)
        if ("…" in text or "..." in text) and len(text) <= _MAX_ENCODED:
            for secret in self._secrets:
                text = _cut_pattern(secret).sub(REDACTED, text)
        return text


@lru_cache(maxsize=64)  # compiling one takes a millisecond
def _encoded_pattern(secret: str) -> re.Pattern[str]:
    """Return a pattern for *secret* with any of its characters percent-encoded, several times, or a space as `+`.

    Of a long secret, it finds the beginning.
    """
    beginning, rest = secret[:_BEGINNING], len(secret) - _BEGINNING
    pattern = "".join(map(_encoded_character, beginning))
    return re.compile(f"{pattern}(?:%(?:25)*[0-9A-Fa-f]{{2}}|[^%]){{0,{rest}}}" if rest > 0 else pattern)


@lru_cache(maxsize=64)
def _cut_pattern(secret: str) -> re.Pattern[str]:
    """Return a pattern for the beginning of *secret* where it is truncated, with any of its characters encoded."""
    characters = list(map(_encoded_character, secret[:_LONGEST_CUT]))
    first, others = characters[:_MIN_LENGTH], characters[_MIN_LENGTH:]
    others = [f"(?:{each}|{_CUT})" for each in others]  # at the cut, each of them matches nothing
    return re.compile("".join(first + others) + _CUT)


def _encoded_character(character: str) -> str:
    octets = character.encode("utf-8", "surrogateescape")
    encoded = "".join(f"%(?:25)*(?i:{octet:02x})" for octet in octets)
    other = r"|\+|%(?:25)*2[Bb]" if character == " " else rf"|\\{re.escape(character)}" if character in '"\\' else ""
    return f"(?:{re.escape(character)}|{encoded}{other})"


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

    A parameter is secret if its name denotes a secret, or if its value is an encoded URL with secrets. It can be in a
    query, in a fragment or after a semicolon.
    """
    return _redacted(text, frozenset())


def redact_page_url(url: str, given: Collection[str]) -> str:
    """Return *url*, the URL of a page that the server sent, as `redact_url` does, but with its cursor.

    The values of parameters such as `pageToken` are shown unless the user gave them: their names are not in *given*.
    """
    found = (parameter[1] for parameter in _patterns().parameter.finditer(url))
    return _redacted(url, frozenset(name for name in found if _is_cursor(name) and unquote_plus(name) not in given))


def _is_cursor(name: str) -> bool:
    """Return whether the parameter *name* denotes a secret only because of the word `token`, as `pageToken` does."""
    rest, count = _patterns().token.subn("", name)
    return bool(count) and not _patterns().secret_name.search(rest) and not _patterns().credential.search(rest)


def _redacted(text: str, shown: Collection[str]) -> str:
    """Redact *text* except the values of the parameters *shown*."""
    if "@" not in text and "=" not in text:  # usual, and without the patterns
        return text
    patterns = _patterns()
    text = patterns.user_info.sub(f"//{REDACTED}@", text)
    redacted, start = "", 0
    for parameter in patterns.parameter.finditer(text):
        if parameter.start() < start or parameter[1] in shown:
            continue
        ending = patterns.end_of_value.search(text, parameter.end())
        end = ending.start() if ending else len(text)
        if patterns.secret_name.search(parameter[1].strip()) or _encodes_secrets(text[parameter.end() : end]):
            redacted += text[start : parameter.end()] + REDACTED
            start = end
    return redacted + text[start:]


class _Patterns:
    """The patterns, compiled on first use: most commands need none, and compiling them takes 0.6 ms."""

    def __init__(self) -> None:
        self.secret_name = re.compile(
            r"auth|cookie|token|secret|passw|credential|session|signature|assertion|saml|ticket|api[-_]?key"
            r"|^(?:key|sig|code|pwd|jwt|otp)$",
            re.IGNORECASE,
        )
        self.token = re.compile("token", re.IGNORECASE)
        self.credential = re.compile(
            r"access|bearer|csrf|secur|refresh|api|user|jwt|(?:^|[^a-z])id[-_]?$", re.IGNORECASE
        )
        self.user_info = re.compile(r"//[^/?#\s<>\"]*@")
        self.parameter = re.compile(r"[?&#;]([^=?&#;]*)=")
        self.end_of_value = re.compile(r"[&#>]|$")  # >: a Link header has its URL in angle brackets


_patterns = cache(_Patterns)


def _encodes_secrets(value: str) -> bool:
    if "%" not in value:
        return False
    from urllib.parse import unquote

    decoded = unquote(value)
    return decoded != value and (redact_url(decoded) != decoded or _encodes_secrets(decoded))
