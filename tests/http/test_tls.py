"""Which certificates are trusted, and what a failed handshake says."""

import datetime as dt
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from tests.support.servers import Peer, Server, send, serve
from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http import tls
from xapi_cli.http.messages import build_request
from xapi_cli.http.transport import Transport


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def server(ca: trustme.CA) -> Iterator[Server]:
    with serving(ca.issue_cert("127.0.0.1")) as server:
        yield server


def context_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def serving(certificate: trustme.LeafCert) -> Server:
    return Server([serve()], tls=context_of(certificate))


def get(server: Server, ca_bundle: Path | str | None = None, environ: Mapping[str, str] | None = None) -> bytes:
    context = tls.create_context(str(ca_bundle) if ca_bundle else None, environ or {})
    return fetched(server, context)


def fetched(server: Server, context: ssl.SSLContext) -> bytes:
    url = server.url.replace("http://", "https://")
    with closing(Transport(lambda: context, timeout=5)) as transport:
        return b"".join(transport.send(build_request("GET", f"{url}/", [(b"Authorization", b"canary")])).chunks())


def failure(server: Server, ca_bundle: Path | str | None = None) -> str:
    with pytest.raises(NetworkError) as caught:
        get(server, ca_bundle)
    assert not caught.value.sent
    assert not any(b"canary" in received for received in server.received)
    return str(caught.value).replace(server.name, "SERVER").removeprefix("no TLS connection to SERVER: ")


# what is trusted


def test_a_bundle_from_a_flag_or_the_environment_is_trusted(server: Server, bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    another = other / "another.pem"
    trustme.CA().cert_pem.write_to_path(str(another))
    empty = tmp_path / "empty"
    empty.mkdir()
    sources: list[tuple[Path | None, dict[str, object]]] = [
        (bundle, {}),
        (tmp_path, {}),
        (None, {"SSL_CERT_FILE": bundle}),
        (None, {"SSL_CERT_DIR": tmp_path}),
        (bundle, {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}),  # the flag overrides
        (None, {"SSL_CERT_FILE": another, "SSL_CERT_DIR": tmp_path}),  # both apply
        (None, {"SSL_CERT_FILE": bundle, "SSL_CERT_DIR": ""}),
        (None, {"SSL_CERT_FILE": "", "SSL_CERT_DIR": f"{other}{os.pathsep}{tmp_path}"}),
        (None, {"SSL_CERT_FILE": bundle, "SSL_CERT_DIR": empty}),  # as conda sets them
        (None, {"SSL_CERT_FILE": bundle, "SSL_CERT_DIR": "/nonexistent"}),
    ]
    for flag, environ in sources:
        assert get(server, flag, {name: str(value) for name, value in environ.items()}) == b"ok"
    with pytest.raises(NetworkError, match="unknown CA"):
        get(server, another)


def test_a_bundle_may_contain_only_an_intermediate_ca(ca: trustme.CA, tmp_path: Path) -> None:
    intermediate = ca.create_child_ca()
    intermediate.cert_pem.write_to_path(str(tmp_path / "intermediate.pem"))
    with serving(intermediate.issue_cert("127.0.0.1")) as server:
        assert get(server, tmp_path / "intermediate.pem") == b"ok"


def test_a_directory_may_contain_hashed_names(server: Server, bundle: Path, tmp_path: Path) -> None:
    assert get(server, _hashed(bundle, tmp_path / "hashed")) == b"ok"


def _hashed(bundle: Path, directory: Path) -> Path:
    directory.mkdir()
    command = ["openssl", "x509", "-in", str(bundle), "-noout", "-hash"]
    name = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    (directory / f"{name}.0").write_bytes(bundle.read_bytes())
    return directory


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system's trust is not a file")
@pytest.mark.parametrize("place", ["directory", "bundle"])
def test_a_ca_that_the_operating_system_trusts_is_trusted(
    ca: trustme.CA, server: Server, bundle: Path, tmp_path: Path, place: str
) -> None:
    """The system has a directory of hashed names; an administrator may have added a CA only to the bundle."""
    hashed = _hashed(bundle, tmp_path / "hashed")
    for number in range(60):
        (hashed / f"{number:08x}.0").write_text("")
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    if place == "bundle":
        next(path for path in hashed.iterdir() if path.stat().st_size).unlink()
    program = f"""if True:
        import pathlib
        from contextlib import closing
        from tests.http.test_tls import Server, fetched
        from types import SimpleNamespace
        from xapi_cli.http import tls
        assert fetched(SimpleNamespace(url={server.url!r}), tls.create_context(None, {{}})) == b"ok"
    """
    # OpenSSL reads the places of the system's trust store from the process environment, not from our mapping.
    files = {"SSL_CERT_FILE": str(bundle if place == "bundle" else other), "SSL_CERT_DIR": str(hashed)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30, env={**os.environ, **files})


def test_without_any_setting_the_operating_system_is_trusted(server: Server) -> None:
    made = tls.create_context(None, {})
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert made.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert failure(server).startswith("the server's certificate was issued by an unknown CA")


def test_no_key_log_is_written(server: Server, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    assert get(server, bundle) == b"ok"
    assert not (tmp_path / "keys").exists()


# settings that are not valid


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "contains no usable PEM certificate"),
        (b"\x00\x01 nonsense", "contains no usable PEM certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "contains no usable PEM certificate"),
    ],
)
def test_an_unusable_bundle_is_reported_by_name(tmp_path: Path, content: bytes | None, flaw: str) -> None:
    path = tmp_path / "bad\x1b.pem"
    if content is not None:
        path.write_bytes(content)
    shown = str(path).replace("\x1b", "\\x1b")
    for arguments, setting in [
        ((str(path), {}), "the CA bundle"),
        ((None, {"SSL_CERT_FILE": str(path)}), "SSL_CERT_FILE"),
        ((None, {"SSL_CERT_DIR": str(path)}), "SSL_CERT_DIR"),
    ]:
        with pytest.raises(UsageError) as caught:
            tls.create_context(*arguments)
        what = "directory of PEM files" if setting == "SSL_CERT_DIR" else "PEM file with CA certificates"
        assert str(caught.value) == f"{setting}: {shown} {flaw}; set it to a {what}"


