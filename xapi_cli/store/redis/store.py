"""Records, login locks, logouts and login failures of accounts in Redis.

All that a login and a logout reads and changes is in one key: while a slot is being moved to another node of a cluster,
each key is on one of the two nodes, and a script with several keys of that slot fails. This is the key:

    PREFIX{KEY}:account           a hash with these fields; expires if it has no record
        record                    the record
        owner                     the owner ID of the login lock, a random string
        expires                   when the lock expires, in milliseconds since the epoch
        logout                    a random string that each logout changes
        failure:KIND              a login failure; not valid after a minute, and deleted by the next login

A renewal takes four commands: the record is read, a login begins, the lock is acquired, the new record is written.
The first script of a login and the one that acquires the lock reply with all fields, so that nothing else is read.

The part in braces is the hash tag: a cluster stores all keys of an account on one node.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.http.tls import create_context
from xapi_cli.store.login_protocol import LockAttempt, LockLost
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.redis.address import parse
from xapi_cli.store.redis.client import Client
from xapi_cli.store.redis.replies import count, optional_bytes, unix_time
from xapi_cli.system import boot_time
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

_TIMEOUT = 2.5  # seconds for a command, so that a process exits within four
_MARKER_LIFETIME = 3_600_000  # milliseconds: no login that began before a logout takes longer
_FAILURE_LIFETIME = 60_000  # milliseconds
_FAILURE = "failure:"  # begins the name of a field

_LOCK = """
local function milliseconds()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
local function holder()
  local expires = tonumber(redis.call('hget', KEYS[1], 'expires') or '') or 0
  return expires > milliseconds() and redis.call('hget', KEYS[1], 'owner')
end
local function account()
  local fields, now = {}, redis.call('time')
  local names = {'record', 'logout', 'failure:failed', 'failure:command', 'failure:refused', 'failure:rejected'}
  for _, name in ipairs(names) do
    fields[name] = redis.call('hget', KEYS[1], name) or nil
  end
  fields.version = fields.record and redis.sha1hex(fields.record) or ''
  fields.time = now[1] .. string.format('.%06d', now[2])
  return fields
end
local function release() return redis.call('hdel', KEYS[1], 'owner', 'expires') end
"""
_BEGIN = f"""{_LOCK}
return cjson.encode(account())
"""
# It deletes the failures that are no longer valid, and those whose time is not known.
_TRY_LOCK = f"""{_LOCK}
local found, previous, lifetime = account(), holder(), tonumber(ARGV[2])
if previous and previous ~= ARGV[1] and ARGV[3] == '0' then return cjson.encode({{version = found.version}}) end
for name, text in pairs(found) do
  if string.sub(name, 1, 8) == 'failure:' then
    local is_valid, at = pcall(function() return cjson.decode(text).at end)
    if not is_valid or type(at) ~= 'number' or found.time - at > tonumber(ARGV[4]) / 1000 then
      redis.call('hdel', KEYS[1], name)
      found[name] = nil
    end
  end
end
redis.call('hset', KEYS[1], 'owner', ARGV[1], 'expires', string.format('%.0f', milliseconds() + lifetime))
if not found.record and redis.call('pttl', KEYS[1]) < lifetime then redis.call('pexpire', KEYS[1], lifetime) end
found.acquired = '1'
return cjson.encode(found)
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
_RECORD_FAILURE = """
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
local lifetime = tonumber(ARGV[3])
if not redis.call('hget', KEYS[1], 'record') and redis.call('pttl', KEYS[1]) < lifetime then
  redis.call('pexpire', KEYS[1], lifetime)
end
return 1
"""
# with every command that this module uses, so that a permission that is missing is found before a login
_PROBE = """
redis.call('time')
redis.call('hset', KEYS[1], 'value', ARGV[1])
redis.call('persist', KEYS[1])
redis.call('pexpire', KEYS[1], 10000)
local value = redis.call('pttl', KEYS[1]) > 0 and redis.call('hget', KEYS[1], 'value')
redis.call('hdel', KEYS[1], 'value')
return value
"""


