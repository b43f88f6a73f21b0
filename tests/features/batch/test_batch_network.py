"""`xapi batch` on the network: connections, retries, redirects, proxies, TLS."""

import re
import signal
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths, slowly
from tests.support.program import Xapi
from tests.support.servers import OK, Peer, Server, Stopwatch, close, forward, hang, head, request, send, serve

_TOGETHER = 200  # responses


def _server_tls(ca_file: Path) -> ssl.SSLContext:
    """Return a TLS context for a server; the certificate of its CA is written to *ca_file*."""
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(str(ca_file))
    return context


def test_slowly_arriving_response_headers_cause_a_timeout(xapi: Xapi) -> None:
    def drip(peer: Any) -> None:
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not peer.server.stopping.wait(0.1):
            peer.sock.sendall(b"x")

    with Server([request(), drip]) as server:
        outcome = xapi(
            "batch", input=paths(1), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "XAPI_TIMEOUT": "1"}
        )

    assert (outcome.code, out_lines(outcome.out)[0]["error"]["kind"]) == (12, "timeout")


def test_a_post_without_a_response_is_not_resent(xapi: Xapi) -> None:
    with Server([request(), close()]) as server:
        outcome = xapi(
            "batch", "--retry", "3", input='{"path":"/","json":1}', env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        )

    assert outcome.code == 11
    assert "may have been processed" in outcome.out
    assert len(server.received) == 1


def test_a_get_on_a_closed_idle_connection_is_resent_over_a_new_one(xapi: Xapi) -> None:
    with Server([request(), send(OK), close()]) as server:
        outcome = xapi("batch", "-j", "1", input=paths(20), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, len(out_lines(outcome.out))) == (0, 20), outcome


