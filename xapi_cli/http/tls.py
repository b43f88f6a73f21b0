"""Decide whom TLS trusts: a CA bundle that the user named, else the operating system."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    import ssl

_CERTIFICATE_SUFFIXES = {".pem", ".crt", ".cer"}
_HASHED_NAME = r"[0-9a-fA-F]{8}\.[0-9]"  # what `openssl rehash` makes, and what OpenSSL looks for in a folder


def context(ca_bundle: str | None, environ: Mapping[str, str]) -> "ssl.SSLContext":
    """Return how TLS is to be spoken: only with servers whose certificate a trusted CA has signed for their name."""
    sources = list(_named(ca_bundle, environ))
    made = _bundled(sources) if sources else _system()
    _be_strict(made)
    return made


def _named(ca_bundle: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield each setting that names trusted certificates, and a file or folder that it names."""
    if ca_bundle:
        yield "the CA bundle", Path(ca_bundle).expanduser()
        return
    if file := environ.get("SSL_CERT_FILE"):
        yield "SSL_CERT_FILE", Path(file)
    for folder in environ.get("SSL_CERT_DIR", "").split(os.pathsep):
        if folder:
            yield "SSL_CERT_DIR", Path(folder)


def _bundled(sources: list[tuple[str, Path]]) -> "ssl.SSLContext":
    import ssl

    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a bundle may hold just an intermediate CA, as curl allows
    for setting, path in sources:
        try:
            _load(made, path)
        except ssl.SSLError:
            raise _refusal(setting, path, "holds no usable PEM certificate") from None
        except OSError as error:
            raise _refusal(setting, path, f"cannot be read ({error.strerror or type(error).__name__})") from None
        except ValueError:  # a NUL in the path
            raise _refusal(setting, path, "cannot be read") from None
    return made


def _load(made: "ssl.SSLContext", path: Path) -> None:
    """Trust what is in *path*; OSError or SSLError where that is nothing."""
    import re
    import ssl

    if not path.is_dir():
        made.load_verify_locations(cafile=path)
        return
    names = [entry.name for entry in path.iterdir()]
    if any(re.fullmatch(_HASHED_NAME, name) for name in names):
        made.load_verify_locations(capath=path)
        return
    plain = [path / name for name in sorted(names) if Path(name).suffix.lower() in _CERTIFICATE_SUFFIXES]
    if not plain:
        raise ssl.SSLError("an empty folder")
    for file in plain:
        made.load_verify_locations(cafile=file)


def _refusal(setting: str, path: Path, flaw: str) -> UsageError:
    from xapi_cli.system.render import printable

    return UsageError(f"{setting}: {printable(str(path))} {flaw}", hint="name a PEM file with CA certificates")


def _system() -> "ssl.SSLContext":
    import ssl

    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _be_strict(made: "ssl.SSLContext") -> None:
    """Refuse what some builds of Python let pass: TLS before 1.2 (RFC 8996), and an end without TLS's own good-bye.

    A body may have been cut off where a connection just ends.
    """
    import ssl

    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
