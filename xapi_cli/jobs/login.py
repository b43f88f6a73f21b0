"""A person's own login: what it asks, what it keeps, what it says."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xapi_cli import config, settings, urls
from xapi_cli.errors import LoginNeeded, OutputError, UsageError
from xapi_cli.render import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tomlkit import TOMLDocument

    from xapi_cli.auth.account import Account
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity, Token

_REMEMBER = "Remember the password in the keyring, so that xapi can log in again by itself?"


@dataclass
class Login:
    """Log in as the settings and the person say; *remember* is None where they said nothing."""

    runtime: "Runtime"
    password_stdin: bool
    remember: bool | None

    def run(self) -> None:
        """Get a token, keep it, write the profile, and say so; raises what stands in the way of any of it."""
        runtime = self.runtime
        settled = runtime.settings
        identity = self._identity()
        account = runtime.account(identity)
        if settled.storage != "none":
            account.keeper.probe()  # before anything secret is asked for or sent
        password, typed = self._password(identity, account)
        token = account.log_in(password, remember=self.remember)
        self._ask_to_remember(account, token, password, typed=typed)
        self._write_profile(identity)
        self._tell(identity, account, token)

    def _identity(self) -> "Identity":
        from xapi_cli.runtime import NO_BASE_URL, NO_USERNAME
        from xapi_cli.tokens import Identity

        settled = self.runtime.settings
        base_url = settled.base_url or self._ask("Base URL of the API: ", urls.base_url, NO_BASE_URL)
        username = settled.username or self._ask(
            f"E-mail address of the user at {base_url}: ", settings.username, NO_USERNAME
        )
        return Identity(base_url, username)

    def _ask(self, question: str, check: "Callable[[str], str]", otherwise: UsageError) -> str:
        terminal = self.runtime.terminal
        if not terminal.interactive:
            raise otherwise
        while True:
            try:
                return check(terminal.ask(question).strip())
            except UsageError as error:
                terminal.fail(error)

    def _password(self, identity: "Identity", account: "Account") -> tuple[str, bool]:
        """Return the password, and whether a person typed it."""
        settled, terminal = self.runtime.settings, self.runtime.terminal
        if self.password_stdin:
            return self._from_stdin(), False
        if settled.password:
            return settled.password, False
        if settled.password_command:
            from xapi_cli.auth import passwords

            deadline = self.runtime.deadline
            return passwords.from_command(settled.password_command, self.runtime.environ, deadline=deadline), False
        if terminal.interactive:
            return self._typed(identity), True
        record = account.keeper.read() if settled.storage != "none" else None
        if record and record.password:
            return record.password, False
        raise LoginNeeded(
            f"there is no password for {identity.username} at {identity.base_url}",
            hint="use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal",
        )

    def _typed(self, identity: "Identity") -> str:
        while True:
            password = self.runtime.terminal.ask(
                f"Password for {identity.username} at {identity.base_url}: ", hidden=True
            )
            if password:
                return password
            self.runtime.terminal.note("the password is empty; try again, or press Ctrl-C")

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

    def _ask_to_remember(self, account: "Account", token: "Token", password: str, *, typed: bool) -> None:
        """Ask for consent, once, where a person typed the password and the storage is a keyring (RFC 6749, 4.3)."""
        to_ask = typed and self.remember is None and account.keeper.may_ask_to_remember
        if to_ask and self.runtime.terminal.confirm(_REMEMBER):
            account.remember(token, password)

    def _write_profile(self, identity: "Identity") -> None:
        """Put what the next command needs into the profile; a config file that cannot be written is only a warning."""
        flags = self.runtime.flags
        values: dict[str, object] = {"base_url": identity.base_url, "username": identity.username}
        if storage := flags.get("storage"):
            values["storage"] = storage
        if ca_bundle := flags.get("ca_bundle"):
            values["ca_bundle"] = os.path.abspath(ca_bundle)  # the next command may run in another folder
        if flags.get("password_command") and self.runtime.settings.password_command:
            values["password_command"] = list(self.runtime.settings.password_command)
        name = self.runtime.settings.profile

        def change(document: "TOMLDocument") -> None:
            table = config.profile_table(document, name)
            for key, value in values.items():
                if table.get(key) != value:
                    table[key] = value

        try:
            self.runtime.edit_config(change)
        except (OutputError, UsageError) as error:
            self.runtime.terminal.warn(f"the profile is not written: {error}")

    def _tell(self, identity: "Identity", account: "Account", token: "Token") -> None:
        terminal, keeper = self.runtime.terminal, account.keeper
        where = (
            "not stored"
            if keeper.storage == "none"
            else f"stored in the {'keyring' if keeper.storage == 'keyring' else 'file store'}"
        )
        until_when = until(token.expires_at, self.runtime.now())
        terminal.note(f"logged in as {identity.username} at {identity.base_url} until {until_when}, token {where}")
        if terminal.interactive:
            profile = (
                "" if self.runtime.settings.profile == "default" else f" --profile {self.runtime.settings.profile}"
            )
            terminal.note(f"next, try: xapi token status{profile}")
        self.runtime.warn_of_token_in_environment("commands go on using the variable until you unset it")


def _first_line(read: "Callable[[int], bytes]") -> bytes:
    """Return what comes before the first newline, reading no further than the chunk it is in."""
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
