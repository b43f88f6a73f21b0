"""Build every URL that xapi requests, because the URL determines which server receives the token.

Error messages quote at most the scheme, host and port of an invalid URL, or a single character,
because a URL may contain a password before its host and an API key in its query.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import quote, urljoin

from xapi_cli.errors import UsageError
from xapi_cli.hints import Hint, Option
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import UNPAIRED_SURROGATE, encode_argument, printable, shortened

Origin = tuple[str, str, int]  # scheme, host (without brackets) and port

DEFAULT_PORTS = {"http": 80, "https": 443}
BASE_URL = "the base URL"  # in hints about a server that cannot be reached; a redirect may have named it instead
_ONLY_PATH = ("use only the path, or set ", Option("base_url"))
_MAX_LENGTH = 65_536  # the limit of httpx; servers accept less
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)(.*)", re.DOTALL)
# Segments of unreserved characters (RFC 3986, 2.3), none of which is empty or starts with a dot.
_PLAIN_PATH = re.compile(r"(?=/)(?:/[\w~-][\w.~-]*)*/?", re.ASCII)
# Compiled on first use: the URLs of most calls need none of these patterns.
_NAME = r"(?=.{1,254}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.|$))+"  # of a host (RFC 1123, 2.1)
_SCHEME_WITHOUT_SLASHES = r"(?i:https?):(?!//)"
_EMAIL_ADDRESS = r"[^\s:/?#\\@]+@[^\s:/?#\\@]+"
_WINDOWS_PATH = r"[A-Za-z]:[/\\]"
_DOT_SEGMENT = r"(?i)(^|/)(\.|%2e){1,2}(/|$)"
_IN_PATH = "/:@!$&'()*+,;=~"  # RFC 3986, pchar and the slash between segments
_IN_QUERY = _IN_PATH + "?"
_MALFORMED_IPV6 = "has a malformed IPv6 address"
_MAX_PORT = 65_535


class InvalidURL(Exception):
    """A URL is not valid; *problem* is a predicate, to which the caller that reports the error adds the subject."""

    def __init__(self, problem: str, hint: Hint | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


@lru_cache(32)  # an entry of the index of accounts has one, and is read several times for a login
def base_url(text: str) -> str:
    """Return the normalized form of the base URL *text*; raises UsageError if it is not valid."""
    try:
        return _base_url(text)
    except InvalidURL as error:
        raise UsageError(f"the base URL {error}", hint=error.hint or "write it like https://api.example.com") from None


def resolve(base: str, path: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """Return the URL of *path*, resolved against the base URL *base*, with *query* appended to its query.

    Raises UsageError if *path* is not valid or leads to another origin.
    """
    try:
        # the usual path needs no checks and no encoding
        url = base + path if _PLAIN_PATH.fullmatch(path) else _resolved(base, path)
    except InvalidURL as error:
        raise UsageError(f"PATH {error}", hint=error.hint) from None
    if query:
        url = _with_query(url, query)
    if len(url) > _MAX_LENGTH:
        raise UsageError(
            f"the URL has {len(url):,} characters, the limit is {_MAX_LENGTH:,}", hint="send the data as a body"
        )
    return url


def join(url: str, reference: str) -> str:
    """Return the target of *reference*, a text from the server at *url*, without user info and fragment.

    Raises InvalidURL if *reference* is not valid.
    """
    reference = reference.strip(" \t")
    _reject_control_characters(reference)
    if not reference:
        raise InvalidURL("is empty")
    if "\\" in reference.partition("?")[0]:
        raise InvalidURL("has a backslash")
    try:
        joined = urljoin(url, reference)
    except ValueError:
        raise InvalidURL("is not a valid URL") from None
    target, rest = _split(joined.partition("#")[0], user_info=True)
    path, mark, query = rest.partition("?")
    found = f"{_origin_url(target)}{_encode(path or '/', _IN_PATH)}{mark}{_encode(query, _IN_QUERY)}"
    if len(found) > _MAX_LENGTH:
        raise InvalidURL(f"has more than {_MAX_LENGTH:,} characters")
    return found


@lru_cache(32)  # most are the base URL's
def origin(url: str) -> Origin:
    """Return the origin of *url*; raises UsageError if it is not valid."""
    try:
        return _split(url)[0]
    except InvalidURL as error:
        raise UsageError(f"the URL {error}", hint=error.hint) from None


def root(url: str) -> str:
    """Return the origin of *url* as a URL."""
    return _origin_url(origin(url))


def displayed(url: str) -> str:
    """Return *url* for use in messages, with possible secrets redacted."""
    return printable(redact_url(url))


def displayed_without_query(url: str) -> str:
    """Return *url* as `displayed` does, without its query, for the error of a response."""
    return displayed(url.partition("?")[0])


def is_exposed(url: str) -> bool:
    """Return whether others can read what is sent to *url*: it is plain http, not to this machine."""
    scheme, host, _ = origin(url)
    return scheme == "http" and not _is_loopback(host)


def same_origin(one: str, other: str) -> bool:
    """Return whether the URLs *one* and *other* have the same origin, so that both may receive the token."""
    return origin(one) == origin(other)


def after_origin(reference: str, base: str) -> str | None:
    """Return what follows the origin in *reference*, a text from the server; None unless the origin is that of *base*.

    A *reference* that starts with // has the scheme of *base*.
    """
    try:
        wanted, _ = _split(base)
        found, rest = _split(f"{wanted[0]}:{reference}" if reference.startswith("//") else reference, user_info=True)
    except InvalidURL:
        return None
    return rest if found == wanted and not rest.startswith("\\") else None


@lru_cache(32)
def host_and_port(text: str) -> tuple[str, int | None]:
    """Return the host in *text*, normalized and without brackets, and the port or None; raises InvalidURL."""
    _reject_spaces(text)
    if "%" in text:
        raise InvalidURL("has a % in its host")
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        if not bracket or ":" not in inside or (after and not after.startswith(":")):
            raise InvalidURL(_MALFORMED_IPV6)
        return _address(inside, _MALFORMED_IPV6), _port(after[1:])
    host, _, port = text.partition(":")
    if not host:
        raise InvalidURL("has no host")
    if ":" in port:
        raise InvalidURL("has more than one : in its host", "write an IPv6 address in brackets, like [::1]")
    return _name(host), _port(port)


def with_port(host: str, port: int) -> str:
    """Return *host* and *port* as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reject_spaces(text: str) -> None:
    _reject_control_characters(text)
    if "".join(text.split()) != text:
        raise InvalidURL("contains whitespace")
    if "\\" in text:
        raise InvalidURL("has a backslash")


