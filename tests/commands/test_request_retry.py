"""`xapi request --retry` over real connections."""

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Xapi
from tests.support.servers import OK, Server, request, send, serve


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_connection_that_breaks_before_the_response_is_retried(xapi: Xapi, method: str) -> None:
    reply = response("200 OK", b"", "Content-Length: 0")
    with Server([request()], [request(), send(reply)]) as server:
        outcome = xapi("request", method, "/", "--retry", "1", env=bearing(server))

    assert outcome.code == 0
    assert outcome.err.count("retrying in") == 1
    assert len(server.received) == 2


@pytest.mark.parametrize(
    ("status", "after"), [(429, "0"), (502, "Sun, 06 Nov 1994 08:49:37 GMT"), (503, "nonsense"), (504, None)]
)
def test_a_transient_failure_is_retried(xapi: Xapi, status: int, after: str | None) -> None:
    headers = [] if after is None else [f"Retry-After: {after}"]
    busy = response(f"{status} Busy", b"busy", *headers)
    with Server([request(), send(busy), request(), send(OK)]) as server:
        outcome = xapi("request", "/a?key=canary", "--retry", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "ok")
    assert outcome.err.startswith(f"xapi: {server.url}/a?key=*** responded with {status}; retrying in 0.")
    assert outcome.err.endswith(" s (1 of 1)\n")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_lost_post_is_not_resent_and_the_error_explains_why(xapi: Xapi, method: str) -> None:
    cut = response("200 OK", b"{", "Content-Length: 9")
    with Server([request()], [request()], [request(), send(cut)]) as server:
        outcome = xapi("request", method, "/", "a=1", "--retry", "5", env=bearing(server))
        assert (outcome.code, outcome.out, len(server.received)) == (11, "", 1)
        assert "--retry" not in xapi("request", method, "/", "a=1", env=bearing(server)).err  # nothing asked for it
        assert f"{method} may have been processed" in xapi("request", method, "/", "a=1", env=bearing(server)).err
    assert outcome.err == (
        f"xapi: error: {server.name} closed the connection without a response; "
        f"the {method} may have been processed: check before you send it again "
        f"(--retry does not repeat a {method})\n"
    )


@pytest.mark.parametrize("status, code", [("503 Busy", 5), ("429 Slow", 4)])
def test_the_error_of_a_post_that_is_not_retried_names_the_reason(xapi: Xapi, status: str, code: int) -> None:
    busy = response(status, b"", "Retry-After: 1")
    with Server([serve(busy)]) as server:
        outcome = xapi("request", "/a", "a=1", "--retry", "3", env=bearing(server))
        plain = xapi("request", "/a", "a=1", env=bearing(server))
        got = xapi("request", "/a", "--retry", "0", env=bearing(server))

    error = f"xapi: error: POST {server.url}/a responded with {status}; try again in 1 s"
    assert (outcome.code, outcome.err) == (code, f"{error} (--retry does not repeat a POST)\n")
    assert plain.err == f"{error}\n"
    assert "does not repeat" not in got.err


def test_the_setting_retry_applies_unless_the_flag_is_given(xapi: Xapi) -> None:
    busy = response("503 Busy", b"", "Retry-After: 0")
    assert xapi("profile", "set", "retry", "2").code == 0
    with Server([serve(busy)]) as server:
        counts = []
        for env, args in (({}, ()), ({"XAPI_RETRY": "1"}, ()), ({"XAPI_RETRY": "1"}, ("--retry", "0"))):
            before = len(server.received)
            xapi("request", "/a", *args, env=bearing(server) | env)
            counts.append(b"".join(server.received[before:]).count(b"GET "))

    assert counts == [3, 2, 1]
    assert xapi("profile", "show").out.split() == ["name", "default", "retry", "2"]


@pytest.mark.parametrize("value", ["101", "²"])
def test_a_number_of_retries_that_is_not_valid_exits_with_2(xapi: Xapi, value: str) -> None:
    set_ = xapi("profile", "set", "retry", "--", value)
    env = {"XAPI_BASE_URL": "http://127.0.0.1:9", "XAPI_TOKEN": "abc", "XAPI_RETRY": value}
    sent = xapi("request", "/a", env=env)

    assert (set_.code, sent.code) == (2, 2)
    assert sent.err == f"xapi: error: XAPI_RETRY: {value!r} is not valid; use a number from 0 to 100\n"
