"""TLS configuration: trust the CA bundle that the user set, else the trust store of the operating system."""

import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_UNKNOWN_CA = {2, 18, 19, 20, 21}  # X509_V_ERR_*, by number: the ssl module has no names for them
_MIN_HASHED = 50  # certificates in the directory of the system; one that an administrator has begun has fewer
_CERTIFICATE_SUFFIXES = {".pem", ".crt", ".cer"}
_HASHED_NAME = r"[0-9a-fA-F]{8}\.[0-9]"  # names that `openssl rehash` creates and OpenSSL looks up


def create_context(ca_bundle: str | None, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that requires a certificate for the server's name from a trusted CA.

    Raises UsageError if the configured CA certificates cannot be loaded.
    """
    sources = list(_configured_paths(ca_bundle, environ))
    return _hardened(_context_from_files(sources) if sources else _directory_context() or _system_context())


def complete(context: ssl.SSLContext, error: BaseException | None) -> ssl.SSLContext | None:
    """Return a context that trusts all CAs of the system, if *context* may lack the one that *error* is about."""
    if not isinstance(error, ssl.SSLCertVerificationError) or error.verify_code not in _UNKNOWN_CA:
        return None
    return _hardened(_system_context()) if isinstance(context, _DirectoryContext) else None


def _configured_paths(ca_bundle: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the name of each setting with trusted certificates, and each file or directory that it names."""
    if ca_bundle:
        yield "the CA bundle", Path(ca_bundle).expanduser()
        return
    if file := environ.get("SSL_CERT_FILE"):
        yield "SSL_CERT_FILE", Path(file)
    for directory in environ.get("SSL_CERT_DIR", "").split(os.pathsep):
        if directory:
            yield "SSL_CERT_DIR", Path(directory)


def _context_from_files(sources: Sequence[tuple[str, Path]]) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates in *sources*; raises UsageError if they cannot be loaded.

    A directory of SSL_CERT_DIR may be missing or empty, as conda sets it, if there is another source.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a bundle may contain only an intermediate CA, as in curl
    failures = []
    for setting, path in sources:
        try:
            _load(context, path)
        except (OSError, ValueError) as error:
            failures.append(_error(setting, path, error))
            if setting != "SSL_CERT_DIR":
                raise failures[-1] from None
    if len(failures) == len(sources):
        raise failures[0]
    return context


def _load(context: ssl.SSLContext, path: Path) -> None:
    """Load the certificates in *path* into *context*; raises OSError or SSLError if there are none."""
    if not path.is_dir():
        context.load_verify_locations(cafile=path)
        return
    names = [entry.name for entry in path.iterdir()]
    if any(re.fullmatch(_HASHED_NAME, name) for name in names):
        context.load_verify_locations(capath=path)
        return
    loaded = False
    problem: OSError = ssl.SSLError("no certificate in the directory")
    for name in sorted(names):
        if Path(name).suffix.lower() in _CERTIFICATE_SUFFIXES:
            try:
                context.load_verify_locations(cafile=path / name)
                loaded = True
            except OSError as error:  # such as a private key beside the certificate; SSLError is an OSError
                problem = error
    if not loaded:
        raise problem


def _error(setting: str, path: Path, error: OSError | ValueError) -> UsageError:
    if isinstance(error, ssl.SSLError):
        problem = "contains no usable PEM certificate"
    else:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})"
    what = "directory of PEM files" if setting == "SSL_CERT_DIR" else "PEM file with CA certificates"
    return UsageError(f"{setting}: {printable(str(path))} {problem}", hint=f"set it to a {what}")


class _DirectoryContext(ssl.SSLContext):
    """A context that trusts the certificates in the directory of the system, in which some may be missing."""


def _directory_context() -> _DirectoryContext | None:
    """Return a context that reads only the certificates that it needs, from the directory of the system, if it has one.

    It takes 1 ms, and the bundle of all CAs 20 ms. An administrator may have added a CA only to the bundle: `complete`.
    """
    with suppress(OSError):
        path = ssl.get_default_verify_paths().openssl_capath
        if sum(name.endswith(".0") for name in os.listdir(path)) >= _MIN_HASHED:
            context = _DirectoryContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(capath=path)
            return context
    return None


def _system_context() -> ssl.SSLContext:
    import truststore  # imported here because few calls need it

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let *context* reject TLS before 1.2 (RFC 8996), an end without close_notify, and a name that is only in CN.

    Some builds of Python accept them. Without close_notify, the body may be truncated.
    """
    context.set_alpn_protocols(["http/1.1"])  # gateways choose by it
    context.hostname_checks_common_name = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context
