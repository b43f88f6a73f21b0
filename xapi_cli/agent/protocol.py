"""Messages between a client and a worker, and the build that both must belong to.

A message is its kind, one byte; the length of its content, four bytes in little-endian order; and the content.

    Worker to client                              Client to worker
    R  ready: the worker, see `receive_greeting`    H  run a command: terminal, arguments, environment
    B  the command begins; `s`: its environment   N  the client runs it without the agent: the reason, one byte
       contains secrets                           A  the reply to Q, O, P or G
    C  run it without the agent: the reason
    Q  prompt the user: hidden or not, question
    O  open a path, or its directory
    P  run the password_command, or that of the storage
    G  run a credential helper
    X  the exit code

    Master to client                              Anyone to the master
    S  the wait status of the worker              I  report the status
                                                  E  end
                                                  W  no worker was ready in time; no reply

The client imports this module before anything else, so it imports only what the interpreter has loaded already.
"""

import os
import sys

from xapi_cli.system import agent_socket

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable, Mapping, Sequence

MAX_REQUEST = 8 * 1024 * 1024  # bytes; Linux limits the arguments and the environment of a process to 6 MiB
MAX_REPLY = 8 * 1024 * 1024  # bytes; to a question of a worker
MAX_MESSAGE = 1024 * 1024  # bytes of any other message
STREAMS = 3  # stdin, stdout and stderr
DESCRIPTORS = STREAMS + 1  # sent with a request: the streams, and a pipe that shows when the client exits
_HEAD = 5  # bytes
_ERRORS = (b"strict", b"surrogateescape", b"replace", b"ignore", b"backslashreplace", b"namereplace")  # of Python


NO_WORKER, CLOSED_STREAM, OTHER_BUILD, NOT_VISIBLE, NOT_POSSIBLE = b"w", b"s", b"b", b"n", b"p"
OTHER_NAMESPACE = "different namespace or root directory"
DECLINED = {  # why a client runs a command itself, as `xapi agent status` shows it
    NO_WORKER: "no worker in time",
    CLOSED_STREAM: "closed standard stream",
    OTHER_BUILD: "another installation or mode of Python",
    NOT_VISIBLE: OTHER_NAMESPACE,
    NOT_POSSIBLE: "arguments or environment",
}


class ProtocolError(Exception):
    """The peer sent something other than a message, or the message is too long or incomplete."""


class Declined(Exception):
    """The client runs the command itself; the message is the reason, as `xapi agent status` shows it."""


def greeting(build: bytes) -> bytes:
    """Return the content of a message `R` of this process, which belongs to *build*."""
    return b"%d %s %s" % (os.getpid(), pid_namespace(), build)


def pid_namespace() -> bytes:
    """Return the number of the PID namespace; a process ID refers to a different process in another; raises OSError."""
    return b"%d" % os.stat("/proc/self/ns/pid").st_ino


def send(connection: "socket", kind: bytes, content: bytes = b"") -> None:
    """Send a message; raises OSError."""
    connection.sendall(kind + len(content).to_bytes(4, "little") + content)


def send_request(connection: "socket", content: bytes, lifeline: int) -> None:
    """Send the request *content* with the standard streams, and the pipe *lifeline*, which this process holds open.

    Raises OSError only if the request was not sent completely, so that no worker can have run it.
    """
    data = memoryview(b"H" + len(content).to_bytes(4, "little") + content)
    sent = connection.sendmsg([data], agent_socket.with_descriptors([*range(STREAMS), lifeline]))
    if sent < len(data):  # sending nothing fails if the worker has already run the command and ended
        connection.sendall(data[sent:])


def decline(connection: "socket", reason: bytes) -> None:
    """Report that this client runs its command itself; a worker reads it later if none is ready."""
    try:
        send(connection, b"N", reason)
    except OSError:
        pass  # the agent has ended


def send_descriptor(connection: "socket", descriptor: int) -> None:
    """Send *descriptor* after a message that announces it; raises OSError."""
    connection.sendmsg([b"D"], agent_socket.with_descriptors([descriptor]))


def receive_descriptor(connection: "socket") -> int:
    """Return the descriptor that `send_descriptor` sends, which the caller closes; raises OSError and ProtocolError."""
    _, descriptors = agent_socket.receive_with_descriptors(connection, 1, 1)
    if not descriptors:
        raise ProtocolError("no descriptor")
    return descriptors[0]


def receive(connection: "socket", limit: int = MAX_MESSAGE) -> tuple[bytes, bytes]:
    """Return the kind and the content of the next message.

    Raises EOFError at the end of the connection, ProtocolError for a message of more than *limit* bytes or with an
    incomplete content, and OSError.
    """
    head = _read(connection, _HEAD)
    if not head:
        raise EOFError
    if len(head) < _HEAD:
        raise ProtocolError("incomplete message")
    return head[:1], _content(connection, head, limit)