def test_a_get_is_resent_only_once_even_if_other_connections_are_open(xapi: Xapi) -> None:
    all_are_here = threading.Barrier(3)

    def wait_for_all(peer: Peer) -> None:
        all_are_here.wait(60)

    served = [request(), wait_for_all, send(OK), wait_for_all, request()]
    with Server(*[served] * 3, [request()]) as server:
        outcome = xapi("batch", "-j", "3", input=paths(4), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert outcome.code == 11
    assert [each.get("error", {}).get("kind") for each in out_lines(outcome.out)] == [None, None, None, "network"]
    assert b"".join(server.received).count(b"GET /n/3 ") == 2


def test_connections_are_kept_alive_and_shared(xapi: Xapi) -> None:
    with Server([serve()]) as server:
        outcome = xapi("batch", "-j", "4", input=paths(200), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (outcome.code, len(out_lines(outcome.out))) == (0, 200)
    assert len(server.received) <= 4


@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs_limits_the_requests_in_flight(xapi: Xapi, jobs: int) -> None:
    with Api(slowly(0.02)) as api:
        assert batch(xapi, api, "-j", str(jobs), input=paths(30))[0] == 0
        assert api.most_under_way == jobs


def test_a_transient_failure_is_retried_only_with_retry(xapi: Xapi) -> None:
    failing: dict[str, int] = {}

    def response(received: ReceivedRequest) -> Reply:
        failing[received.path] = failing.get(received.path, 0) + 1
        return Reply(status=503, headers=(("Retry-After", "0"),)) if failing[received.path] <= 2 else Reply()

    with Api(response) as api:
        plain = batch(xapi, api, input=jsonl({"path": "/a"}))
        tried = batch(xapi, api, "--retry", "2", input=jsonl({"path": "/b"}, {"path": "/c", "method": "POST"}))

    assert (plain[0], tried[0]) == (5, 5)
    assert sorted((each["line"], each["status"]) for each in tried[1]) == [(1, 200), (2, 503)]
    assert "retrying in" not in tried[2]
    summary = tried[2].splitlines()[-1]
    assert re.fullmatch(
        r"xapi: error: 1 of 2 lines failed in \d\.\d s \([\d,]+/s, 2 retries\): 1 × 503; see its line on stdout \("
        r"--retry does not repeat POST and PATCH\)",
        summary,
    )


def test_redirects_are_followed_as_in_request(xapi: Xapi) -> None:
    with Api(open_to_all=True) as elsewhere:
        targets = {"/a": "/end", "/loop": "/loop", "/away": f"{elsewhere.url}/there", "/body": f"{elsewhere.url}/no"}

        def response(received: ReceivedRequest) -> Reply:
            target = targets.get(received.path)
            return Reply(status=307, headers=(("Location", target),)) if target else Reply()

        with Api(response) as api:
            lines = [
                {"path": "/a"},
                {"path": "/loop"},
                {"path": "/away", "headers": {"X-Mine": "1"}},
                {"path": "/body", "json": 1},
            ]
            code, out, err = batch(xapi, api, "--ordered", input=jsonl(*lines))

    assert (code, [each["status"] for each in out]) == (0, [200, 307, 200, 307])
    assert [each.path for each in elsewhere.requests] == ["/there"]
    assert not {"authorization", "x-mine"} & set(elsewhere.requests[0].headers)
    assert "2 × 307" in err


def test_responses_through_a_proxy_and_over_tls_are_the_same(xapi: Xapi, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    with Server([serve()], tls=_server_tls(bundle)) as server, Server([forward()]) as proxy:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        untrusted = xapi("batch", input=paths(2), env=env)
        trusted = xapi("batch", "--ca-bundle", str(bundle), input=paths(50), env=env)
        proxied = xapi("batch", "--ca-bundle", str(bundle), input=paths(50), env={**env, "HTTPS_PROXY": proxy.url})
        tunnelled = proxy.received

    assert (untrusted.code, trusted.code, proxied.code) == (11, 0, 0), proxied
    assert "unknown CA" in untrusted.out
    assert all(each.startswith(b"CONNECT ") and b"Bearer" not in each for each in tunnelled if each)


def test_a_request_to_an_http_proxy_has_an_absolute_url(xapi: Xapi) -> None:
    with Server([serve()]) as proxy:
        outcome = xapi(
            "batch",
            input=paths(1),
            env={
                "XAPI_BASE_URL": "http://api.test",
                "XAPI_TOKEN": "t",
                "HTTP_PROXY": proxy.url.replace("//", "//u:p@"),
            },
        )

    assert outcome.code == 0, outcome
    assert proxy.received[0].startswith(b"GET http://api.test/n/0 HTTP/1.1\r\nHost: api.test\r\n")
    assert b"Proxy-Authorization: Basic dTpw" in proxy.received[0]


def test_retry_after_is_respected_and_a_long_one_ends_the_retries(xapi: Xapi) -> None:
    received_at: dict[str, list[float]] = {}

    def response(received: ReceivedRequest) -> Reply:
        times = received_at.setdefault(received.path, [])
        times.append(time.monotonic())
        if received.path == "/long":
            return Reply(status=503, headers=(("Retry-After", "301"),))
        return Reply(status=429, headers=(("Retry-After", "1"),)) if len(times) == 1 else Reply()

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "5", input=jsonl({"path": "/short"}, {"path": "/long"}))

    assert code == 5
    assert sorted((each["line"], each["status"]) for each in lines) == [(1, 200), (2, 503)]
    first, second = received_at["/short"]
    assert second - first >= 1
    assert len(received_at["/long"]) == 1
    assert ", 1 retry, 1 pause)" in err


def test_a_connection_lost_before_the_headers_is_retried_and_a_timeout_is_not(xapi: Xapi) -> None:
    env = {"XAPI_TOKEN": "t"}
    with Server([request(), close()], [request(), send(b"HTTP/1.1 200 OK\r\n"), close()], [serve()]) as server:
        broken = xapi("batch", "--retry", "3", input=paths(1), env={**env, "XAPI_BASE_URL": server.url})
        assert len(server.received) == 3
    with Server([request(), hang()]) as server:
        silent = xapi(
            "batch", "--retry", "3", "--timeout", "1", input=paths(1), env={**env, "XAPI_BASE_URL": server.url}
        )
        assert len(server.received) == 1

    assert (broken.code, silent.code) == (0, 12)
    assert ", 2 retries)" in broken.err


def test_other_lines_continue_during_the_delay_of_a_retry(xapi: Xapi) -> None:
    failed: list[str] = []

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/n/0" and not failed:
            failed.append(received.path)
            return Reply(status=503, headers=(("Retry-After", "3"),))
        return Reply()

    with Api(response) as api:
        code, lines, _ = batch(xapi, api, "-j", "2", "--retry", "1", input=paths(6))

    assert code == 0
    assert lines[-1]["id"] == 0


def test_a_proxy_that_requires_a_password_or_is_unreachable_is_named(xapi: Xapi) -> None:
    wants = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"
    with Server([request(), send(wants)]) as proxy:
        env = {"XAPI_TOKEN": "canary", "XAPI_BASE_URL": "https://api.test", "HTTPS_PROXY": proxy.url}
        refused = xapi("batch", input=paths(1), env=env)
        plain = xapi("batch", input=paths(1), env={**env, "XAPI_BASE_URL": "http://api.test", "HTTP_PROXY": proxy.url})
    gone = xapi("batch", input=paths(1), env=env)
    wrong = xapi("batch", input=paths(1), env={**env, "HTTPS_PROXY": "socks5://x"})

    assert (refused.code, plain.code, gone.code, wrong.code) == (11, 11, 11, 2)
    assert "requires a username and password (status 407)" in refused.out
    assert "requires a username and password (status 407)" in plain.out
    assert "no connection to the proxy" in gone.out
    assert wrong.out == ""
    assert all(b"canary" not in each or each.startswith(b"GET http://api.test/") for each in proxy.received)


def test_an_unreadable_ca_bundle_is_a_usage_error(xapi: Xapi) -> None:
    env = {"XAPI_TOKEN": "t", "XAPI_BASE_URL": "https://127.0.0.1:1"}
    outcome = xapi("batch", "--ca-bundle", "nowhere.pem", input=paths(3), env=env)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("xapi: error: ")
    assert outcome.err.count("\n") == 1


def test_large_bodies_are_sent_and_received_over_tls(xapi: Xapi, tmp_path: Path) -> None:
    big = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3000000\r\n\r\n" + b"y" * 3_000_000
    with Server([serve(big)], tls=_server_tls(tmp_path / "ca.pem")) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        outcome = xapi("batch", "-j", "4", input=jsonl(*({"path": "/", "data": "x" * 2_000_000},) * 8), env=env)
        received = sum(len(each) for each in server.received)

    assert outcome.code == 0, outcome.err
    assert [len(line["text"]) for line in out_lines(outcome.out)] == [3_000_000] * 8
    assert received > 16_000_000


def test_many_responses_that_arrive_at_the_same_time_over_tls_are_complete(xapi: Xapi, tmp_path: Path) -> None:
    """The process is stopped meanwhile, so that it is late with them."""
    have_arrived, are_sent = threading.Barrier(_TOGETHER + 1), threading.Barrier(_TOGETHER + 1)
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12000\r\n\r\n" + b"y" * 12_000

    def reply_together(peer: Peer) -> None:
        have_arrived.wait(30)
        have_arrived.wait(30)  # until the process is stopped
        peer.sock.sendall(reply)
        are_sent.wait(30)

    (tmp_path / "in").write_text(paths(_TOGETHER))
    with Server([request(), reply_together, hang()], tls=_server_tls(tmp_path / "ca.pem")) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        process = xapi.start("batch", "-j", str(_TOGETHER), str(tmp_path / "in"), env=env)
        have_arrived.wait(30)
        process.send_signal(signal.SIGSTOP)
        have_arrived.wait(30)
        are_sent.wait(30)
        process.send_signal(signal.SIGCONT)
        out = process.communicate(timeout=60)[0].decode()

    assert process.returncode == 0, out
    assert [len(line["text"]) for line in out_lines(out)] == [12_000] * _TOGETHER


@pytest.mark.parametrize("rest", [b"", b"Content-Length: 99999999\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize(
    ("status", "kind"), [("503 Busy", 200), ("302 Found\r\nLocation: /there", 200), ("401 Who?", "auth")]
)
def test_a_body_that_is_not_needed_causes_no_wait(xapi: Xapi, status: str, kind: int | str, rest: bytes) -> None:
    useless = b"HTTP/1.1 " + status.encode() + b"\r\nRetry-After: 0\r\n" + rest + b"\r\n"
    with Server([request(), send(useless), hang()], [serve()]) as server, Stopwatch() as watch:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "--retry", "1", "--timeout", "20", input=paths(1), env=env)

    line = out_lines(outcome.out)[0]
    assert line.get("status", line.get("error", {}).get("kind")) == kind
    assert watch.seconds < 10


def test_a_success_is_final_although_the_server_never_reads_the_whole_request(xapi: Xapi) -> None:
    line = '{"path":"/","json":"' + "x" * 8_000_000 + '"}'
    with Server([head(), send(OK), hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "--timeout", "2.2", input=line, env=env)

    assert (outcome.code, out_lines(outcome.out)[0]["status"]) == (0, 200)


def test_an_endless_error_response_stops_the_request_after_one_timeout(xapi: Xapi) -> None:
    line = '{"path":"/","json":"' + "x" * 8_000_000 + '"}'
    with Server([head(), send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\nbig"), hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "--timeout", "2.2", input=line, env=env)

    assert (outcome.code, out_lines(outcome.out)[0]["error"]["kind"]) == (12, "timeout")
    assert "no more data from" in outcome.out


@pytest.mark.parametrize("status", ["307 There\r\nLocation: /there", "404 No"])
def test_no_request_follows_an_unfinished_one(xapi: Xapi, status: str) -> None:
    early = b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status.encode()
    first = {"method": "POST", "path": "/first", "headers": {f"Large{number}": "x" * 120_000 for number in range(130)}}
    with Server([lambda peer: peer.read_some(), send(early), hang()], [serve()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "-j", "1", "--timeout", "5", input=jsonl(first, {"path": "/next"}), env=env)

    assert out_lines(outcome.out)[1].get("status") == 200, outcome
    assert len(server.received) == 2
