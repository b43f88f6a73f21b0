"""An explicit login with `xapi login`: its prompts, the data that it stores, and its messages."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xapi_cli.errors import LoginNeeded, NetworkError, OutputError, TimeoutExpired, UsageError
from xapi_cli.http import urls
from xapi_cli.settings import config_file, resolve
from xapi_cli.system.render import until
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from tomlkit import TOMLDocument

    from xapi_cli.auth.account import Account
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Token

_REMEMBER = "Remember the password in the keyring, so that xapi can log in again by itself?"


@dataclass
class Login:
    """Log in with the settings and the user's input; *remember* is None if neither option was given."""

    runtime: "Runtime"
    password_stdin: bool
    remember: bool | None

    def run(self) -> None:
        """Get a token, store it, write the profile and report the result; raises XapiError if a step fails."""
        runtime = self.runtime
        runtime.warn_of_shell_syntax("--password-command", runtime.flags.get("password_command"))
        self._refuse_what_nobody_can_be_asked()
        if not self.password_stdin and not runtime.settings.password:
            runtime.check_password_command()
        repository = runtime.repository(Identity(runtime.settings.base_url or "", runtime.settings.username or ""))
        if runtime.settings.storage != "none":
            repository.probe()  # before any prompt, and before a secret is sent
        identity = self._identity()
        account = runtime.account(identity, repository=repository.of(identity))
        token, typed = self._log_in(identity, account)
        remembered = self._ask_to_remember(account, token, typed)
        written = self._write_profile(identity)
        self._tell(account, token, remembered=remembered, written=written)

    def _refuse_what_nobody_can_be_asked(self) -> None:
        """Raise UsageError for a missing setting if there is no terminal for a prompt."""
        settled = self.runtime.settings
        if self.runtime.terminal.interactive:
            return
        for setting, value in (("base URL", "base_url"), ("username", "username")):
            if getattr(settled, value) is None:
                flag, variable = f"--{value.replace('_', '-')}", f"XAPI_{value.upper()}"
                raise UsageError(f"there is no {setting}", hint=f"give {flag}, or set {variable}")

    def _identity(self) -> Identity:
        settled = self.runtime.settings
        base_url = settled.base_url
        if base_url is None or (self._will_ask_for_password and not self._accepts(base_url)):
            base_url = self._asked_base_url()
        username = settled.username or self._ask("E-mail address: ", resolve.username)
        return Identity(base_url, username)

    def _asked_base_url(self) -> str:
        """Return the base URL that the user gives, prompted for again until a server responds and it is accepted."""
        while True:
            base_url = self._ask("Base URL of the API: ", urls.base_url)
            try:
                if self._accepts(base_url):
                    return base_url
            except (NetworkError, TimeoutExpired) as error:
                self.runtime.terminal.fail(error)

    def _accepts(self, base_url: str) -> bool:
        """Probe the token endpoint and return whether to use *base_url*; in case of doubt, ask the user.

        Raises NetworkError or TimeoutExpired if no server responds.
        """
        from xapi_cli.auth import endpoint_probe

        runtime = self.runtime
        _, doubt = endpoint_probe.look(
            runtime.wire, base_url, limit=runtime.settings.timeout, deadline=runtime.deadline
        )
        if doubt is None:
            return True
        runtime.terminal.warn(f"{doubt.message}; {doubt.hint}")
        return runtime.terminal.confirm(f"Use {base_url} all the same?", default=False)

    def _ask(self, question: str, check: "Callable[[str], str]") -> str:
        """Prompt with *question* until *check* accepts the input; return the result of *check*."""
        terminal = self.runtime.terminal
        while True:
            try:
                return check(terminal.ask(question).strip())
            except UsageError as error:
                terminal.fail(error)

    @property
    def _will_ask_for_password(self) -> bool:
        settled = self.runtime.settings
        given = self.password_stdin or settled.password or settled.password_command
        return not given and self.runtime.terminal.interactive

    def _log_in(self, identity: Identity, account: "Account") -> "tuple[Token, str | None]":
        """Return a new token, and the password if the user typed it, else None."""

        def log_in(password: str) -> "Token":
            return account.log_in(password, remember=self.remember)

        if not self._will_ask_for_password:
            return log_in(self._password(identity, account)), None
        from xapi_cli.auth.account import log_in_with_prompt

        return log_in_with_prompt(lambda: self.runtime.ask_password(identity), log_in, self.runtime.terminal.note)

    def _password(self, identity: Identity, account: "Account") -> str:
        """Return the password from a non-interactive source; raises LoginNeeded if there is none."""
        settled = self.runtime.settings
        if self.password_stdin:
            return self._from_stdin()
        if settled.password:
            return settled.password
        if settled.password_command:
            return self.runtime.password_from_command()
        record = account.repository.read() if settled.storage != "none" else None
        if record and record.password:
            return record.password
        raise LoginNeeded(
            f"there is no password for {identity.username} at {identity.base_url}",
            hint="use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal",
        )

    def _from_stdin(self) -> str:
        stream = self.runtime.terminal.stdin()
        if stream is None:
            raise UsageError("--password-stdin: stdin is closed", hint="pipe the password into it")
        try:
            line = _first_line(stream.read)
        except OSError as error:
            raise UsageError(
                f"--password-stdin: stdin cannot be read: {error.strerror}", hint="pipe the password into it"
            ) from error
        if not line:
            raise UsageError("--password-stdin: the first line of stdin is empty", hint="pipe the password into it")
        return line.decode("utf-8", "surrogateescape")

    def _ask_to_remember(self, account: "Account", token: "Token", typed: str | None) -> bool:
        """Ask once for consent to store the password (RFC 6749, 4.3) and return whether it is stored.

        The user is asked only after having *typed* the password, and only if the storage is a keyring.
        """
        may_ask = self.remember is None and account.repository.may_ask_to_remember
        if typed and may_ask and self.runtime.terminal.confirm(_REMEMBER):
            account.remember(token, typed)
        return account.repository.remembers

    def _write_profile(self, identity: Identity) -> bool:
        """Write the settings that the next command needs to the profile; return whether that succeeded.

        If the config file cannot be written, print only a warning.
        """
        flags = self.runtime.flags
        values: dict[str, object] = {"base_url": identity.base_url, "username": identity.username}
        if storage := flags.get("storage"):
            values["storage"] = storage
        settled = self.runtime.settings
        if flags.get("ca_bundle"):
            values["ca_bundle"] = settled.ca_bundle
        if flags.get("password_command") and settled.password_command:
            values["password_command"] = list(settled.password_command)
        name, withheld = settled.profile, settled.withheld

        def change(document: "TOMLDocument") -> None:
            table = config_file.profile_table(document, name)
            if withheld:
                table.pop("password_command", None)  # it would be run for the new account otherwise
            for key, value in values.items():
                if table.get(key) != value:
                    table[key] = value

        try:
            self.runtime.edit_config(change)
        except (OutputError, UsageError) as error:
            self.runtime.terminal.warn(f"the profile is not written: {error}")
            return False
        if withheld:
            self.runtime.terminal.warn(
                f"the password_command of profile {name} is removed: {withheld};"
                " to use it there too, set it again with `xapi profile set password_command`"
            )
        return True

    def _tell(self, account: "Account", token: "Token", *, remembered: bool, written: bool) -> None:
        terminal, identity, profile = self.runtime.terminal, account.identity, self.runtime.settings.profile
        what = "token and password" if remembered else "token"
        where = {"keyring": "stored in the keyring", "file": "stored in the file store"}.get(account.repository.storage)
        until_when = until(token.expires_at, self.runtime.now())
        terminal.note(
            f"logged in as {identity.username} at {identity.base_url} until {until_when},"
            f" {what} {where or self._nowhere(written=written)}"
        )
        if terminal.interactive:
            kept = f"settings kept in profile {profile}; " if written else ""
            terminal.note(
                f"{kept}next, try: xapi token status{'' if profile == 'default' else f' --profile {profile}'}"
            )
        self.runtime.warn_of_token_in_environment("commands go on using the variable until you unset it")

    def _nowhere(self, *, written: bool) -> str:
        """Return the message that nothing was stored, and its consequence for the next command."""
        profile = self.runtime.settings.profile
        if written and self.runtime.flags.get("storage") == "none":
            return f"not stored: profile {profile} has storage none now, so each command logs in anew"
        return "not stored"


def _first_line(read: "Callable[[int], bytes]") -> bytes:
    """Return the data before the first newline; read no further than the chunk that contains it."""
    held = b""
    while b"\n" not in held:
        chunk = read(4096)
        if not chunk:
            break
        held += chunk
        if len(held) > 64 * 1024:
            raise UsageError(
                "--password-stdin: the first line is longer than 64 KiB", hint="pipe just the password into it"
            )
    return held.partition(b"\n")[0].removesuffix(b"\r")