def receive_greeting(connection: "socket") -> tuple[bytes, bytes, bytes]:
    """Return the process id of a worker, its PID namespace, and its build; empty if the next message is another one.

    Raises what `receive` raises.
    """
    kind, content = receive(connection)
    process, _, rest = content.partition(b" ") if kind == b"R" else (b"", b"", b"")
    namespace, _, build = rest.partition(b" ")
    return process, namespace, build


def receive_request(connection: "socket") -> tuple[bytes, list[int]]:
    """Return the content of a request and the descriptors that came with it, which the caller closes.

    Raises Declined if the client sends none, and EOFError, ProtocolError and OSError as `receive` does; the descriptors
    are closed then.
    """
    head, descriptors = agent_socket.receive_with_descriptors(connection, _HEAD, DESCRIPTORS)
    try:
        if not head:
            raise EOFError
        head += _read(connection, _HEAD - len(head))
        if head[:1] == b"N":
            raise Declined(_reason(_content(connection, head, 1)))
        if head[:1] != b"H" or len(head) < _HEAD or len(descriptors) != DESCRIPTORS:
            raise ProtocolError("not a request")
        return _content(connection, head, MAX_REQUEST), descriptors
    except BaseException:
        for number in descriptors:
            os.close(number)
        raise


def _reason(code: bytes) -> str:
    try:
        return DECLINED[code]
    except KeyError:
        raise ProtocolError("not a reason") from None


def join(parts: "Iterable[bytes]") -> bytes:
    """Return *parts*, none of which contains a zero byte, as the content of a message."""
    return b"\0".join(parts)


def request(argv: "Sequence[str]", environ: "Mapping[bytes, bytes]", *, has_terminal: bool, errors: str) -> bytes:
    """Return the content of a request; raises ValueError if it is too long or *environ* or *errors* is unusual.

    *errors* is how the standard streams of Python handle text that cannot be encoded, which depends on the locale.
    """
    arguments = [os.fsencode(argument) for argument in argv]
    variables = [name + b"=" + value for name, value in environ.items()]
    content = join([b"%d" % has_terminal, errors.encode(), b"%d" % len(arguments), *arguments, *variables])
    if len(content) > MAX_REQUEST or b"" in environ or errors.encode() not in _ERRORS:
        raise ValueError("not possible")
    return content


def parse_request(content: bytes) -> tuple[list[str], dict[bytes, bytes], bool, str]:
    """Return the arguments, the environment, whether the client has a terminal, and `errors`; raises ProtocolError."""
    has_terminal, errors, count, *rest = content.split(b"\0") if content.count(b"\0") > 1 else (b"", b"", b"")
    is_valid = has_terminal in {b"0", b"1"} and errors in _ERRORS and count.isdigit() and len(count) < 8
    if not is_valid or int(count) > len(rest):
        raise ProtocolError("not a request")
    environ = {}
    for variable in rest[int(count) :]:
        name, separator, value = variable.partition(b"=")
        if not name or not separator:
            raise ProtocolError("not an environment")
        environ[name] = value
    return [os.fsdecode(argument) for argument in rest[: int(count)]], environ, has_terminal == b"1", errors.decode()


def build_id() -> bytes:
    """Return a text that differs between interpreters, their options, installations of xapi, and after an upgrade."""
    package = os.path.dirname(os.path.dirname(__file__))
    directories = [each for each in sys.path if each.endswith("-packages")]
    options = [getattr(sys.flags, name) for name in ("debug", "dev_mode", "optimize", "isolated", "no_site")]
    encoding = sys.getfilesystemencoding()  # the locale determines it, and that of the streams and files
    found: list[object] = [sys.version, sys.prefix, options, encoding, sys.warnoptions, sorted(sys._xoptions)]  # noqa: SLF001 - no public name
    for path in (os.__file__, package, *directories):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append((path, status.st_dev, status.st_ino, status.st_mtime_ns))
    return os.fsencode(repr(found))


def _content(connection: "socket", head: bytes, limit: int) -> bytes:
    length = int.from_bytes(head[1:], "little")
    if length > limit:
        raise ProtocolError("message too long")
    content = _read(connection, length)
    if len(content) < length:
        raise ProtocolError("incomplete message")
    return content


def _read(connection: "socket", size: int) -> bytes:
    """Return the next *size* bytes, or fewer at the end of the connection; allocates only what has arrived."""
    data = b""
    while len(data) < size and (chunk := connection.recv(min(size - len(data), 65536))):
        data += chunk
    return data