def _reject_control_characters(text: str) -> None:
    """Raise InvalidURL for a control character, C1 included; the message has its code and position."""
    if not text.isprintable() and (found := re.search(r"[\x00-\x1f\x7f-\x9f]", text)):
        raise InvalidURL(f"has a control character (U+{ord(found[0]):04X}) at position {found.start() + 1}")


def _base_url(text: str) -> str:
    text = text.removeprefix("\ufeff")  # a byte order mark
    if not text.strip():
        raise InvalidURL("is empty")
    _reject_spaces(text)
    has_scheme = _URL.match(text) is not None
    if not has_scheme and re.match(_SCHEME_WITHOUT_SLASHES, text):
        raise InvalidURL("has no // after its scheme")
    if not has_scheme and re.fullmatch(_EMAIL_ADDRESS, text):
        raise InvalidURL("looks like an email address", "give the username with -u")
    found, rest = _split(text if has_scheme else f"https://{text}")
    if not has_scheme and _is_loopback(found[1]):
        found, rest = _split(f"http://{text}")
    if "?" in rest:
        raise InvalidURL("has a query", "omit the ? and everything after it")
    if "#" in rest:
        raise InvalidURL("has a fragment", "omit the # and everything after it")
    _check_path(rest)
    return _origin_url(found) + _encode(rest[: len(rest) - len(pasted_end(rest))], _IN_PATH)


def _is_loopback(host: str) -> bool:
    """Return whether the name or address *host* is one of this machine, whatever the system's configuration."""
    return (
        host == "localhost" or host.endswith(".localhost") or re.fullmatch(r"127(\.\d{1,3}){3}|::1", host) is not None
    )


def pasted_end(text: str) -> str:
    """Return the end of the base URL *text* that is not part of it: that of a URL of the API, or a slash."""
    path, before = text.rstrip("/"), ""
    while path != before:
        before, path = path, path.removesuffix("/x-api/token").removesuffix("/x-api").rstrip("/")
    return text[len(path) :]