# failed handshakes


PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SOON = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
CERTIFICATES: dict[str, tuple[Callable[[trustme.CA], trustme.LeafCert], str]] = {
    "expired": (
        lambda ca: ca.issue_cert("127.0.0.1", not_before=PAST, not_after=PAST + dt.timedelta(days=9)),
        (
            "the server's certificate has expired; "
            "check the clock of this computer, or ask the operators for a new certificate"
        ),
    ),
    "not valid yet": (
        lambda ca: ca.issue_cert("127.0.0.1", not_before=SOON),
        "the server's certificate is not valid yet; check the clock of this computer",
    ),
    "another address": (
        lambda ca: ca.issue_cert("other.test", "127.0.0.9"),
        "the server's certificate is for another address; check the host in the base URL",
    ),
    "only a common name": (
        lambda ca: ca.issue_cert("other.test", common_name="127.0.0.1"),
        "the server's certificate is for another address; check the host in the base URL",
    ),
}


@pytest.mark.parametrize(("issue", "message"), CERTIFICATES.values(), ids=CERTIFICATES)
def test_a_certificate_that_is_not_valid_is_rejected(
    ca: trustme.CA, bundle: Path, issue: Callable[[trustme.CA], trustme.LeafCert], message: str
) -> None:
    with serving(issue(ca)) as server:
        assert failure(server, bundle) == message


def test_a_certificate_for_another_name_is_rejected(ca: trustme.CA, bundle: Path) -> None:
    with serving(ca.issue_cert("other.test", common_name="localhost")) as server:
        server.url = server.url.replace("127.0.0.1", "localhost")
        assert failure(server, bundle) == (
            "the server's certificate is for another host name; check the host in the base URL"
        )


def test_a_self_signed_certificate_is_rejected_unless_configured(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=x"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True, timeout=30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server([serve()], tls=context) as server:
        assert failure(server) == (
            "the server's certificate is self-signed; if you trust its CA, pass the CA's certificate with --ca-bundle"
        )
        assert get(server, certificate) == b"ok"


def test_a_server_without_tls_or_with_outdated_tls_is_reported_as_such(ca: trustme.CA, bundle: Path) -> None:
    outdated = context_of(ca.issue_cert("127.0.0.1"))
    outdated.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        outdated.minimum_version = outdated.maximum_version = ssl.TLSVersion.TLSv1
    with Server([Peer.read_some, send(b"HTTP/1.1 400 Bad Request\r\n\r\n")]) as server:
        assert failure(server, bundle) == (
            "the server does not use TLS on this port; "
            "check the scheme (without one, it is https) and the port of the base URL"
        )
    with Server([Peer.read_some]) as server:
        assert failure(server, bundle) == "connection closed by the server"
    with Server([serve()], tls=outdated) as server:
        assert "TLS" in failure(server, bundle)


def test_http_1_1_is_negotiated(ca: trustme.CA, bundle: Path) -> None:
    context = context_of(ca.issue_cert("127.0.0.1"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    def note(peer: Peer) -> None:
        assert isinstance(peer.sock, ssl.SSLSocket)
        chosen.append(peer.sock.selected_alpn_protocol())

    with Server([note, serve()], tls=context) as server:
        assert get(server, bundle) == b"ok"
    assert chosen == ["http/1.1"]


def test_a_required_client_certificate_is_a_clear_error(ca: trustme.CA, bundle: Path) -> None:
    context = context_of(ca.issue_cert("127.0.0.1"))
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with (
        Server([serve()], tls=context) as server,
        closing(Transport(lambda: tls.create_context(str(bundle), {}), timeout=5)) as transport,
        pytest.raises(NetworkError) as caught,
    ):
        transport.send(build_request("POST", f"{server.url}/", []))
    if "requires a client certificate" in str(caught.value):  # a reset may come before the alert
        assert not caught.value.may_be_processed
    else:
        assert "connection" in str(caught.value)
