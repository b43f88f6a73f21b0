"""The connection to Redis, with servers that follow a script: hostile, slow, broken or of another kind."""

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

import hiredis
import pytest

from tests.store.conftest import Open
from tests.support.redis_server import required
from tests.support.servers import Peer, Server, Step, Stopwatch, close, drip, forever, free_port, hang, reset, send
from xapi_cli.errors import StoreError
from xapi_cli.store.login_protocol import LockLost, SharedStore
from xapi_cli.store.redis.address import parse
from xapi_cli.store.redis.client import Client
from xapi_cli.store.redis.replies import optional_bytes
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
CANARY = "CANARY-password"


@pytest.fixture(autouse=True)
def packages() -> None:
    required()


def _read(
    opened: Open, *scripts: list[Step], user: str = f"me:{CANARY}@", timeout: float = 3
) -> tuple[StoreError, list[bytes]]:
    """Read from a server with *scripts*, within *timeout* seconds; return the error and what the server received."""
    with Server(*scripts) as server:
        url = f"redis://{user}127.0.0.1:{server.port}/2"
        store = opened("redis", settings={"redis_url": url, "redis_prefix": "test:"}, timeout=timeout)
        with Stopwatch() as watch, pytest.raises(StoreError) as raised:
            store.read(ME)
        assert watch.seconds < 5.9  # less than two waits
        return raised.value, server.received


def _command() -> Step:
    return lambda peer: peer.read_some()


@pytest.mark.parametrize(
    "reply, message",
    [
        (
            b"-ERR unknown command 'AUTH', with args beginning with: '%b'\r\n" % CANARY.encode(),
            "does not know a command that xapi needs",
        ),
        (b"-ERR wrong number of arguments for 'auth' command\r\n", "does not know a command that xapi needs"),
        (b"-ERR Error running script: Script killed by user with SCRIPT KILL...\r\n", "stopped the script"),
        (
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            f"has a value of another type at the key test:{{{ME.key}}}:account",
        ),
        (b"-%b\r\n" % CANARY.encode(), "an unknown error"),
        (b"-NOAUTH Authentication required.\r\n", "requires a password"),
        (b"-DENIED Redis is running in protected mode\r\n", "runs in protected mode"),
        (b"-NOPERM this user has no permissions to run the 'get' command\r\n", "to run the commands that xapi needs"),
        (b"-NOPERM No permissions to access a key\r\n", "to access keys with the prefix that redis_prefix sets"),
        (
            b"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
            "to access keys with the prefix that redis_prefix sets",
        ),
        (
            b"-ERR Error running script: The user executing the script can't access at least one of the keys\r\n",
            "to access keys with the prefix that redis_prefix sets",
        ),
        (b"-ERR The user executing the script can't run this command\r\n", "to run the commands that xapi needs"),
        (b"-OOM command not allowed\r\n", "has no memory left"),
        (b"-ERR Error running script (call to f_1): @user_script: 1: -READONLY You can't\r\n", "is a replica"),
        (b"-MISCONF Errors writing to the AOF file\r\n", "cannot save its data to disk"),
        (b"-ERR DB index is out of range\r\n", "does not have this database"),
        (b"-ERR SELECT is not allowed in cluster mode\r\n", "is a cluster node, which has only database 0"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not use the Redis protocol"),
        (b"*2147483647\r\n" + b"*1\r\n" * 20, "does not use the Redis protocol"),
        (b"*9\r\n:1\r\n*2147483647\r\n", "does not use the Redis protocol"),
        (b">2147483647\r\n", "does not use the Redis protocol"),
        (b"%2147483647\r\n", "does not use the Redis protocol"),
        (b"$-5\r\n", "does not use the Redis protocol"),
        (b"\x16\x03\x01\x00\x05", "does not use the Redis protocol"),
        (b"$9999999\r\n" + b"x" * 2_000_000, "does not use the Redis protocol"),
    ],
)
def test_a_reply_that_is_not_usable_is_one_error_without_a_secret(opened: Open, reply: bytes, message: str) -> None:
    error, _ = _read(opened, [_command(), send(reply), hang()])

    assert message in error.message
    assert CANARY not in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize(
    "timeout, script",
    [
        (3, [hang()]),
        (0.4, [_command(), hang()]),
        (0.4, [_command(), drip(b"$1000\r\n" + b"x" * 1000, every=0.1)]),
        (0.4, [_command(), send(b"$5\r\nab"), close()]),
        (0.4, [_command(), close()]),
        (0.4, [reset()]),
        (0.4, [_command(), send(b"-LOADING Redis is loading the dataset in memory\r\n")]),
        (0.4, [_command(), send(b"-ERR max number of clients reached\r\n")]),
    ],
)
def test_a_failure_is_an_error_within_three_seconds(opened: Open, timeout: float, script: list[Step]) -> None:
    error, _ = _read(opened, script, timeout=timeout)

    assert error.message.startswith("Redis at 127.0.0.1:")


class _Clock:
    """Stands in for the module `time`; *shift* is added to the monotonic time."""

    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.shift = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.shift


class _StoppedClock(_Clock):
    """Only *shift* changes its monotonic time."""

    def monotonic(self) -> float:
        return self.shift


@pytest.mark.parametrize("idle, limit", [(0, "5"), (6, r"6\.1"), (60, "7")])
def test_a_server_that_was_slow_before_it_hangs_gets_only_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, idle: float, limit: str
) -> None:
    clock = _StoppedClock()
    monkeypatch.setattr("xapi_cli.store.redis.client.time", clock)
    monkeypatch.setattr("xapi_cli.store.redis.client._MIN_LIMIT", 5)

    def slow(reply: bytes) -> bytes:
        clock.shift += 6.9
        return reply

    def begin_late(peer: Peer) -> None:
        clock.shift += 60
        peer.sock.sendall(b"+")

    with Server([_command(), send(b"+OK\r\n"), _command(), begin_late, hang()]) as server:
        client = _client(server, timeout=7)
        client.command("GET", "key", form=slow)
        clock.shift += idle
        with pytest.raises(StoreError, match=rf"cannot be reached: no reply within {limit} s"):
            client.command("GET", "key")


