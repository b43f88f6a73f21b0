"""Show a batch on a terminal: one line for each call, instead of its JSON."""

from collections.abc import Callable

from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.output.results import Result
from xapi_cli.system.layout import width_of, wrapped
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style, of_status

_INDENT = " " * 16  # width of the columns before the method
_OTHERS = 34  # width of all columns but the path
_PATH = (12, 60)  # least and greatest width of the path


class CallLines:
    """The lines for the calls to *base_url*, for a terminal of *columns* columns, in the colors of *style*."""

    def __init__(self, base_url: str, columns: Callable[[], int], style: Style) -> None:
        self._base_url, self._columns, self._style = base_url, columns, style
        self._calls: dict[int, tuple[str, str]] = {}  # method and path, by the number of the line

    def add(self, entry: Entry) -> None:
        """Add the call of *entry*, whose result follows."""
        if entry.call is not None:
            path = redact_url(entry.call.url).removeprefix(self._base_url)
            self._calls[entry.number] = (entry.call.method, printable(path))

    def line(self, result: Result) -> bytes:
        """Return the line for *result*: number, status, method, path and time, or the error."""
        method, path = self._calls.pop(result.number, ("-", "-"))
        width = self._columns()
        if result.message:
            text = f"{result.number:>5}  {result.kind:<7}  {method:<6}  {path}  {printable(result.message)}"
            text = wrapped(text, width, indent=_INDENT)
        else:
            room = min(max(width - _OTHERS, _PATH[0]), _PATH[1])
            shown = _shortened(path, room)
            gap = " " * (room - width_of(shown))
            text = f"{result.number:>5}  {result.kind:<7}  {method:<6}  {shown}{gap}  {_time(result.elapsed_ms):>8}"
        return (self._colored(text, _color(result)) + "\n").encode("utf-8", "backslashreplace")

    def _colored(self, text: str, color: Name) -> str:
        number, status, rest = text[:5], text[7:14], text[14:]
        return f"{self._style('faint', number)}  {self._style(color, status)}{rest}"


def _color(result: Result) -> Name:
    return of_status(int(result.kind)) if result.kind.isdecimal() else "bad"


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
