"""Where a login gets the password: XAPI_PASSWORD, the password_command, the record in the store, or a prompt."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from xapi_cli.errors import LoginNeeded, LoginRefused

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal
    from xapi_cli.tokens import Identity, Record

T = TypeVar("T")
Typed = TypeVar("Typed", bound=Hashable)

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

    @property
    def key(self) -> str:
        """A text that distinguishes this command from others; it may contain a secret."""
        return "\0".join(self.argv)

    @property
    def timeout(self) -> float:
        """The time limit of the command in seconds."""
        from xapi_cli.auth import password_command

        return password_command.TIMEOUT

    def check(self) -> None:
        """Raise LoginNeeded if the command belongs to an account other than the selected one."""
        if self.mismatch:
            raise LoginNeeded(
                f"the password_command of profile {self.profile} is not run: {self.mismatch}",
                hint="set XAPI_PASSWORD, or use the profile of that account",
            )

    def run(self) -> str:
        """Return the password that the command prints; raise LoginNeeded or TimeoutExpired if it fails."""
        from xapi_cli.auth import password_command

        self.check()
        return password_command.from_command(
            self.argv, self.environ, deadline=self.deadline, show_stderr=self.show_stderr
        )


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

    def needs_prompt(self, read: "Callable[[], Record | None]") -> bool:
        """Return whether a prompt is the only possible source, which may not be available either."""
        return self.command is None and self.known(read) is None

    def known(self, read: "Callable[[], Record | None]") -> str | None:
        """Return the password to use, if no command or prompt is needed to get it; *read* reads the store."""
        if self.variable or self.command:
            return self.variable
        record = read()
        return record.password if record else None

    def get(self, record: "Record | None") -> str | None:
        """Return the password from the first source other than a prompt, or None if there is none."""
        if self.command and not self.variable:
            return self.command.run()
        return self.known(lambda: record)


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
    for left in range(_PROMPTS - 1, 0, -1):
        typed = prompt(last)
        try:
            return _unless_rejected(typed, rejected, log_in), typed
        except LoginRefused as error:
            last = rejected[typed] = error
            doubt = "" if error.has_error_code else "check the base URL, or "
            warn(f"{error.message}; {doubt}try again ({left} {'attempt' if left == 1 else 'attempts'} left)")
    typed = prompt(last)
    return _unless_rejected(typed, rejected, log_in), typed


def _unless_rejected(typed: Typed, rejected: dict[Typed, LoginRefused], log_in: Callable[[Typed], T]) -> T:
    if typed in rejected:
        raise rejected[typed]
    return log_in(typed)