def test_a_process_that_waited_for_the_processor_reads_the_reply_that_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, pack = _Clock(), cast("Any", hiredis.pack_command)
    monkeypatch.setattr("xapi_cli.store.redis.client.time", clock)

    def delayed(arguments: tuple[bytes, ...]) -> Any:
        clock.shift += 9
        return pack(arguments)

    class Patient(socket.socket):
        """A socket that reads when data has arrived, as it would if this process had been stopped until then."""

        def recv(self, *arguments: Any) -> bytes:
            timeout = self.gettimeout()
            self.settimeout(30)
            self.recv_into(bytearray(1), 1, socket.MSG_PEEK)
            self.settimeout(timeout)
            return super().recv(*arguments)

    monkeypatch.setattr("xapi_cli.store.redis.client._pack", delayed)
    monkeypatch.setattr("xapi_cli.store.redis.client.socket.socket", Patient)
    with Server([_command(), send(b"$1\r\nA\r\n"), hang()]) as server:
        assert _client(server).command("GET", "key") == b"A"


def test_a_server_without_tls_that_waits_for_a_command_is_named_as_such(opened: Open) -> None:
    with Server([hang()]) as server:
        settings = {"redis_url": f"rediss://127.0.0.1:{server.port}", "redis_prefix": "test:"}
        store = opened("redis", settings=settings, timeout=0.6)
        with pytest.raises(StoreError, match=r"cannot be reached: no reply to the TLS handshake within 0\.6 s"):
            store.read(ME)


def test_an_endless_reply_is_an_error_in_bounded_memory(opened: Open) -> None:
    error, _ = _read(opened, [_command(), forever(b"x" * 65536)])

    assert "does not use the Redis protocol" in error.message


def test_the_password_is_sent_first_and_nothing_else_before_it_was_accepted(opened: Open) -> None:
    _, received = _read(opened, [_command(), send(b"-WRONGPASS invalid username-password pair\r\n"), hang()])

    (sent,) = received
    assert sent == b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$15\r\nCANARY-password\r\n"


def test_a_connection_that_breaks_is_opened_again(opened: Open) -> None:
    ok, none = send(b"+OK\r\n"), send(b"$-1\r\n")
    broken = [_command(), ok, _command(), ok, _command(), close()]
    good = [_command(), ok, _command(), ok, _command(), none, hang()]
    with Server(broken, good) as server:
        url = f"redis://:{CANARY}@127.0.0.1:{server.port}/2"
        store = opened("redis", settings={"redis_url": url, "redis_prefix": "test:"})
        assert store.read(ME) is None
        assert len(server.received) == 2
        assert server.received[0] == server.received[1]


