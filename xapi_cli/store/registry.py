"""The table of storage options: one row for each, which states what it can do; no other module compares their names.

To add a storage, add a module with a class that implements `protocol.Store`, and a row to STORES. Importing this
module imports no storage: each row imports its own when it is opened.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

from xapi_cli.system.render import listed, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.store.index import Place
    from xapi_cli.store.protocol import LoginSession, Store, StoreOptions
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.tokens import Identity, Record

AUTO = "auto"  # not a storage: selects one by the field `auto` of its row


class Storage(NamedTuple):
    """One storage: its *name* in the settings, its *noun* for messages, and what it can do."""

    name: str
    noun: str
    open: "Callable[[StoreOptions], Store]"
    place: "Callable[[StoreOptions], Place]" = lambda options: {}  # of the records, beside the state directory
    is_place_exact: bool = True  # a record that is not found at its place no longer exists
    auto: "Literal['preferred', 'fallback'] | None" = None  # when `auto` selects it: if usable, or otherwise
    is_persistent: bool = True  # records outlive the process
    remembers_passwords: bool = False  # otherwise, the store omits the password of a record
    needs_state_directory: bool = False  # records are files in the state directory
    open_session: "Callable[[TokenRepository, float], LoginSession] | None" = None  # if machines share its login lock
    settings: tuple[str, ...] = ()  # the names of the settings that its store needs
    extra: str | None = None  # the optional dependencies that it needs


def _open_keyring(options: "StoreOptions") -> "Store":
    from xapi_cli.store.keyring.store import KeyringStore

    return KeyringStore(options)


def _keyring_place(options: "StoreOptions") -> "Place":
    named = options.environ.get("PYTHON_KEYRING_BACKEND")
    return {"PYTHON_KEYRING_BACKEND": named} if named else {}


def _open_file(options: "StoreOptions") -> "Store":
    from xapi_cli.store.file import FileStore

    return FileStore(options)


class MemoryStore:
    """Storage `none`: tokens exist as long as the process."""

    def __init__(self, options: "StoreOptions") -> None:
        self._records: dict[Identity, Record] = {}

    def probe(self) -> None:
        """Do nothing: memory is always available."""

    def read(self, identity: "Identity") -> "Record | None":
        """Return the record of *identity*, or None if there is none."""
        return self._records.get(identity)

    def write(self, identity: "Identity", record: "Record") -> None:
        """Store the token of *record*, without the password."""
        self._records[identity] = record._replace(password=None)

    def delete(self, identity: "Identity") -> bool:
        """Delete the record of *identity*; return whether there was one."""
        return self._records.pop(identity, None) is not None


def _open_redis(options: "StoreOptions") -> "Store":
    from xapi_cli.store.redis import RedisStore

    return RedisStore(options)


def _redis_session(repository: "TokenRepository", limit: float) -> "LoginSession":
    from xapi_cli.store.redis import RedisSession

    return RedisSession(repository, limit)


def _redis_place(options: "StoreOptions") -> "Place":
    from xapi_cli.store.redis import place

    return place(options.settings)


def _open_helper(options: "StoreOptions") -> "Store":
    from xapi_cli.store.helper import HelperStore

    return HelperStore(options)


def _helper_place(options: "StoreOptions") -> "Place":
    return {"credential_helper": options.settings.get("credential_helper") or ""}


STORES: tuple[Storage, ...] = (
    Storage(
        "keyring",
        "the keyring",
        _open_keyring,
        _keyring_place,
        auto="preferred",
        is_place_exact=False,  # another session may have another keyring
        remembers_passwords=True,
    ),
    Storage("file", "the file store", _open_file, needs_state_directory=True),
    Storage(
        "redis",
        "Redis",
        _open_redis,
        _redis_place,
        open_session=_redis_session,
        settings=("redis_url", "redis_prefix", "redis_password_command", "ca_bundle"),
        extra="redis",
    ),
    Storage(
        "helper",
        "the credential helper",
        _open_helper,
        _helper_place,
        is_place_exact=False,  # where a helper stores its data may depend on its own variables and files
        remembers_passwords=True,
        settings=("credential_helper",),
    ),
    Storage("none", "memory", MemoryStore, auto="fallback", is_persistent=False),
)
SETTING_NAMES = frozenset(name for storage in STORES for name in storage.settings)  # that stores need


def names() -> list[str]:
    """Return the valid values of the setting `storage`."""
    return [AUTO] + [storage.name for storage in STORES]


def alternatives() -> str:
    """Return the valid values as text for messages: `auto, keyring, file or none`."""
    return listed(names())


def remembering() -> str:
    """Return the storage options that can store the password, as text for messages."""
    return listed([storage.name for storage in STORES if storage.remembers_passwords])


def password_hint(storage: Storage) -> str:
    """Return what gives an automatic login its password if the token is in *storage*."""
    stores = "`xapi login --remember`" if storage.remembers_passwords else f"--storage {remembering()}"
    return f"set XAPI_PASSWORD or the profile's password_command, or store the password with {stores}"


def login_hint(storage: Storage) -> str:
    """Return how the user stores a token in *storage*, or that this is not possible."""
    if storage.is_persistent:
        return "run `xapi login`"
    return "select a storage that stores the token, such as --storage file"


def selected(setting: str) -> Storage:
    """Return the storage that the value *setting* selects; for `auto`, the one to try first."""
    if setting == AUTO:
        return _of_auto("preferred")
    return next(storage for storage in STORES if storage.name == setting)


def fallback() -> Storage:
    """Return the storage to use if the setting is `auto` and the preferred one is not usable."""
    return _of_auto("fallback")


def _of_auto(role: str) -> Storage:
    return next(storage for storage in STORES if storage.auto == role)


def options_at(place: "Place", options: "StoreOptions") -> "StoreOptions":
    """Return *options* with the settings and environment variables of *place*."""
    settings = {name: value for name, value in place.items() if name.islower()}
    environ = {**options.environ, **{name: value for name, value in place.items() if name.isupper()}}
    return options._replace(settings={**options.settings, **settings}, environ=environ)


def described(storage: Storage, place: "Place") -> str:
    """Return *storage* at *place* as a noun phrase for messages."""
    details = ", ".join(printable(value) for value in place.values() if value)
    return f"{storage.noun} ({details})" if details else storage.noun


def open_store(storage: Storage, options: "StoreOptions") -> "Store":
    """Return the store of *storage*; raise UsageError if it needs an optional dependency that is not installed."""
    try:
        return storage.open(options)
    except ImportError as error:
        if storage.extra is None:
            raise
        from xapi_cli.errors import UsageError

        raise UsageError(
            f"storage {storage.name} needs packages that are not installed",
            hint=f"install xapi with the extra {storage.extra}",
        ) from error
