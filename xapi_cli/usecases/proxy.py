"""Run `xapi proxy`: serve the API on this machine, to any program or to one command."""

import os
import secrets
import signal
import socket
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.http.network import Network
from xapi_cli.proxy.rules import Allowed, Rules
from xapi_cli.proxy.server import Server
from xapi_cli.system import programs, signals
from xapi_cli.system.render import printable
from xapi_cli.usecases import child_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.runtime import Runtime
    from xapi_cli.system.terminal import Terminal

_ADDRESS = "127.0.0.1"
_GRACE_PERIOD = 5.0  # seconds for calls in flight after a signal
_KEY_SIZE = 32  # bytes
_MAX_SOCKET_PATH = 107  # bytes; the size of sun_path in Linux, without the final zero (unix(7)); 103 on macOS


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
    allowed = [Allowed.parse(each) for each in options.allow]
    base_url, key = runtime.base_url, secrets.token_urlsafe(_KEY_SIZE)
    tokens = runtime.tokens()
    tokens.current()  # logs in now if that is necessary: while the command runs, nobody may be there to ask
    settings, terminal = runtime.settings, runtime.terminal
    network = Network(timeout=settings.timeout, ca_bundle=settings.ca_bundle, environ=runtime.environ)
    rules = Rules(base_url, key, allowed, is_read_only=settings.read_only)
    server = Server(
        network,
        tokens,
        rules,
        timeout=settings.timeout,
        redact=terminal.redactor.redact,
        interactive=terminal.interactive and not options.command,
    )
    with ExitStack() as stack:
        stack.callback(server.close)
        port = path = None
        if options.command or options.port is not None:
            port = _listen_on_port(server, options.port or 0)
        if options.socket is not None or port is None or (options.command and _has_unix_sockets()):
            path = _listen_on_path(server, options.socket, runtime.environ, stack)
        given = _settings(base_url[len(rules.origin) :], port, key, path)
        if options.command:
            terminal.no_input = True
            return _run_command(runtime, server, options.command, given)
        _serve_until_signal(server, lambda: _print_settings(terminal, given))
    return 0


def _settings(base_path: str, port: int | None, key: str, path: str | None) -> dict[str, str]:
    """Return the variables with which programs use the proxy."""
    found = {"XAPI_BASE_URL": f"http://{_ADDRESS}:{port}{base_path}", "XAPI_TOKEN": key} if port is not None else {}
    return found | ({"XAPI_PROXY_SOCKET": path} if path is not None else {})


def _print_settings(terminal: "Terminal", settings: Mapping[str, str]) -> None:
    from shlex import quote

    terminal.print("\n".join(f"{name}={quote(value)}" for name, value in settings.items()))
    terminal.note("serving until Ctrl-C; to use it in another shell, put `export` before the lines above")


# listening


def _has_unix_sockets() -> bool:
    return sys.platform != "win32"


def _listen_on_port(server: Server, port: int) -> int:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there, it would share the port with other programs
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port))
        number = int(listener.getsockname()[1])
        server.listen(listener, number)
    except OSError as error:
        listener.close()
        reason = error.strerror or type(error).__name__
        raise UsageError(
            f"the port {port} cannot be used: {reason}", hint="use another --port; 0 selects one"
        ) from error
    return number


def _listen_on_path(server: Server, chosen: str | None, environ: Mapping[str, str], stack: ExitStack) -> str:
    """Listen on a Unix socket at *chosen*, or in a new private directory; return its path."""
    if not _has_unix_sockets():
        raise UsageError("Unix sockets are not available on this platform", hint="use --port")
    path = os.path.abspath(chosen) if chosen is not None else f"{_private_directory(environ, stack)}/proxy.sock"
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise UsageError(f"the path {printable(path)} is too long for a socket", hint="use a shorter --socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_unused(path)
        with _private_mode():
            listener.bind(path)
        status = os.stat(path)
        stack.callback(_remove, path, (status.st_dev, status.st_ino))
        server.listen(listener, None)
    except (OSError, ValueError) as error:
        listener.close()
        reason = (error.strerror if isinstance(error, OSError) else None) or "invalid path"
        raise UsageError(
            f"the socket {printable(path)} cannot be created: {reason}", hint="use another --socket"
        ) from error
    except UsageError:
        listener.close()
        raise
    return path


def _private_directory(environ: Mapping[str, str], stack: ExitStack) -> str:
    """Return a new directory of mode 0700, which *stack* removes."""
    from tempfile import mkdtemp

    parent = environ.get("XDG_RUNTIME_DIR", "")
    usable = parent if os.path.isabs(parent) and os.access(parent, os.W_OK | os.X_OK) else None
    directory = mkdtemp(prefix="xapi-", dir=usable)
    stack.callback(_remove_directory, directory)
    return directory


def _remove_directory(path: str) -> None:
    with suppress(OSError):
        os.rmdir(path)


def _remove_unused(path: str) -> None:
    """Remove the socket at *path* if no process listens on it; raises UsageError if one does, or if it is no socket."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{printable(path)} exists and is not a socket", hint="use another --socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1)
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
        return
    finally:
        probe.close()
    raise UsageError(f"another process listens on {printable(path)}", hint="use another --socket")


@contextmanager
def _private_mode() -> Iterator[None]:
    """Create files of mode 0600 within: the mode of a socket decides who can connect, from its first moment."""
    previous = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(previous)


def _remove(path: str, identity: tuple[int, int]) -> None:
    """Remove the socket at *path*, unless it has been replaced."""
    with suppress(OSError):
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == identity:
            os.unlink(path)


# until the end


def _serve_until_signal(server: Server, print_settings: "Callable[[], None]") -> None:
    is_ending = False

    def stop(number: int) -> bool:
        nonlocal is_ending
        is_ending = True
        server.wake()
        return True

    with signals.graceful_stop(stop):
        print_settings()
        server.serve(lambda: is_ending, grace=_GRACE_PERIOD)


def _run_command(runtime: "Runtime", server: Server, command: Sequence[str], given: Mapping[str, str]) -> int:
    """Run *command* with the variables *given*, and serve until it has ended; return its exit code."""
    environ = child_command.environment(
        runtime.environ,
        token=given["XAPI_TOKEN"],
        base_url=given["XAPI_BASE_URL"],
        profile=child_command.profile_of_base_url(runtime),
    )
    environ |= given
    _bypass_proxies(environ)
    codes: list[int | Exception] = []
    with _passing_signals_on() as pass_on_to:
        try:
            if not command[0]:
                raise FileNotFoundError
            child = programs.ChildProcess([programs.find(command[0], environ), *command[1:]], env=environ)
        except (OSError, ValueError) as error:
            return child_command.report_failure(runtime.terminal, command[0], error)
        pass_on_to(child)
        server.run_in_thread(child.wait, codes.append)
        server.serve(lambda: bool(codes), grace=0)
    code = codes[0]
    if isinstance(code, Exception):
        raise XapiError(f"the exit code of {printable(command[0])} cannot be read") from code
    return 128 - code if code < 0 else code


def _bypass_proxies(environ: dict[str, str]) -> None:
    """Make programs with *environ* connect to the proxy directly, not through an HTTP proxy, which cannot reach it."""
    for name in ("no_proxy", "NO_PROXY"):
        if any(each.lower().endswith("_proxy") for each in environ):
            others = environ.get(name) or environ.get(name.swapcase()) or ""
            environ[name] = f"{others},{_ADDRESS}" if others else _ADDRESS


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
