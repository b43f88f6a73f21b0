"""Choose the proxy that the environment names for a server, by the rules that curl made common."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xapi_cli.errors import UsageError
from xapi_cli.hosts import Malformed, host_and_port

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HINT = "write it like http://proxy.example.com:3128"


@dataclass(frozen=True)
class Proxy:
    """Say where a proxy listens, and what to show it as Proxy-Authorization."""

    scheme: str
    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)
    variable: str = "HTTPS_PROXY"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for what is asked of *host*, None to go there directly."""
    variable, text = _chosen(scheme, environ)
    if not text or _is_exempt(host, port, _value("NO_PROXY", environ)[1]):
        return None
    try:
        return _parsed(text, variable)
    except Malformed as flaw:
        raise UsageError(f"the proxy in {variable} {flaw}", hint=flaw.remedy or _HINT) from None


def _chosen(scheme: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return name and value of the variable that decides for *scheme*."""
    variable, text = _value(f"{scheme.upper()}_PROXY", environ)
    return (variable, text) if text else _value("ALL_PROXY", environ)


def _value(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable *name* as spelt and its value, lower case first; an empty one counts as unset."""
    lower = environ.get(name.lower(), "").strip()
    if name == "HTTP_PROXY" and "REQUEST_METHOD" in environ:  # a CGI script gets it from a header: httpoxy.org
        return name.lower(), lower if name.lower() in set(environ) else ""  # on Windows, get() ignores case
    return (name.lower(), lower) if lower else (name, environ.get(name, "").strip())


def _parsed(text: str, variable: str) -> Proxy:
    """Read a proxy's URL; nothing of it is echoed, for it may hold a password anywhere."""
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    _check_scheme(scheme.lower())
    user_info, _, address = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    host, port = host_and_port(address)
    return Proxy("http", host, port or _DEFAULT_PORTS["http"], _basic(user_info) if user_info else None, variable)


def _check_scheme(scheme: str) -> None:
    if scheme == "https":
        raise Malformed("is reached by https, which xapi does not support", "most proxies listen on http://, try that")
    if scheme.startswith("socks"):
        raise Malformed("is a SOCKS proxy, which xapi does not support", "name an HTTP proxy instead")
    if scheme != "http":
        raise Malformed("has a scheme other than http")


def _basic(user_info: str) -> bytes:
    """Return the Proxy-Authorization for a URL's *user_info* (RFC 7617)."""
    from base64 import b64encode
    from urllib.parse import unquote_to_bytes

    name, _, password = user_info.partition(":")
    return b"Basic " + b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password))


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Tell whether *no_proxy* names *host*; what is malformed in it names nobody."""
    wanted = host.lower().rstrip(".")
    return any(
        (entry_port is None or entry_port == str(port)) and _names(name, wanted)
        for name, entry_port in _entries(no_proxy)
    )


def _entries(no_proxy: str) -> Iterator[tuple[str, str | None]]:
    for entry in re.split(r"[\s,]+", no_proxy.lower()):
        if bracketed := re.fullmatch(r"\[([^\]]*)\](?::(\d+))?", entry):
            yield bracketed[1], bracketed[2]
        elif named := re.fullmatch(r"([^:\[\]]+)(?::(\d+))?", entry):
            yield named[1], named[2]
        else:
            yield entry, None  # an IPv6 address without brackets, or nonsense


def _names(name: str, host: str) -> bool:
    if name == "*":
        return True
    if host[-1:].isdigit() or ":" in host:
        return _is_within(host, name)
    suffix = name.removeprefix("*").strip(".")
    return bool(suffix) and f".{host}".endswith(f".{suffix}")


def _is_within(host: str, network: str) -> bool:
    """Tell whether the address *host* is one of *network*, which may be a single one."""
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
