"""Check everything that xapi needs, in the order of use; a check that cannot run reports the reason.

Each check performs the real operation, with a timeout: ten seconds for the network, six for the keyring.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.system.render import printable, relative, until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from xapi_cli.runtime import Runtime
    from xapi_cli.settings.config_file import Config
    from xapi_cli.settings.resolve import Settings, Storage
    from xapi_cli.store.repository import TokenRepository

_PACKAGES = ("httpx", "h11", "keyring", "truststore", "typer")
_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has a resolution of one second, and responses take time
_COLOURS = {"pass": "\x1b[1;32m", "warn": "\x1b[1;33m", "fail": "\x1b[1;31m"}
_INDENT = " " * 16  # width of the status and name columns


@dataclass(frozen=True)
class Check:
    """The result of a check, and a hint for the user."""

    name: str
    status: Literal["pass", "warn", "fail"]
    message: str
    hint: str | None = None

    def line(self) -> str:
        """Return the result as one line, for scripts."""
        hint = f"; {self.hint}" if self.hint else ""
        return printable(f"{self.status}  {self.name:<8}  {self.message}{hint}")

    def shown(self, columns: int, *, colours: bool) -> str:
        """Return the result for a terminal, wrapped to *columns* where the length of the words allows it."""
        from textwrap import fill

        label = "" if self.status == "pass" else "To do: "
        told = [(f"{self.status}  {self.name:<8}  ", self.message), (_INDENT, label + (self.hint or ""))]
        text = "\n".join(
            fill(
                printable(words),
                max(columns, 40),
                initial_indent=indent,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for indent, words in told[: 1 + bool(self.hint)]
        )
        return f"{_COLOURS[self.status]}{text[:4]}\x1b[0m{text[4:]}" if colours else text


class _NotChecked(XapiError):
    """A check cannot run because the check named *see* has failed."""

    def __init__(self, why: str, see: str) -> None:
        super().__init__(f"not checked: {why}", hint=f"see {see}")


class Doctor:
    """Run all checks; the failure of one does not prevent the others."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._config_file: Config | None = None
        self._settings: Settings | None = None
        self._state_directory: Path | None = None
        self._response: httpx.Response | None = None
        self._keyring_works = False
        self._warnings: list[str] = []

    def tell(self, *, as_json: bool) -> None:
        """Print each result as soon as it is available; raises XapiError if a check failed."""
        from shutil import get_terminal_size

        terminal, checks = self._runtime.terminal, []
        for found in self._checks():
            check = replace(found, hint=self._runtime.advice(found.hint))
            checks.append(check)
            if not as_json and terminal.stdout_is_terminal:
                terminal.out(check.shown(get_terminal_size().columns, colours=terminal.colours))
            elif not as_json:
                terminal.out(check.line())
        failed = [check.name for check in checks if check.status == "fail"]
        if as_json:
            terminal.out_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
        if failed:
            raise XapiError(
                f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}", hint="do what is said there"
            )

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
                yield Check(name, "warn", error.message, error.hint)
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
        from xapi_cli.settings import config_file

        path = self._runtime.config_path
        self._config_file = found = config_file.load(path)
        if not path.exists():
            return Check("config", "pass", f"{path} does not exist yet", "`xapi login` writes it")
        if sys.platform != "win32" and path.stat().st_mode & 0o020:  # config_file.load() rejects world-writable
            return Check("config", "warn", f"{path} can be changed by its group", "run `chmod g-w` on it")
        return Check("config", "pass", f"{path}, profiles: {', '.join(found.profiles) or 'none'}")

    def _profile(self) -> Check:
        if self._config_file is None:
            raise _NotChecked("the config file cannot be read", "config")
        self._settings = settled = self._runtime.settings
        missing = [name for name in ("base_url", "username") if getattr(settled, name) is None]
        if missing and not (settled.token and settled.base_url):
            hint = "run `xapi login`, or set " + " and ".join(f"XAPI_{name.upper()}" for name in missing)
            return Check("profile", "fail", f"{settled.profile} lacks {' and '.join(missing)}", hint)
        who = f"{settled.username or 'XAPI_TOKEN'} at {settled.base_url}, storage {settled.storage}"
        return Check("profile", "pass", f"{settled.profile}: {who}")

    def _network(self) -> Check:
        from xapi_cli.auth import endpoint_probe
        from xapi_cli.http import urls
        from xapi_cli.http.proxies import proxy_for

        base_url, settled = self._base_url, self._settled
        try:
            proxy_for(*urls.origin(base_url), self._runtime.environ)
        except UsageError as error:
            raise _NotChecked("the proxy cannot be used", "proxy") from error
        try:
            self._response, doubt = endpoint_probe.look(
                self._runtime.wire, base_url, limit=settled.timeout, deadline=self._runtime.deadline
            )
        except XapiError as error:
            hint = error.hint or "check the base URL, this machine's network, and the proxy"
            return Check("network", "fail", error.message, hint)
        if doubt:
            return Check("network", "warn", doubt.message, doubt.hint)
        said = f"{base_url} answers ({self._response.status_code} to a look at the token endpoint)"
        if self._response.extensions["exposed"]:
            return Check(
                "network", "warn", f"{said}, but is plain http", "password and token can be read on the way; use https"
            )
        return Check("network", "pass", said)

    def _clock(self) -> Check:
        from email.utils import parsedate_to_datetime

        if self._response is None and self._base_url:
            raise _NotChecked("the server gave no answer", "network")
        date = self._response.headers.get("Date", "") if self._response is not None else ""
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
        base_url, ca_bundle = self._base_url, self._settled.ca_bundle
        if base_url.startswith("http:"):
            return Check("tls", "pass", "not used: the base URL is plain http")
        environ = self._runtime.environ
        from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)]
        trusted = ca_bundle or (" and ".join(from_environ) if from_environ else "the operating system's certificates")
        version = self._response.extensions.get("tls") if self._response is not None else None
        if version is None:
            raise _NotChecked(f"there was no connection; trusted are {trusted}", "network")
        return Check("tls", "pass", f"{version}, trusted are {trusted}")

    def _proxy(self) -> Check:
        from xapi_cli.http import urls
        from xapi_cli.http.proxies import proxy_for

        proxy = proxy_for(*urls.origin(self._base_url), self._runtime.environ)
        if proxy is None:
            return Check("proxy", "pass", "none for this base URL")
        return Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excepts hosts")

    def _state(self) -> Check:
        from xapi_cli.system import private_files
        from xapi_cli.system.lock import LockTimeout, LockUnavailable, about_state, locked

        self._state_directory = state = self._runtime.state
        status: Literal["warn", "fail"] = "fail" if self._storage == "file" else "warn"
        try:
            private_files.probe(state)
            with locked(state / "locks" / "config.lock", limit=0.1):
                pass
        except LockTimeout:
            pass  # another process holds the lock, so locking works
        except (LockUnavailable, OSError) as error:
            return Check("state", status, *about_state(state, error))
        return Check("state", "pass", f"{state} can be written")

    def _keyring(self) -> Check:
        from xapi_cli.store.keyring.backends import REMEDY
        from xapi_cli.store.registry import open_store

        if self._storage in ("file", "none"):
            return Check("keyring", "pass", f"not used: the storage is {self._storage}")
        store = open_store(
            "keyring", state=self._usable_state, environ=self._runtime.environ, notify=self._warnings.append
        )
        try:
            store.probe()
        except StoreError as error:
            return Check("keyring", "fail" if self._storage == "keyring" else "warn", error.message, error.hint)
        self._keyring_works = True
        about_state, others = _parted(self._warnings)  # the state check has reported these
        if others:
            return Check("keyring", "warn", "; ".join(others), REMEDY)
        done = f"{getattr(store, 'backend', None) or 'a backend'}: an item was written, read and deleted"
        return Check("keyring", "pass", f"{done}{', without a lock' if about_state else ''}")

    def _token(self) -> Check:
        from xapi_cli.usecases.token_status import state_of

        settled, now = self._settled, self._runtime.now()
        if settled.token:
            return Check("token", "pass", "from XAPI_TOKEN; when it expires is not known")
        repository = self._readable_repository()
        if repository is None:
            remedy = "make the keyring work, or use --storage file"
            return Check("token", "warn", "none is kept: the keyring cannot be used", remedy)
        record = repository.read()
        token = record.token if record else None
        if token is None:
            hint = "run `xapi login`; commands log in by themselves where they can"
            return Check("token", "warn", "none is stored", hint)
        state = state_of(token, now, 0)
        message = f"{state}, in storage {repository.storage}, expires {until(token.expires_at, now)}"
        return (
            Check("token", "pass", message) if state == "valid" else Check("token", "warn", message, "run `xapi login`")
        )

    def _password(self) -> Check:
        settled = self._settled
        if settled.token:
            return Check("password", "pass", "not needed: XAPI_TOKEN is set, and xapi does not log in")
        if settled.password:
            return Check("password", "pass", "from XAPI_PASSWORD")
        if settled.password_command:
            self._runtime.check_password_command()
            return _of_command(settled.password_command[0], self._runtime.environ)
        repository = self._readable_repository()
        record = repository.read() if repository else None
        if record and record.password:
            return Check("password", "pass", "remembered in the keyring")
        if self._runtime.terminal.interactive:
            return Check("password", "pass", "asked for on this terminal")
        hint = "set XAPI_PASSWORD or the profile's password_command"
        return Check("password", "warn", "no source for an automatic login", hint)

    @cached_property
    def _repository(self) -> "TokenRepository":
        """Return the token repository of the account; its warnings are reported by other checks."""
        from xapi_cli.store.repository import TokenRepository

        runtime = self._runtime
        return TokenRepository(
            runtime.identity,
            self._settled.storage,
            state=self._usable_state,
            environ=runtime.environ,
            warn=self._warnings.append,
            interactive=False,  # do not wait for the user to unlock the keyring: report that it is locked
        )

    def _readable_repository(self) -> "TokenRepository | None":
        """Return the repository, or None if its keyring does not work; raises _NotChecked if there is no account."""
        if self._settled.base_url is None or self._settled.username is None:
            raise _NotChecked("there is no account", "profile")
        return self._repository if self._storage in ("file", "none") or self._keyring_works else None

    @property
    def _settled(self) -> "Settings":
        """Return the settings; raises _NotChecked if they are not valid."""
        if self._settings is None:
            raise _NotChecked("the settings cannot be used", "config" if self._config_file is None else "profile")
        return self._settings

    @property
    def _usable_state(self) -> "Path":
        """Return the state directory; raises _NotChecked if it must not be used."""
        if self._state_directory is None:
            raise _NotChecked("the state directory must not be used", "state")
        return self._state_directory

    @property
    def _storage(self) -> "Storage":
        """Return the storage setting, or the default if the settings are not valid."""
        return self._settings.storage if self._settings else "auto"

    @property
    def _base_url(self) -> str:
        """Return the base URL; raises _NotChecked if it is not set."""
        if self._settled.base_url is None:
            raise _NotChecked("there is no base URL", "profile")
        return self._settled.base_url


def _of_command(name: str, environ: Mapping[str, str]) -> Check:
    """Check whether the password command *name* exists; it is not run, because it may prompt the user."""
    from xapi_cli.auth import password_sources

    with suppress(OSError, ValueError):
        if os.access(password_sources.find(name, environ), os.X_OK):
            return Check("password", "pass", "from the profile's password_command (not run here)")
    return Check(
        "password", "fail", f"the password_command {name!r} is not found", "install it, or correct password_command"
    )


def _parted(warnings: list[str]) -> tuple[list[str], list[str]]:
    """Split *warnings* into those about the state directory and all others."""
    about_state = [text for text in warnings if " the state directory " in f" {text}"]
    return about_state, [text for text in warnings if text not in about_state]
