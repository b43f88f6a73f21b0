"""A certificate authority, and TLS contexts of a server and a client."""

import ssl

import pytest
import trustme

from tests.http.clients import tls_of
from tests.http.sending import Router
from xapi_cli.http import tls


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    return tls_of(ca.issue_cert("localhost", "127.0.0.1"))


@pytest.fixture(scope="module")
def client_tls(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    bundle = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(bundle)
    return tls.create_context(str(bundle), {})


@pytest.fixture
def router() -> Router:
    return Router()
