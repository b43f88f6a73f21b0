"""The profiles, each with the state of the stored token of its account; no token is shown, and nothing is sent."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.settings import config_file, resolve
from xapi_cli.settings.table import PROFILE_KEYS, SETTINGS
from xapi_cli.store import registry
from xapi_cli.store.repository import StoreReports
from xapi_cli.system.layout import Cell, columns
from xapi_cli.system.render import instant, printable, relative
from xapi_cli.system.style import color_of_state
from xapi_cli.tokens import Identity
from xapi_cli.usecases.token_status import state_of

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime
    from xapi_cli.settings.table import Settings
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.tokens import Token

_HEADER = ("", "profile", "username", "base URL", "token", "expires", "mode")
_IGNORED = ("profile", "base_url", "username", "token")  # their variables select another account
_UNKNOWN = "unknown"  # the store cannot be read
_Place = tuple[Any, ...]


class Row(NamedTuple):
    """One profile: its settings, and the *state* of its token, None if the profile identifies no account."""

    name: str
    is_current: bool
    settings: Mapping[str, Any]
    state: str | None
    expires_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Return the row for scripts."""
        settings = {key: SETTINGS[key].type.shown(self.settings[key]) for key in PROFILE_KEYS if key in self.settings}
        expires_at = instant(self.expires_at) if self.expires_at else None
        return {
            "name": self.name,
            "current": self.is_current,
            **settings,
            "state": self.state,
            "expires_at": expires_at,
        }


def show_profiles(runtime: "Runtime", *, as_json: bool) -> None:
    """Print the profiles as a table or as JSON; a store that cannot be read is only a warning."""
    found = config_file.load(runtime.config_path)
    selected = resolve.selected_profile(runtime.flags, runtime.environ, found)
    tokens = _Tokens(runtime)
    rows = [_row(name, name == selected, profile, tokens) for name, profile in found.profiles.items()]
    terminal = runtime.terminal
    if as_json:
        terminal.print_json([row.as_json() for row in rows])
    elif not rows:
        terminal.note("no profiles; `xapi login` creates one")
    elif terminal.stdout_is_terminal:
        cells = [_cells(row, relative(row.expires_at - runtime.now()) if row.expires_at else "-") for row in rows]
        shown = len(_HEADER) if any(row.settings.get("read_only") for row in rows) else -1
        table = [each[:shown] for each in cells]
        terminal.print(columns(table, terminal.style, header=_HEADER[:shown], width=terminal.stdout_columns))
    else:
        for row in rows:
            terminal.print(_tab_separated(row))


def _row(name: str, is_current: bool, profile: Mapping[str, Any], tokens: "_Tokens") -> Row:
    state, token = tokens.state_of(name)
    return Row(name, is_current, profile, state, token.expires_at if token else None)


def _cells(row: Row, expires: str) -> tuple[Cell, ...]:
    return (
        Cell("*" if row.is_current else " ", "good"),
        Cell(row.name, "strong" if row.is_current else None),
        Cell(str(row.settings.get("username", "-"))),
        Cell(str(row.settings.get("base_url", "-"))),
        Cell(row.state or "-", color_of_state(row.state) if row.state else "faint"),
        Cell(expires),
        Cell("read-only") if row.settings.get("read_only") else Cell("-", "faint"),
    )


def _tab_separated(row: Row) -> str:
    """Return *row* for a pipe: the name, `*` for the selected profile, and the other columns; `-` is no value."""
    mark, name, *others = (
        cell.text.strip() or "-" for cell in _cells(row, instant(row.expires_at) if row.expires_at else "-")
    )
    return "\t".join(printable(each) for each in (name, mark, *others))


class _Tokens:
    """The stored tokens of all profiles; no account is read twice, because each read of a keyring may prompt.

    A storage that has failed is not tried again, because that takes seconds.
    """

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        ignored = {variable for key in _IGNORED for variable in SETTINGS[key].variables}
        self._environ = {name: value for name, value in runtime.environ.items() if name not in ignored}
        self._failed = set[_Place]()
        self._found: dict[tuple[Identity, _Place], tuple[Token | None, TokenRepository]] = {}

    def state_of(self, profile: str) -> tuple[str | None, "Token | None"]:
        """Return the state of the token of *profile*, and the token, if there is one."""
        try:
            settings = resolve.resolve({"profile": profile}, self._environ)
        except UsageError:  # the settings of this profile are not valid, which `doctor` and its commands report
            return None, None
        if settings.base_url is None or settings.username is None:
            return None, None
        place = _place(settings)
        if place in self._failed:
            return _UNKNOWN, None
        identity = Identity(settings.base_url, settings.username)
        try:
            if (identity, place) not in self._found:
                self._found[identity, place] = self._stored(identity, settings, place)
        except XapiError as error:
            self._failed.add(place)
            self._warn(settings.profile, str(error))
            return _UNKNOWN, None
        token, repository = self._found[identity, place]
        return state_of(token, self._runtime.now(), repository=repository), token

    def _stored(
        self, identity: Identity, settings: "Settings", place: _Place
    ) -> "tuple[Token | None, TokenRepository]":
        reports = StoreReports()
        repository = self._runtime.repository(identity, storage=settings.storage, settings=settings, reports=reports)
        record = repository.read()
        for warning in reports.warnings:
            self._failed.add(place)
            self._warn(settings.profile, warning)
        return (record.token if record else None), repository

    def _warn(self, profile: str, text: str) -> None:
        self._runtime.terminal.warn(f"profile {profile}: {self._runtime.for_profile(text, profile)}")


def _place(settings: "Settings") -> _Place:
    """Return the storage of *settings* with the settings that its store needs."""
    return settings.storage, *(getattr(settings, name) for name in registry.selected(settings.storage).settings)
