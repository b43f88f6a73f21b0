"""Storage `redis` in a real server: its keys, a lock that expires, and a server that fails."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import RedisServer
from tests.support.threads import wait_until
from xapi_cli.errors import StoreError
from xapi_cli.features.redis.store import RedisStore
from xapi_cli.hints import text
from xapi_cli.store.deletion import delete_everywhere
from xapi_cli.store.login_session import LoginSession, open_session
from xapi_cli.store.protocol import LockLost, StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("a-token"), "a-password")
LOCK = f"test:{ME.key}:lock"


def repository_in(server: RedisServer, tmp_path: Path, **settings: Any) -> TokenRepository:
    settings = {"redis_url": server.url, "redis_prefix": "test", **settings}
    return TokenRepository(
        ME, "redis", StoreOptions(StateDirectory(tmp_path), {}, lambda hint: pytest.fail(text(hint)), settings=settings)
    )


def session_in(server: RedisServer, tmp_path: Path) -> LoginSession:
    session = open_session(repository_in(server, tmp_path))
    session.begin()
    return session


def test_a_login_writes_the_token_and_leaves_no_lock(shared_redis: RedisServer, tmp_path: Path) -> None:
    session = session_in(shared_redis, tmp_path)
    with session.locked(60):
        assert 0 < shared_redis.execute("PTTL", LOCK) <= 5000
        session.write(RECORD)

    assert shared_redis.names() == [f"test:{ME.key}:record"]
    assert b"a-password" not in shared_redis.execute("GET", f"test:{ME.key}:record")


def test_the_lock_is_prolonged_while_its_holder_lives(shared_redis: RedisServer, tmp_path: Path) -> None:
    session = session_in(shared_redis, tmp_path)
    with session.locked(60):
        shared_redis.execute("PEXPIRE", LOCK, 4000)  # longer than until it is prolonged
        wait_until(lambda: shared_redis.execute("PTTL", LOCK) > 4000)
        assert session.write(RECORD)


def test_a_holder_whose_lock_has_expired_stores_nothing(shared_redis: RedisServer, tmp_path: Path) -> None:
    late, next_one = session_in(shared_redis, tmp_path), session_in(shared_redis, tmp_path)
    with late.locked(60):
        shared_redis.execute("DEL", LOCK)  # as if it had been stopped
        with next_one.locked(60):
            assert next_one.write(RECORD)
            with pytest.raises(LockLost):
                late.write(Record(Token("late")))
    assert repository_in(shared_redis, tmp_path).read() == Record(RECORD.token)
    assert shared_redis.execute("EXISTS", LOCK) == 0


FAILURES: dict[str, tuple[Callable[[RedisServer], object], str]] = {
    "killed": (RedisServer.stop, "cannot be reached (Connection refused); check the server and redis_url"),
    "frozen": (RedisServer.freeze, "did not respond"),
    "full": (lambda server: server.oracle.config_set("maxmemory", "1"), "has no memory left (maxmemory)"),
    "a replica": (lambda server: server.oracle.replicaof("127.0.0.1", "1"), "is a replica, which cannot be written"),
    "closed to others": (lambda server: server.oracle.config_set("requirepass", "CANARY"), "rejected the username or"),
    "restricted": (
        lambda server: server.execute("ACL", "SETUSER", "default", "-@all", "+ping", "+get"),
        "does not allow this user what xapi needs",
    ),
}


@pytest.mark.parametrize("state", FAILURES)
def test_each_failure_of_a_server_is_an_error_that_says_what_to_do(
    redis_server: RedisServer, tmp_path: Path, state: str
) -> None:
    fail, message = FAILURES[state]
    fail(redis_server)
    repository = repository_in(redis_server, tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            repository.probe()
        assert str(caught.value).startswith(f"Redis at {redis_server.socket} {message}")
        assert "CANARY" not in str(caught.value)
    if state == "frozen":
        redis_server.thaw()


def test_a_server_that_restarts_is_used_again(redis_server: RedisServer, tmp_path: Path) -> None:
    repository = repository_in(redis_server, tmp_path)
    repository.probe()
    redis_server.stop()
    redis_server.start()

    assert repository.read(again=True) is None  # the first attempt finds the connection closed


def test_a_command_gives_the_password(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.oracle.config_set("requirepass", "sec@ret")
    repository_in(redis_server, tmp_path, redis_password_command=["echo", "sec@ret"]).probe()

    with pytest.raises(StoreError, match="redis_password_command 'false' failed with exit code 1"):
        repository_in(redis_server, tmp_path, redis_password_command=["false"]).probe()
    repository = repository_in(redis_server, tmp_path, redis_url=f"unix://:sec@ret@{redis_server.socket}")
    assert repository.put(RECORD, lambda: True, lambda: False)
    index = "".join(file.read_text() for file in (tmp_path / "known").iterdir())
    assert (f"unix://{redis_server.socket}" in index, "ret" in index) == (True, False)
    assert not delete_everywhere(repository)  # although the index has the URL without the password


def test_a_logout_is_not_undone_by_a_login_that_writes_between_its_steps(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    class Interleaved(RedisStore):
        def run(self, command: Callable[[Any], Any]) -> Any:
            result = super().run(command)
            login.write(RECORD)
            return result

    with (login := session_in(shared_redis, tmp_path)).locked(60):
        assert login.write(RECORD)
        Interleaved(repository_in(shared_redis, tmp_path).options).delete(ME)
    assert repository_in(shared_redis, tmp_path).read() is None
    with (later := session_in(shared_redis, tmp_path)).locked(60):
        assert later.write(RECORD)


def test_a_logout_is_possible_without_memory_left(redis_server: RedisServer, tmp_path: Path) -> None:
    repository = repository_in(redis_server, tmp_path)
    with (session := session_in(redis_server, tmp_path)).locked(60):
        session.write(RECORD)
    redis_server.oracle.config_set("maxmemory", "1")
    with suppress(StoreError):  # it says that a login in progress may undo it
        repository.opened().delete(ME)
    assert repository.read() is None


def test_the_permissions_in_the_documentation_suffice(redis_server: RedisServer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "storage.md").read_text()
    (rule,) = (line for line in page.splitlines() if line.startswith("ACL SETUSER xapi "))
    redis_server.execute(*rule.replace(">PASSWORD", ">secret").split())
    redis_server.execute("ACL", "SETUSER", "default", "off")
    url = f"unix://xapi:secret@{redis_server.socket}"
    repository = repository_in(redis_server, tmp_path, redis_url=url, redis_prefix="xapi")
    repository.probe()
    session = open_session(repository)
    session.begin()
    with session.locked(60):
        session.record_failure("refused", b"{}")
        assert session.write(RECORD)
    assert (session.failure("refused"), session.now() > 0) == (b"{}", True)
    assert (repository.read(again=True), repository.opened().delete(ME)) == (Record(RECORD.token), True)
