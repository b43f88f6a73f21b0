"""Parse the host and port of a URL strictly, so that each host has one normalized spelling."""

import re

_MAX_PORT = 65_535
_MAX_NAME_LENGTH = 253  # RFC 1035, 2.3.4, without the trailing dot
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEXADECIMAL = re.compile(r"0x[0-9a-f]*")


class InvalidURL(Exception):
    """A URL is not valid; *problem* is a predicate, to which the caller that reports the error adds the subject."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


def host_and_port(text: str) -> tuple[str, int | None]:
    """Return the host in *text*, normalized and without brackets, and the port or None; raises InvalidURL."""
    reject_spaces(text)
    if "%" in text:
        raise InvalidURL("has a % in its host")
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise InvalidURL("has a malformed IPv6 address")
        return _ipv6(inside), _port(after[1:])
    host, _, port = text.partition(":")
    if not host:
        raise InvalidURL("has no host")
    if ":" in port:
        raise InvalidURL("has more than one : in its host", "write an IPv6 address in brackets, like [::1]")
    return _name(host), _port(port)


def is_numeric(host: str) -> bool:
    """Return whether a resolver would parse *host* as an IPv4 address in any notation."""
    last = host.removesuffix(".").rpartition(".")[2]
    return last.isdigit() or _HEXADECIMAL.fullmatch(last) is not None


def reject_spaces(text: str) -> None:
    """Raise InvalidURL for blanks, backslashes and control characters."""
    reject_control_characters(text)
    if "".join(text.split()) != text:
        raise InvalidURL("contains whitespace")
    if "\\" in text:
        raise InvalidURL("has a backslash")


def reject_control_characters(text: str) -> None:
    """Raise InvalidURL for a control character, C1 included; the message has its code and position."""
    if found := _CONTROL.search(text):
        raise InvalidURL(f"has a control character (U+{ord(found[0]):04X}) at position {found.start() + 1}")


def _port(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidURL("has a port that is not a number")
    digits = text.lstrip("0")
    if not digits or len(digits) > len(str(_MAX_PORT)) or int(digits) > _MAX_PORT:
        raise InvalidURL(f"has a port outside 1-{_MAX_PORT}")
    return int(digits)


def _ipv6(text: str) -> str:
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text)
    except ValueError:
        raise InvalidURL("has a malformed IPv6 address") from None
    mapped = address.ipv4_mapped
    return f"::ffff:{mapped}" if mapped else str(address)  # str() formats mapped ones differently since Python 3.13


def _name(host: str) -> str:
    """Return the name or IPv4 address *host* in the form in which it is sent."""
    name = host.lower()
    if not name.isascii() or "xn--" in name:
        name = _encode_international(name)
    if len(name.removesuffix(".")) > _MAX_NAME_LENGTH or not _has_valid_labels(name):
        raise InvalidURL("has an invalid host name")
    if is_numeric(name):
        _check_ipv4(name)
    return name


def _encode_international(name: str) -> str:
    import idna  # imported here because its tables are large

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except UnicodeError:  # idna.IDNAError is one
        raise InvalidURL("has an invalid internationalized host name") from None


def _has_valid_labels(name: str) -> bool:
    return all(_LABEL.fullmatch(label) for label in name.removesuffix(".").split("."))


def _check_ipv4(name: str) -> None:
    from ipaddress import IPv4Address

    try:
        IPv4Address(name)
    except ValueError:
        raise InvalidURL("has a host that is neither a name nor an IPv4 address such as 192.0.2.1") from None
