"""Show a batch on a terminal: a table with one line for each call, instead of its JSON, and the failures at its end."""

from collections.abc import Callable

from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.output.results import Result
from xapi_cli.errors import NetworkError
from xapi_cli.system.layout import width_of, wrapped
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style, color_of_status

_NUMBER = 5  # width of the first column
_OTHERS = 27  # width of all columns but the status and the path
_PATH = (12, 60)  # least and greatest width of the path
_MAX_REPEATED = 10  # failures
_MAX_MESSAGES = 100  # that later lines refer to


class CallLines:
    """The lines for the calls to *base_url*, for a terminal of *columns* columns, in the colors of *style*."""

    def __init__(self, base_url: str, columns: Callable[[], int], style: Style) -> None:
        self._base_url, self._columns, self._style = base_url, columns, style
        self._status_width = len(NetworkError.kind)
        self._calls: dict[int, tuple[str, str]] = {}  # method and path, by the number of the line
        self._shown = self._failed = 0  # lines
        self._messages: dict[str, int] = {}  # the line that has shown it first, by message
        self._failures: list[bytes] = []  # the first lines of those that failed

    def add(self, entry: Entry) -> None:
        """Add the call of *entry*, whose result follows."""
        if entry.call is not None:
            path = redact_url(entry.call.url).removeprefix(self._base_url)
            self._calls[entry.number] = (entry.call.method, printable(path))

    def line(self, result: Result) -> bytes:
        """Return the line for *result*: number, status, method, path and time, or the error; the header before it."""
        line = self._line(result)
        header = b"" if self._shown else self._header()
        self._shown += 1
        if result.code:
            self._failed += 1
            if len(self._failures) < _MAX_REPEATED:
                self._failures.append(line)
        return header + line

    def failures(self, rows: int) -> bytes:
        """Return the first lines that failed, if the table does not fit a screen of *rows* lines."""
        if not self._failed or self._shown < rows:
            return b""
        is_cut = self._failed > _MAX_REPEATED
        title = f"the first {_MAX_REPEATED} of {self._failed:,} failed lines:" if is_cut else "failed lines:"
        return f"\n{self._style('strong', title)}\n".encode() + b"".join(self._failures)

    def _header(self) -> bytes:
        room = self._room()
        text = f"{'LINE':>{_NUMBER}}  {'STATUS':<{self._status_width}}  {'METHOD':<6}  {'PATH':<{room}}  {'TIME':>8}"
        return f"{self._style('strong', text)}\n".encode()

    def _room(self) -> int:
        """Return the width of the path."""
        return min(max(self._columns() - _OTHERS - self._status_width, _PATH[0]), _PATH[1])

    def _line(self, result: Result) -> bytes:
        method, path = self._calls.pop(result.number, ("-", "-"))
        start = f"{result.number:>{_NUMBER}}  {result.kind:<{self._status_width}}  "
        if result.message:
            text = f"{start}{method:<6}  {path}  {self._message(result)}"
            text = wrapped(text, self._columns(), indent=" " * len(start))
        else:
            room = self._room()
            shown = _shortened(path, room)
            gap = " " * (room - width_of(shown))
            text = f"{start}{method:<6}  {shown}{gap}  {_time(result.elapsed_ms):>8}"
        return (self._colored(text, _color(result)) + "\n").encode("utf-8", "backslashreplace")

    def _message(self, result: Result) -> str:
        """Return the message of *result*, or the number of an earlier line that has shown the same message."""
        number = self._messages.get(result.message)
        if number is not None:
            return f"same as line {number}"
        if len(self._messages) < _MAX_MESSAGES:
            self._messages[result.message] = result.number
        return printable(result.message)

    def _colored(self, text: str, color: Name) -> str:
        end = _NUMBER + 2 + self._status_width
        number, status, rest = text[:_NUMBER], text[_NUMBER + 2 : end], text[end:]
        return f"{self._style('faint', number)}  {self._style(color, status)}{rest}"


def _color(result: Result) -> Name:
    return color_of_status(int(result.kind)) if result.kind.isdecimal() else "bad"


def _shortened(path: str, width: int) -> str:
    """Return *path*, without its middle if it is longer than *width* columns."""
    if width_of(path) <= width:
        return path
    head, tail = path[: width // 2], path[len(path) - width // 2 :]
    while width_of(head) + width_of(tail) >= width:
        head, tail = head[:-1], tail[1:]
    return f"{head}…{tail}"


def _time(elapsed_ms: int | None) -> str:
    """Return the time of a call; it is unknown if the response is from the journal."""
    if elapsed_ms is None:
        return "journal"
    return f"{elapsed_ms} ms" if elapsed_ms < 10_000 else f"{elapsed_ms / 1000:.1f} s"
