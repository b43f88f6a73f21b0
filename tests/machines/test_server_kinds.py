"""Redis servers with TLS, of another scheme or protocol, and in a cluster."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from tests.machines.fleet import ME, Env, keys_like, wait_until
from tests.program import Xapi
from tests.redis_server import RedisServer, free_port, required
from xapi_cli.sandbox import Sandbox


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


NODE = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")


def test_a_node_of_a_cluster_refers_to_the_node_that_has_the_keys(xapi: Xapi, sandbox: Sandbox) -> None:
    required()
    with RedisServer(*NODE, port=_port_of_node()) as first, RedisServer(*NODE, port=_port_of_node()) as second:
        _join(first, second)
        env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
        for server in (first, second):
            env["XAPI_REDIS_URL"] = f"redis://127.0.0.1:{server.port}"
            assert xapi("token", "show", "--fresh", env=env).code == 0
            assert xapi(*ME, env=env).code == 0
            assert '"redis", "status": "pass"' in xapi("doctor", "--json", env=env).out
        assert (first.keys(), second.keys()) == ([], ["record"])
        env["XAPI_REDIS_URL"] = f"redis://127.0.0.1:{second.port}/1"
        other = xapi(*ME, env=env)
        assert (other.code, "the database number" in other.err) == (13, True)


def test_a_token_is_read_while_its_slot_is_moved_to_another_node(xapi: Xapi, sandbox: Sandbox) -> None:
    required()
    with RedisServer(*NODE, port=_port_of_node()) as target, RedisServer(*NODE, port=_port_of_node()) as source:
        _join(target, source)
        env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
        urls = [f"redis://127.0.0.1:{server.port}" for server in (source, target)]
        assert xapi("login", env={**env, "XAPI_REDIS_URL": urls[0]}).code == 0
        (record,) = (key.decode() for key in keys_like(source, "*"))
        slot = int(source.execute("CLUSTER", "KEYSLOT", record))
        source_id, target_id = (server.execute("CLUSTER", "MYID").decode() for server in (source, target))
        target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        source.execute("MIGRATE", "127.0.0.1", target.port, record, 0, 5000)

        assert [server.keys() for server in (source, target)] == [[], ["record"]]
        assert [xapi(*ME, env={**env, "XAPI_REDIS_URL": url}).code for url in urls] == [0, 0]
        for server in (target, source):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        assert [xapi(*ME, env={**env, "XAPI_REDIS_URL": url}).code for url in urls] == [0, 0]
        assert xapi("token", "show", "--fresh", env={**env, "XAPI_REDIS_URL": urls[0]}).code == 0
        assert sandbox.logins == 2


def _port_of_node() -> int:
    """Return a port of loopback; a node also listens on the port that is greater by 10,000, and Redis 6 on no other."""
    while True:
        port = free_port()
        with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 10_000)):
            return port


def _join(first: RedisServer, second: RedisServer) -> None:
    """Make a cluster of both servers, in which *second* has all slots."""
    second.execute("CLUSTER", "ADDSLOTS", *range(16384))
    first.execute("CLUSTER", "MEET", "127.0.0.1", second.port)

    def refers() -> bool:
        import redis

        try:
            first.oracle.get("key")
        except redis.exceptions.ResponseError as error:
            return str(error).startswith(("MOVED", "12539"))
        return False

    wait_until(refers)
