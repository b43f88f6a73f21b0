"""A command of the user, and the token in its environment: what `exec` and `proxy` share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xapi_cli.errors import CommandError
from xapi_cli.settings.table import other_tokens, without_secrets
from xapi_cli.system import programs
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def profile_of_base_url(runtime: "Runtime") -> str | None:
    """Return the profile that the base URL comes from, None if it comes from a flag or a variable."""
    is_from_profile = not (runtime.flags.get("base_url") or runtime.environ.get("XAPI_BASE_URL"))
    return runtime.settings.profile if is_from_profile else None


def environment(environ: Mapping[str, str], *, token: str, base_url: str | None, profile: str | None) -> dict[str, str]:
    """Return *environ* with the *token*, bound to *base_url*, and without the other secrets.

    XAPI_PROFILE is set to the *profile* that the base URL comes from. If the base URL comes from elsewhere,
    *profile* is None and XAPI_PROFILE is removed, so that an XAPI_PROFILE that is set inside the command can
    be distinguished from one that xapi itself has read.
    """
    others = other_tokens(environ)
    changed = {name: value for name, value in without_secrets(environ).items() if name not in others}
    changed["XAPI_TOKEN"] = token
    if not base_url:
        return changed
    if profile is not None:
        changed["XAPI_PROFILE"] = profile
    elif "XAPI_TOKEN_BASE_URL" not in environ:  # in a nested `exec`, the outer one has selected the profile
        changed.pop("XAPI_PROFILE", None)
    return changed | {"XAPI_BASE_URL": base_url, "XAPI_TOKEN_BASE_URL": base_url}


def start(command: Sequence[str], environ: Mapping[str, str]) -> programs.ChildProcess:
    """Start *command* with *environ*; raises CommandError if it cannot be executed."""
    try:
        if not command[0]:
            raise FileNotFoundError
        return programs.ChildProcess([programs.find(command[0], environ), *command[1:]], env=environ)
    except (OSError, ValueError) as error:
        raise failure(command[0], error) from error


def failure(name: str, error: OSError | ValueError) -> CommandError:
    """Return the failure for the *error* with which the command *name* could not be executed."""
    shown = printable(name)
    if isinstance(error, FileNotFoundError):
        return CommandError(f"{shown or repr(shown)}: not found", hint="check the name and PATH", is_missing=True)
    reason = (error.strerror if isinstance(error, OSError) else None) or "invalid arguments"
    return CommandError(f"{shown}: cannot be executed: {reason}", hint="check that it is an executable file")
