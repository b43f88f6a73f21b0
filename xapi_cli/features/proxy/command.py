"""`xapi proxy`: the API for programs that must not have the token."""

import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, CALLS, settings_flags
from xapi_cli.features.proxy import listeners
from xapi_cli.settings.table import other_tokens, without_secrets
from xapi_cli.system import programs, signals
from xapi_cli.system.render import exports

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.errors import XapiError
    from xapi_cli.features.proxy.server import Server
    from xapi_cli.http.messages import Response
    from xapi_cli.http.send import Call

CONTEXT = {"allow_interspersed_args": False}  # options after COMMAND belong to COMMAND
_GRACE_PERIOD = 5.0  # seconds for calls in flight after a signal, or for the command after SIGTERM
_KEY_SIZE = 32  # bytes
_POLL = 0.1  # seconds; a signal does not end a wait if the system lets another thread receive it
_REPLACED = ("XAPI_TOKEN", "XAPI_TOKEN_FILE", "XAPI_PROFILE")  # they belong to another token, or to its base URL

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND [ARG]...]",
        help="The command to run; without it, serve until Ctrl-C.",
        show_default=False,
    ),
]
Socket = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="Listen on a Unix socket at PATH, of mode 0600.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, metavar="N", help="Listen on port N of 127.0.0.1; 0 selects a free one."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="'METHOD PATH'",
        help="Forward only matching requests; * matches anything; repeatable.",
    ),
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="DURATION", help="Refuse every request after this time, and end."),
]


@settings_flags(*ACCOUNT, *CALLS)
def proxy(
    ctx: typer.Context,
    command: Command = None,
    *,
    socket: Socket = None,
    port: Port = None,
    allow: Allow = None,
    ttl: Ttl = None,
) -> None:
    """Serve the API to other programs without giving them the token.

    Each request is forwarded to the base URL with the token, which is renewed
    if it is rejected. COMMAND gets the address of the proxy in XAPI_BASE_URL,
    and in XAPI_TOKEN a random key that only this proxy accepts. The exit code
    is that of COMMAND. Without COMMAND, prints `export` lines for another
    shell, and serves until Ctrl-C: on a private Unix socket, which needs no
    key, or with --port.

    Examples:

    \b
      xapi proxy -- python3 report.py
      xapi proxy --allow 'GET /x-api/*' -- ./deploy.sh
      xapi proxy -- sh -c 'curl --unix-socket \\
        "$XAPI_PROXY_SOCKET" http://localhost/x-api/me'
    """
    from xapi_cli.errors import Interrupted, UsageError
    from xapi_cli.features.proxy.rules import Allowed, Rules
    from xapi_cli.features.proxy.server import Forwarding, Server
    from xapi_cli.http.send import Sender
    from xapi_cli.settings import resolve, values

    context: Context = ctx.obj
    if socket is not None and port is not None:
        raise UsageError("--socket cannot be combined with --port", hint="omit one of them")
    path = None if socket is None else resolve.prefixed("--socket", values.absolute, socket)
    expires = float("inf") if ttl is None else time.monotonic() + values.time_limit(ttl, name="--ttl")
    settings, terminal, key = context.settings, context.terminal, secrets.token_urlsafe(_KEY_SIZE)
    allowed = [Allowed.parse(each) for each in allow or ()]
    added = context.default_headers
    rules = Rules(context.base_url, key, allowed, settings.read_only, [name for name, _ in added], expires)
    tokens = context.tokens(serves=True)
    tokens.current()  # logs in now if necessary
    terminal.no_input = True  # the threads of clients do not prompt

    def send(call: "Call") -> "Response":
        return Sender(context.transport, context.base_url, tokens, follow=False).send(call).response

    def explained(error: "XapiError") -> str:
        return terminal.redactor.redact(terminal.text(error.advice))

    server = Server(Forwarding(rules, send, added, settings.timeout, explained, terminal.warn))
    with ExitStack() as stack:
        stack.callback(context.transport.close)
        stack.callback(server.close)
        given = {}
        if command or port is not None or not (path or listeners.HAS_UNIX_SOCKETS):
            listener, number = listeners.on_port(port or 0)
            server.listen(listener, number)
            base_path = context.base_url[len(rules.origin) :]
            given = {"XAPI_BASE_URL": f"http://{listeners.ADDRESS}:{number}{base_path}", "XAPI_TOKEN": key}
        if path or (listeners.HAS_UNIX_SOCKETS and (command or port is None)):
            listener, given["XAPI_PROXY_SOCKET"] = listeners.on_path(path, stack)
            server.listen(listener, None)
        if command:
            raise typer.Exit(_run(command, _environment(context.environ, given), server))
        with _first_signal() as received:
            terminal.print(exports(given, unset=other_tokens(context.environ) if "XAPI_TOKEN" in given else ()))
            terminal.note("serving until Ctrl-C; to use it in another shell, run the output above there")
            while not received and time.monotonic() < expires:
                time.sleep(_POLL)
        server.close(_GRACE_PERIOD)
    if received and received[0] not in (signal.SIGINT, signal.SIGTERM):
        raise Interrupted(received[0])


@contextmanager
def _first_signal() -> Iterator[list[int]]:
    """Yield a list to which the number of the first signal is added; the second one ends this process."""
    received: list[int] = []

    def receive(number: int) -> bool:
        received.append(number)
        return True

    with signals.graceful_stop(receive):
        yield received


def _environment(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: that of xapi without secrets, with the variables *given*.

    Its programs connect to the proxy directly, not through an HTTP proxy, which cannot reach it.
    """
    changed = {name: value for name, value in without_secrets(environ).items() if name not in _REPLACED}
    if any(each.lower().endswith("_proxy") for each in environ):
        others = environ.get("no_proxy") or environ.get("NO_PROXY")
        changed["no_proxy"] = changed["NO_PROXY"] = f"{others},{listeners.ADDRESS}" if others else listeners.ADDRESS
    return {**changed, **given}


def _run(command: Sequence[str], environ: Mapping[str, str], server: "Server") -> int:
    """Run *command* until it has ended, and return its exit code."""
    # Ctrl-C reaches the command anyway; of SIGTERM and SIGHUP, the second one ends this process too.
    with signals.ignored_interrupts(), _first_signal() as received:
        child = programs.start(command, environ)
        try:
            while (code := child.poll()) is None:
                if received:
                    child.send_signal(received.pop())
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL)
        except BaseException:  # --max-time has expired, or a second signal
            signals.cancel_alarm()
            server.close()
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_PERIOD)
            child.kill()
            child.wait()
            raise
    return 128 - code if code < 0 else code
