"""The sandbox implements the documented API and, where that is silent, RFC 6749 and RFC 6750."""

import hashlib

import httpx
import pytest

from tests.features.sandbox.client import FORM, bearer, grant, log_in
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox

# the token endpoint


def test_a_login_responds_with_a_long_opaque_token(sandbox: Sandbox, client: httpx.Client) -> None:
    response = client.post("/x-api/token", content=grant(MASTER.email, MASTER.password), headers=FORM)

    content = response.json()
    token = content.pop("access_token")
    assert (response.status_code, content) == (200, {"token_type": "bearer", "expires_in": 2_592_000})
    assert len(token) == 900
    assert token.isascii()
    assert token.isprintable()
    assert response.headers["Cache-Control"] == "no-store"
    assert (sandbox.logins, sandbox.login_attempts, sandbox.requests) == (1, 1, 0)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (grant(MASTER.email, "wrong"), "invalid_grant"),
        (grant("nobody@example.com", MASTER.password), "invalid_grant"),
        (grant(MASTER.email, MEMBER.password), "invalid_grant"),
        (f"grant_type=password&username={MASTER.email}&password={MASTER.password}", "invalid_grant"),
        (grant(MASTER.email, MASTER.password).replace("%2B", "+"), "invalid_grant"),
        (grant(MASTER.email, MASTER.password).replace("=password", "=client_credentials"), "unsupported_grant_type"),
        (grant(MASTER.email, MASTER.password) + "&password=twice", "invalid_request"),
        (f"grant_type=password&username={MASTER.email}", "invalid_request"),
        ("grant_type=password&username=%ff&password=%ff", "invalid_request"),
        ('{"grant_type": "password"}', "invalid_request"),
        ("", "invalid_request"),
    ],
)
def test_an_invalid_login_is_rejected(sandbox: Sandbox, client: httpx.Client, body: str, error: str) -> None:
    response = client.post("/x-api/token", content=body, headers=FORM)

    assert (response.status_code, response.json()["error"], sandbox.logins) == (400, error, 0)


# tokens


def test_the_api_requires_a_token(sandbox: Sandbox, client: httpx.Client) -> None:
    response = client.get("/x-api/me")

    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="x-api"')
    assert (sandbox.requests, sandbox.unauthorized) == (1, 1)


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Basic bTpw", "Bearer", "wrong"])
def test_the_api_requires_a_token_that_it_issued(client: httpx.Client, authorization: str) -> None:
    response = client.get("/x-api/me", headers={"Authorization": authorization})

    assert (response.status_code, 'error="invalid_token"' in response.headers["WWW-Authenticate"]) == (
        401,
        authorization == "Bearer wrong",
    )


def test_a_token_expires(sandbox: Sandbox, client: httpx.Client) -> None:
    sandbox.expires_in = 60
    assert client.get("/x-api/me", headers=bearer(log_in(client))).status_code == 200
    sandbox.expires_in = 0
    assert client.get("/x-api/me", headers=bearer(log_in(client))).status_code == 401


def test_tokens_can_be_revoked(client: httpx.Client) -> None:
    first, second = log_in(client), log_in(client, MEMBER)

    assert client.post("/sandbox/kill-tokens").json() == {"killed": 2}
    assert [client.get("/x-api/me", headers=bearer(token)).status_code for token in (first, second)] == [401, 401]
    assert client.post("/sandbox/kill-tokens").json() == {"killed": 0}


def test_a_user_without_master_rights_gets_403_everywhere(client: httpx.Client) -> None:
    token = log_in(client, MEMBER)

    for path in ("/x-api/me", "/x-api/projects", "/x-api/echo", "/x-api/nothing"):
        response = client.get(path, headers=bearer(token))
        assert (response.status_code, response.json()["error"]) == (403, "insufficient_scope")


# resources


def test_projects_can_be_filtered(client: httpx.Client) -> None:
    token = log_in(client)

    everything = client.get("/x-api/projects", headers=bearer(token)).json()
    archived = client.get("/x-api/projects", params={"status": "archived"}, headers=bearer(token)).json()
    recent = client.get("/x-api/projects", params={"modifiedSince": "2026-02-01"}, headers=bearer(token)).json()
    assert [[project["id"] for project in found] for found in (everything, archived, recent)] == [[1, 2, 3], [3], [2]]
    assert everything[0].keys() == {"id", "name", "status", "modified", "link"}


def test_a_project_has_details_which_can_be_changed(client: httpx.Client) -> None:
    headers = bearer(log_in(client))

    changed = client.post("/x-api/projects/2", json={"name": "New", "id": 9}, headers=headers).json()
    assert (changed["id"], changed["name"], changed["owner"]["name"]) == (2, "New", "Mara Master")
    assert client.get(changed["link"], headers=headers).json() == changed
    assert client.get("/x-api/projects/9", headers=headers).status_code == 404
    assert client.post("/x-api/projects/2", content=b"[", headers=headers).status_code == 422


def test_echo_describes_the_request_without_the_token(client: httpx.Client) -> None:
    token = log_in(client)
    body = '{"amount": 1.10, "name": "Zoë"}'

    response = client.post(
        "/x-api/echo?b=2&a=1&a=%20&empty=",
        content=body.encode(),
        headers=httpx.Headers(bearer(token) | {"X-Note": "Zoë", "Content-Type": "application/json"}, encoding="utf-8"),
    )

    result = response.json()
    headers = result.pop("headers")
    assert result == {
        "method": "POST",
        "path": "/x-api/echo",
        "query": [["b", "2"], ["a", "1"], ["a", " "], ["empty", ""]],
        "length": len(body.encode()),
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
        "text": body,
        "json": {"amount": 1.1, "name": "Zoë"},
    }
    assert (headers["x-note"], headers["content-type"], "authorization" in headers) == (
        "Zoë",
        "application/json",
        False,
    )
    assert token not in response.text


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_echo_accepts_bodies_of_any_size_and_framing(client: httpx.Client, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    pieces = iter([body[:1000], body[1000:]])

    result = client.put("/x-api/echo", content=pieces if chunked else body, headers=bearer(log_in(client))).json()
    assert (result["method"], result["length"], result["sha256"]) == ("PUT", size, hashlib.sha256(body).hexdigest())
