"""Storage `helper`: the record of each account as the secret of a separate URL, in a credential helper.

The protocol is that of https://github.com/docker/docker-credential-helpers (`get`, `store`, `erase`). Secrets are
passed through stdin and stdout only. What a helper prints is never part of a message, because it may contain secrets;
known failures are described in xapi's own words.
"""

import json
import os
import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.hints import Option, Run
from xapi_cli.store import chunked
from xapi_cli.store.access import ExclusiveAccess, TimeLimit, Unresponsive
from xapi_cli.store.chunked import HEAD, ItemRejected, NotStored
from xapi_cli.store.protocol import NoBackend, StoreOptions
from xapi_cli.system import programs
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_CHUNK_SIZE = 2500  # characters; the helper `wincred` stores 2,560 bytes at most
_TIMEOUT_FACTOR = 2  # times the usual timeout: a helper starts several programs
_PROBE = Identity("https://probe", "probe")
_MAX_OUTPUT = 1024 * 1024  # bytes; a record has at most a quarter of this
_NOT_FOUND = b"credentials not found in native keychain"
_REMEDY = ("use another ", Option("storage"))
_REASONS = (  # a part of what a helper prints when it fails, in lowercase, and what it means
    ("not initialized", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("password store is empty", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("decryption failed", "its data cannot be decrypted", "unlock the key"),
    ("no secret key", "its data cannot be decrypted", "import the secret key"),
    ("interaction is not allowed", "the keychain is locked", "unlock it"),
    ("is locked", "it is locked", "unlock it"),
    ("cannot autolaunch", "its secret service is not running", "start it"),
)


def place(options: StoreOptions) -> dict[str, str]:
    """Return the program."""
    return {"credential_helper": options.settings.get("credential_helper") or ""}


class HelperStore:
    """Store records, passwords included, with the program that the setting credential_helper of *options* names."""

    def __init__(self, options: StoreOptions) -> None:
        if not (helper := options.settings.get("credential_helper")):
            hint = ("set XAPI_CREDENTIAL_HELPER, or run ", Run("profile set credential_helper pass"))
            raise UsageError("storage helper requires the setting credential_helper", hint=hint)
        self._path = helper if os.path.isabs(helper) else f"docker-credential-{helper}"
        self.backend = printable(os.path.basename(self._path))  # the name of the program
        self._options = options
        self._access = ExclusiveAccess("helper", options._replace(timeout=_TIMEOUT_FACTOR * options.timeout))

    def probe(self) -> None:
        """Store a text, read it and erase it; raise StoreError on failure."""

        def probe(items: _Items) -> None:
            try:
                chunked.write(items, f"{{probe {os.urandom(8).hex()}")
            except StoreError:
                with suppress(StoreError):
                    items.delete(HEAD)  # a helper may have stored what it cannot decrypt
                raise
            items.delete(HEAD)

        self._with_items(_PROBE, probe)

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        return decode_record(identity, self._with_items(identity, chunked.read))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back."""
        text = encode_record(identity, record)
        self._with_items(identity, lambda items: chunked.write(items, text, size=_CHUNK_SIZE))

    def delete(self, identity: Identity) -> bool:
        """Erase everything that is stored for *identity*; return whether there was anything."""

        def delete(items: _Items) -> bool:
            try:
                return chunked.delete(items)
            except StoreError:
                items.delete(HEAD)  # what cannot be decrypted may still be erased
            return True

        return self._with_items(identity, delete)

    def _with_items(self, identity: Identity, operation: "Callable[[_Items], T]") -> T:
        """Return the result of *operation* on the items of *identity*, while no other xapi process uses the helper."""
        try:
            with self._access.granted() as limit:
                program = _Program(self._path, self.backend, self._options, limit)
                return operation(_Items(program, identity))
        except Unresponsive as error:
            problem, hint = f"{self.backend} {error}", "unlock its password store, or stop it if it hangs"
        except NotStored as error:
            problem, hint = f"{self.backend} {error}", error.remedy or "check the helper"
        raise StoreError(problem, hint=hint, alternative=_REMEDY)


class _Items:
    """The items of *identity*, see `chunked.Items`: each is the secret of one URL."""

    def __init__(self, program: "_Program", identity: Identity) -> None:
        self._program, self._identity = program, identity
        # some helpers use it as a file name; the record contains the real one
        is_usual = re.fullmatch(r"\w[\w@+.-]{0,99}", identity.username, re.ASCII)
        self._username = identity.username if is_usual else "xapi"

    def get(self, name: str) -> str | None:
        """Return the text of the item *name*, or None if there is none."""
        output = self._program.run("get", self._url(name))
        return None if output is None else self._program.secret(output) or None  # some helpers find an empty one

    def set(self, name: str, text: str) -> None:
        """Store *text* as the item *name*; raise ItemRejected if it may be too long."""
        credentials = {"ServerURL": self._url(name), "Username": self._username, "Secret": text}
        try:
            self._program.run("store", json.dumps(credentials))
        except HelperFailed:
            if len(text) <= _CHUNK_SIZE:
                raise
            raise ItemRejected from None

    def delete(self, name: str) -> None:
        """Erase the item *name*."""
        self._program.run("erase", self._url(name))

    def _url(self, name: str) -> str:
        """Return the URL of the item *name*.

        Its host is that of the API, so that users recognize it, in a domain that never exists (RFC 6761, section 6.4):
        some helpers compare only hosts, and other programs must not get the record for a server that exists. It is
        short, because `pass` needs it to fit in a file name.
        """
        host = re.sub(r"[^a-z0-9.-]", "-", urlsplit(self._identity.base_url).netloc)[:80].strip(".-") or "api"
        suffix = name.replace("#", "/").replace(".", "/")
        return f"https://{host}.xapi.invalid/{self._identity.key}{suffix}"


class HelperFailed(StoreError):
    """The helper exited with a failure of unknown cause."""


class _Program:
    """The helper at *path*, each call of which has *limit*; it may prompt if the user is present."""

    def __init__(self, path: str, name: str, options: StoreOptions, limit: TimeLimit) -> None:
        self._path, self._name, self._options, self._limit = path, name, options, limit

    def run(self, action: str, text: str) -> bytes | None:
        """Return what the helper prints for *action* with *text* in its stdin, or None if it found no credentials."""
        try:
            output, code = programs.run(
                (self._path, action),
                self._options.environ,
                self._limit.left,
                max_output=_MAX_OUTPUT,
                data=text.encode("ascii"),
                in_background=self._options.unlock_wait is None,
            )
        except subprocess.TimeoutExpired:
            raise Unresponsive("did not respond in time") from None
        except FileNotFoundError:
            problem = f"the credential helper {self._name} was not found"
            raise NoBackend(problem, hint="install it or correct credential_helper", alternative=_REMEDY) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "invalid path"
            problem = f"the credential helper {self._name} cannot be run: {reason}"
            raise StoreError(problem, hint="correct credential_helper", alternative=_REMEDY) from None
        self._limit.progress()
        if len(output) > _MAX_OUTPUT:
            problem = f"`{self._name} {action}` printed more than 1 MiB"
            raise StoreError(problem, hint="check the helper", alternative=_REMEDY)
        if code == 0:
            return output
        if output.strip() == _NOT_FOUND:
            return None
        raise self._failure(action, output, code)

    def secret(self, output: bytes) -> str:
        """Return the secret in what the helper printed; raise StoreError if it is not valid."""
        try:
            members: Any = json.loads(output)
            secret = members["Secret"]
            if isinstance(secret, str):
                return secret
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # raised below, so that no exception with the output is attached
        problem = f"`{self._name} get` did not print valid credentials"
        raise StoreError(problem, hint="check the helper", alternative=_REMEDY)

    def _failure(self, action: str, output: bytes, code: int) -> StoreError:
        printed = output.decode("utf-8", "replace").lower()
        for part, meaning, remedy in _REASONS:
            if part in printed:
                return StoreError(f"`{self._name} {action}` failed: {meaning}", hint=remedy, alternative=_REMEDY)
        problem = f"`{self._name} {action}` {programs.describe_failure(code)}"
        return HelperFailed(problem, hint="run the helper yourself to see why", alternative=_REMEDY)
