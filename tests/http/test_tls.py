import datetime as dt
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import trustme

from tests.support.servers import Peer, Server, send, serve
from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http import tls
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.transport import Transport


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def server(ca: trustme.CA) -> Iterator[Server]:
    with serving(ca.issue_cert("127.0.0.1")) as server:
        yield server


def serving(certificate: trustme.LeafCert) -> Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return Server([serve()], tls=context)


def get(server: Server, ca_bundle: Path | str | None = None, environ: Mapping[str, str] | None = None) -> bytes:
    transport = HttpxTransport(
        Transport(lambda: tls.create_context(str(ca_bundle) if ca_bundle else None, environ or {}))
    )
    with httpx.Client(transport=transport, timeout=5, trust_env=False) as client:
        return client.get(server.url.replace("http://", "https://"), headers={"Authorization": "Bearer canary"}).content


def failure(server: Server, ca_bundle: Path | str | None = None) -> str:
    with pytest.raises(NetworkError) as caught:
        get(server, ca_bundle)
    assert not caught.value.sent
    assert not any(b"canary" in received for received in server.received)
    return str(caught.value).replace(server.name, "SERVER")


# --- Trusted certificates ---------------------------------------------------------------


def test_a_bundle_from_a_flag_or_the_environment_is_trusted(server: Server, bundle: Path) -> None:
    assert get(server, bundle) == b"ok"
    assert get(server, None, {"SSL_CERT_FILE": str(bundle)}) == b"ok"
    assert get(server, None, {"SSL_CERT_DIR": str(bundle.parent)}) == b"ok"
    assert get(server, bundle.parent) == b"ok"


def test_the_flag_overrides_the_environment(server: Server, bundle: Path, tmp_path: Path) -> None:
    assert get(server, bundle, {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}) == b"ok"


