"""Storage `redis`: records, login locks, logouts and login failures of accounts in Redis or Valkey, shared by machines.

    PREFIX:ACCOUNT:record         the record
    PREFIX:ACCOUNT:lock           the lock of redis-py: a random token, which expires unless its holder prolongs it
    PREFIX:ACCOUNT:logout         a random text that each logout changes, for an hour
    PREFIX:ACCOUNT:failure:KIND   a login failure, for a minute

The lock expires a few seconds after its holder was killed. A holder that was only stopped may go on after that. It
therefore writes its record with a script, which compares the token of the lock and the logout in the same step.
"""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from xapi_cli.auth.passwords import from_command
from xapi_cli.errors import LoginNeeded, StoreError, UsageError
from xapi_cli.hints import Run
from xapi_cli.store.access import TimeLimit, Unresponsive, in_time
from xapi_cli.store.login_session import LoginSession
from xapi_cli.store.protocol import LockLost, StoreOptions
from xapi_cli.system.lock import LockTimeout
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

if TYPE_CHECKING:
    from redis import Redis
    from redis.lock import Lock

    from xapi_cli.store.repository import TokenRepository

T = TypeVar("T")

_LOCK_LIFETIME = 5.0  # seconds without a sign of its holder
_FIRST_POLL, _LAST_POLL = 0.02, 0.25  # seconds between two attempts to get it
_LOGOUT_LIFETIME = 3600  # seconds: no login that began before a logout takes longer
_FAILURE_LIFETIME = 60  # seconds
_ANOTHER_TRY = 2.0  # seconds without another attempt after a server could not be used
_WRITE = """
local logout = redis.call('get', KEYS[2])
if logout and logout ~= ARGV[2] then return 'logged out' end
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 'lost' end
redis.call('set', KEYS[3], ARGV[3])
return 'stored'
"""
_CHECK = "check the server and redis_url"
_PROBLEMS = (  # the first class of redis.exceptions that applies; the texts of replies may contain secrets
    ("NoPermissionError", "does not allow this user what xapi needs", "grant it with ACL SETUSER"),
    ("AuthenticationError", "rejected the username or password", "correct XAPI_REDIS_URL or redis_password_command"),
    ("ReadOnlyError", "is a replica, which cannot be written", "set the URL of the primary"),
    ("OutOfMemoryError", "has no memory left (maxmemory)", "raise maxmemory, or delete other keys"),
    ("TimeoutError", "did not respond in time", _CHECK),
    ("ConnectionError", "cannot be reached", _CHECK),
    ("RedisError", "replied with an error", "see its log; xapi needs Redis 6 or later or Valkey, and no cluster"),
)


def place(options: StoreOptions) -> dict[str, str]:
    """Return the server, without a username and password, and the prefix of the keys."""
    settings = options.settings
    if not (url := settings.get("redis_url")):
        hint = ("set XAPI_REDIS_URL, or run ", Run("profile set redis_url redis://HOST"))
        raise UsageError("storage redis requires the setting redis_url", hint=hint)
    scheme, _, rest = url.partition("://")
    return {"redis_url": f"{scheme}://{rest.rpartition('@')[2]}", "redis_prefix": settings["redis_prefix"]}


