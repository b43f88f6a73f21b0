"""TLS contexts are created once, and again when the trusted certificates have changed."""

import os
import ssl
from pathlib import Path

import pytest
import trustme

from xapi_cli.errors import UsageError
from xapi_cli.http import tls
from xapi_cli.http.relay.prepared_tls import PreparedContexts


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def test_a_context_is_created_once_for_unchanged_files(bundle: Path) -> None:
    contexts = PreparedContexts()
    for sources in [(("the CA bundle", str(bundle)),), (("SSL_CERT_DIR", str(bundle.parent)),), ()]:
        assert contexts.get(sources) == contexts.get(sources)


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_changed_file_is_loaded_again(bundle: Path, is_directory: bool) -> None:
    contexts = PreparedContexts()
    sources = (("the CA bundle", str(bundle.parent if is_directory else bundle)),)
    stamp, context = contexts.get(sources)
    [old] = context.get_ca_certs(binary_form=True)
    new = trustme.CA().cert_pem
    bundle.write_bytes(new.bytes())
    changed_stamp, changed = contexts.get(sources)
    assert changed_stamp != stamp
    [loaded] = changed.get_ca_certs(binary_form=True)
    assert loaded == ssl.PEM_cert_to_DER_cert(new.bytes().decode()) != old


def test_a_file_with_an_earlier_time_is_loaded_again(bundle: Path) -> None:
    contexts = PreparedContexts()
    sources = (("the CA bundle", str(bundle)),)
    stamp, _ = contexts.get(sources)
    os.utime(bundle, (1, 1))
    assert contexts.get(sources)[0] != stamp


def test_a_prepared_context_verifies_as_strictly_as_others(bundle: Path) -> None:
    for sources, ca_bundle in [((("the CA bundle", str(bundle)),), str(bundle)), ((), None)]:
        made, ordinary = PreparedContexts().get(sources)[1], tls.create_context(ca_bundle, {})
        for name in ["verify_mode", "check_hostname", "minimum_version", "options", "verify_flags", "keylog_filename"]:
            assert getattr(made, name) == getattr(ordinary, name), name


def test_the_trust_store_of_the_operating_system_is_loaded() -> None:
    _, made = PreparedContexts().get(())
    paths = ssl.get_default_verify_paths()
    ordinary = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if paths.cafile:
        ordinary.load_verify_locations(paths.cafile)
    assert made.cert_store_stats()["x509_ca"] >= ordinary.cert_store_stats()["x509_ca"]


def test_certificates_that_cannot_be_loaded_are_an_error(tmp_path: Path) -> None:
    contexts = PreparedContexts()
    with pytest.raises(OSError, match="No such file"):
        contexts.get((("the CA bundle", str(tmp_path / "missing.pem")),))
    (tmp_path / "empty.pem").touch()
    with pytest.raises(UsageError):
        contexts.get((("the CA bundle", str(tmp_path / "empty.pem")),))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="neither a file nor a directory"):
        PreparedContexts().get((("the CA bundle", str(tmp_path / "pipe")),))


def test_the_number_of_contexts_is_limited(tmp_path: Path) -> None:
    contexts = PreparedContexts()
    for number in range(40):
        path = tmp_path / f"{number}.pem"
        trustme.CA().cert_pem.write_to_path(path)
        contexts.get((("the CA bundle", str(path)),))
    assert len(contexts._contexts) <= 16  # noqa: SLF001  # only its size tells
