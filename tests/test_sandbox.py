"""The sandbox does what the API's document says, and answers what it leaves open as RFC 6749 and 6750 would."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox, User

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.base_url, trust_env=False) as client:
        yield client


def log_in(client: httpx.Client, user: User = MASTER) -> str:
    answer = client.post("/x-api/token", content=grant(user.email, user.password), headers=FORM)
    assert answer.status_code == 200
    token = answer.json()["access_token"]
    assert isinstance(token, str)
    return token


def grant(username: str, password: str) -> str:
    return f"grant_type=password&username={quote(username, safe='')}&password={quote(password, safe='')}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def exchange(sandbox: Sandbox, request: bytes, *, half_close: bool = False) -> bytes:
    """Send *request* as it is and return all that comes until the sandbox closes the connection."""
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def port_of(sandbox: Sandbox) -> int:
    return int(sandbox.base_url.rpartition(":")[2])


# the token endpoint


def test_a_login_answers_with_a_long_opaque_token(sandbox: Sandbox, client: httpx.Client) -> None:
    answer = client.post("/x-api/token", content=grant(MASTER.email, MASTER.password), headers=FORM)

    content = answer.json()
    token = content.pop("access_token")
    assert (answer.status_code, content) == (200, {"token_type": "bearer", "expires_in": 2_592_000})
    assert len(token) == 900
    assert token.isascii()
    assert token.isprintable()
    assert answer.headers["Cache-Control"] == "no-store"
    assert (sandbox.logins, sandbox.login_attempts, sandbox.requests) == (1, 1, 0)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (grant(MASTER.email, "wrong"), "invalid_grant"),
        (grant("nobody@example.com", MASTER.password), "invalid_grant"),
        (grant(MASTER.email.upper(), MASTER.password), "invalid_grant"),
        (grant(MASTER.email, MEMBER.password), "invalid_grant"),
        (f"grant_type=password&username={MASTER.email}&password={MASTER.password}", "invalid_request"),
        (grant(MASTER.email, MASTER.password).replace("%2B", "+"), "invalid_grant"),
        (grant(MASTER.email, MASTER.password).replace("=password", "=client_credentials"), "unsupported_grant_type"),
        (grant(MASTER.email, MASTER.password) + "&password=twice", "invalid_request"),
        (f"grant_type=password&username={MASTER.email}", "invalid_request"),
        ("grant_type=password&username=%ff&password=%ff", "invalid_request"),
        ('{"grant_type": "password"}', "invalid_request"),
        ("", "invalid_request"),
    ],
)
def test_a_login_that_is_not_right_is_refused(sandbox: Sandbox, client: httpx.Client, body: str, error: str) -> None:
    answer = client.post("/x-api/token", content=body, headers=FORM)

    assert (answer.status_code, answer.json()["error"], sandbox.logins) == (400, error, 0)


def test_a_login_has_to_be_a_form(client: httpx.Client) -> None:
    answer = client.post("/x-api/token", content=grant(MASTER.email, MASTER.password))

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_a_login_has_to_be_a_post(client: httpx.Client) -> None:
    answer = client.get("/x-api/token")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_a_login_of_unreasonable_size_is_refused(client: httpx.Client) -> None:
    answer = client.post("/x-api/token", content=grant(MASTER.email, "x" * 100_000), headers=FORM)

    assert answer.status_code == 400


# tokens


def test_the_api_wants_a_token(sandbox: Sandbox, client: httpx.Client) -> None:
    answer = client.get("/x-api/me")

    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="x-api"')
    assert (sandbox.requests, sandbox.unauthorized) == (1, 1)


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Basic bTpw", "Bearer", "wrong"])
def test_the_api_wants_a_token_that_it_gave(client: httpx.Client, authorization: str) -> None:
    answer = client.get("/x-api/me", headers={"Authorization": authorization})

    assert (answer.status_code, 'error="invalid_token"' in answer.headers["WWW-Authenticate"]) == (
        401,
        authorization == "Bearer wrong",
    )


def test_a_token_opens_the_api_whatever_the_case_of_its_scheme(client: httpx.Client) -> None:
    answer = client.get("/x-api/me", headers={"Authorization": f"bEaReR {log_in(client)}"})

    me = {"id": 1, "email": "master@example.com", "name": "Mara Master", "rights": "master"}
    assert (answer.status_code, answer.json()) == (200, me)


def test_a_token_expires(sandbox: Sandbox, client: httpx.Client) -> None:
    sandbox.expires_in = 1
    token = log_in(client)
    assert client.get("/x-api/me", headers=bearer(token)).status_code == 200
    time.sleep(1.05)

    assert client.get("/x-api/me", headers=bearer(token)).status_code == 401


def test_a_login_leaves_earlier_tokens_alive(client: httpx.Client) -> None:
    first, second = log_in(client), log_in(client)

    assert first != second
    assert [client.get("/x-api/me", headers=bearer(token)).status_code for token in (first, second)] == [200, 200]


def test_tokens_can_be_killed_before_their_time(client: httpx.Client) -> None:
    first, second = log_in(client), log_in(client, MEMBER)

    assert client.post("/sandbox/kill-tokens").json() == {"killed": 2}
    assert [client.get("/x-api/me", headers=bearer(token)).status_code for token in (first, second)] == [401, 401]
    assert client.post("/sandbox/kill-tokens").json() == {"killed": 0}


def test_a_user_without_master_rights_is_refused_everywhere(client: httpx.Client) -> None:
    token = log_in(client, MEMBER)

    for path in ("/x-api/me", "/x-api/projects", "/x-api/echo", "/x-api/nothing"):
        answer = client.get(path, headers=bearer(token))
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")


# resources


def test_projects_can_be_filtered(client: httpx.Client) -> None:
    token = log_in(client)

    everything = client.get("/x-api/projects", headers=bearer(token)).json()
    archived = client.get("/x-api/projects", params={"status": "archived"}, headers=bearer(token)).json()
    assert [project["id"] for project in everything] == [1, 2, 3]
    assert archived == [{"id": 3, "name": "Autumn League", "status": "archived"}]


def test_what_is_not_there_is_404_but_only_with_a_token(client: httpx.Client) -> None:
    token = log_in(client)

    assert client.get("/x-api/nothing").status_code == 401
    assert client.get("/x-api/nothing", headers=bearer(token)).status_code == 404
    assert client.get("/", headers=bearer(token)).status_code == 404
    assert client.post("/x-api/me", headers=bearer(token)).status_code == 405


def test_head_answers_without_a_body_and_keeps_the_connection(client: httpx.Client) -> None:
    token = log_in(client)

    head = client.head("/x-api/me", headers=bearer(token))
    get = client.get("/x-api/me", headers=bearer(token))
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(get.content)))


def test_echo_tells_what_came_and_keeps_the_token_to_itself(client: httpx.Client) -> None:
    token = log_in(client)
    body = '{"amount": 1.10, "name": "Zoë"}'

    answer = client.post(
        "/x-api/echo?b=2&a=1&a=%20&empty=",
        content=body.encode(),
        headers=httpx.Headers(bearer(token) | {"X-Note": "Zoë", "Content-Type": "application/json"}, encoding="utf-8"),
    )

    told = answer.json()
    headers = told.pop("headers")
    assert told == {
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
    assert token not in answer.text


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_echo_takes_bodies_of_any_size_and_framing(client: httpx.Client, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    pieces = iter([body[:1000], body[1000:]])

    told = client.put("/x-api/echo", content=pieces if chunked else body, headers=bearer(log_in(client))).json()
    assert (told["method"], told["length"], told["sha256"]) == ("PUT", size, hashlib.sha256(body).hexdigest())


@given(
    body=st.one_of(st.binary(), st.recursive(st.floats() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
)
def test_echo_answers_json_whatever_came(body: bytes) -> None:
    told = _shared_client().post("/x-api/echo", content=body, headers=bearer(_shared_token())).json()

    assert told["sha256"] == hashlib.sha256(body).hexdigest()


_shared: dict[str, Any] = {}


def _shared_client() -> httpx.Client:
    client = _shared["client"]
    assert isinstance(client, httpx.Client)
    return client


def _shared_token() -> str:
    return str(_shared["token"])


@pytest.fixture(autouse=True, scope="module")
def _shared_sandbox() -> Iterator[None]:
    """One sandbox for all examples of a property."""
    with Sandbox() as server, httpx.Client(base_url=server.base_url, trust_env=False) as client:
        _shared.update(client=client, token=log_in(client))
        yield


# the wire


def test_a_large_body_with_a_bad_token_is_answered_before_it_is_read(sandbox: Sandbox) -> None:
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nfirst bytes")

        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_small_body_with_a_bad_token_keeps_the_connection(sandbox: Sandbox) -> None:
    post = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    last = b"GET /x-api/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    assert exchange(sandbox, post + post + last).count(b"HTTP/1.1 401 ") == 3


def test_a_client_that_waits_for_100_is_told_401_first(sandbox: Sandbox) -> None:
    post = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

    answer = exchange(sandbox, post)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in answer


def test_a_client_that_waits_for_100_gets_it(sandbox: Sandbox, client: httpx.Client) -> None:
    head = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(head + f"Authorization: Bearer {log_in(client)}\r\n\r\n".encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert b'"text":"body"' in b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: four\r\n\r\nbody",
        b"Content-Length: -4\r\n\r\nbody",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\nbody",
        b"Transfer-Encoding: chunked\r\n\r\nfour\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n8\r\nbody",
        b"Content-Length: 8\r\n\r\nbody",
    ],
)
def test_a_body_that_is_framed_wrongly_is_400_and_the_end(
    sandbox: Sandbox, client: httpx.Client, framing: bytes
) -> None:
    head = f"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {log_in(client)}\r\n".encode()

    assert exchange(sandbox, head + framing, half_close=True).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("request_line", [b"BREW /x-api/me HTTP/1.1", b"GET /x-api/me HTTP/9.9", b"nonsense\x1b[2J"])
def test_a_strange_request_is_answered_in_json(sandbox: Sandbox, request_line: bytes) -> None:
    head, _, body = exchange(sandbox, request_line + b"\r\n\r\n", half_close=True).partition(b"\r\n\r\n")

    assert head.split(b" ")[1] in {b"400", b"501", b"505"}
    assert json.loads(body)["error"] == "invalid_request"


def test_many_clients_at_once_are_all_served(sandbox: Sandbox, client: httpx.Client) -> None:
    token, statuses = log_in(client), []
    barrier = threading.Barrier(100)

    def call() -> None:
        barrier.wait()
        statuses.append(httpx.get(f"{sandbox.base_url}/x-api/me", headers=bearer(token), trust_env=False).status_code)

    threads = [threading.Thread(target=call) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (statuses, sandbox.requests) == ([200] * 100, 100)


# listening


def test_it_listens_on_loopback_alone(sandbox: Sandbox) -> None:
    assert sandbox.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port_of(sandbox)), timeout=2):
        pass


def test_a_port_in_use_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(UsageError, match=f"127.0.0.1:{port_of(sandbox)}.*in use; choose another --port"):
        Sandbox(port_of(sandbox))


def test_a_port_that_cannot_be_is_named() -> None:
    with pytest.raises(UsageError, match="no port has that number"):
        Sandbox(70_000)


def test_it_stops_though_a_client_stays_connected() -> None:
    with Sandbox() as server:
        idle = socket.create_connection(("127.0.0.1", port_of(server)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))
    idle.close()


def test_passwords_stay_out_of_what_python_prints() -> None:
    assert MASTER.password not in repr(MASTER)
    assert set("+&% =") <= set(MASTER.password)
