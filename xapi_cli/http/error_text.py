"""Describe the connection errors of the operating system and of the TLS library."""

import errno
import socket
import ssl

from xapi_cli.hints import Hint, Option
from xapi_cli.http.responses import CLOSED
from xapi_cli.http.urls import BASE_URL
from xapi_cli.system.render import printable

_CHECK_CLOCK = "check the clock of this computer, or ask the operators for a new certificate"
_CHECK_CA = ("if you trust its CA, pass the CA's certificate with ", Option("ca_bundle"))
_CHECK_NAME = ("check the host in ", BASE_URL)
_CHECK_SCHEME = ("check the scheme (without one, it is https) and the port of ", BASE_URL)
_CHECK_ONLINE = "check that this computer is online"

_CERTIFICATE: dict[int, tuple[str, Hint]] = {  # X509_V_ERR_*, by number: the ssl module has no names for them
    9: ("the server's certificate is not valid yet", "check the clock of this computer"),
    10: ("the server's certificate has expired", _CHECK_CLOCK),
    18: ("the server's certificate is self-signed", _CHECK_CA),
    19: ("the server's certificate was issued by an unknown CA (self-signed)", _CHECK_CA),
    20: ("the server's certificate was issued by an unknown CA", _CHECK_CA),
    21: ("the server's certificate was issued by an unknown CA", _CHECK_CA),
    62: ("the server's certificate is for another host name", _CHECK_NAME),
    64: ("the server's certificate is for another address", _CHECK_NAME),
}
_CERTIFICATE |= {  # CERT_E_* of Windows (winerror.h), err* of macOS (SecBase.h), which truststore passes on
    0x800B0101: ("the server's certificate has expired, or is not valid yet", _CHECK_CLOCK),
    0x800B0109: _CERTIFICATE[20],
    0x800B010A: _CERTIFICATE[20],
    0x800B010F: _CERTIFICATE[62],
    -67602: _CERTIFICATE[62],
    -67818: _CERTIFICATE[10],
    -67843: _CERTIFICATE[20],
}
CERTIFICATE_REQUIRED = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
_TLS: dict[str, tuple[str, Hint | None]] = {  # OpenSSL's reasons
    "WRONG_VERSION_NUMBER": ("the server does not use TLS on this port", _CHECK_SCHEME),
    "HTTP_REQUEST": ("the server does not use TLS on this port", _CHECK_SCHEME),
    "UNEXPECTED_EOF_WHILE_READING": (CLOSED, None),
    "NO_PROTOCOLS_AVAILABLE": ("no TLS version in common", None),
    "UNSUPPORTED_PROTOCOL": ("the server supports only outdated TLS versions", None),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("no TLS version in common", None),
    CERTIFICATE_REQUIRED: ("the server requires a client certificate; xapi has none", None),
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": (
        "the server does not support HTTP/1.1 on this port, perhaps only HTTP/2",
        _CHECK_SCHEME,
    ),
}
_CHECK_LIMIT = "check the limit of open files with `ulimit -n`"
_SYSTEM_HINTS: dict[int, Hint] = {
    errno.EMFILE: _CHECK_LIMIT,
    errno.ENFILE: _CHECK_LIMIT,
    errno.ECONNREFUSED: ("check the host and port of ", BASE_URL, ", and whether the server is running"),
    errno.EHOSTUNREACH: _CHECK_ONLINE,
    errno.ENETUNREACH: _CHECK_ONLINE,
    errno.ENETDOWN: _CHECK_ONLINE,
}
_NO_SUCH_HOST = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
}


def describe_error(error: OSError) -> tuple[str, Hint | None]:
    """Return a description of *error* and a hint; None if there is no hint."""
    if isinstance(error, socket.gaierror):
        return _resolution_error(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_error(error)
    if isinstance(error, ssl.SSLError):
        return _tls_error(error)
    return _clause(error.strerror or type(error).__name__), _SYSTEM_HINTS.get(error.errno or 0)


def _resolution_error(error: socket.gaierror) -> tuple[str, Hint | None]:
    if error.errno in _NO_SUCH_HOST:
        return "no such host", _CHECK_NAME
    if error.errno == socket.EAI_AGAIN:
        return "name resolution failed", _CHECK_ONLINE
    return f"name resolution failed ({_clause(error.strerror or 'no reason given')})", None


def _certificate_error(error: ssl.SSLCertVerificationError) -> tuple[str, Hint | None]:
    known = _CERTIFICATE.get(error.verify_code)
    return known or (f"the server's certificate is not trusted ({_clause(str(error.verify_message))})", _CHECK_CA)


def _tls_error(error: ssl.SSLError) -> tuple[str, Hint | None]:
    is_end = isinstance(error, ssl.SSLEOFError)  # its reason depends on the version of OpenSSL
    name = "UNEXPECTED_EOF_WHILE_READING" if is_end else error.reason or ""  # OpenSSL does not always give one
    details = f" ({_clause(name.replace('_', ' ').lower())})" if name else ""
    return _TLS.get(name) or (f"TLS failed{details}", None)


def _clause(text: str) -> str:
    """Return *text* from a library as part of a sentence."""
    text = printable(text.strip().rstrip("."))
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
