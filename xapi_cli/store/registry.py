"""The table of storage options: one row for each, which states what it can do; no other module compares their names.

To add a storage, add a class that implements `protocol.Store`, and a row here or, for a feature, in `feature_table`.
Importing this module imports no storage: each is imported when it is opened.
"""

from typing import TYPE_CHECKING

from xapi_cli.feature_table import FEATURES, Storage, load
from xapi_cli.hints import Hint, Option, Run
from xapi_cli.system.render import listed, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xapi_cli.store.index import Place
    from xapi_cli.store.protocol import Store, StoreOptions

AUTO = "auto"  # not a storage: the keyring if it is usable, otherwise none
KEYRING = Storage(
    "keyring",
    "the keyring",
    "xapi_cli.store.keyring.store:KeyringStore",
    "xapi_cli.store.keyring.store:place",
    remembers_passwords=True,
)
FILE = Storage("file", "the file store", "xapi_cli.store.file:FileStore", needs_state_directory=True)
NONE = Storage("none", "memory", "xapi_cli.store.file:MemoryStore", is_persistent=False)
STORES: tuple[Storage, ...] = (
    KEYRING,
    FILE,
    NONE,
    *(feature.storage for feature in FEATURES.values() if feature.storage),
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


def password_hint(storage: Storage) -> Hint:
    """Return what gives an automatic login its password if the token is in *storage*."""
    stores = (Run("login --remember"),) if storage.remembers_passwords else (Option("storage"), f" {remembering()}")
    return ("set XAPI_PASSWORD or the profile's password_command, or store the password with ", *stores)


def login_hint(storage: Storage) -> Hint:
    """Return how the user stores a token in *storage*, or that this is not possible."""
    if storage.is_persistent:
        return "run ", Run("login")
    return "select a storage that stores the token, such as ", Option("storage"), " file"


def selected(setting: str) -> Storage:
    """Return the storage that the value *setting* selects; for `auto`, the one to try first."""
    if setting == AUTO:
        return KEYRING
    return next(storage for storage in STORES if storage.name == setting)


def place_of(storage: Storage, options: "StoreOptions") -> "Place":
    """Return where *options* lead to the records of *storage*; raise UsageError if a setting is missing."""
    found: Mapping[str, str] = load(storage.place)(options) if storage.place else {}
    return found


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
        store: Store = load(storage.open)(options)
    except ImportError as error:
        if not storage.extra:
            raise
        from xapi_cli.errors import UsageError

        raise UsageError(
            f"storage {storage.name} needs packages that are not installed",
            hint=f"install xapi with the extra {storage.extra}",
        ) from error
    return store
