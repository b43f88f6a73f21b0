"""The options that commands share: a flag for each setting."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from xapi_cli.cli import help_format

_PANEL = help_format.SETTINGS


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles whose names begin with *incomplete*; on any error, return an empty list."""
    import os

    from xapi_cli.settings import config_file, resolve

    try:
        found = config_file.load(resolve.config_path(os.environ))
    except Exception:  # noqa: BLE001 - an invalid config must not break the shell
        return []
    usable = resolve.is_profile_name  # the shell evaluates the completions
    return [name for name in found.profiles if name.startswith(incomplete) and usable(name)]


def _option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - the name that Typer uses
    return Annotated[str | None, typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)]


_SETTINGS: dict[str, Any] = {
    "profile": _option(
        "--profile", "-p", metavar="NAME", autocompletion=profile_names, help="Profile to use (or XAPI_PROFILE)."
    ),
    "base_url": _option("--base-url", metavar="URL", help="Where the API is (or XAPI_BASE_URL)."),
    "username": _option("--username", "-u", metavar="EMAIL", help="The user's e-mail address (or XAPI_USERNAME)."),
    "storage": _option(
        "--storage",
        metavar="WHERE",
        autocompletion=lambda: ["auto", "keyring", "file", "none"],
        help="What keeps the token: auto, keyring, file, none (or XAPI_STORAGE).  [default: auto]",
    ),
    "timeout": _option(
        "--timeout",
        metavar="SECONDS",
        help="Limit of each wait, and of a login as a whole (or XAPI_TIMEOUT).  [default: 30]",
    ),
    "max_time": _option("--max-time", metavar="SECONDS", help="Limit of the whole command (or XAPI_MAX_TIME)."),
    "ca_bundle": _option(
        "--ca-bundle", metavar="FILE", help="Certificates to trust, not the system's (or SSL_CERT_FILE)."
    ),
    "no_input": Annotated[
        bool, typer.Option("--no-input", help="Never ask for anything (or XAPI_NO_INPUT).", rich_help_panel=_PANEL)
    ],
}
LOCAL = ("profile", "base_url", "username", "storage")
WIRE = ("timeout", "max_time", "ca_bundle", "no_input")


def settings_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags of the settings *names* to a command and stores them in the runtime.

    The command does not declare the flags: it reads the resulting values from `runtime.settings`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        extra = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if name == "no_input" else None,
                annotation=_SETTINGS[name],
            )
            for name in names
        ]

        @wraps(command)
        def with_settings(ctx: typer.Context, **given: Any) -> None:
            flags = {name: given.pop(name) for name in names}
            if "no_input" in flags:
                flags["no_input"] = "1" if flags["no_input"] else None
            ctx.obj.flags = flags
            command(ctx, **given)

        with_settings.__signature__ = own.replace(parameters=[*own.parameters.values(), *extra])  # type: ignore[attr-defined]  # for inspect
        with_settings.__annotations__ = command.__annotations__ | {each.name: each.annotation for each in extra}
        del with_settings.__wrapped__  # inspect would otherwise use the signature of the command
        return with_settings

    return decorate
