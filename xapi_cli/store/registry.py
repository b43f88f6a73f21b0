"""The table of storage options: one row for each, which states what it can do; no other module compares their names.

To add a storage, add a module with a class that implements `protocol.Store`, and a row to STORES. Importing this
module imports no storage: each row imports its own when it is opened.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

from xapi_cli.system.render import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.store.account_index import Location
    from xapi_cli.store.protocol import Store, StoreOptions

AUTO = "auto"  # not a storage: selects one by the field `auto` of its row


def in_state_directory(options: "StoreOptions") -> "Location":
    """Return the location of records in the state directory, or in no place; the index of accounts is in it too."""
    return {}


class Storage(NamedTuple):
    """One storage: its *name* in the settings, its *place* as a noun phrase for messages, and what it can do."""

    name: str
    place: str
    open: "Callable[[StoreOptions], Store]"
    location: "Callable[[StoreOptions], Location]"  # of the records, by settings and variables
    is_location_exact: bool = True  # a record that is not found at its location no longer exists
    auto: "Literal['preferred', 'fallback'] | None" = None  # when `auto` selects it: if usable, or otherwise
    is_persistent: bool = True  # records outlive the process
    remembers_passwords: bool = False  # otherwise, the store omits the password of a record
    needs_state_directory: bool = False  # records are files in the state directory
    logins: Literal["local", "shared"] = "local"  # what excludes other logins; see `login_session`
    settings: tuple[str, ...] = ()  # the names of the settings that its store needs
    extra: str | None = None  # the optional dependencies that it needs; its modules are in the package of its name


def _open_keyring(options: "StoreOptions") -> "Store":
    from xapi_cli.store.keyring.store import KeyringStore

    return KeyringStore(options)


def _keyring_location(options: "StoreOptions") -> "Location":
    from xapi_cli.store.keyring import SELECTED_BY

    return _of_environment(options, *SELECTED_BY)


def _open_file(options: "StoreOptions") -> "Store":
    from xapi_cli.store.file import FileStore

    return FileStore(options.state, options.warn)


def _open_redis(options: "StoreOptions") -> "Store":
    from xapi_cli.store.redis.store import RedisStore

    return RedisStore(options)


def _redis_location(options: "StoreOptions") -> "Location":
    from xapi_cli.store.redis.address import parse

    settings = options.settings
    if not (url := settings.get("redis_url")):
        return {}
    return {"redis_url": parse(url).server_url, "redis_prefix": settings["redis_prefix"]}


def _open_helper(options: "StoreOptions") -> "Store":
    from xapi_cli.store.helper import HelperStore

    return HelperStore(options)


def _helper_location(options: "StoreOptions") -> "Location":
    return {"credential_helper": options.settings.get("credential_helper") or ""}


def _open_memory(options: "StoreOptions") -> "Store":
    from xapi_cli.store.memory import MemoryStore

    return MemoryStore()


def _of_environment(options: "StoreOptions", *names: str) -> "Location":
    return {name: options.environ.get(name, "") for name in names}


STORES: tuple[Storage, ...] = (
    Storage(
        "keyring",
        "the keyring",
        _open_keyring,
        _keyring_location,
        auto="preferred",
        is_location_exact=False,  # the keyring of a session may be started with other data
        remembers_passwords=True,
    ),
    Storage("file", "the file store", _open_file, in_state_directory, needs_state_directory=True),
    Storage(
        "redis",
        "Redis",
        _open_redis,
        _redis_location,
        logins="shared",
        settings=("redis_url", "redis_prefix", "redis_password_command", "ca_bundle"),
        extra="redis",
    ),
    Storage(
        "helper",
        "the credential helper",
        _open_helper,
        _helper_location,
        is_location_exact=False,  # where a helper stores its data may depend on its own variables and files
        remembers_passwords=True,
        settings=("credential_helper",),
    ),
    Storage("none", "memory", _open_memory, in_state_directory, auto="fallback", is_persistent=False),
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


def options_at(location: "Location", options: "StoreOptions") -> "StoreOptions":
    """Return *options* with the settings and environment variables of *location*; an empty variable is unset."""
    settings = {name: value for name, value in location.items() if name.islower()}
    others = {name: value for name, value in options.environ.items() if name not in location}
    variables = {name: value for name, value in location.items() if name.isupper() and value}
    return options._replace(settings={**options.settings, **settings}, environ={**others, **variables})


def described(storage: Storage, location: "Location") -> str:
    """Return the place of *storage* at *location* as a noun phrase for messages."""
    from xapi_cli.system.render import printable

    details = ", ".join(f"{name}={printable(value)}" for name, value in location.items() if value)
    return f"{storage.place} ({details})" if details else storage.place


def optional_packages() -> tuple[str, ...]:
    """Return the names of the packages whose modules cannot be imported where an extra is not installed."""
    return tuple(f"{__package__}.{storage.name}" for storage in STORES if storage.extra)


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