_OPERATIONS: dict[str, Callable[[SharedStore], object]] = {
    "read": lambda store: store.read(ME),
    "marker": lambda store: store.logout_marker(ME),
    "delete": lambda store: store.delete(ME),
    "lock": lambda store: store.try_lock(ME, "owner", lifetime=60),
    "write": lambda store: store.write_locked(ME, Record(Token("a-token")), ""),
    "now": lambda store: store.failures.now(),
    "failure": lambda store: store.failures.read(ME, "failed"),
}
_GARBAGE = [b"*2\r\n:1\r\n$-1\r\n", b"*0\r\n", b"*2\r\n:1\r\n$2\r\n\xff\xfe\r\n", b"*2\r\n+inf\r\n+x\r\n"]


@pytest.mark.parametrize(
    "operation, reply",
    [
        *((operation, reply) for operation in _OPERATIONS for reply in _GARBAGE),
        *((operation, b":-1\r\n") for operation in _OPERATIONS),
        *((operation, b":7\r\n") for operation in _OPERATIONS if operation != "delete"),
        *((operation, b"+OK\r\n") for operation in ("delete", "lock", "write", "now")),
        *((operation, b"$-1\r\n") for operation in ("delete", "lock", "write", "now")),
        ("now", b"*2\r\n$400\r\n%b\r\n$1\r\n0\r\n" % (b"9" * 400)),
        *((operation, b"-MOVED 1 a b:1\r\n") for operation in _OPERATIONS),
        *(
            ("read", b"-MOVED 1 %b:1\r\n" % host)
            for host in (b"x" * 300, b"\xff\xfe", b"[", b"a/b", b"a..b", b"\x1b[2J")
        ),
        *(("read", b"-MOVED 1 127.0.0.1:%b\r\n" % port) for port in (b"0", b"99999")),
        ("read", b"-ASK 1 a b:1\r\n"),
    ],
)
def test_a_reply_of_another_form_is_an_error_of_the_store(opened: Open, operation: str, reply: bytes) -> None:
    with Server([_command(), send(reply), hang()]) as server:
        settings = {"redis_url": f"redis://127.0.0.1:{server.port}", "redis_prefix": "test:"}
        store = cast("SharedStore", opened("redis", settings=settings))
        with pytest.raises(StoreError, match=r"sent a reply that is not usable|or to an invalid address") as raised:
            _OPERATIONS[operation](store)

    assert str(raised.value).isprintable()
    assert not isinstance(raised.value, LockLost)


def test_a_connection_that_was_reset_after_the_last_reply_is_no_failure() -> None:
    script = [_command(), send(b"$6\r\nstored\r\n"), reset()]
    with Server(script) as server:
        client = Client(parse(f"redis://127.0.0.1:{server.port}"), str, ssl.create_default_context, 2.5)
        assert client.command("GET", "key") == b"stored"
        sock = client._socket  # noqa: SLF001 - to wait for the reset
        assert sock is not None
        poll = select.poll()
        poll.register(sock, 0)
        assert poll.poll(30_000)  # the reset has arrived
        with pytest.raises(OSError, match="not connected"):
            sock.getpeername()
        assert client.is_readable_by_others is False


def _to_itself(peer: Peer) -> None:
    peer.sock.sendall(b"-MOVED 1 :%d\r\n" % peer.server.port)


def test_a_redirect_without_end_is_an_error(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr("xapi_cli.store.redis.client.time", clock)

    def end_the_time_in_the_second_attempt(peer: Peer) -> None:
        if len(peer.server.received) > 7:
            clock.shift += 60

    with Server([_command(), end_the_time_in_the_second_attempt, _to_itself]) as server:
        settings = {"redis_url": f"redis://127.0.0.1:{server.port}", "redis_prefix": "test:"}
        store = opened("redis", settings=settings, timeout=60)
        with pytest.raises(StoreError, match="redirected too often"):
            store.read(ME)
        assert len(server.received) > 6  # six connections for each attempt


def test_nodes_that_refer_to_each_other_until_both_know_the_owner_of_a_slot_are_asked_again() -> None:
    confused = [[_command(), _to_itself]] * 6
    with Server(*confused, [_command(), send(b"$1\r\nA\r\n"), hang()]) as server:
        assert _client(server).command("GET", "key") == b"A"
        assert len(server.received) == 7


def _client(server: Server, timeout: float = 2.5) -> Client:
    return Client(parse(f"redis://127.0.0.1:{server.port}"), str, ssl.create_default_context, timeout)


def _redirect(kind: str, server: Server) -> Step:
    return send(b"-%b 5 127.0.0.1:%d\r\n" % (kind.encode(), server.port))


@pytest.mark.parametrize("is_gone", [False, True], ids=["its connection breaks", "it is gone"])
def test_after_a_failure_of_the_node_of_a_redirect_the_configured_server_is_asked_again(*, is_gone: bool) -> None:
    stored = [_command(), send(b"$1\r\nB\r\n")]
    with Server([*stored, *stored, close()], [_command(), send(b"-LOADING\r\n"), hang()]) as node:
        moved = [_command(), _redirect("MOVED", node), hang()]
        with Server(moved, [_command(), send(b"$1\r\nA\r\n"), hang()]) as configured:
            client = _client(configured)
            assert client.command("GET", "key") == b"B"
            assert client.command("GET", "key") == b"B"
            assert len(configured.received) == 1
            if is_gone:
                node.__exit__(None, None, None)
            assert client.command("GET", "key") == b"A"


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-NOAUTH Authentication required.\r\n", b":1\r\n"], ids=repr
)
def test_after_an_error_of_the_node_of_an_earlier_redirect_the_configured_server_is_asked(reply: bytes) -> None:
    """Another server may have its address now."""
    with Server([_command(), send(b"$1\r\nB\r\n"), _command(), send(reply), hang()]) as node:
        moved = [_command(), _redirect("MOVED", node), hang()]
        with Server(moved, [_command(), send(b"$1\r\nA\r\n"), hang()]) as configured:
            client = _client(configured)
            assert [client.command("GET", "key", form=optional_bytes) for _ in range(2)] == [b"B", b"A"]


