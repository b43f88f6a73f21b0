"""Connections of clients to the keeper, and keys of records."""

import socket

from tests.support.keeper_process import KeeperProcess
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import key_of
from xapi_cli.tokens import Identity

KEY = key_of(Identity("https://api.test", "me"))
OTHER_KEY = key_of(Identity("https://api.test", "other"))


def connected(process: KeeperProcess) -> socket.socket:
    """Return a connection to the keeper."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(process.path))  # without a timeout, it waits while the queue is full
    sock.settimeout(30)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Wait until the keeper closes the connection, without a response."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def number(key: int) -> bytes:
    """Return the key number *key*, in the form of one of an account."""
    return f"a{key:032x}".encode()


def cached(key: int) -> bytes:
    """Return the key number *key*, in the form of one of a record that is cached from the keyring."""
    return f"c{key:032x}".encode()


def failure(key: int) -> bytes:
    """Return the key number *key*, in the form of one of a login failure."""
    return f"f{key:032x}".encode()


def is_served(process: KeeperProcess) -> None:
    """Wait until the keeper has handled what was sent before."""
    KeeperClient(process.environ, timeout=20).held()
