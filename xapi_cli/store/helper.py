"""Storage `helper`: the record of each account as the secret of a separate URL, in a credential helper.

The protocol is that of https://github.com/docker/docker-credential-helpers (`get`, `store`, `erase`). Secrets are
passed through stdin and stdout only. What a helper prints is never part of a message, because it may contain secrets;
known failures are described in xapi's own words.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.store.chunked import HEAD, ChunkedItem, ItemRejected, NotStored
from xapi_cli.store.exclusive_access import AccessTimeout, ExclusiveAccess
from xapi_cli.store.protocol import NoBackend, StoreOptions
from xapi_cli.store.watchdog import Watchdog, WatchdogTimeout
from xapi_cli.system import programs
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

T = TypeVar("T")

_CHUNK_SIZE = 2500  # characters; the helper `wincred` stores 2,560 bytes at most, others read lines of 64 KiB at most
_MAX_COPIES = 1  # a helper has one secret for each URL
_MAX_TOTAL = 4.0  # seconds that reading, erasing or storing an item may take, if the user is not present
_PER_CALL = 0.1  # seconds more for each response: a record of many items takes longer
_PROBE = Identity("https://probe", "probe")
_MAX_SIZE = 1024 * 1024  # bytes; a record has at most a quarter of this
_NOT_FOUND = "credentials not found in native keychain"
REMEDY = "use another --storage"
_REASONS = (  # a part of what a helper prints when it fails, in lowercase, and what it means
    ("not initialized", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("password store is empty", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("decryption failed", "its data cannot be decrypted", "unlock the key"),
    ("no secret key", "its data cannot be decrypted", "import the secret key"),
    ("interaction is not allowed", "the keychain is locked", "unlock it"),
    ("is locked", "it is locked", "unlock it"),
    ("cannot autolaunch", "its secret service is not running", "start it"),
)


class HelperFailed(StoreError):
    """The helper exited with a failure of unknown cause."""


class Program:
    """The helper that the setting `credential_helper` names: by its NAME, or by the absolute path of the program.

    Each call takes at most the time that *left* returns. With *is_user_present*, the helper may prompt on the terminal.
    """

    def __init__(
        self,
        helper: str,
        environ: Mapping[str, str],
        *,
        is_user_present: bool,
    ) -> None:
        self._path = helper if os.path.isabs(helper) else f"docker-credential-{helper}"
        self.name = printable(os.path.basename(self._path))
        self._environ, self._in_background = environ, not is_user_present

    def get(self, server: str, left: Callable[[], float]) -> str | None:
        """Return the secret that is stored for *server*, or None if there is none."""
        output = self._call("get", server, left)
        return None if output is None else self._secret(output) or None  # some helpers find an empty one

    def store(self, server: str, username: str, secret: str, left: Callable[[], float]) -> None:
        """Store *secret* for *server*."""
        self._call("store", json.dumps({"ServerURL": server, "Username": username, "Secret": secret}), left)

    def erase(self, server: str, left: Callable[[], float]) -> None:
        """Delete what is stored for *server*."""
        self._call("erase", server, left)

    def _call(self, action: str, text: str, left: Callable[[], float]) -> bytes | None:
        """Return what the helper prints for *action* with *text* in its stdin, or None if it found no credentials.

        Raises WatchdogTimeout, and StoreError if it fails.
        """
        try:
            helper = programs.Invocation(
                (self._path, action),
                self._environ,
                _MAX_SIZE,
                data=text.encode("ascii"),
                in_background=self._in_background,
            )
            output, code = programs.run(helper, left)
        except subprocess.TimeoutExpired:
            raise WatchdogTimeout from None
        except FileNotFoundError:
            problem = f"the credential helper {self.name} was not found"
            raise NoBackend(problem, hint="install it or correct credential_helper", alternative=REMEDY) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "invalid path"
            problem = f"the credential helper {self.name} cannot be run: {reason}"
            raise StoreError(problem, hint="correct credential_helper", alternative=REMEDY) from None
        if len(output) > _MAX_SIZE:
            problem = f"`{self.name} {action}` printed more than 1 MiB"
            raise StoreError(problem, hint="check the helper", alternative=REMEDY)
        if code == 0:
            return output
        if output.strip() == _NOT_FOUND.encode():
            return None
        raise self._failure(action, output, code)

    def _failure(self, action: str, output: bytes, code: int) -> StoreError:
        printed = output.decode("utf-8", "replace").lower()
        for part, meaning, remedy in _REASONS:
            if part in printed:
                return StoreError(f"`{self.name} {action}` failed: {meaning}", hint=remedy, alternative=REMEDY)
        how = programs.describe_failure(code)
        problem, hint = f"`{self.name} {action}` {how}", "run the helper yourself to see why"
        return HelperFailed(problem, hint=hint, alternative=REMEDY)

    def _secret(self, output: bytes) -> str:
        try:
            members: Any = json.loads(output)
            secret = members["Secret"]
            if isinstance(secret, str):
                return secret
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # raised below, so that no exception with the output is attached
        problem = f"`{self.name} get` did not print valid credentials"
        raise StoreError(problem, hint="check the helper", alternative=REMEDY)


class HelperStore:
    """Store records, passwords included, with the program that the setting credential_helper of *options* names."""

    def __init__(self, options: StoreOptions) -> None:
        if not (helper := options.settings.get("credential_helper")):
            hint = "set XAPI_CREDENTIAL_HELPER, or run `xapi profile set credential_helper pass`"
            raise UsageError("storage helper requires the setting credential_helper", hint=hint)
        self._warn = options.warn
        self._program = Program(helper, options.environ, is_user_present=options.unlock_wait is not None)
        self._access = ExclusiveAccess("helper", options, notice=self._warn_of_waiting)
        self._plain: dict[Identity, bool] = {}  # see ChunkedItem.plain

    @property
    def backend(self) -> str:
        """The name of the program."""
        return self._program.name

    def probe(self) -> None:
        """Store a text, read it and erase it; raise StoreError on failure. If it cannot be erased, only warn."""
        text = f"probe {os.urandom(8).hex()}"

        def probe(items: _Items) -> StoreError | None:
            try:
                ChunkedItem(items, plain=True, max_copies=_MAX_COPIES).write(text)
            except StoreError:
                with suppress(StoreError):
                    items.delete(HEAD)  # a helper may have stored what it cannot decrypt
                raise
            try:
                items.delete(HEAD)
            except StoreError as error:
                return error
            return None

        if (failure := self._with_items(_PROBE, probe)) is not None:
            self._warn(f"{failure.message}: `xapi logout` may not be able to delete records there")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        return decode_record(identity, self._with_item(identity, ChunkedItem.read))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back."""
        text = encode_record(identity, record)
        self._with_item(identity, lambda item: item.write(text))

    def delete(self, identity: Identity) -> bool:
        """Erase everything that is stored for *identity*; return whether there was anything."""

        def delete(items: _Items) -> bool:
            try:
                return ChunkedItem(items, chunk_size=_CHUNK_SIZE, max_copies=_MAX_COPIES).delete()
            except StoreError as error:
                try:
                    items.delete(HEAD)  # what cannot be decrypted may still be erased
                except StoreError:
                    raise error from None
            return True

        self._plain.pop(identity, None)
        return self._with_items(identity, delete)

    def _with_item(self, identity: Identity, operation: Callable[[ChunkedItem], T]) -> T:
        def on_items(items: "_Items") -> T:
            plain = self._plain.pop(identity, False)
            item = ChunkedItem(items, plain=plain, chunk_size=_CHUNK_SIZE, max_copies=_MAX_COPIES)
            result = operation(item)
            self._plain[identity] = item.plain
            return result

        return self._with_items(identity, on_items)

    def _with_items(self, identity: Identity, operation: "Callable[[_Items], T]") -> T:
        """Return the result of *operation* on the items of *identity*, while no other xapi process uses the helper."""
        name = self._program.name
        try:
            with (
                self._access.limited() as watchdog,
                self._access.locked(watchdog),
            ):
                return operation(_Items(self._program, identity, self._access, watchdog))
        except AccessTimeout as error:
            end_it = f" or stop {name} if it hangs" if error.is_in_use else ""
            raise StoreError(f"{name} {error}", hint=f"unlock its password store{end_it}", alternative=REMEDY) from None
        except NotStored as error:
            raise StoreError(f"{name} {error}", hint=error.remedy or "check the helper", alternative=REMEDY) from None

    def _warn_of_waiting(self) -> None:
        self._warn(f"waiting for {self._program.name}; it may be waiting for you to unlock its store")