def test_a_redirect_to_a_node_that_is_down_is_an_error_that_names_it() -> None:
    port = free_port()
    with Server([_command(), send(b"-MOVED 5 127.0.0.1:%d\r\n" % port), hang()]) as configured:
        with pytest.raises(StoreError, match=f"Redis at 127.0.0.1:{port} cannot be reached"):
            _client(configured, timeout=1.5).command("GET", "key")
        assert len(configured.received) > 6


@pytest.mark.parametrize("steps", [[hang()], [_command(), send(b"$1\r\nB\r\n"), hang()]])
def test_a_node_that_hangs_leaves_time_to_ask_the_configured_server_which_node_replaces_it(steps: list[Step]) -> None:
    with Server(steps) as node:
        moved = [_command(), _redirect("MOVED", node), hang()]
        with Server(moved, [_command(), send(b"$1\r\nA\r\n"), hang()]) as configured:
            client = _client(configured, timeout=3)
            if len(steps) == 3:
                assert client.command("GET", "key") == b"B"
            assert client.command("GET", "key") == b"A"
            assert len(node.received) == 1


def test_the_failure_of_a_node_is_remembered_for_this_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr("xapi_cli.store.redis.client.time", clock)
    monkeypatch.setattr("xapi_cli.store.redis.client._FAILURE_LIFETIME", 600)

    def respond(peer: Peer) -> None:
        while True:
            peer.read_some()
            is_here = peer.received.endswith(b"\nhere\r\n")
            peer.sock.sendall(b"$1\r\nA\r\n" if is_here else b"-MOVED 5 127.0.0.1:%d\r\n" % node.port)

    with Server([hang()]) as node, Server([respond]) as configured:
        client = _client(configured, timeout=2)
        with pytest.raises(StoreError, match=f"Redis at 127.0.0.1:{node.port} cannot be reached"):
            client.command("GET", "elsewhere")
        attempts = len(node.received)
        clock.shift += 60  # the time of the next commands is not limited by what this one has taken
        assert client.command("GET", "here") == b"A"
        with pytest.raises(StoreError, match=f"Redis at 127.0.0.1:{node.port} cannot be reached"):
            client.command("GET", "elsewhere")
        assert len(node.received) == attempts
        assert client.command("GET", "here") == b"A"


def test_the_redirect_ask_is_for_one_command() -> None:
    asked = [_command(), send(b"+OK\r\n"), _command(), send(b"$1\r\nB\r\n"), hang()]
    with Server(asked) as node:
        ask = [_command(), _redirect("ASK", node), hang()]
        with Server(ask, [_command(), send(b"$1\r\nA\r\n"), hang()]) as configured:
            client = _client(configured)
            assert [client.command("GET", "key") for _ in range(2)] == [b"B", b"A"]
        assert len(node.received) == 1


def test_a_host_that_does_not_exist_is_an_error_at_once(opened: Open) -> None:
    store = opened("redis", settings={"redis_url": "redis://name.invalid", "redis_prefix": "test:"})
    with Stopwatch() as watch, pytest.raises(StoreError, match=r"Redis at name\.invalid:6379 cannot be reached"):
        store.read(ME)
    assert watch.seconds < 3.5
