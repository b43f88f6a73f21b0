"""The items of an account in a backend of the `keyring` library; backend errors are converted to StoreError."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.store.chunked import CHUNK_SIZE, ItemRejected, NotStored
from xapi_cli.store.keyring.backends import REMEDY, NoKeyring
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")

_UNDECODABLE = "\N{REPLACEMENT CHARACTER}"  # placeholder for an item of another program that is not text
_RETRY_DELAYS = (0.05, 0.1, 0.2)  # seconds before each retry
_TRANSIENT = frozenset(  # transient errors: secret services raise them during startup, or occasionally without cause
    {
        "BrokenPipeError",
        "ConnectionResetError",
        "DBusErrorResponse",
        "InitError",
        "ItemNotFoundException",
        "SecretServiceNotAvailableException",
    }
)


# Why the macOS keychain refuses access, what the user can do, and what instead, by the status (SecBase.h). It grants
# access to the program that stored an item: to this Python, until it is upgraded.
KEYCHAIN_HELPER = "store the token with --storage helper and the helper osxkeychain"
_KEYCHAIN_REFUSALS: dict[object, tuple[str, str | None, str]] = {
    -128: ("access to the keychain was denied", "allow it when macOS asks", f"{KEYCHAIN_HELPER}, or {REMEDY}"),
    -25293: ("the keychain denies access to this Python", None, f"{KEYCHAIN_HELPER}, or {REMEDY}"),
    -25308: ("the keychain is locked, and macOS cannot ask in this session", "run `security unlock-keychain`", REMEDY),
}


class KeyringLocked(StoreError):
    """The keyring is locked, and the user has not unlocked it."""


class KeyringTimeout(StoreError):
    """The keyring did not respond in time."""


class KeyringNotPersistent(StoreError):
    """The keyring accepts items but does not store them."""


class Access(Protocol):
    """The caller that waits while a backend works."""

    @property
    def has_timed_out(self) -> bool:
        """Whether the caller no longer waits, so that nothing more may be done."""

    def record_activity(self) -> None:
        """Record that the backend has completed one of possibly many operations: it is slow, not unresponsive."""


class BackendItems:
    """The items of one *service* and *username*; backend errors become StoreError, without their text."""

    def __init__(self, backend: "KeyringBackend", service: str, username: str, access: Access) -> None:
        self._backend = backend
        self._service = service
        self._username = username
        self._access = access

    def get(self, name: str) -> str | None:
        """Return the text of the item *name*, or None if there is none."""
        value = self._call("reading the keyring", self._text, self._service + name, self._username)
        return value if value is None or isinstance(value, str) else _UNDECODABLE

    def set(self, name: str, text: str) -> None:
        """Store *text* as the item *name*; raise ItemRejected if it may be too long."""
        try:
            self._call("writing to the keyring", self._backend.set_password, self._service + name, self._username, text)
        except (KeyringLocked, NoKeyring):
            raise
        except StoreError:
            if len(text) <= CHUNK_SIZE:
                raise
            raise ItemRejected from None

    def delete(self, name: str) -> None:
        """Delete the item *name*."""
        action = "deleting from the keyring"
        self._call(action, self._backend.delete_password, self._service + name, self._username)

    def _text(self, service: str, username: str) -> Any:
        try:
            return self._backend.get_password(service, username)
        except UnicodeDecodeError:
            return _UNDECODABLE

    def _call(self, action: str, function: Callable[..., Any], *arguments: str) -> Any:
        """Return what *function* of the backend returns; retry after a transient error."""
        for delay in _RETRY_DELAYS:
            value, failure = self._outcome(function, *arguments)
            if failure is None or not _is_transient(failure):
                break
            time.sleep(delay)
        else:
            value, failure = self._outcome(function, *arguments)
        if failure is not None:
            raise _store_error(action, failure)
        return value

    def _outcome(self, function: Callable[..., Any], *arguments: str) -> tuple[Any, BaseException | None]:
        """Return what *function* returns, or what it raises, so that it is not attached to an error of xapi."""
        if self._access.has_timed_out:
            return None, KeyringTimeout("the keyring did not respond in time")
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001  # backends raise exceptions of any type
            return None, error
        self._access.record_activity()
        return result, None


def with_store_errors(action: str, function: Callable[[], T]) -> T:
    """Return what *function* returns; convert any exception to StoreError, with nothing attached."""
    failure: StoreError
    try:
        return function()
    except StoreError:
        raise
    except NotStored as error:
        failure = KeyringNotPersistent(f"the keyring {error}", hint=error.remedy, alternative=REMEDY)
    except BaseException as error:  # noqa: BLE001  # backends raise exceptions of any type
        failure = _store_error(action, error)
    raise failure


def _store_error(action: str, error: BaseException) -> StoreError:
    """Return a StoreError for a backend's exception, without its text, which may contain secrets."""
    if (refusal := _KEYCHAIN_REFUSALS.get(_keychain_status(error))) is not None:
        problem, remedy, alternative = refusal
        return KeyringLocked(problem, hint=remedy, alternative=alternative)
    if _is_locked(error):
        return KeyringLocked("the keyring is locked", hint="unlock it", alternative=REMEDY)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "NoKeyringError" in kinds:
        return NoKeyring("no usable keyring on this machine", alternative=REMEDY)
    problem = f"{action} failed ({escaped(type(error).__name__)})"
    return StoreError(problem, hint="run `xapi doctor`", alternative=REMEDY)


def _keychain_status(error: BaseException) -> object:
    """Return the status of the macOS keychain that caused *error*, None for errors of other keyrings."""
    if not type(error.__cause__).__module__.startswith("keyring.backends.macOS"):
        return None
    return next(iter(error.__cause__.args if error.__cause__ else ()), None)


def _is_locked(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in (*type(error).__mro__, type(error.__cause__))}
    if kinds & {"KeyringLocked", "LockedException", "PromptDismissedException"}:
        return True
    return "DBusErrorResponse" in kinds and str(getattr(error, "name", "")).endswith(".IsLocked")


def _is_transient(error: BaseException) -> bool:
    return not _is_locked(error) and not _TRANSIENT.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def services_of(identity: Identity) -> list[str]:
    """Return the service names of the account: the current one, and that of earlier versions if it differs.

    The current name is unique to the account, because Windows moves an item when its service gets a second username.
    Windows ignores the case of names, so a name that case folding changes also contains a part of the account's key.
    """
    name = f"xapi:{escaped(identity.username)}@{identity.base_url}"
    return [name] if name == name.casefold() else [f"{name} {identity.key[:8]}", name]


def escaped(text: str) -> str:
    """Return *text* with characters escaped that a backend may reject: control characters, and non-UTF-8 bytes."""
    return "".join(c if c.isprintable() and c != "\\" else f"\\u{ord(c):04x}" for c in text)
