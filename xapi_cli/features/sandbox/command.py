"""`xapi sandbox`: try xapi without the real API."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import MESSAGES, settings_flags
from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.context import Context
    from xapi_cli.features.sandbox import Sandbox
    from xapi_cli.system.terminal import Terminal

_PORT = 8765  # by default, so that a base URL that a profile contains remains valid

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="PORT",
        help=f"Port to listen on; 0 selects a free port.  [default: {_PORT}, or a free port if it is in use]",
    ),
]
ExpiresIn = Annotated[
    int, typer.Option("--expires-in", min=1, metavar="SECONDS", help="Lifetime of the tokens that it issues.")
]

Slow = Annotated[
    float, typer.Option("--slow", min=0, metavar="SECONDS", help="Time that the details of a project take.")
]
ForgetAfter = Annotated[
    int | None, typer.Option("--forget-after", min=1, metavar="N", help="Invalidate a token after N requests.")
]


@settings_flags(*MESSAGES)
def sandbox(
    ctx: typer.Context,
    port: Port = None,
    expires_in: ExpiresIn = 2_592_000,
    slow: Slow = 0.0,
    forget_after: ForgetAfter = None,
) -> None:
    """Run a local test server that behaves like the API.

    Prints the base URL and test credentials on stdout as shell `export` lines,
    and serves until Ctrl-C. Lists its paths on stderr and, on a terminal, each
    request. The second user has no master rights. POST /sandbox/kill-tokens
    invalidates all tokens.

    Examples:

    \b
      xapi sandbox
      xapi sandbox --port 8080 --expires-in 60
      xapi sandbox >sandbox.env & sleep 1
      (. ./sandbox.env; xapi login -p sandbox --storage file)
      xapi request /x-api/me -p sandbox
    """
    from contextlib import suppress

    from xapi_cli.features.sandbox import Sandbox

    context: Context = ctx.obj
    log = _log(context.terminal)

    def listen(port: int) -> Sandbox:
        return Sandbox(port, expires_in, log, slow=slow, forget_after=forget_after)

    with suppress(KeyboardInterrupt), _listening(context.terminal, port, listen) as server:  # Ctrl-C is the usual end
        try:
            _print_settings(server, context.terminal)
            _wait()
        except KeyboardInterrupt:
            context.terminal.end_interruption()
            raise


def _listening(terminal: "Terminal", port: int | None, listen: "Callable[[int], Sandbox]") -> "Sandbox":
    """Return the server on *port*; without one, on the default port, or on a free one if that is in use."""
    if port is not None:
        return listen(port)
    try:
        return listen(_PORT)
    except UsageError:
        terminal.note(f"port {_PORT} is in use: listening on another one")
        return listen(0)


def _print_settings(server: "Sandbox", terminal: "Terminal") -> None:
    from xapi_cli.features.sandbox import MEMBER, PATHS
    from xapi_cli.system.render import exports

    member = {"XAPI_SANDBOX_MEMBER_USERNAME": MEMBER.email, "XAPI_SANDBOX_MEMBER_PASSWORD": MEMBER.password}
    terminal.print(exports(server.settings | member))
    terminal.note("serving until Ctrl-C; to use it in another shell, run the lines above there")
    for method, path, purpose in PATHS:
        terminal.note(f"{method:<4}  {path:<20}  {purpose}")


def _log(terminal: "Terminal") -> "Callable[[str, str, int], None] | None":
    """Return the function that logs each response on *terminal*, if there is one and it is not quiet."""
    if not terminal.stderr_is_terminal or terminal.is_quiet:
        return None
    from xapi_cli.system.redact import redact_url
    from xapi_cli.system.render import printable
    from xapi_cli.system.style import color_of_status

    def log(method: str, path: str, status: int) -> None:
        shown = terminal.stderr_style(color_of_status(status), str(status))
        terminal.log(f"{shown}  {printable(method):<4}  {printable(redact_url(path))}")

    return log


def _wait() -> None:
    import time

    while True:
        time.sleep(3600)  # unlike waiting for a lock, Ctrl-C interrupts it on Windows too