def test_both_variables_apply_unless_empty(server: Server, bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    trustme.CA().cert_pem.write_to_path(str(other / "another.pem"))
    assert get(server, None, {"SSL_CERT_FILE": str(other / "another.pem"), "SSL_CERT_DIR": str(tmp_path)}) == b"ok"
    assert get(server, None, {"SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": ""}) == b"ok"
    assert get(server, None, {"SSL_CERT_FILE": "", "SSL_CERT_DIR": f"{other}{os.pathsep}{tmp_path}"}) == b"ok"


def test_a_directory_may_contain_hashed_names(server: Server, bundle: Path, tmp_path: Path) -> None:
    directory = tmp_path / "hashed"
    directory.mkdir()
    command = ["openssl", "x509", "-in", str(bundle), "-noout", "-hash"]
    try:
        name = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except FileNotFoundError:
        pytest.skip("needs openssl")
    (directory / f"{name}.0").write_bytes(bundle.read_bytes())
    assert get(server, directory) == b"ok"


def test_a_bundle_may_contain_only_an_intermediate_ca(tmp_path: Path) -> None:
    intermediate = trustme.CA().create_child_ca()
    path = tmp_path / "intermediate.pem"
    intermediate.cert_pem.write_to_path(str(path))
    with serving(intermediate.issue_cert("127.0.0.1")) as server:
        assert get(server, path) == b"ok"


def test_without_any_setting_the_operating_system_is_trusted(server: Server) -> None:
    made = tls.create_context(None, {})
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert made.check_hostname
    assert made.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert failure(server).startswith(
        "no TLS connection to SERVER: the server's certificate was issued by an unknown CA"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system's trust is not a file")
def test_a_ca_that_the_operating_system_trusts_is_trusted(server: Server, bundle: Path) -> None:
    program = f"""if True:
        import httpx
        from xapi_cli.http import tls
        from xapi_cli.http.httpx_transport import HttpxTransport
        from xapi_cli.http.transport import Transport
        transport = HttpxTransport(Transport(lambda: tls.create_context(None, {{}})))
        assert httpx.Client(transport=transport, trust_env=False).get({server.url!r}).content == b"ok"
    """
    # OpenSSL reads the location of the system's trust store from the process environment, not from our mapping.
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=30, env={**os.environ, "SSL_CERT_FILE": str(bundle)}
    )


def test_a_bundle_replaces_the_operating_system(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "another.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    assert "unknown CA" in failure(server, path)


def test_no_key_log_is_written(server: Server, bundle: Path, tmp_path: Path) -> None:
    log = tmp_path / "keys"
    program = f"""if True:
        import httpx
        from xapi_cli.http import tls
        from xapi_cli.http.httpx_transport import HttpxTransport
        from xapi_cli.http.transport import Transport
        transport = HttpxTransport(Transport(lambda: tls.create_context({str(bundle)!r}, {{}})))
        assert httpx.Client(transport=transport, trust_env=False).get({server.url!r}).content == b"ok"
    """
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=30, env={**os.environ, "SSLKEYLOGFILE": str(log)}
    )
    assert not log.exists()


# --- Invalid settings ---------------------------------------------------------


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


@pytest.mark.parametrize("name", ["a.pem", "z.pem"])
def test_a_private_key_in_a_directory_of_certificates_is_ignored(
    ca: trustme.CA, server: Server, bundle: Path, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "certificates"
    directory.mkdir()
    ca.private_key_pem.write_to_path(str(directory / name))
    with pytest.raises(UsageError, match=r"the CA bundle: .*certificates contains no usable PEM certificate"):
        tls.create_context(str(directory), {})

    shutil.copy(bundle, directory / "ca.pem")
    assert get(server, directory) == b"ok"


def test_a_directory_without_certificates_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("nothing here")
    with pytest.raises(UsageError, match=r"SSL_CERT_DIR: .* contains no usable PEM certificate"):
        tls.create_context(None, {"SSL_CERT_DIR": str(tmp_path)})
    with pytest.raises(UsageError, match=r"SSL_CERT_DIR: .* cannot be read"):
        tls.create_context(None, {"SSL_CERT_DIR": str(tmp_path / "missing")})


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/dev/null", "/proc/self/mem"])
def test_no_path_causes_a_crash(path: str) -> None:
    with pytest.raises(UsageError):
        tls.create_context(path, {})


# --- Invalid certificates -------------------------------------------------------


def test_an_expired_certificate_is_rejected(ca: trustme.CA, bundle: Path) -> None:
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    with serving(ca.issue_cert("127.0.0.1", not_before=past, not_after=past + dt.timedelta(days=9))) as server:
        assert failure(server, bundle) == (
            "no TLS connection to SERVER: the server's certificate has expired; "
            "check the clock of this computer, or ask the operators for a new certificate"
        )


def test_a_certificate_that_is_not_valid_yet_is_rejected(ca: trustme.CA, bundle: Path) -> None:
    future = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
    with serving(ca.issue_cert("127.0.0.1", not_before=future)) as server:
        assert failure(server, bundle) == (
            "no TLS connection to SERVER: the server's certificate is not valid yet; check the clock of this computer"
        )


def test_a_certificate_for_another_name_is_rejected(ca: trustme.CA, bundle: Path) -> None:
    with serving(ca.issue_cert("other.test", "127.0.0.9")) as server:
        assert failure(server, bundle) == (
            "no TLS connection to SERVER: the server's certificate is for another address; "
            "check the host in the base URL"
        )
        server.url = server.url.replace("127.0.0.1", "localhost")
        assert failure(server, bundle) == (
            "no TLS connection to SERVER: the server's certificate is for another host name; "
            "check the host in the base URL"
        )


def test_a_self_signed_certificate_is_rejected_unless_configured(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=x"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(make, check=True, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server([serve()], tls=context) as server:
        assert failure(server) == (
            "no TLS connection to SERVER: the server's certificate is self-signed; "
            "if you trust its CA, pass the CA's certificate with --ca-bundle"
        )
        assert get(server, certificate) == b"ok"


def read(peer: Peer) -> None:
    peer.read_some()


def test_a_server_without_tls_is_reported_as_such(bundle: Path) -> None:
    with Server([read, send(b"HTTP/1.1 400 Bad Request\r\n\r\n")]) as server:
        assert failure(server, bundle) == (
            "no TLS connection to SERVER: the server does not use TLS on this port; "
            "check the scheme and the port of the base URL"
        )


def test_a_close_during_the_handshake_is_reported_as_such(bundle: Path) -> None:
    with Server([read]) as server:
        assert failure(server, bundle) == "no TLS connection to SERVER: connection closed by the server"


def test_a_server_with_only_outdated_tls_is_rejected(ca: trustme.CA, bundle: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    with Server([serve()], tls=context) as server:
        assert "TLS" in failure(server, bundle)


def test_a_required_client_certificate_is_a_clear_error(ca: trustme.CA, bundle: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    wanted = (
        "requires a client certificate|connection (reset|closed)|closed the connection"  # either one may come first
    )
    with Server([serve()], tls=context) as server, pytest.raises(NetworkError, match=wanted):
        get(server, bundle)
