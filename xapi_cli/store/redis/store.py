"""Records, login locks, logouts and login failures of accounts in Redis.

All that a login and a logout change is in one key: while a slot is being moved to another node of a cluster, each key
is on one of the two nodes, and a script with several keys of that slot fails. These are the keys:

    PREFIX{KEY}:account           a hash with these fields; expires if it has no record
        record                    the record
        owner                     the owner ID of the login lock, a random string
        expires                   when the lock expires, in milliseconds since the epoch
        logout                    a random string that each logout changes
    PREFIX{KEY}:failure:KIND      a login failure; expires after a minute

The part in braces is the hash tag: a cluster stores all keys of an account on one node.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.http.tls import create_context
from xapi_cli.store import record as records
from xapi_cli.store.protocol import LockAttempt, LockLost, StoreOptions
from xapi_cli.store.redis.address import parse
from xapi_cli.store.redis.client import Client
from xapi_cli.store.redis.replies import count, number_and_text, optional_bytes, unix_time
from xapi_cli.system import boot_time
from xapi_cli.tokens import Identity, Record

_TIMEOUT = 2.5  # seconds for a command, so that a process exits within four
_MARKER_LIFETIME = 3_600_000  # milliseconds: no login that began before a logout takes longer
_FAILURE_LIFETIME = 60_000  # milliseconds

_LOCK = """
local function milliseconds()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
local function holder()
  local expires = tonumber(redis.call('hget', KEYS[1], 'expires') or '') or 0
  return expires > milliseconds() and redis.call('hget', KEYS[1], 'owner')
end
local function release() return redis.call('hdel', KEYS[1], 'owner', 'expires') end
"""
_TRY_LOCK = f"""{_LOCK}
local record, previous, lifetime = redis.call('hget', KEYS[1], 'record'), holder(), tonumber(ARGV[2])
local version = record and redis.sha1hex(record) or ''
if previous and previous ~= ARGV[1] and ARGV[3] == '0' then return {{0, version}} end
redis.call('hset', KEYS[1], 'owner', ARGV[1], 'expires', string.format('%.0f', milliseconds() + lifetime))
if not record and redis.call('pttl', KEYS[1]) < lifetime then redis.call('pexpire', KEYS[1], lifetime) end
return {{1, version}}
"""
_UNLOCK = f"""{_LOCK}
if redis.call('hget', KEYS[1], 'owner') == ARGV[1] then return release() end
return 0
"""
_WRITE = f"""{_LOCK}
local is_held, result = holder() == ARGV[1], 'lost'
local marker = redis.call('hget', KEYS[1], 'logout')
if redis.call('hget', KEYS[1], 'record') == ARGV[2] then result = 'stored'
elseif ARGV[4] == '1' and marker and marker ~= ARGV[3] then result = 'logged out'
elseif is_held then
  redis.call('hset', KEYS[1], 'record', ARGV[2])
  redis.call('persist', KEYS[1])
  result = 'stored'
