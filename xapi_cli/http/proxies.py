"""Choose the proxy for a server from environment variables, by the same rules as curl."""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http.urls import DEFAULT_PORTS, InvalidURL, host_and_port, with_port
from xapi_cli.system.render import listed

if TYPE_CHECKING:
    from xapi_cli.http.responses import ResponseHead

_SCHEME = rb"(?i)(?:^|,)\s*(basic|digest|negotiate|ntlm|kerberos|bearer)\b(?!\s*=)"  # of authentication
_HINT = "write it like http://proxy.example.com:3128"


@dataclass(frozen=True)
class Proxy:
    """The address of a proxy, its Proxy-Authorization, and the variable that sets it."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)
    variable: str = "HTTPS_PROXY"

    def __str__(self) -> str:
        return with_port(self.host, self.port)

    @property
    def hint(self) -> str:
        """What to do if the proxy does not work."""
        return f"check {self.variable}, or add the server to NO_PROXY"

    def refusal(self, head: "ResponseHead") -> NetworkError:
        """Return the error for a response with which the proxy itself refuses the request.

        After a 407, a request is not retried: too many attempts with a wrong password can lock an account.
        """
        if head.status != 407:
            message = f"the proxy {self} refused to connect to the server (status {head.status})"
            return NetworkError(message, hint=self.hint)
        offers = [value for name, value in head.raw_headers if name.lower() == b"proxy-authenticate"]
        schemes = [found.decode() for offer in offers for found in re.findall(_SCHEME, offer)]
        if schemes and "basic" not in [scheme.lower() for scheme in schemes]:
            names = listed(list(dict.fromkeys(schemes)), "and")
            problem = f"the proxy {self} offers only {names} authentication, and xapi supports only Basic (status 407)"
            hint = f"set a local proxy that supports it, such as px or cntlm, in {self.variable}, or use NO_PROXY"
            return NetworkError(problem, hint=hint, headers_received=True)
        what = "another" if self.authorization else "a"
        hint = f"set them in {self.variable}, as in http://USER:PASSWORD@{self}"
        problem = f"the proxy {self} requires {what} username and password (status 407)"
        return NetworkError(problem, hint=hint, headers_received=True)


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for requests to *host*, None for a direct connection.

    Raises UsageError if the URL of the proxy is not valid.
    """
    variable, text = _setting_for(scheme, environ)
    if not text or _is_exempt(host, port, _lookup("NO_PROXY", environ)[1]):
        return None
    try:
        return _parse(text, variable)
    except InvalidURL as error:
        raise UsageError(f"the proxy in {variable} {error}", hint=error.hint or _HINT) from None


def _setting_for(scheme: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return name and value of the variable that applies to *scheme*."""
    variable, text = _lookup(f"{scheme.upper()}_PROXY", environ)
    return (variable, text) if text else _lookup("ALL_PROXY", environ)


def _lookup(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the spelling of the variable *name* and its value; lower case takes precedence, empty means unset."""
    lower = environ.get(name.lower(), "").strip()
    if name == "HTTP_PROXY" and "REQUEST_METHOD" in environ:  # in CGI, a request header sets it: httpoxy.org
        return name.lower(), lower if name.lower() in set(environ) else ""  # on Windows, get() ignores case
    return (name.lower(), lower) if lower else (name, environ.get(name, "").strip())


def _parse(text: str, variable: str) -> Proxy:
    """Parse the URL of a proxy; errors do not quote it, because it may contain a password."""
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    _check_scheme(scheme.lower())
    user_info, _, address = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    host, port = host_and_port(address)
    authorization = _basic_authorization(user_info) if user_info else None
    return Proxy(host, port or DEFAULT_PORTS["http"], authorization, variable)


def _check_scheme(scheme: str) -> None:
    if scheme == "https":
        raise InvalidURL("has the scheme https, which xapi does not support", "try http://, which most proxies use")
    if scheme.startswith("socks"):
        raise InvalidURL("is a SOCKS proxy, which xapi does not support", "use an HTTP proxy instead")
    if scheme != "http":
        raise InvalidURL("has a scheme other than http")


def _basic_authorization(user_info: str) -> bytes:
    """Return the value of Proxy-Authorization for the *user_info* of a URL (RFC 7617)."""
    name, _, password = user_info.partition(":")
    return b"Basic " + b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password))


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Return whether *no_proxy* contains *host*, or a domain or network that does; malformed entries match nothing."""
    wanted = host.lower().rstrip(".")
    for entry in re.split(r"[\s,]+", no_proxy.lower()):
        name = entry.removesuffix(f":{port}").strip("[]")
        domain = name.removeprefix("*").strip(".")
        if name == "*" or (domain and f".{wanted}".endswith(f".{domain}")) or _is_in_network(wanted, name):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    if "/" not in network:
        return False
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
