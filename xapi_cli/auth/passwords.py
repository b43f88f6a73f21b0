"""Where a login gets the password: XAPI_PASSWORD, the password_command, the record in the store, or a prompt."""

import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from xapi_cli.errors import LoginNeeded, LoginRefused, TimeoutExpired
from xapi_cli.settings.table import without_secrets
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal
    from xapi_cli.tokens import Identity, Record

T = TypeVar("T")
Typed = TypeVar("Typed", bound=Hashable)

COMMAND_TIMEOUT = 60.0  # seconds
_MAX_COMMAND_OUTPUT = 64 * 1024
_PROMPTS = 3  # as with ssh and sudo
# The password, by its source, in the hint of a login that was rejected.
IN_VARIABLE = "the password in XAPI_PASSWORD"
FROM_COMMAND = "the password from password_command"
FROM_STDIN = "the password from stdin"
REMEMBERED = "the remembered password"
TYPED = "the password that you typed"


class PasswordCommand(NamedTuple):
    """The password_command *argv* of the profile *profile*; *mismatch* is why it must not run, or None.

    *deadline* is the monotonic time at which the whole xapi command times out. With *show_stderr*, the user sees the
    stderr of the command.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    profile: str
    mismatch: str | None = None
    deadline: float | None = None
    show_stderr: bool = False

    def __repr__(self) -> str:
        return f"PasswordCommand(profile={self.profile!r}, …)"  # the arguments may contain a secret

    def check(self) -> None:
        """Raise LoginNeeded if the command belongs to an account other than the selected one."""
        if self.mismatch:
            raise LoginNeeded(
                f"the password_command of profile {self.profile} is not run: {self.mismatch}",
                hint="set XAPI_PASSWORD, or use the profile of that account",
            )

    def run(self) -> str:
        """Return the password that the command prints; raise LoginNeeded or TimeoutExpired if it fails."""
        self.check()
        return from_command(self.argv, self.environ, deadline=self.deadline, show_stderr=self.show_stderr)


class PasswordSources(NamedTuple):
    """The password sources of an automatic login besides the record in the store; each is None if not available."""

    variable: str | None = None  # XAPI_PASSWORD
    command: PasswordCommand | None = None
    prompt: Callable[[str], str] | None = None  # receives the reason for the login

    def __repr__(self) -> str:
        return "PasswordSources(…)"  # one is the password

    @property
    def origin(self) -> str:
        """The password of the first source other than a prompt, as a noun phrase that names the source."""
        return IN_VARIABLE if self.variable else FROM_COMMAND if self.command else REMEMBERED

    @property
    def uses_command(self) -> bool:
        """Whether the command is the source of an automatic login without a prompt."""
        return self.command is not None and not self.variable

    def known(self, record: "Record | None") -> str | None:
        """Return the password to use, if no command or prompt is needed to get it; *record* is the stored one."""
        if self.variable or self.command:
            return self.variable
        return record.password if record else None

    def get(self, record: "Record | None") -> str | None:
        """Return the password from the first source other than a prompt, or None if there is none."""
        return self.command.run() if self.command and self.uses_command else self.known(record)


def prompt(terminal: "Terminal", identity: "Identity", reason: str = "") -> str:
    """Prompt for the password of *identity* until it is not empty, and return it; *reason* precedes it."""
    why = f"{reason[0].upper()}{reason[1:]}. " if reason else ""
    while not (
        password := terminal.prompt(f"{why}Password for {identity.username} at {identity.base_url}: ", hidden=True)
    ):
        terminal.warn("the password is empty; try again, or press Ctrl-C", repeats=True)
    return password


def prompt_until_accepted(
    prompt: Callable[[LoginRefused | None], Typed], log_in: Callable[[Typed], T], warn: Callable[[str], None]
) -> tuple[T, Typed]:
    """Prompt for what *log_in* needs, such as a password, and log in; return what *log_in* returns, and the input.

    After LoginRefused, *prompt* is called again with that error, three times in total, after a warning through *warn*.
    The same input is not sent twice. Raises LoginRefused after the last attempt, and any other error of *log_in*.
    """
    rejected: dict[Typed, LoginRefused] = {}
    last: LoginRefused | None = None
    for left in reversed(range(_PROMPTS)):
        typed = prompt(last)
        try:
            if typed in rejected:
                raise rejected[typed]
            return log_in(typed), typed
        except LoginRefused as error:
            if not left:
                raise
            last = rejected[typed] = error
            doubt = "" if error.has_error_code else "check the base URL, or "
            warn(f"{error.message}; {doubt}try again ({left} {'attempt' if left == 1 else 'attempts'} left)")
    raise AssertionError


def described(origin: str, password: str) -> str:
    """Return *origin*, with what is in *password* although it was probably not meant to be, such as a line break."""
    if (found := next((each for each in password if not each.isprintable()), None)) is not None:
        if "\udc80" <= found <= "\udcff":  # a byte (PEP 383)
            return f"{origin}, which is not UTF-8"
        return f"{origin}, which contains the invisible character U+{ord(found):04X}"
    return f"{origin}, which begins or ends with a space" if password != password.strip() else origin


def from_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    setting: str = "password_command",
    limit: float = COMMAND_TIMEOUT,
    deadline: float | None = None,
    show_stderr: bool = False,
) -> str:
    """Return the first line that *command* prints.

    It runs without a shell, with an empty stdin, without xapi's secrets in its environment, and for at most *limit*
    seconds. Raises LoginNeeded, which names *setting* and never contains its output, if it fails in any way, and
    TimeoutExpired if the monotonic time *deadline*, at which the whole xapi command times out, comes first. Its stderr
    is discarded: it may contain secrets, and xapi's stderr may be a log. With *show_stderr*, the user sees it on a
    terminal: it may explain a failure or ask the user to touch a security key.
    """
    import subprocess  # takes 10 ms

    from xapi_cli.system import programs

    left = limit if deadline is None else max(0.0, deadline - time.monotonic())
    name = f"{setting} {printable(os.path.basename(command[0]))!r}"
    try:
        end, given = time.monotonic() + min(limit, left), without_secrets(environ)
        output, exit_code = programs.run(
            command, given, lambda: end - time.monotonic(), max_output=_MAX_COMMAND_OUTPUT, show_stderr=show_stderr
        )
    except (OSError, ValueError) as error:
        raise _failed(name, f"cannot be run: {getattr(error, 'strerror', None) or 'invalid argument'}") from error
    except subprocess.TimeoutExpired:
        if left < limit:
            raise TimeoutExpired(f"{name} did not finish before --max-time expired", hint="raise --max-time") from None
        raise _failed(name, f"timed out after {limit:.0f} s") from None
    if len(output) > _MAX_COMMAND_OUTPUT:
        raise _failed(name, "printed more than 64 KiB")
    if exit_code:
        raise _failed(name, programs.describe_failure(exit_code))
    if not (password := first_line(output)):
        raise _failed(name, "printed no password on its first line")
    return password


def first_line(output: bytes) -> str:
    """Return the first line of *output* as text, without its end; the bytes of any other encoding are preserved."""
    return output.partition(b"\n")[0].removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _failed(name: str, how: str) -> LoginNeeded:
    hint = "run it yourself to see why; it runs without a shell: for ~, $ or | write sh -c 'COMMAND'"
    return LoginNeeded(f"{name} {how}", hint=hint)
