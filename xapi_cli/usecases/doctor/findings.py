"""The result of a check, and what earlier checks have found and later ones need."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.feature_table import Storage
from xapi_cli.hints import Hint, text
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.repository import StoreReports
from xapi_cli.system.layout import wrapped
from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from xapi_cli.context import Context
    from xapi_cli.settings.config_file import Config
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import TokenRepository

Status = Literal["pass", "warn", "fail", "skip"]

_COLORS: dict[Status, Name] = {"pass": "good", "warn": "warning", "fail": "error", "skip": "faint"}
_INDENT = " " * 16  # width of the status and name columns


@dataclass(frozen=True)
class Check:
    """The result of a check, and a hint for the user; *depends_on* is the failed check without which it cannot run."""

    name: str
    status: Status
    message: str
    hint: Hint | None = None
    depends_on: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the result for scripts."""
        hint = None if self.hint is None else text(self.hint)
        return {"name": self.name, "status": self.status, "message": self.message, "hint": hint}

    def line(self, style: Style) -> str:
        """Return the result as one line, for scripts."""
        return self._colored(self._line, style)

    def wrapped(self, columns: int, style: Style) -> str:
        """Return the result for a terminal, wrapped to *columns* where the length of the words allows it."""
        is_problem = self.hint and self.status != "pass"
        first = printable(f"{self.status}  {self.name:<8}  {self.message}") if is_problem else self._line
        text = wrapped(first, columns, indent=_INDENT)
        if is_problem:
            text += f"\n{wrapped(_INDENT + printable(f'To do: {self.hint}'), columns, indent=_INDENT)}"
        return self._colored(text, style)

    @property
    def _line(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return printable(f"{self.status}  {self.name:<8}  {self.message}{hint}")

    def _colored(self, text: str, style: Style) -> str:
        length = len(self.status)
        return style(_COLORS[self.status], text[:length]) + style.commands(text[length:])


class NotChecked(XapiError):
    """A check cannot run because the check *cause* has failed."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(f"not checked: {why}", hint=f"see {cause}")
        self.cause = cause


class Findings:
    """The context of the command, and the results that checks store here; None until a check has succeeded."""

    def __init__(self, context: "Context") -> None:
        self.context = context
        self.config_file: Config | None = None
        self.valid_settings: Settings | None = None
        self.checked_state: Path | None = None
        self.response: httpx.Response | None = None
        self.probed_repository: TokenRepository | None = None
        self._repository: TokenRepository | None = None  # of the account
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
            self._store_reports = reports = StoreReports()
            repository = self.context.repository(Identity("", ""), storage=self.storage_setting, reports=reports)
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
        identity = self.context.identity
        if self._repository is None:
            if not self.storage_is_a_service:
                self._repository = self.context.repository(identity, reports=StoreReports())
            elif self.probed_repository is not None:
                self._repository = self.probed_repository.of(identity)
        return self._repository
