"""`xapi request --retry` over real connections."""

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Xapi
from tests.support.servers import OK, Server, hang, request, send, serve
from xapi_cli.sandbox import MASTER


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_a_connection_that_breaks_before_the_response_is_retried(xapi: Xapi, method: str) -> None:
    reply = response("200 OK", b"", "Content-Length: 0")
    with Server([request()], [request(), send(reply)]) as server:
        outcome = xapi("request", method, "/", "--retry", "1", env=bearing(server))

    assert outcome.code == 0
    assert outcome.err.count("retrying in") == 1
    assert len(server.received) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("after", ["0", "Sun, 06 Nov 1994 08:49:37 GMT", "nonsense", None])
def test_a_transient_failure_is_retried(xapi: Xapi, status: int, after: str | None) -> None:
    headers = [] if after is None else [f"Retry-After: {after}"]
    busy = response(f"{status} Busy", b"busy", *headers)
    with Server([request(), send(busy), request(), send(OK)]) as server:
        outcome = xapi("request", "/a?key=canary", "--retry", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert outcome.err.startswith(f"xapi: {server.url}/a?key=*** responded with {status}; retrying in 0.")
    assert outcome.err.endswith(" s (1 of 1)\n")


@pytest.mark.parametrize("status", ["429 Slow", "500 No", "501 No", "404 No"])
def test_permanent_failures_and_long_waits_are_not_retried(xapi: Xapi, status: str) -> None:
    with Server([serve(response(status, b"no", "Retry-After: 301"))]) as server:
        outcome = xapi("request", "/", "--retry", "3", env=bearing(server))

    assert (outcome.code, outcome.out) == (4 if status < "5" else 5, "no")
    assert "retrying in" not in outcome.err
    assert b"".join(server.received).count(b"GET ") == 1


def test_a_timeout_is_not_retried(xapi: Xapi) -> None:
    with Server([request(), hang()]) as server:
        outcome = xapi("request", "/", "--retry", "3", "--timeout", "1", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.received)) == (12, "", 1)
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.states("It honors Retry-After and never resends a POST or PATCH that may have been processed.")
def test_a_lost_post_is_not_resent_and_the_error_explains_why(xapi: Xapi, method: str) -> None:
    with Server([request()]) as server:
        outcome = xapi("request", method, "/", "a=1", "--retry", "5", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.received)) == (11, "", 1)
    assert outcome.err == (
        f"xapi: error: {server.name} closed the connection without a response; "
        f"the {method} may have been processed: check before you send it again\n"
    )


def test_a_refused_connection_exits_with_11_and_names_the_address(xapi: Xapi) -> None:
    from tests.support.servers import free_port

    port = free_port()
    outcome = xapi("request", "/", "--retry", "1", env={"XAPI_BASE_URL": f"http://127.0.0.1:{port}", "XAPI_TOKEN": "x"})

    assert (outcome.code, outcome.out) == (11, "")
    first, second = outcome.err.splitlines()
    assert f"127.0.0.1:{port}" in first
    assert "retrying in" in first
    assert f"127.0.0.1:{port}" in second
    assert second.startswith("xapi: error: ")


def test_retry_does_not_repeat_the_login(xapi: Xapi) -> None:
    with Server([serve(response("200 OK", b"<html>a portal</html>", "Content-Type: text/html"))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": "canary-password"}
        outcome = xapi("request", "/", "--retry", "5", env=env)

    assert (outcome.code, outcome.out) == (11, "")
    assert b"".join(server.received).count(b"POST /x-api/token") == 1
    assert "canary" not in outcome.err