class _Items:
    """The items of *identity*, as `chunked.Items`: each is the secret of one URL."""

    def __init__(self, program: Program, identity: Identity, access: ExclusiveAccess, watchdog: Watchdog) -> None:
        self._program, self._identity = program, identity
        self._access, self._watchdog, self._left = access, watchdog, watchdog.left
        self._max_total = max(_MAX_TOTAL, access.timeout)
        watchdog.limit(self._max_total)  # each response restarts the timeout, so a slow helper could take very long

    def get(self, name: str) -> str | None:
        """Return the text of the item *name*, or None if there is none."""
        text = self._program.get(self._url(name), self._left)
        self._record_response()
        return text

    def set(self, name: str, text: str) -> None:
        """Store *text* as the item *name*; raise ItemRejected if it may be too long."""
        try:
            self._program.store(self._url(name), _username(self._identity), text, self._left)
        except HelperFailed:
            if len(text) <= _CHUNK_SIZE:
                raise
            raise ItemRejected from None
        self._access.record_activity()
        self._watchdog.limit(self._max_total)

    def delete(self, name: str) -> None:
        self._program.erase(self._url(name), self._left)
        self._record_response()

    def _record_response(self) -> None:
        self._access.record_activity()
        self._watchdog.extend(_PER_CALL)

    def _url(self, name: str) -> str:
        """Return the URL of the item *name*.

        Its host is that of the API, so that users recognize it, in a domain that never exists (RFC 6761, section 6.4):
        some helpers compare only hosts, and other programs must not get the record for a server that exists. It is
        short, because `pass` needs it to fit in a file name.
        """
        host = re.sub(r"[^a-z0-9.-]", "-", urlsplit(self._identity.base_url).netloc)[:80].strip(".-") or "api"
        suffix = name.replace("#", "/").replace(".", "/")
        return f"https://{host}.xapi.invalid/{self._identity.key}{suffix}"


def _username(identity: Identity) -> str:
    """Return the username for the helper, which may use it as a file name; the record contains the real one."""
    return identity.username if re.fullmatch(r"\w[\w@+.-]{0,99}", identity.username, re.ASCII) else "xapi"
