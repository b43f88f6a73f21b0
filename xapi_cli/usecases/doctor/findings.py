"""What earlier checks have found and later ones need; a missing finding makes the later check impossible."""

from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.registry import Storage
from xapi_cli.store.repository import StoreReports
from xapi_cli.tokens import Identity
from xapi_cli.usecases.doctor.check import NotChecked

if TYPE_CHECKING:
    from pathlib import Path

    from xapi_cli.http.messages import Response
    from xapi_cli.runtime import Runtime
    from xapi_cli.settings.config_file import Config
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import TokenRepository


class Findings:
    """The runtime of the command, and the results that checks store here; None until a check has succeeded."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.config_file: Config | None = None
        self.valid_settings: Settings | None = None
        self.checked_state: Path | None = None
        self.response: Response | None = None
        self.probed_repository: TokenRepository | None = None
        self._store_reports: StoreReports | None = None
        self._store_error: StoreError | UsageError | None = None

    @property
    def settings(self) -> "Settings":
        """The settings; raises NotChecked if they are not valid."""
        if self.valid_settings is None:
            raise NotChecked("the settings are not valid", "config" if self.config_file is None else "profile")
        return self.valid_settings

    @property
    def base_url(self) -> str:
        """The base URL; raises NotChecked if it is not set."""
        if self.settings.base_url is None:
            raise NotChecked("no base URL is set", "profile")
        return self.settings.base_url

    @property
    def storage_setting(self) -> str:
        """The storage setting, or the default if the settings are not valid."""
        return self.valid_settings.storage if self.valid_settings else registry.AUTO

    @property
    def storage(self) -> Storage:
        """The storage that the setting selects."""
        return registry.selected(self.storage_setting)

    @property
    def storage_is_a_service(self) -> bool:
        """Whether the storage is neither memory nor the state directory, so that it has a separate check."""
        return self.storage.is_persistent and not self.storage.needs_state_directory

    def probe_store(self) -> "StoreReports":
        """Probe the store, which is a service, on the first call; return what it reported, or raise its error."""
        if self._store_reports is None:
            self._store_reports = reports = StoreReports([], [])
            repository = self.runtime.repository(Identity("", ""), storage=self.storage_setting, reports=reports)
            try:
                repository.probe()
                self.probed_repository = repository
            except (StoreError, UsageError) as error:
                self._store_error = error
        if self._store_error is not None:
            raise self._store_error
        return self._store_reports

    @property
    def alternative(self) -> str:
        """The storage to suggest in place of one that does not work: one whose setting is set, or else `file`."""
        for storage in registry.STORES:
            if storage.name != self.storage_setting and storage.settings:
                required = storage.settings[0]
                if self.valid_settings and getattr(self.valid_settings, required):
                    return storage.name
        return "file"

    @property
    def login_command(self) -> str:
        """The command that stores a token: it selects a storage if the default one finds no keyring."""
        if self.storage_setting == registry.AUTO:
            try:
                self.probe_store()
            except NoBackend:
                return f"xapi login --storage {self.alternative}"
            except XapiError:
                pass  # its own check reports it
        return "xapi login"

    def check_state_is_usable(self) -> None:
        """Raise NotChecked if the state directory must not be used."""
        if self.checked_state is None:
            raise NotChecked("the state directory must not be used", "state")

    def repository(self) -> "TokenRepository | None":
        """Return the token repository of the account, or None if its store does not work.

        Raises NotChecked if there is no account. Other checks report the problems of the store.
        """
        if self.settings.base_url is None or self.settings.username is None:
            raise NotChecked("no account is selected", "profile")
        self.check_state_is_usable()
        identity = self.runtime.identity
        if self.storage_is_a_service:
            return self.probed_repository.of(identity) if self.probed_repository else None
        return self.runtime.repository(identity, reports=StoreReports([], []))
