"""`xapi login`: an explicit login."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.auth.account import Account, name_of
from xapi_cli.cli.options import ACCOUNT, NETWORK, settings_flags
from xapi_cli.errors import LoginNeeded, LoginRefused, NetworkError, OutputError, TimeoutExpired, UsageError
from xapi_cli.hints import Run, together
from xapi_cli.http import urls
from xapi_cli.settings import resolve, values
from xapi_cli.store import registry
from xapi_cli.system.render import until
from xapi_cli.tokens import Identity, Token

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.store.repository import TokenRepository

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]
Remember = Annotated[
    bool | None,
    typer.Option("--remember/--no-remember", help="Store the password with the token, or delete the stored password."),
]
Url = Annotated[
    str | None,
    typer.Argument(metavar="[URL]", help="Base URL.", show_default=False),
]

_HOST = re.compile(  # no scheme
    r"(?:localhost|\[[\dA-Fa-f:.]+\]|(?:[\w-]+\.)+(?:[A-Za-z]{2,}|\d+)|[\w.-]+(?=:\d))(?::\d+)?(?:/.*)?"
)
_MAX_LINE = 64 * 1024  # bytes of stdin


def _base_url(url: str) -> str:
    """Return *url*; raise UsageError if it is not valid, without quoting it if it may be a password."""
    if "://" not in url and "@" in url:
        raise UsageError("unexpected argument", hint="give an email address with -u")
    if "://" not in url and not _HOST.fullmatch(url):
        raise UsageError(
            "unexpected argument", hint="give the base URL as the argument, or select a profile with -p NAME"
        )
    resolve.prefixed("URL", urls.base_url, url)
    return url


@settings_flags(*ACCOUNT, *NETWORK, "password_command", may_create_profile=True, base_url_argument=_base_url)
def login(
    ctx: typer.Context,
    *,
    url: Url = None,
    password_stdin: PasswordStdin = False,
    remember: Remember = None,
) -> None:
    """Log in and store the token.

    Always requests a new token, even if the stored one is valid. On a
    terminal, prompts for missing settings and for the password, which is read
    without echo and is never an argument. Writes the base URL, the username and
    --storage, --ca-bundle and --password-command to the profile, for later
    commands. URL is the same as --base-url.

    Examples:

    \b
      xapi login
      xapi login https://api.example.com
      pass show api | xapi login --password-stdin
      xapi login --password-command 'pass show api'
      xapi login -p staging https://api.example.com
    """
    from xapi_cli.auth import passwords

    context: Context = ctx.obj
    settings, terminal = context.settings, context.terminal
    to_store = _flags_to_store(context)
    _check(context, password_stdin=password_stdin, remember=remember)
    repository = context.repository(Identity(settings.base_url or "", settings.username or ""))
    repository.probe()  # before any prompt, and before a secret is sent

    is_given = password_stdin or settings.password or settings.password_command
    prompts = not is_given and terminal.interactive
    base_url = settings.base_url
    if base_url is None or (prompts and not _accepts(context, base_url)):
        base_url = _prompt_for_base_url(context)
    identity = Identity(base_url, settings.username or _prompt(context, "Email address", values.username))
    typed: str | None = None
    if prompts:
        account, token, typed = _log_in_with_prompts(context, repository, identity, remember)
    else:
        account = context.account(identity, repository=repository.of(identity))
        password: str | None
        if password_stdin:
            password, origin = _password_from_stdin(context), passwords.FROM_STDIN
        else:
            record = None if is_given else account.repository.read()
            password, origin = account.passwords.get(record), account.passwords.origin
        if password is None:
            raise LoginNeeded(
                f"no password for {name_of(identity)}",
                hint=("use --password-stdin, set XAPI_PASSWORD, or run ", Run("login"), " on a terminal"),
            )
        token = account.log_in(password, remember=remember, origin=origin)

    is_written = _write_profile(context, account.identity, to_store)
    try:
        # once, for consent (RFC 6749, 4.3), and only after the user has typed the password
        stored = account.repository
        if typed and remember is None and stored.row.remembers_passwords and not stored.remembers:
            question = f"Remember the password in {stored.place}, so that xapi can log in again automatically?"
            with suppress(LoginNeeded):  # Ctrl-D means no
                if terminal.confirm(question):
                    account.remember(typed)
    finally:  # even after Ctrl-C at the question: the token and the profile are stored
        _report(context, account, token, is_written=is_written)


def _flags_to_store(context: "Context") -> dict[str, object]:
    """Return the settings from flags that the profile gets, by name."""
    flags, settings = context.flags, context.settings
    found: dict[str, object] = {}
    if storage := flags.get("storage"):
        found["storage"] = storage
    if flags.get("ca_bundle"):
        found["ca_bundle"] = settings.ca_bundle
    if flags.get("password_command") and settings.password_command:
        found["password_command"] = list(settings.password_command)
    return found


def _check(context: "Context", *, password_stdin: bool, remember: bool | None) -> None:
    """Raise what can be said before a prompt and before anything is sent."""
    settings = context.settings
    if remember and not registry.selected(settings.storage).remembers_passwords:
        raise UsageError(
            f"--remember cannot be used with storage {settings.storage}, which does not store passwords",
            hint=f"use --storage {registry.remembering()}, or --password-command instead of --remember",
        )
    for name in ("base_url", "username"):
        if not context.terminal.interactive and getattr(settings, name) is None:
            raise resolve.missing(name)
    if not password_stdin and not settings.password and context.password_command:
        context.password_command.check()


# prompts


def _accepts(context: "Context", base_url: str) -> bool:
    """Probe the token endpoint and return whether to use *base_url*; in case of doubt, ask the user.

    Raises NetworkError or TimeoutExpired if no server responds.
    """
    from xapi_cli.auth import grant

    _, problem = grant.probe(
        context.httpx_transport, base_url, timeout=context.settings.timeout, deadline=context.deadline
    )
    if problem is None:
        return True
    context.terminal.warn(problem.advice)
    return context.terminal.confirm(f"Use {base_url} anyway?", default=False)


def _prompt_for_base_url(context: "Context", default: str = "") -> str:
    """Return the base URL that the user gives, prompted for again until a server responds and it is accepted."""

    def check(text: str) -> str:
        base_url = urls.base_url(text)
        context.note_pasted_end(base_url, urls.pasted_end(text))
        return base_url

    while True:
        base_url = _prompt(context, "Base URL of the API", check, default)
        try:
            if _accepts(context, base_url):
                return base_url
        except (NetworkError, TimeoutExpired) as error:
            context.terminal.warn(error.advice, repeats=True)


def _prompt(context: "Context", what: str, check: Callable[[str], str], default: str = "") -> str:
    """Prompt for *what* until *check* accepts the input, *default* if it is empty; return the result of *check*."""
    question = f"{what} [{default}]: " if default else f"{what}: "
    while True:
        try:
            return check(context.terminal.prompt(question).strip() or default)
        except UsageError as error:
            context.terminal.warn(error.advice, repeats=True)


def _log_in_with_prompts(
    context: "Context", repository: "TokenRepository", identity: Identity, remember: bool | None
) -> tuple[Account, Token, str]:
    """Return the account, a new token and the password, after up to three prompts.

    What was typed is prompted for again, with the last input as the default: the base URL only if the response may come
    from a server other than the API.
    """
    from xapi_cli.auth import passwords

    settings = context.settings

    def prompt(error: LoginRefused | None) -> tuple[Identity, str]:
        nonlocal identity
        base_url, username = identity
        if error and base_url != settings.base_url and not error.has_error_code:
            base_url = _prompt_for_base_url(context, base_url)
        if error and settings.username is None:
            username = _prompt(context, "Email address", values.username, username)
        identity = Identity(base_url, username)
        return identity, passwords.prompt(context.terminal, identity)

    def log_in(typed: tuple[Identity, str]) -> tuple[Account, Token]:
        account = context.account(typed[0], repository=repository.of(typed[0]))
        return account, account.log_in(typed[1], remember=remember, origin=passwords.TYPED)

    (account, token), (_, password) = passwords.prompt_until_accepted(prompt, log_in, context.terminal.warn)
    return account, token, password


def _password_from_stdin(context: "Context") -> str:
    from xapi_cli.auth.passwords import first_line

    stream = context.terminal.noted_stdin("the password")
    try:
        line = stream.readline(_MAX_LINE + 1) if stream else b""
    except OSError as error:
        raise UsageError(f"--password-stdin: stdin cannot be read: {error.strerror}") from error
    if len(line) > _MAX_LINE or not (password := first_line(line)):
        problem = "longer than 64 KiB" if len(line) > _MAX_LINE else "empty"
        raise UsageError(f"--password-stdin: the first line of stdin is {problem}", hint="pipe the password into it")
    return password


# the profile, and the report


def _write_profile(context: "Context", identity: Identity, to_store: dict[str, object]) -> bool:
    """Write the settings that the next command needs to the profile; return whether that succeeded.

    If the config file cannot be written, print only a warning.
    """
    settings, terminal, name = context.settings, context.terminal, context.settings.profile
    unusable = {"password_command": settings.password_command_mismatch, "headers": settings.headers_mismatch}
    try:
        with context.editing_config() as document:
            for key, reason in unusable.items():
                if reason:  # it would be used for the new account otherwise
                    document.unset(name, key)
            for key, value in {**identity._asdict(), **to_store}.items():
                document.set(name, key, value)
    except (OutputError, UsageError) as error:
        terminal.warn(together("the profile could not be written: ", error.advice))
        return False
    for key, reason in unusable.items():
        if reason:
            removed = f"the setting {key} of profile {name} was removed: {reason}; to use it there too, "
            terminal.warn((f"{removed}set it again with ", Run(f"profile set {key}")))
    return True


def _report(context: "Context", account: Account, token: Token, *, is_written: bool) -> None:
    terminal, place = context.terminal, account.repository.place
    what = "token and password" if account.repository.remembers else "token"
    stored = f"stored in {place}" if place else "not stored"
    expiry = f" until {until(token.expires_at, context.now())}" if token.expires_at else " with an unknown expiry"
    terminal.note(f"logged in as {name_of(account.identity)}{expiry}, {what} {stored}")
    if terminal.interactive:
        written = f"settings stored in profile {context.settings.profile}; " if is_written else ""
        terminal.note((f"{written}next, run ", Run("request /path")))
    context.warn_of_supplied_token("commands use that token until you unset the variable")