def _resolved(base: str, path: str) -> str:
    if not path.strip():
        raise InvalidURL("is empty", "write / for the base URL itself")
    _reject_control_characters(path)
    if re.match(_WINDOWS_PATH, path):
        raise InvalidURL(
            "looks like a Windows file path, to which a shell such as Git Bash converts a leading slash",
            "set MSYS_NO_PATHCONV=1, or omit the leading slash",
        )
    if "#" in path:
        raise InvalidURL("has a fragment, which is never sent", "write %23 for a # in a name")
    start, rest = base, path
    if _URL.match(path):
        found, rest = _split(path)
        start, wanted = _origin_url(found), root(base)
        if start != wanted:
            raise InvalidURL(f"has the origin {start}, but the base URL has {wanted}", _ONLY_PATH)
    name, mark, query = rest.partition("?")
    _check_path(name)
    return f"{start}/{_encode(name.removeprefix('/'), _IN_PATH)}{mark}{_encode(query, _IN_QUERY)}"


def _with_query(url: str, query: Sequence[tuple[str, str]]) -> str:
    pairs = "&".join(f"{_component(name)}={_component(value)}" for name, value in query)
    if "?" not in url:
        return f"{url}?{pairs}"
    return f"{url}{pairs}" if url.endswith(("?", "&")) else f"{url}&{pairs}"


def _split(url: str, *, user_info: bool = False) -> tuple[Origin, str]:
    """Return the origin of an absolute *url*, and what follows it.

    User info raises InvalidURL, or is dropped with *user_info*.
    """
    match = _URL.match(url)
    if not match:
        raise InvalidURL("is not an http or https URL")
    scheme, authority, rest = match[1].lower(), match[2], match[3]
    if scheme not in DEFAULT_PORTS:
        raise InvalidURL(f"has the scheme {shortened(scheme, 20)!r}, not http or https")
    if "@" in authority and not user_info:
        raise InvalidURL(
            "has user info before its host (not shown: it may be a password)", "omit everything up to the @"
        )
    host, port = host_and_port(authority.rpartition("@")[2])
    return (scheme, host, DEFAULT_PORTS[scheme] if port is None else port), rest


def _origin_url(origin: Origin) -> str:
    """Return *origin* as the start of a URL."""
    scheme, host, port = origin
    return f"{scheme}://{with_port(host, port)}".removesuffix(f":{DEFAULT_PORTS[scheme]}")


def _check_path(path: str) -> None:
    """Raise InvalidURL for a *path* that a server, proxy or library may interpret as another path."""
    if "\\" in path:
        raise InvalidURL("has a backslash", "write / between its parts, or %5C for a backslash in a name")
    if path.startswith("//"):
        raise InvalidURL("starts with //, which denotes a host", "write it with one slash")
    if re.search(_DOT_SEGMENT, path):
        raise InvalidURL("has a . or .. segment, possibly encoded", "write the resolved path")


def _encode(text: str, safe: str) -> str:
    """Return *text* percent-encoded; existing percent-encoding does not change.

    Bytes of an argument that are not valid UTF-8 are preserved.
    """
    if "%" in text:
        text = re.sub("%(?![0-9A-Fa-f]{2})", "%25", text)
    try:
        return quote(text, safe=safe + "%", errors="surrogateescape")
    except UnicodeEncodeError:
        raise InvalidURL(UNPAIRED_SURROGATE) from None


def _component(text: str) -> str:
    return quote(encode_argument(text, "a query parameter"), safe="")


def _port(text: str) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= _MAX_PORT:
        raise InvalidURL(f"has a port that is not a number from 1 to {_MAX_PORT}")
    return int(text)


def _address(text: str, problem: str) -> str:
    """Return the IP address *text* in its usual form; raises InvalidURL with *problem* if it is not one."""
    try:
        return str(ip_address(text))
    except ValueError:
        raise InvalidURL(problem) from None


def _name(host: str) -> str:
    """Return the name or IPv4 address *host* in the form in which it is sent."""
    name = host.lower()
    if not name.isascii() or "xn--" in name:
        name = _encode_international(name)
    if not re.fullmatch(_NAME, name):
        raise InvalidURL("has an invalid host name")
    if re.fullmatch(r"[\d.]+", name):
        return _address(name, "has a host that is neither a name nor an IPv4 address such as 192.0.2.1")
    return name


def _encode_international(name: str) -> str:
    import idna  # imported here because its tables are large

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except UnicodeError:  # idna.IDNAError is one
        raise InvalidURL("has an invalid internationalized host name") from None
