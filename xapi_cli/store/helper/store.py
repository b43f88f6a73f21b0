"""Storage `helper`: the record of each account as the secret of a separate URL, in a credential helper."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.store.chunked import HEAD, ChunkedItem, ItemRejected, NotStored
from xapi_cli.store.exclusive_access import AccessTimeout, ExclusiveAccess
from xapi_cli.store.helper.program import REMEDY, HelperFailed, Program
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.watchdog import Watchdog
from xapi_cli.system import lifeline
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

T = TypeVar("T")

_CHUNK_SIZE = 2500  # characters; the helper `wincred` stores 2,560 bytes at most, others read lines of 64 KiB at most
_MAX_COPIES = 1  # a helper has one secret for each URL
_MAX_TOTAL = 4.0  # seconds that reading, erasing or storing an item may take, if the user is not present
_PER_CALL = 0.1  # seconds more for each response: a record of many items takes longer
_PROBE = Identity("https://probe", "probe")


class HelperStore:
    """Store records, passwords included, with the program that the setting credential_helper of *options* names."""

    def __init__(self, options: StoreOptions) -> None:
        if not (helper := options.settings.get("credential_helper")):
            hint = "set XAPI_CREDENTIAL_HELPER, or run `xapi profile set credential_helper pass`"
            raise UsageError("storage helper requires the setting credential_helper", hint=hint)
        self._warn = options.warn
        self._program = Program(
            helper, options.environ, is_user_present=options.unlock_wait is not None, run=options.run_program
        )
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
                self._access.locked(watchdog) as lock,
                lifeline.recorded(lock, watchdog.left) as self._program.lifeline,
            ):
                return operation(_Items(self._program, identity, self._access, watchdog))
        except lifeline.LeftRunning:
            raise StoreError(
                f"{name} was left running by a process that was killed, and cannot be killed itself",
                hint=f"stop {name}",
                alternative=REMEDY,
            ) from None
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
        """Erase the item *name*."""
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
