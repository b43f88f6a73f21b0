"""Storage `agent`: records in the memory of the keeper; without an agent there are none."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

from xapi_cli.errors import StoreError
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import RESTART_HINT, KeeperClient, NotRunning
from xapi_cli.store.agent.messages import failure_key, key_of
from xapi_cli.store.protocol import LoggedOut, StoreOptions
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

_START_TIMEOUT = 75.0  # seconds; more than `daemon.START_TIMEOUT`, so that an agent that does not start is killed
_START_COMMAND = ("-P", "-m", "xapi_cli", "agent", "start")  # -P: never import from the current directory


class AgentStore:
    """Store records, passwords included, in the keeper."""

    def __init__(self, options: StoreOptions) -> None:
        self._client = KeeperClient(options.environ, options.timeout)
        self.backend: str | None = None  # what a probe has found out about the keeper
        self._generations: dict[Identity, bytes] = {}  # those that the logins in progress began with

    def start(self) -> str | None:
        """Start an agent unless one is running; return a message if it was started, and raise StoreError if not."""
        with suppress(NotRunning):
            self._client.held()
            if not self._client.is_ending:
                return None
        _start_agent()
        self._client.held()
        return "agent started; it keeps tokens in memory until it stops"

    @property
    def failures(self) -> "KeeperFailures | None":
        """The login failures that the keeper holds, None if no agent is running."""
        try:
            return KeeperFailures(self._client)
        except NotRunning:
            return None

    def probe(self) -> None:
        """Raise StoreError unless the keeper stores a record and returns it."""
        key = key_of(Identity("", os.urandom(8).hex()))
        record = b"probe"
        self._client.put(key, record)
        is_stored = self._client.get(key)[0] == record
        is_locked = any(each.is_locked for each in self._client.held() if each.key == key)
        self._client.erase(key)
        if not is_stored:
            raise StoreError("the agent does not return what it has stored", hint=RESTART_HINT)
        self.backend = "memory locked (never swapped)" if is_locked else "memory not locked (RLIMIT_MEMLOCK)"

    def begin(self, identity: Identity) -> None:
        """Record that a login begins: `write` raises LoggedOut if the record is deleted in the meantime.

        Raises NotRunning or StoreError if that is not possible; then `write` does not notice it.
        """
        self._generations.pop(identity, None)
        self._generations[identity] = self._client.get(key_of(identity))[1]

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none."""
        try:
            record, _ = self._client.get(key_of(identity))
        except NotRunning:
            return None
        return decode_record(identity, None if record is None else record.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record*; after a failure, the previous one is intact."""
        data = encode_record(identity, record).encode("ascii")
        if not self._client.put(key_of(identity), data, expected=self._generations.get(identity, messages.ANY)):
            raise LoggedOut

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*; return whether there was one."""
        try:
            return self._client.erase(key_of(identity))
        except NotRunning:
            return False

    def locked(self, identity: Identity, timeout: float) -> AbstractContextManager[None]:
        """Hold the keeper's lock of *identity*; raises LockTimeout after *timeout* seconds."""
        return self._client.locked(key_of(identity), timeout)


class KeeperFailures:
    """Recorded login failures, `login_protocol.Failures`, in the keeper of *client*, which erases them after a minute.

    Their clock is that of the keeper, which processes of other machines may share. Raises NotRunning, or StoreError if
    the keeper does not respond. If it ends later, so do the failures.
    """

    def __init__(self, client: KeeperClient) -> None:
        self._client = client
        self._offset = client.time() - time.monotonic()

    def now(self) -> float:
        """Return the monotonic time of the keeper."""
        return time.monotonic() + self._offset

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the text, or None if there is none."""
        try:
            return self._client.get(failure_key(identity, kind))[0]
        except NotRunning:
            return None

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data*, if that is possible."""
        if len(data) <= messages.MAX_FAILURE:
            with suppress(StoreError):
                self._client.put(failure_key(identity, kind), data)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*, if that is possible."""
        with suppress(StoreError):
            for kind in kinds:
                self._client.erase(failure_key(identity, kind))


def _start_agent() -> None:
    """Run `xapi agent start` in this environment, which contains no secrets; raise StoreError if it fails."""
    import subprocess
    import tempfile

    from xapi_cli.system.programs import UNKNOWN_EXIT, ChildProcess
    from xapi_cli.system.render import printable

    with tempfile.TemporaryFile() as errors:  # not a pipe, which the agent could keep open
        try:
            process = ChildProcess(
                [sys.executable, *_START_COMMAND], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        except OSError as error:
            raise StoreError(f"the agent cannot be started: {error.strerror}", hint="run `xapi agent start`") from error
        try:
            code = process.wait(_START_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise StoreError(
                f"the agent did not start within {_START_TIMEOUT:g} s", hint="run `xapi agent start`"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        errors.seek(0)
        reason = printable(errors.read(1000).decode(errors="replace").strip().removeprefix("xapi: error: "))
        # if the exit status is unknown, the connection to the agent shows whether it has started
        if reason if code == UNKNOWN_EXIT else code:
            raise StoreError(f"the agent cannot be started: {reason or f'exit code {code}'}")
