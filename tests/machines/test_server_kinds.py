"""Redis servers with TLS, and of another scheme or protocol."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.machines.fleet import ME, Env
from tests.support.program import Xapi
from tests.support.redis_server import RedisServer, free_port, required
from xapi_cli.features.sandbox import Sandbox


class Tls:
    """A server with TLS on a port of loopback, for `localhost`, and the certificate of its CA."""

    def __init__(self, directory: Path) -> None:
        ca = trustme.CA()
        self.ca, self.other = directory / "ca.pem", directory / "other.pem"
        ca.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other)
        certificate, key = directory / "cert.pem", directory / "key.pem"
        issued = ca.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        self.port = free_port()
        options = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.ca))
        self.server = RedisServer(*options, "--tls-auth-clients", "no", port=self.port, tls=True)


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[Tls]:
    required()
    tls = Tls(tmp_path)
    with tls.server:
        yield tls


def test_tls_is_verified(xapi: Xapi, sandbox: Sandbox, tls: Tls) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": f"rediss://localhost:{tls.port}"}

    accepted = xapi("login", env={**env, "SSL_CERT_FILE": str(tls.ca)})
    assert (accepted.code, accepted.err.count("\n")) == (0, 1)
    assert xapi(*ME, "--ca-bundle", str(tls.ca), env={**env, "XAPI_PASSWORD": None}).code == 0
    other_name = {**env, "XAPI_REDIS_URL": f"rediss://127.0.0.1:{tls.port}", "SSL_CERT_FILE": str(tls.ca)}
    for refused in (env, {**env, "SSL_CERT_FILE": str(tls.other)}, other_name):
        outcome = xapi(*ME, env=refused)
        assert (outcome.code, "cannot establish a TLS connection to Redis at " in outcome.err) == (13, True), outcome
    assert sandbox.logins == 1
    with pytest.raises(ssl.SSLError):
        ssl.get_server_certificate(("127.0.0.1", tls.port), ca_certs=str(tls.other))  # the oracle agrees


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_server_with_the_other_scheme_is_an_error(xapi: Xapi, sandbox: Sandbox, tls: Tls, scheme: str) -> None:
    port = tls.port if scheme == "redis" else free_port()
    with RedisServer(port=free_port() if scheme == "redis" else port):
        url = f"{scheme}://localhost:{port}"
        outcome = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": url})

    assert (outcome.code, sandbox.login_attempts) == (13, 0), outcome


def test_a_server_of_another_protocol_is_an_error(xapi: Xapi, sandbox: Sandbox) -> None:
    url = sandbox.base_url.replace("http", "redis")
    outcome = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": url})

    assert (outcome.code, outcome.err.count("\n")) == (13, 1)
