"""Check everything xapi needs, in the order in which it needs it; a check that cannot be made says why."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from xapi_cli.errors import StoreError, XapiError
from xapi_cli.render import json_line, printable, relative, until

if TYPE_CHECKING:
    import httpx

    from xapi_cli.runtime import Runtime
    from xapi_cli.settings import Settings

_PACKAGES = ("httpx", "keyring", "typer")
_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has whole ones, and answers take their time


@dataclass(frozen=True)
class Check:
    """What one check found, and what to do about it."""

    name: str
    status: Literal["pass", "warn", "fail"]
    message: str
    hint: str | None = None


class _NotChecked(XapiError):
    """Report that a check depends on a setting that is missing, which another check has complained of."""


class Doctor:
    """Make all checks, the failure of one keeping no other from being made."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._settings: Settings | None = None
        self._response: httpx.Response | None = None

    def tell(self, *, as_json: bool) -> bool:
        """Print every check as soon as it is made; tell whether none failed."""
        terminal, checks = self._runtime.terminal, []
        for check in self._checks():
            checks.append(check)
            if not as_json:
                hint = f"; {check.hint}" if check.hint else ""
                terminal.out(printable(f"{check.status}  {check.name:<8}  {check.message}{hint}"))
        healthy = all(check.status != "fail" for check in checks)
        if as_json:
            terminal.out(json_line({"ok": healthy, "checks": [asdict(check) for check in checks]}))
        return healthy

    def _checks(self) -> Iterator[Check]:
        makers: tuple[tuple[str, Callable[[], Check]], ...] = (
            ("python", self._python),
            ("config", self._config),
            ("profile", self._profile),
            ("network", self._network),
            ("clock", self._clock),
            ("tls", self._tls),
            ("proxy", self._proxy),
            ("state", self._state),
            ("keyring", self._keyring),
            ("token", self._token),
            ("password", self._password),
        )
        for name, make in makers:
            try:
                yield make()
            except _NotChecked as error:
                yield Check(name, "warn", error.message)
            except XapiError as error:
                yield Check(name, "fail", error.message, error.hint)

    def _python(self) -> Check:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        from xapi_cli import __version__

        found = [f"xapi {__version__}", f"Python {platform.python_version()} on {platform.system()}"]
        for package in _PACKAGES:
            try:
                found.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                return Check("python", "fail", f"{package} is not installed", "install xapi-cli again")
        return Check("python", "pass", ", ".join(found))

    def _config(self) -> Check:
        from xapi_cli import config

        path = self._runtime.config_file
        found = config.load(path)
        if not path.exists():
            return Check("config", "pass", f"{path} does not exist yet", "`xapi login` writes it")
        return Check("config", "pass", f"{path}, profiles: {', '.join(found.profiles) or 'none'}")

    def _profile(self) -> Check:
        self._settings = settled = self._runtime.settings
        missing = [name for name in ("base_url", "username") if getattr(settled, name) is None]
        if missing:
            hint = "run `xapi login`, or set " + " and ".join(f"XAPI_{name.upper()}" for name in missing)
            return Check("profile", "fail", f"{settled.profile} lacks {' and '.join(missing)}", hint)
        who = f"{settled.username} at {settled.base_url}, storage {settled.storage}"
        return Check("profile", "pass", f"{settled.profile}: {who}")

    def _network(self) -> Check:
        from xapi_cli import urls
        from xapi_cli.call.exchange import Exchange
        from xapi_cli.call.outgoing import Call

        base_url = self._base_url()
        exchange = Exchange(self._runtime.wire, base_url, None, follow=False, deadline=self._runtime.deadline)
        self._response = response = exchange.send(Call("GET", base_url)).response
        response.close()
        said = f"{base_url} answers ({response.status_code})"
        if base_url.startswith("http:") and not urls.is_loopback(base_url):
            return Check(
                "network", "warn", f"{said}, but is plain http", "password and token can be read on the way; use https"
            )
        return Check("network", "pass", said)

    def _clock(self) -> Check:
        from email.utils import parsedate_to_datetime

        date = self._response.headers.get("Date", "") if self._response is not None else None
        if date is None:
            return Check("clock", "warn", "cannot be compared: the server gave no answer", "mend the network first")
        try:
            theirs = parsedate_to_datetime(date)
        except (ValueError, TypeError):
            return Check("clock", "pass", "cannot be compared: the server's answer has no Date")
        theirs = theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)
        apart = self._runtime.now() - theirs
        if abs(apart.total_seconds()) <= _CLOCK_TOLERANCE:
            return Check("clock", "pass", "agrees with the server's")
        which = relative(apart).removeprefix("in ").removesuffix(" ago")
        ahead = "ahead of" if apart.total_seconds() > 0 else "behind"
        return Check(
            "clock", "warn", f"this machine's clock is {which} {ahead} the server's", "set it: expiry is told by it"
        )

    def _tls(self) -> Check:
        base_url, ca_bundle = self._base_url(), self._runtime.settings.ca_bundle
        if base_url.startswith("http:"):
            return Check("tls", "pass", "not used: the base URL is plain http")
        environ = self._runtime.environ
        from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)]
        trusted = ca_bundle or (" and ".join(from_environ) if from_environ else "the operating system's certificates")
        version = self._response.extensions.get("tls") if self._response is not None else None
        if version is None:
            return Check("tls", "warn", f"no connection was made; trusted are {trusted}", "see the line on the network")
        return Check("tls", "pass", f"{version}, trusted are {trusted}")

    def _proxy(self) -> Check:
        from xapi_cli import urls
        from xapi_cli.wire.proxies import proxy_for

        proxy = proxy_for(*urls.origin(self._base_url()), self._runtime.environ)
        if proxy is None:
            return Check("proxy", "pass", "none for this base URL")
        return Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excepts hosts")

    def _state(self) -> Check:
        from xapi_cli import folders

        state = self._runtime.state
        try:
            folders.private(state)
            folders.replace(state / "doctor", b"", sync=False)
            folders.remove(state / "doctor")
        except OSError as error:
            status: Literal["warn", "fail"] = "fail" if self._runtime.settings.storage == "file" else "warn"
            return Check(
                "state",
                status,
                f"{state} cannot be written: {error.strerror}",
                "set XAPI_STATE_DIR to a folder that can",
            )
        return Check("state", "pass", f"{state} can be written")

    def _keyring(self) -> Check:
        from xapi_cli.store import open_store
        from xapi_cli.store.backends import REMEDY

        storage = self._runtime.settings.storage
        if storage in ("file", "none"):
            return Check("keyring", "pass", f"not used: the storage is {storage}")
        warnings: list[str] = []
        store = open_store("keyring", state=self._runtime.state, environ=self._runtime.environ, notify=warnings.append)
        try:
            store.probe()
        except StoreError as error:
            return Check("keyring", "fail" if storage == "keyring" else "warn", error.message, error.hint)
        if warnings:
            return Check("keyring", "warn", "; ".join(warnings), REMEDY)
        return Check(
            "keyring",
            "pass",
            f"{getattr(store, 'backend', None) or 'a backend'}: an item was written, read and deleted",
        )

    def _token(self) -> Check:
        from xapi_cli.jobs.status import state_of

        base_url = self._base_url()
        if self._runtime.settings.username is None and not self._runtime.settings.token:
            raise _NotChecked(f"not checked: there is no username for {base_url}")
        token, subject = self._runtime.present_token()
        if token is None:
            return Check(
                "token", "warn", "none is stored", "run `xapi login`; commands log in by themselves where they can"
            )
        where = "from XAPI_TOKEN" if subject.source == "env" else f"in storage {subject.storage}"
        now: datetime = self._runtime.now()
        state = state_of(token, now, 0)
        status: Literal["pass", "warn"] = "pass" if state == "valid" else "warn"
        return Check(
            "token",
            status,
            f"{state} {where}, expires {until(token.expires_at, now)}",
            None if state == "valid" else "run `xapi login`",
        )

    def _password(self) -> Check:
        settled = self._runtime.settings
        if settled.password:
            return Check("password", "pass", "from XAPI_PASSWORD")
        if settled.password_command:
            return Check("password", "pass", "from the profile's password_command (not run here)")
        if not settled.token and settled.username and settled.base_url:
            record = self._runtime.keeper(self._runtime.identity).read()
            if record and record.password:
                return Check("password", "pass", "remembered in the keyring")
        if self._runtime.terminal.interactive:
            return Check("password", "pass", "asked for on this terminal")
        return Check(
            "password",
            "warn",
            "no source for an automatic login",
            "set XAPI_PASSWORD or the profile's password_command",
        )

    def _base_url(self) -> str:
        """Return the base URL; raises _NotChecked where there is none."""
        if self._settings is None or self._settings.base_url is None:
            raise _NotChecked("not checked: there is no base URL")
        return self._settings.base_url
