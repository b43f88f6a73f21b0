"""Requests to the sandbox, which the tests of its API and of its server share."""

import socket
import ssl
from urllib.parse import quote

import httpx

from xapi_cli.features.sandbox import MASTER, Sandbox, User

# The sandbox has no https. Otherwise httpx loads the certificates of the system for each client, which takes long.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def log_in(client: httpx.Client, user: User = MASTER) -> str:
    response = client.post("/x-api/token", content=grant(user.email, user.password), headers=FORM)
    assert response.status_code == 200
    token = response.json()["access_token"]
    assert isinstance(token, str)
    return token


def grant(username: str, password: str) -> str:
    return f"grant_type=password&username={quote(username, safe='')}&password={quote(password, safe='')}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def exchange(sandbox: Sandbox, request: bytes, *, half_close: bool = False) -> bytes:
    """Send *request* unchanged; return everything that is received until the sandbox closes the connection."""
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def port_of(sandbox: Sandbox) -> int:
    return int(sandbox.base_url.rpartition(":")[2])