class RedisStore:
    """The records in the server that the setting redis_url of *options* names; without their passwords."""

    def __init__(self, options: StoreOptions) -> None:
        found = place(options)
        self._options, self._prefix = options, found["redis_prefix"]
        self.backend = f"Redis at {found['redis_url'].partition('://')[2]}"
        self._client: Redis | None = None
        import redis  # an ImportError is reported before anything is sent

        self._connect = redis.Redis.from_url
        self._failure, self._failed_at = StoreError(""), float("-inf")

    def probe(self) -> None:
        """Raise StoreError unless a key can be written, read and deleted by the commands that a login uses."""
        key = self.key("probe", os.urandom(8).hex())

        def probe(client: "Redis") -> Any:
            client.set(key, "token", nx=True, ex=_FAILURE_LIFETIME)
            client.eval(_WRITE, 3, key, f"{key}:logout", key, "token", "", "value")
            found = client.get(key)
            client.delete(key)
            return found

        if self.run(probe) != b"value":
            raise StoreError(f"{self.backend} does not return what was written", hint="check the server")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        data = self.get(self.key(identity.key, "record"))
        return decode_record(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*, whatever other processes do."""
        text = encode_record(identity, record._replace(password=None))
        self.run(lambda client: client.set(self.key(identity.key, "record"), text))

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*, and stop logins in progress; return whether there was a record."""
        mark = os.urandom(8).hex()
        try:  # first, so that a login in progress cannot store a record after the deletion
            self.run(lambda client: client.set(self.key(identity.key, "logout"), mark, ex=_LOGOUT_LIFETIME))
        finally:  # it is possible without memory left
            count = self.run(lambda client: client.delete(self.key(identity.key, "record")))
        return bool(count)

    def get(self, key: str) -> bytes | None:
        """Return the value of *key*, None without one."""
        value: bytes | None = self.run(lambda client: client.get(key))
        return value

    def key(self, account: str, name: str) -> str:
        """Return the key *name* of the account with the key *account*."""
        return f"{self._prefix}:{account}:{name}"

    def run(self, command: "Callable[[Redis], Any]") -> Any:
        """Return what *command* returns; raise StoreError if it fails or times out."""
        if time.monotonic() < self._failed_at + _ANOTHER_TRY:
            raise self._failure
        try:
            client = self._client = self._client or self._connected()
            return in_time(lambda: command(client), TimeLimit(self._options.timeout))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - redis-py raises exceptions of several libraries
            failure = self._store_error(error)
            if failure.hint == _CHECK:  # do not wait again
                self._failure, self._failed_at = failure, time.monotonic()
        raise failure  # with nothing attached

    def _connected(self) -> "Redis":
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as Lost
        from redis.retry import Retry

        settings, url = self._options.settings, self._options.settings["redis_url"]
        options: dict[str, Any] = {"socket_timeout": self._options.timeout, "retry": Retry(NoBackoff(), 1, (Lost,))}
        command = settings.get("redis_password_command")
        if command and ":" not in url.partition("://")[2].rpartition("@")[0]:
            try:
                options["password"] = from_command(command, self._options.environ, setting="redis_password_command")
            except LoginNeeded as error:
                raise StoreError(error.message, hint=error.hint) from error
        if url.lower().startswith("rediss:") and (bundle := settings.get("ca_bundle")):
            options["ssl_ca_path" if os.path.isdir(bundle) else "ssl_ca_certs"] = bundle
        return self._connect(url, **options)

    def _store_error(self, error: Exception) -> StoreError:
        kinds, cause = {kind.__name__ for kind in type(error).__mro__}, error.__cause__ or error.__context__
        other = str(error) if isinstance(error, Unresponsive) else "is not usable"
        problem, hint = next((text for name, *text in _PROBLEMS if name in kinds), (other, _CHECK))
        if isinstance(cause, ssl.SSLError):
            problem, hint = "cannot be reached through TLS", "check redis_url, or set ca_bundle to its certificate"
        elif isinstance(cause, OSError) and cause.strerror:
            problem += f" ({cause.strerror})"
        return StoreError(f"{self.backend} {problem}", hint=hint)


class RedisSession(LoginSession):
    """Logins to the account of *repository*, whose store is a RedisStore: all is in the server."""

    def __init__(self, repository: "TokenRepository") -> None:
        store = repository.opened()
        assert isinstance(store, RedisStore)  # noqa: S101 - the row of the storage names both
        self._repository, self._store, self._identity = repository, store, repository.identity
        self._logout: bytes | None = b""  # at `begin`
        self._held: Lock | None = None

    def begin(self) -> None:
        """Remember the last logout."""
        self._logout = self._store.get(self._key("logout"))

    def was_logged_out(self) -> bool:
        """Return whether another logout has followed."""
        return self._store.get(self._key("logout")) not in (None, self._logout)

    @contextmanager
    def locked(self, timeout: float, *, stop_on_login: bool = False) -> Iterator[bool]:
        """Hold the lock, and prolong it until the end of the body."""
        key, ended = self._key("lock"), threading.Event()
        lock = self._store.run(lambda client: client.lock(key, timeout=_LOCK_LIFETIME, thread_local=False))
        if not self._acquire(lock, time.monotonic() + timeout, stop_on_login=stop_on_login):
            yield False
            return
        threading.Thread(target=_prolong, args=(lock, ended), name="xapi-lock", daemon=True).start()
        self._held = lock
        try:
            yield True
        finally:
            self._held = None
            ended.set()
            with suppress(StoreError):  # it is another's by now, or expires
                self._store.run(lambda client: lock.release())

    def _acquire(self, lock: "Lock", end: float, *, stop_on_login: bool) -> bool:
        before, pause = self._store.get(self._key("record")), _FIRST_POLL
        while not self._store.run(lambda client: lock.acquire(blocking=False)):
            if time.monotonic() >= end:
                raise LockTimeout
            time.sleep(pause * (0.5 + os.urandom(1)[0] / 255))  # jitter spreads the attempts of many processes
            pause = min(pause * 1.5, _LAST_POLL)
            if stop_on_login and self._store.get(self._key("record")) != before:
                return False
        return True

    def write(self, record: Record) -> bool:
        """Store the token of *record* if this process still holds the lock."""
        text = encode_record(self._identity, record._replace(password=None))
        token = self._held.local.token if self._held else b""
        keys = [self._key(name) for name in ("lock", "logout", "record")]

        def write() -> bool:
            result = self._store.run(lambda client: client.eval(_WRITE, 3, *keys, token, self._logout or b"", text))
            if result == b"lost":
                raise LockLost(
                    "another process took over the login lock, because the login did not finish in time",
                    hint="log in again, or raise --timeout",
                )
            return bool(result == b"stored")

        return self._repository.put(record, write, self.was_logged_out)

    def now(self) -> float:
        """Return the Unix time of the server, which is in the order in which processes ask for it."""
        seconds, microseconds = self._store.run(lambda client: client.time())
        return float(seconds + microseconds / 1e6)

    def failure(self, kind: str) -> bytes | None:
        """Return the recorded text, or None if there is none."""
        return self._store.get(self._key(f"failure:{kind}"))

    def record_failure(self, kind: str, text: bytes) -> None:
        """Record *text*."""
        self._store.run(lambda client: client.set(self._key(f"failure:{kind}"), text, ex=_FAILURE_LIFETIME))

    def forget_failures(self, kinds: Sequence[str]) -> None:
        """Remove the texts of *kinds*, if that is possible."""
        with suppress(StoreError):
            self._store.run(lambda client: client.delete(*(self._key(f"failure:{kind}") for kind in kinds)))

    def _key(self, name: str) -> str:
        return self._store.key(self._identity.key, name)


def _prolong(lock: "Lock", ended: threading.Event) -> None:
    """Prolong *lock* until *ended*; if that fails, the record will not be stored."""
    while not ended.wait(_LOCK_LIFETIME / 4):
        with suppress(Exception):
            lock.reacquire()