end
if is_held then release() end
return result
"""
# A server without memory left refuses to set a field unless the script has written before; `pexpire` counts as a write.
# The marker comes before the deletions: a key without fields does not exist, and a node that moves its slot to another
# node refuses to create it again.
_DELETE = f"""{_LOCK}
redis.call('pexpire', KEYS[1], ARGV[2])
redis.call('hset', KEYS[1], 'logout', ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[2])
release()
return redis.call('hdel', KEYS[1], 'record')
"""
# with every command that this module uses, so that a permission that is missing is found before a login
_PROBE = """
redis.call('time')
redis.call('hset', KEYS[1], 'value', ARGV[1])
redis.call('persist', KEYS[1])
redis.call('pexpire', KEYS[1], 10000)
local value = redis.call('pttl', KEYS[1]) > 0 and redis.call('hget', KEYS[1], 'value')
redis.call('hdel', KEYS[1], 'value')
redis.call('set', KEYS[1], value or '', 'px', 10000)
value = redis.call('get', KEYS[1])
redis.call('del', KEYS[1])
return value
"""


class RedisStore:
    """The store, `protocol.SharedStore`, in the server that the setting redis_url of *options* names."""

    def __init__(self, options: StoreOptions) -> None:
        settings = options.settings
        if not (url := settings.get("redis_url")):
            hint = "set XAPI_REDIS_URL, or run `xapi profile set redis_url redis://HOST`"
            raise UsageError("storage redis requires the setting redis_url", hint=hint)
        self._address, self._options = parse(url), options
        self._client = Client(
            self._address,
            self._password,
            lambda: create_context(settings.get("ca_bundle"), options.environ),
            min(_TIMEOUT, options.timeout),
        )
        self._prefix: str = settings["redis_prefix"]
        self._owners: dict[Identity, str] = {}
        self.failures = RedisFailures(self._client, self._prefix)

    @property
    def backend(self) -> str:
        """The name of the server, for messages."""
        return f"Redis at {self._address}"

    @property
    def location(self) -> str:
        """A hash of the server, the database and the prefix; see `protocol.SharedStore`."""
        address = self._address
        place = repr((address.host, address.port, address.path, address.database, self._prefix))
        return hashlib.blake2b(place.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def probe(self) -> None:
        """Raise StoreError unless a script can write, read and delete a key."""
        value = os.urandom(8).hex()
        if self._client.script(_PROBE, f"{self._prefix}probe:{value}", value) != value.encode():
            raise StoreError(f"{self.backend} does not return what was written", hint="check the server")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        data = self._client.command("HGET", self._key(identity), "record", form=optional_bytes)
        return records.decode(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Take over the login lock and store the token of *record*."""
        records.encode(identity, record)  # raises StoreError if it is too long, before the lock is taken
        self.try_lock(identity, os.urandom(16).hex(), lifetime=60, force=True)
        self.write_locked(identity, record, None)

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*, and stop logins in progress; return whether there was a record."""
        arguments = (os.urandom(8).hex(), _MARKER_LIFETIME)
        return bool(self._client.script(_DELETE, self._key(identity), *arguments, form=count))

    def logout_marker(self, identity: Identity) -> str:
        """Return the logout marker, which each logout of the account changes; empty if there was none recently."""
        data = self._client.command("HGET", self._key(identity), "logout", form=optional_bytes)
        return (data or b"").decode("ascii", "replace")

    def try_lock(self, identity: Identity, owner: str, *, lifetime: float, force: bool = False) -> LockAttempt:
        """Acquire the login lock unless it has another owner; see `protocol.SharedStore`."""
        arguments = (owner, round(lifetime * 1000), int(force))
        is_acquired, version = self._client.script(_TRY_LOCK, self._key(identity), *arguments, form=number_and_text)
        if is_acquired:
            self._owners[identity] = owner
        return LockAttempt(is_acquired == 1, version)

    def unlock(self, identity: Identity, owner: str) -> None:
        """Release the login lock if *owner* still has it."""
        if self._owners.get(identity) == owner:
            del self._owners[identity]
        self._client.script(_UNLOCK, self._key(identity), owner)

    def write_locked(self, identity: Identity, record: Record, marker: str | None) -> bool:
        """Store the token of *record* and release the login lock; see `protocol.SharedStore`."""
        text = records.encode(identity, Record(record.token))
        owner = self._owners.get(identity, "")
        arguments = (owner, text, marker or "", int(marker is not None))
        result = self._client.script(_WRITE, self._key(identity), *arguments, form=_written)
        self._owners.pop(identity, None)
        if result == b"lost":
            raise LockLost(
                "another process took over the login lock, because the login did not finish in time",
                hint="log in again, or raise --timeout",
            )
        if self._client.is_readable_by_others:
            self._options.warn(f"the connection to {self.backend} is not encrypted; use rediss:// in redis_url")
        return result == b"stored"

    def _key(self, identity: Identity) -> str:
        return _key(self._prefix, identity, "account")

    def _password(self) -> str:
        command = self._options.settings.get("redis_password_command")
        if self._address.password or not command:
            return self._address.password
        return self._options.run_password_command("redis_password_command", command)


class RedisFailures:
    """Recorded login failures, `protocol.Failures`, in keys that expire; their clock is that of the server."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._offset: float | None = None

    def now(self) -> float:
        """Return the Unix time of the server."""
        if self._offset is None:
            self._offset = self._client.command("TIME", form=unix_time) - boot_time.since_boot()
        return boot_time.since_boot() + self._offset

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the text, or None if there is none."""
        return self._client.command("GET", self._key(identity, kind), form=optional_bytes)

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data*, if that is possible."""
        with suppress(StoreError):
            self._client.command("SET", self._key(identity, kind), data, "PX", _FAILURE_LIFETIME)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*, if that is possible."""
        with suppress(StoreError):
            for kind in kinds:  # one key in each command, see above
                self._client.command("DEL", self._key(identity, kind))

    def _key(self, identity: Identity, kind: str) -> str:
        return _key(self._prefix, identity, f"failure:{kind}")


def _written(reply: object) -> bytes:
    """Return the result of the script that writes."""
    if not isinstance(reply, bytes) or reply not in {b"stored", b"logged out", b"lost"}:
        raise ValueError
    return reply


def _key(prefix: str, identity: Identity, name: str) -> str:
    return f"{prefix}{{{identity.key}}}:{name}"