class RedisStore:
    """The store, `login_protocol.SharedStore`, in the server that the setting redis_url of *options* names."""

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
        self._owners: dict[Identity, str] = {}  # of the locks that this store holds
        self._released: set[str] = set()  # owners whose lock was released by the write of a record
        self._seen: dict[Identity, _AccountFields] = {}  # since the login began, or since its lock was acquired
        self._offset: float | None = None  # of the clock of the server

    @property
    def failures(self) -> "RedisFailures":
        """The login failures, as they were when the login began or acquired the lock."""
        return RedisFailures(self)

    @property
    def backend(self) -> str:
        """The name of the server, for messages."""
        return f"Redis at {self._address}"

    @property
    def location(self) -> str:
        """A hash of the server, the database and the prefix; see `login_protocol.SharedStore`."""
        import hashlib  # loads OpenSSL, which takes 3 ms; reading a token over a Unix socket does without

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
        if identity in self._owners:  # nobody else replaces it
            return decode_record(identity, self._seen[identity].fields.get("record"))
        data = self._client.command("HGET", self._key(identity), "record", form=optional_bytes)
        return decode_record(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Take over the login lock and store the token of *record*."""
        encode_record(identity, record)  # raises StoreError if it is too long, before the lock is taken
        self.try_lock(identity, os.urandom(16).hex(), lifetime=60, force=True)
        self.write_locked(identity, record, None)

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*, and stop logins in progress; return whether there was a record."""
        arguments = (os.urandom(8).hex(), _MARKER_LIFETIME)
        return bool(self._client.script(_DELETE, self._key(identity), *arguments, form=count))

    def logout_marker(self, identity: Identity) -> str:
        """Return the logout marker, which each logout of the account changes; empty if there was none recently.

        It is read again, and with it all that a login needs, unless this store holds the login lock.
        """
        if identity not in self._owners:
            self._see(identity, self._client.script(_BEGIN, self._key(identity), form=_AccountFields.parsed))
        return self._seen[identity].fields.get("logout", "")

    def try_lock(self, identity: Identity, owner: str, *, lifetime: float, force: bool = False) -> LockAttempt:
        """Acquire the login lock unless it has another owner; see `login_protocol.SharedStore`."""
        arguments = (owner, round(lifetime * 1000), int(force), _FAILURE_LIFETIME)
        found = self._client.script(_TRY_LOCK, self._key(identity), *arguments, form=_AccountFields.parsed)
        is_acquired = "acquired" in found.fields
        if is_acquired:
            self._owners[identity] = owner
            self._see(identity, found)
        return LockAttempt(is_acquired, found.fields["version"])

    def unlock(self, identity: Identity, owner: str) -> None:
        """Release the login lock if *owner* still has it."""
        if self._owners.get(identity) == owner:
            self._forget(identity)
        if owner in self._released:
            self._released.remove(owner)
        else:
            self._client.script(_UNLOCK, self._key(identity), owner)

    def write_locked(self, identity: Identity, record: Record, marker: str | None) -> bool:
        """Store the token of *record* and release the login lock; see `login_protocol.SharedStore`."""
        text = encode_record(identity, Record(record.token))
        owner = self._owners.get(identity, "")
        arguments = (owner, text, marker or "", int(marker is not None))
        result = self._client.script(_WRITE, self._key(identity), *arguments, form=_written)
        self._forget(identity)
        if result == b"lost":
            raise LockLost(
                "another process took over the login lock, because the login did not finish in time",
                hint="log in again, or raise --timeout",
            )
        self._released.add(owner)
        if self._client.is_readable_by_others:
            self._options.warn(f"the connection to {self.backend} is not encrypted; use rediss:// in redis_url")
        return result == b"stored"

    def now(self) -> float:
        """Return the Unix time of the server."""
        if self._offset is None:
            self._offset = self._client.command("TIME", form=unix_time) - boot_time.since_boot()
        return boot_time.since_boot() + self._offset

    def failure(self, identity: Identity, kind: str) -> bytes | None:
        """Return the recorded failure of *kind*, or None if there is none."""
        found = self._seen.get(identity) or self._client.script(_BEGIN, self._key(identity), form=_AccountFields.parsed)
        text = found.fields.get(_FAILURE + kind)
        return None if text is None else text.encode("utf-8", "surrogateescape")

    def record_failure(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data* as the failure of *kind*, for a minute."""
        arguments = (_FAILURE + kind, data, _FAILURE_LIFETIME)
        self._client.script(_RECORD_FAILURE, self._key(identity), *arguments)
        if identity in self._seen:
            self._seen[identity].fields[_FAILURE + kind] = data.decode("utf-8", "surrogateescape")

    def delete_failures(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Delete the recorded failures of *kinds*; with the login lock, no command is sent if there are none."""
        names = [_FAILURE + kind for kind in kinds]
        if identity in self._owners:
            names = [name for name in names if self._seen[identity].fields.pop(name, None) is not None]
        if names:
            self._client.command("HDEL", self._key(identity), *names)

    def _see(self, identity: Identity, found: "_AccountFields") -> None:
        self._seen[identity] = found
        self._offset = found.time - boot_time.since_boot()

    def _forget(self, identity: Identity) -> None:
        self._owners.pop(identity, None)
        self._seen.pop(identity, None)

    def _key(self, identity: Identity) -> str:
        return f"{self._prefix}{{{identity.key}}}:account"

    def _password(self) -> str:
        command = self._options.settings.get("redis_password_command")
        if self._address.password or not command:
            return self._address.password
        return self._options.run_password_command("redis_password_command", command)


class _AccountFields(NamedTuple):
    """What a script has read of an account: its *fields*, at the Unix *time* of the server."""

    fields: dict[str, str]
    time: float

    @classmethod
    def parsed(cls, reply: Any) -> "_AccountFields":
        """Return the account from the JSON *reply* of a script; raise TypeError or ValueError if it is not valid."""
        try:
            fields = json.loads(reply.decode("utf-8", "replace"), strict=False)
        except (AttributeError, RecursionError) as error:
            raise TypeError from error
        if not isinstance(fields, dict) or not all(isinstance(each, str) for each in fields.values()):
            raise TypeError
        time = float(fields.get("time", 0))
        if "version" not in fields or not isfinite(time):
            raise ValueError
        return cls(fields, time)


class RedisFailures:
    """Recorded login failures of *store*, `login_protocol.Failures`; their clock is that of the server."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def now(self) -> float:
        """Return the Unix time of the server."""
        return self._store.now()

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the text, or None if there is none."""
        return self._store.failure(identity, kind)

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data*, if that is possible."""
        with suppress(StoreError):
            self._store.record_failure(identity, kind, data)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*, if that is possible."""
        with suppress(StoreError):
            self._store.delete_failures(identity, kinds)


def _written(reply: object) -> bytes:
    """Return the result of the script that writes."""
    if not isinstance(reply, bytes) or reply not in {b"stored", b"logged out", b"lost"}:
        raise ValueError
    return reply
