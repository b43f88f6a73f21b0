"""An explicit login with `xapi login`: its prompts, the data that it stores, and its messages."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xapi_cli.auth.account import name_of
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, OutputError, StoreError, TimeoutExpired, UsageError
from xapi_cli.http import urls
from xapi_cli.settings import config_file, resolve, values
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry
from xapi_cli.system.render import printable, until
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.auth.account import Account
    from xapi_cli.runtime import Runtime
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.tokens import Token

_REMEMBER = "Remember the password in {place}, so that xapi can log in again automatically?"


@dataclass
class Login:
    """Log in with the settings and the user's input; *remember* is None if neither option was given."""

    runtime: "Runtime"
    password_stdin: bool
    remember: bool | None

    def run(self) -> None:
        """Get a token, store it, write the profile and report the result; raises XapiError if a step fails."""
        runtime = self.runtime
        self._check_remember()
        for name, value in self._flags_to_store().items():
            config_file.check_storable(SETTINGS[name].flags[0], value)
        self._warn_of_shell_syntax()
        self._check_settings_without_terminal()
        if not self.password_stdin and not runtime.settings.password and (command := runtime.password_command):
            command.check()
        repository = runtime.repository(Identity(runtime.settings.base_url or "", runtime.settings.username or ""))
        repository.probe()  # before any prompt, and before a secret is sent
        account, token, typed = self._log_in(repository)
        written = self._write_profile(account.identity)
        try:
            self._offer_to_remember(account, typed)
        finally:  # even after Ctrl-C at the question: the token and the profile are stored
            if not (is_logged_out := _was_logged_out(account)):
                self._report(account, token, written=written)
        if is_logged_out:
            raise StoreError("the account was logged out in the meantime, so nothing is stored", hint="log in again")

    def _warn_of_shell_syntax(self) -> None:
        command = self.runtime.flags.get("password_command")
        if command and (warning := values.shell_syntax_warning("--password-command", command)):
            self.runtime.terminal.warn(warning)

    def _check_remember(self) -> None:
        """Raise UsageError for --remember if the storage does not store passwords."""
        setting = self.runtime.settings.storage
        if self.remember and not registry.selected(setting).remembers_passwords:
            raise UsageError(
                f"--remember cannot be used with storage {setting}, which does not store passwords",
                hint=f"use --storage {registry.remembering()}, or --password-command instead of --remember",
            )

    def _check_settings_without_terminal(self) -> None:
        """Raise UsageError for a missing setting if there is no terminal for a prompt."""
        settings = self.runtime.settings
        if self.runtime.terminal.interactive:
            return
        for name in ("base_url", "username"):
            if getattr(settings, name) is None:
                raise resolve.missing(name, or_log_in=False)

    def _identity(self) -> Identity:
        settings = self.runtime.settings
        base_url = settings.base_url
        if base_url is None or (self._will_prompt_for_password and not self._accepts(base_url)):
            base_url = self._prompt_for_base_url()
        username = settings.username or self._prompt_for_username()
        return Identity(base_url, username)

    def _corrected(self, identity: Identity, error: LoginRefused) -> Identity:
        """Return the account for the next attempt: prompt again for what was typed, with the last input as the default.

        The base URL is prompted for only if the response may come from a server other than the API.
        """
        settings = self.runtime.settings
        base_url, username = identity
        if base_url != settings.base_url and not error.has_error_code:
            base_url = self._prompt_for_base_url(base_url)
        if settings.username is None:
            username = self._prompt_for_username(username)
        return Identity(base_url, username)

    def _prompt_for_username(self, default: str = "") -> str:
        return self._prompt("Email address", values.username, default)

    def _prompt_for_base_url(self, default: str = "") -> str:
        """Return the base URL that the user gives, prompted for again until a server responds and it is accepted."""
        given: list[str] = []

        def parsed(text: str) -> str:
            given.append(text)
            return urls.base_url(text)

        while True:
            base_url = self._prompt("Base URL of the API", parsed, default)
            try:
                if self._accepts(base_url):
                    return base_url
            except (NetworkError, TimeoutExpired) as error:
                error.hint = urls.with_assumed_scheme(error.hint, given[-1])
                self.runtime.terminal.warn(str(error), repeats=True)

    def _accepts(self, base_url: str) -> bool:
        """Probe the token endpoint and return whether to use *base_url*; in case of doubt, ask the user.

        Raises NetworkError or TimeoutExpired if no server responds.
        """
        is_usual = self.runtime.check_server(base_url)
        return is_usual or self.runtime.terminal.confirm(f"Use {base_url} anyway?", default=False)

    def _prompt(self, what: str, check: "Callable[[str], str]", default: str) -> str:
        """Prompt for *what* until *check* accepts the input, *default* if it is empty; return the result of *check*."""
        terminal = self.runtime.terminal
        question = f"{what} [{default}]: " if default else f"{what}: "
        while True:
            try:
                return check(terminal.prompt(question).strip() or default)
            except UsageError as error:
                terminal.warn(str(error), repeats=True)

    @property
    def _will_prompt_for_password(self) -> bool:
        settings = self.runtime.settings
        given = self.password_stdin or settings.password or settings.password_command
        return not given and self.runtime.terminal.interactive

    def _log_in(self, repository: "TokenRepository") -> "tuple[Account, Token, str | None]":
        """Return the account, a new token, and the password if the user typed it, else None."""
        from xapi_cli.auth import passwords

        runtime, identity = self.runtime, self._identity()

        def account(of: Identity) -> "Account":
            return runtime.account(of, repository=repository.of(of))

        if not self._will_prompt_for_password:
            selected = account(identity)
            password, origin = self._password(selected)
            return selected, selected.log_in(password, remember=self.remember, origin=origin), None

        def prompt(error: LoginRefused | None) -> tuple[Identity, str]:
            nonlocal identity
            if error:
                identity = self._corrected(identity, error)
            return identity, passwords.prompt(runtime.terminal, identity)

        def log_in(typed: tuple[Identity, str]) -> "tuple[Account, Token]":
            selected = account(typed[0])
            return selected, selected.log_in(typed[1], remember=self.remember, origin=passwords.TYPED)

        (selected, token), (_, password) = passwords.prompt_until_accepted(prompt, log_in, runtime.terminal.warn)
        return selected, token, password

    def _password(self, account: "Account") -> tuple[str, str]:
        """Return the password from a non-interactive source, and its origin; raises LoginNeeded if there is none."""
        from xapi_cli.auth import passwords

        settings = self.runtime.settings
        if self.password_stdin:
            return self._password_from_stdin(), passwords.FROM_STDIN
        if settings.password:
            return settings.password, passwords.IN_VARIABLE
        if command := self.runtime.password_command:
            return command.run(), passwords.FROM_COMMAND
        record = account.repository.read()
        if record and record.password:
            return record.password, passwords.REMEMBERED
        raise LoginNeeded(
            f"no password for {name_of(account.identity)}",
            hint="use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal",
        )

    def _password_from_stdin(self) -> str:
        from xapi_cli.auth.passwords import first_line

        stream = self.runtime.terminal.stdin()
        if stream is None:
            raise UsageError("--password-stdin: stdin is closed", hint="pipe the password into it")
        try:
            password = first_line(_read_line(stream.read))
        except OSError as error:
            raise UsageError(
                f"--password-stdin: stdin cannot be read: {error.strerror}", hint="pipe the password into it"
            ) from error
        if not password:
            raise UsageError("--password-stdin: the first line of stdin is empty", hint="pipe the password into it")
        return password

    def _offer_to_remember(self, account: "Account", typed: str | None) -> None:
        """Ask once for consent to store the password (RFC 6749, 4.3), and store it.

        The user is asked only after having *typed* the password, and only if the storage is a keyring.
        """
        may_ask = self.remember is None and account.repository.can_remember
        if typed and may_ask and self.runtime.terminal.confirm(_REMEMBER.format(place=account.repository.place)):
            account.remember(typed)

    def _flags_to_store(self) -> dict[str, object]:
        """Return the settings from flags that the profile gets, by name."""
        flags, settings = self.runtime.flags, self.runtime.settings
        found: dict[str, object] = {}
        if storage := flags.get("storage"):
            found["storage"] = storage
        if flags.get("ca_bundle"):
            found["ca_bundle"] = settings.ca_bundle
        if flags.get("password_command") and settings.password_command:
            found["password_command"] = list(settings.password_command)
        return found

    def _write_profile(self, identity: Identity) -> bool:
        """Write the settings that the next command needs to the profile; return whether that succeeded.

        If the config file cannot be written, print only a warning.
        """
        values = {"base_url": identity.base_url, "username": identity.username, **self._flags_to_store()}
        settings = self.runtime.settings
        name = settings.profile
        unusable = {"password_command": settings.password_command_mismatch, "headers": settings.headers_mismatch}
        before: dict[str, str] = {}

        def change(document: "config_file.Document") -> "config_file.Document":
            before.update(resolve.account_in_profile(name, config_file.contents(document)))
            document = config_file.with_profile(document, name)
            table = document["profiles"][name]
            for key, reason in unusable.items():
                if reason:  # it would be used for the new account otherwise
                    table.pop(key, None)
            for key, value in values.items():
                if table.get(key) != value:
                    config_file.set_setting(document, name, key, value)
            return document

        try:
            self.runtime.edit_config(change)
        except (OutputError, UsageError) as error:
            self.runtime.terminal.warn(f"the profile could not be written: {error}")
            return False
        for key, reason in unusable.items():
            if reason:
                removed = (
                    f"the setting {key} of profile {name} was removed: {reason};"
                    f" to use it there too, set it again with `xapi profile set {key}`"
                )
                self.runtime.terminal.warn(self.runtime.with_profile(removed) or removed)
        self._report_another_account(before, identity)
        return True

    def _report_another_account(self, before: dict[str, str], identity: Identity) -> None:
        """Report what the profile had *before* instead of the base URL and the username of *identity*."""
        changes = [
            f"the {SETTINGS[key].title} changed from {before[key]} to {value}"
            for key, value in identity._asdict().items()
            if before.get(key, value) != value
        ]
        if changes:
            self.runtime.terminal.note(
                f"in profile {self.runtime.settings.profile}, {' and '.join(changes)};"
                " to use both accounts, give each its own profile (-p NAME)"
            )

    def _report(self, account: "Account", token: "Token", *, written: bool) -> None:
        terminal, identity, profile = self.runtime.terminal, account.identity, self.runtime.settings.profile
        what = "token and password" if account.repository.remembers else "token"
        place = account.repository.place
        stored = f"{what} {f'stored in {place}' if place else self._not_stored(written=written)}"
        expiry = (
            f" until {until(token.expires_at, self.runtime.now())}" if token.expires_at else " with an unknown expiry"
        )
        terminal.note(f"logged in as {name_of(identity)}{expiry}, {stored}")
        if account.repository.place:
            self._report_storage_of_later_commands(written=written)
        if terminal.interactive:
            stored = f"settings stored in profile {profile}; " if written else ""
            flag = "" if profile == self._profile_without_flag else f" --profile {profile}"
            terminal.note(f"{stored}next, run `xapi request{flag} /path`")
        self.runtime.warn_of_supplied_token("commands use that token until you unset the variable")

    def _report_storage_of_later_commands(self, *, written: bool) -> None:
        """Report that later commands would look for the token elsewhere, because of a variable or without it."""
        runtime, used = self.runtime, self.runtime.settings.storage
        (variable,) = SETTINGS["storage"].variables
        value = runtime.environ.get(variable)
        if value and value != used:  # a flag was given
            runtime.terminal.warn(
                f"{variable} is set and overrides the storage of the profile:"
                f" commands use storage {printable(value)} until you unset the variable"
            )
        elif value and written and runtime.terminal.interactive and self._storage_of_profile != used:
            what = (
                f"{variable} is not stored in the profile;"
                f" set it for later commands too, or run `xapi profile set storage {used}`"
            )
            runtime.terminal.note(runtime.with_profile(what) or what)

    @property
    def _storage_of_profile(self) -> object:
        """The storage that a command without flags and variables uses."""
        runtime = self.runtime
        profile = config_file.load(runtime.config_path).profiles.get(runtime.settings.profile, {})
        return profile.get("storage") or registry.AUTO

    @property
    def _profile_without_flag(self) -> str:
        """The name of the profile that a command without --profile selects, empty if the config file is not valid."""
        runtime = self.runtime
        try:
            return resolve.selected_profile({}, runtime.environ, config_file.load(runtime.config_path))
        except UsageError:
            return ""

    def _not_stored(self, *, written: bool) -> str:
        """Return the message that nothing was stored, and its consequence for the next command."""
        profile = self.runtime.settings.profile
        storage = self.runtime.flags.get("storage")
        if written and storage and not registry.selected(storage).is_persistent:
            return f"not stored: profile {profile} now has storage {storage}, so each command logs in again"
        return "not stored"


def _was_logged_out(account: "Account") -> bool:
    """Return whether the account is known to have been logged out since the login began."""
    try:
        return account.was_logged_out()
    except StoreError:  # the store became unusable after the token was stored
        return False


def _read_line(read: "Callable[[int], bytes]") -> bytes:
    """Return what *read* returns, up to the chunk that contains the first newline."""
    received = b""
    while b"\n" not in received:
        chunk = read(4096)
        if not chunk:
            break
        received += chunk
        if len(received) > 64 * 1024:
            raise UsageError(
                "--password-stdin: the first line is longer than 64 KiB", hint="pipe only the password into it"
            )
    return received
