"""Run `xapi proxy`: serve the API on this machine, to any program or to one command."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import Interrupted, UsageError, XapiError
from xapi_cli.http.network import Network
from xapi_cli.proxy import listeners
from xapi_cli.proxy.rules import Allowed, Rules
from xapi_cli.proxy.server import Server
from xapi_cli.settings import resolve, values
from xapi_cli.settings.table import SETTINGS, other_tokens
from xapi_cli.system import own_process, programs, signals
from xapi_cli.system.render import exports, printable
from xapi_cli.usecases import child_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.runtime import Runtime
    from xapi_cli.system.terminal import Terminal

_GRACE_PERIOD = 5.0  # seconds for calls in flight after a signal, or for the command after SIGTERM
_KEY_SIZE = 32  # bytes
_ENDS_SERVING = (signal.SIGINT, signal.SIGTERM)  # as the user is told; another signal is not the expected end


class ProxyOptions(NamedTuple):
    """The options of `xapi proxy`: *socket* is a path, *port* a TCP port, and *allow* the values of `--allow`."""

    command: Sequence[str] = ()
    socket: str | None = None
    port: int | None = None
    allow: Sequence[str] = ()


def run(runtime: "Runtime", options: ProxyOptions) -> int:
    """Serve until the command of *options* has ended, and return its exit code; without one, until a signal.

    Raises UsageError, and the errors of a login, before anything is served.
    """
    if options.socket is not None and options.port is not None:
        raise UsageError("--socket cannot be combined with --port", hint="omit one of them")
    socket_path = _absolute(options.socket)
    allowed = [Allowed.parse(each) for each in options.allow]
    base_url, key = runtime.base_url, secrets.token_urlsafe(_KEY_SIZE)
    settings, terminal = runtime.settings, runtime.terminal
    change = "without --read-only" if runtime.flags.get("read_only") else "with --write"
    rules = Rules(base_url, key, allowed, f"start the proxy {change}" if settings.read_only else None)
    rules.check_added(name for name, _ in runtime.default_headers)
    runtime.keeps_connections = False  # the server may serve one connection at a time: that of a call
    tokens = runtime.tokens(serves=True)
    tokens.current()  # logs in now if necessary: while a command runs, the proxy does not prompt
    network = Network(timeout=settings.timeout, ca_bundle=runtime.ca_bundle, environ=runtime.environ)
    server = Server(
        network,
        tokens,
        rules,
        timeout=settings.timeout,
        redact=terminal.redactor.redact,
        complete=runtime.complete_hint,
        headers=settings.headers,
        descriptors=own_process.raise_descriptor_limit(),
        interactive=terminal.interactive and not options.command,
        log=runtime.request_log,
    )
    with ExitStack() as stack:
        stack.callback(server.close)
        port = path = None
        if options.command or options.port is not None:
            listener, port = listeners.on_port(options.port or 0)
            server.listen(listener, port)
        if socket_path is not None or port is None or (options.command and listeners.HAS_UNIX_SOCKETS):
            listener, path = listeners.on_path(socket_path, runtime.environ, stack)
            server.listen(listener, None)
        given = _settings(base_url[len(rules.origin) :], port, key, path)
        if options.command:
            terminal.no_input = True
            return _run_command(runtime, server, options.command, given)
        number = _serve_until_signal(server, terminal, lambda: _print_settings(runtime, given))
    return 0 if number in _ENDS_SERVING else Interrupted(number).exit_code


def _absolute(path: str | None) -> str | None:
    """Return *path*, the value of --socket, as an absolute path; raises UsageError."""
    if path == "":
        raise resolve.empty_option("--socket")
    return None if path is None else resolve.prefixed("--socket", values.absolute, path)


def _settings(base_path: str, port: int | None, key: str, path: str | None) -> dict[str, str]:
    """Return the variables with which programs use the proxy."""
    found = (
        {"XAPI_BASE_URL": f"http://{listeners.ADDRESS}:{port}{base_path}", "XAPI_TOKEN": key}
        if port is not None
        else {}
    )
    return found | ({"XAPI_PROXY_SOCKET": path} if path is not None else {})


def _print_settings(runtime: "Runtime", settings: Mapping[str, str]) -> None:
    unset = []
    if "XAPI_TOKEN" in settings:  # the variables that belong to another token
        unset = other_tokens(runtime.environ)
        unset += [name for name in SETTINGS["token_base_url"].variables if runtime.environ.get(name)]
    printed = exports(settings, unset=unset)
    runtime.terminal.print(printed)
    lines = "lines" if "\n" in printed else "line"
    runtime.terminal.note(f"serving until Ctrl-C; to use it in another shell, run the {lines} above there")


# until the end


def _serve_until_signal(server: Server, terminal: "Terminal", print_settings: "Callable[[], None]") -> int:
    """Serve until a signal, and return its number."""
    received: list[int] = []

    def stop(number: int) -> bool:
        received.append(number)
        if number == signal.SIGINT:
            terminal.end_interruption()
        server.wake()
        return True

    with signals.graceful_stop(stop):
        print_settings()
        server.serve(lambda: bool(received), grace=_GRACE_PERIOD)
    return received[0]


def _run_command(runtime: "Runtime", server: Server, command: Sequence[str], given: Mapping[str, str]) -> int:
    """Run *command* with the variables *given*, and serve until it has ended; return its exit code."""
    environ = child_command.environment(
        runtime.environ,
        token=given["XAPI_TOKEN"],
        base_url=given["XAPI_BASE_URL"],
        profile=None,
    )
    environ.pop("XAPI_PROFILE", None)  # the token is not for the base URL of that profile
    environ |= given
    _bypass_proxies(environ)
    codes: list[int | Exception] = []
    with _passing_signals_on() as pass_on_to:
        child = child_command.start(command, environ)
        try:
            pass_on_to(child)
            server.run_in_thread(child.wait, codes.append)
            server.serve(lambda: bool(codes), grace=0)
        except BaseException:  # --max-time has expired, or the proxy has failed
            signals.cancel_alarm()
            _end(child, server)
            raise
    code = codes[0]
    if isinstance(code, Exception):
        raise XapiError(f"the exit code of {printable(command[0])} cannot be read") from code
    return 128 - code if code < 0 else code


def _end(child: programs.ChildProcess, server: Server) -> None:
    """End *child*, whose calls fail now, with SIGTERM, and with SIGKILL if it does not end soon."""
    try:
        server.close()
    finally:
        with suppress(OSError):
            child.terminate()
        try:
            child.wait(_GRACE_PERIOD)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _bypass_proxies(environ: dict[str, str]) -> None:
    """Make programs with *environ* connect to the proxy directly, not through an HTTP proxy, which cannot reach it."""
    for name in ("no_proxy", "NO_PROXY"):
        if any(each.lower().endswith("_proxy") for each in environ):
            others = environ.get(name) or environ.get(name.swapcase()) or ""
            environ[name] = f"{others},{listeners.ADDRESS}" if others else listeners.ADDRESS


@contextmanager
def _passing_signals_on() -> "Iterator[Callable[[programs.ChildProcess], None]]":
    """Yield a function after which a process gets SIGTERM and SIGHUP, also earlier ones; Ctrl-C reaches it anyway."""
    children: list[programs.ChildProcess] = []
    received: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        received.append(number)
        for child in children:
            with suppress(OSError):
                child.send_signal(number)

    def pass_on_to(child: programs.ChildProcess) -> None:
        children.append(child)
        for number in received:
            with suppress(OSError):
                child.send_signal(number)

    names = ("SIGTERM",) if sys.platform == "win32" else ("SIGTERM", "SIGHUP")
    numbers: list[int] = [getattr(signal, name) for name in names]
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = [signal.signal(number, pass_on) for number in handled]
    try:
        with signals.ignored_interrupts():
            yield pass_on_to
    finally:
        for number, handler in zip(handled, previous, strict=True):
            signal.signal(number, handler)
