"""The table of storages: one row per storage, which states what it can do; no other module compares their names.

To add a storage, add a module with a class that implements `protocol.Store`, and a row to STORAGES. Importing this
module imports no storage: each row imports its own when it is opened.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xapi_cli.store.protocol import Store, StoreOptions

AUTO = "auto"  # not a storage: selects the first storage if it is usable, otherwise the one that is not persistent


class Storage(NamedTuple):
    """One storage: its *name* in the settings, its *place* as a noun phrase for messages, and what it can do."""

    name: str
    place: str
    open: "Callable[[StoreOptions], Store]"
    is_persistent: bool = True  # records outlive the process
    remembers_passwords: bool = False  # otherwise, the store omits the password of a record
    needs_state_directory: bool = False  # records are files in the state directory
    has_own_lock: bool = False  # the store is a LockingStore: it excludes other writers itself
    shares_logins: bool = False  # the store is a SharedStore: machines share login locks, logouts and failures
    settings: tuple[str, ...] = ()  # the names of the settings that its store needs
    service: str | None = None  # what serves it, if its name denotes something else as well
    extra: str | None = None  # the optional dependencies that it needs; its modules are in the package of its name

    @property
    def check_name(self) -> str:
        """The name of the check that `xapi doctor` performs in it."""
        return self.service or self.name


def _open_keyring(options: "StoreOptions") -> "Store":
    if options.keyring_cache:
        from xapi_cli.store.keyring_cache import CachedKeyringStore

        return CachedKeyringStore(options)
    from xapi_cli.store.keyring.store import KeyringStore

    return KeyringStore(options)


def _open_file(options: "StoreOptions") -> "Store":
    from xapi_cli.store.file import FileStore

    return FileStore(options.state, options.warn)


def _open_agent(options: "StoreOptions") -> "Store":
    from xapi_cli.store.agent.store import AgentStore

    return AgentStore(options)


def _open_redis(options: "StoreOptions") -> "Store":
    from xapi_cli.store.redis.store import RedisStore

    return RedisStore(options)


def _open_helper(options: "StoreOptions") -> "Store":
    from xapi_cli.store.helper.store import HelperStore

    return HelperStore(options)


def _open_memory(options: "StoreOptions") -> "Store":
    from xapi_cli.store.memory import MemoryStore

    return MemoryStore()


STORAGES: tuple[Storage, ...] = (
    Storage("keyring", "the keyring", _open_keyring, remembers_passwords=True),
    Storage("file", "the file store", _open_file, needs_state_directory=True),
    Storage("agent", "the agent's memory", _open_agent, remembers_passwords=True, has_own_lock=True, service="keeper"),
    Storage(
        "redis",
        "Redis",
        _open_redis,
        shares_logins=True,
        settings=("redis_url", "redis_prefix", "redis_password_command", "ca_bundle"),
        extra="redis",
    ),
    Storage(
        "helper",
        "the credential helper",
        _open_helper,
        remembers_passwords=True,
        settings=("credential_helper",),
    ),
    Storage("none", "memory", _open_memory, is_persistent=False),
)


def names() -> list[str]:
    """Return the valid values of the setting `storage`."""
    return [AUTO, *(storage.name for storage in STORAGES)]


def alternatives() -> str:
    """Return the valid values as text for messages: `auto, keyring, file or none`."""
    return listed(names())


def listed(storages: "Sequence[str]") -> str:
    """Return the names *storages* as text for messages, the last two joined by `or`."""
    *others, last = storages
    return f"{', '.join(others)} or {last}" if others else last


def selected(setting: str) -> Storage:
    """Return the storage that the value *setting* selects; for `auto`, the one to try first."""
    return STORAGES[0] if setting == AUTO else next(storage for storage in STORAGES if storage.name == setting)


def fallback() -> Storage:
    """Return the storage to use if the setting is `auto` and the first one is not usable."""
    return next(storage for storage in STORAGES if not storage.is_persistent)


def setting_names() -> set[str]:
    """Return the names of the settings that stores need."""
    return {name for storage in STORAGES for name in storage.settings}


def optional_packages() -> tuple[str, ...]:
    """Return the names of the packages whose modules cannot be imported where an extra is not installed."""
    return tuple(f"{__package__}.{storage.name}" for storage in STORAGES if storage.extra)


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
            hint=f"run `pip install 'xapi-cli[{storage.extra}]'`",
        ) from error
