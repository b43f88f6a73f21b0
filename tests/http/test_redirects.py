"""Redirects: who receives the token, the headers of the user and the body."""

import httpx
import pytest

from tests.http.sending import BASE, USER_HEADERS, Router, Tokens, sender_for
from xapi_cli.errors import ClientStatusError, RedirectError
from xapi_cli.http.send import Call
from xapi_cli.request.body.spool import Text
from xapi_cli.request.status_errors import status_error

OTHER = "https://other.test"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_method_and_body_after_a_redirect_within_the_api(router: Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": "/v1/b?c=d"})
    router.route(path="/v1/b").respond(200)
    body = None if method in {"GET", "HEAD"} else Text(b"body", "application/json")

    reply = sender_for(router).send(Call(method, f"{BASE}/a", USER_HEADERS, body))

    if status in {301, 302} and body is not None:
        assert (reply.response.status, len(router.sent)) == (status, 1)
        assert str(status_error(reply, None)) == (
            f"{BASE}/a redirects ({status}) to {BASE}/b?c=d: not followed, because a {method} would become a GET;"
            f" send the {method} to the target"
        )
        return
    becomes_get = status == 303 and method != "HEAD"
    assert (reply.response.status, reply.from_api, reply.refused_redirect) == (200, True, None)
    onward = ("GET", b"") if becomes_get else (method, b"body" if body else b"")
    assert router.sent[1] == (onward[0], f"{BASE}/b?c=d", "Bearer token-1", "canary-header", onward[1])
    assert ("content-type" in router.calls[1].request.headers) == (not becomes_get)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/xhtml+xml", "application/json"])
def test_a_web_page_of_another_origin_is_no_response_of_the_api(router: Router, kind: str) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": f"{OTHER}/signin?rd=s3cret"})
    router.get(path="/signin").respond(200, headers={"Content-Type": kind})
    if "json" in kind:
        assert not sender_for(router).send(Call("GET", f"{BASE}/a")).from_api
        return

    with pytest.raises(RedirectError) as caught:
        sender_for(router).send(Call("GET", f"{BASE}/a"))

    assert caught.value.message == (
        f"{BASE}/a redirects to {OTHER}/signin, which is a web page of another origin, perhaps to sign in"
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target", ["https://other.test/x", "https://api.test:8443/x", "https://api.test.evil.test/x", "//other.test/x"]
)
def test_a_get_redirected_to_another_origin_has_no_token(router: Router, status: int, target: str) -> None:
    router.get(f"{BASE}/a").respond(status, headers={"Location": target})
    router.get(path="/x").respond(200)

    reply = sender_for(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "canary-header"), ("Cookie", "canary"))))

    assert (reply.response.status, reply.from_api) == (200, False)
    assert set(router.calls[1].request.headers) == {"host", "accept", "accept-encoding", "user-agent"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_never_sent_to_another_origin(router: Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": f"{OTHER}/x?signature=s3cret"})

    reply = sender_for(router).send(Call(method, f"{BASE}/a", (), Text(b"canary", None)))

    assert len(router.calls) == 1
    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert str(error) == (
        f"{BASE}/a redirects ({status}) to {OTHER}/x?signature=***: a body is not sent to another origin"
        f"; if you trust it, use --base-url {OTHER}"
    )


def test_a_303_after_a_post_is_followed_to_another_origin_without_the_body(router: Router) -> None:
    router.post(f"{BASE}/a").respond(303, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(200)

    reply = sender_for(router).send(Call("POST", f"{BASE}/a", USER_HEADERS, Text(b"canary", "application/json")))

    assert (reply.response.status, reply.from_api) == (200, False)
    assert router.sent[1] == ("GET", f"{OTHER}/x", None, None, b"")
    assert "content-type" not in router.calls[1].request.headers


def test_token_and_headers_are_not_sent_after_a_redirect_back_to_the_api(router: Router) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(302, headers={"Location": f"{BASE}/b"})
    router.get(f"{BASE}/b").respond(401)
    tokens = Tokens()

    reply = sender_for(router, tokens=tokens).send(Call("GET", f"{BASE}/a", USER_HEADERS))

    assert router.sent[1:] == [("GET", f"{OTHER}/x", None, None, b""), ("GET", f"{BASE}/b", None, None, b"")]
    assert tokens.calls == [("token-1", 302, True)]
    for check_status in (True, False):
        error = status_error(reply, tokens, check_status=check_status)
        assert isinstance(error, ClientStatusError)
        assert "a redirect led to another origin, to which the token is not sent" in str(error)


def test_more_than_ten_redirects_are_not_followed(router: Router) -> None:
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(302, headers={"Location": f"{BASE}/a"})] * 10 + [httpx.Response(200)]
    )
    assert sender_for(router).send(Call("GET", f"{BASE}/a")).response.status == 200

    router.get(f"{BASE}/b").respond(302, headers={"Location": f"{BASE}/b"})
    reply = sender_for(router).send(Call("GET", f"{BASE}/b"))
    assert len(router.calls) == 11 + 11
    assert reply.response.status == 302
    assert str(status_error(reply, None)).startswith("more than ten redirects: ")
    assert str(status_error(reply, None)).endswith("; check the path")


def test_with_no_follow_the_redirect_is_the_final_response(router: Router) -> None:
    router.get(f"{BASE}/a").respond(307, headers={"Location": "/b"}, content=b"see there")

    reply = sender_for(router, follow=False).send(Call("GET", f"{BASE}/a"))

    assert b"".join(reply.response.chunks()) == b"see there"
    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert str(error) == ("https://api.test/v1/a redirects (307) to https://api.test/b; omit --no-follow to follow it")
    assert status_error(reply, None, check_status=False) is None


@pytest.mark.parametrize("target", ["ftp://api.test/", "file:///etc/passwd", "", "http://", "https://h:99999/", "/\\h"])
def test_a_redirect_to_an_invalid_target_is_the_final_response(router: Router, target: str) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": target})

    reply = sender_for(router).send(Call("GET", f"{BASE}/a"))

    assert (reply.response.status, len(router.calls)) == (302, 1)
    assert isinstance(status_error(reply, None), RedirectError)


@pytest.mark.parametrize("status", [300, 305, 306, 302])
def test_other_3xx_and_redirects_without_a_location_are_final(router: Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status, headers={} if status == 302 else {"Location": "/b"})

    reply = sender_for(router).send(Call("GET", f"{BASE}/a"))

    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert "the response has no Location that can be followed" in str(error)
