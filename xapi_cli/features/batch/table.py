"""Show a batch on a terminal: a table with one row for each call, instead of its JSON."""

from collections.abc import Callable

from xapi_cli.errors import NetworkError
from xapi_cli.system.layout import width_of, wrapped
from xapi_cli.system.render import printable
from xapi_cli.system.style import Style, color_of_status

_NUMBER = 5  # width of the first column
_STATUS = len(NetworkError.kind)
_OTHERS = 27 + _STATUS  # width of all columns but the path
_PATH = (12, 60)  # least and greatest width of the path


class Table:
    """The rows of the calls, for a terminal of *columns* columns, in the colors of *style*."""

    def __init__(self, columns: Callable[[], int], style: Style) -> None:
        self._columns, self._style = columns, style
        self._has_header = False

    def row(self, number: int, kind: str, method: str, path: str, elapsed_ms: int | None, message: str = "") -> bytes:
        """Return the row of the call in line *number*: its time, None if unknown, or a *message* about its failure."""
        room = min(max(self._columns() - _OTHERS, _PATH[0]), _PATH[1])
        start = f"{number:>{_NUMBER}}  {kind:<{_STATUS}}  "
        if message:
            text = f"{start}{method:<6}  {printable(path)}  {printable(message)}"
            text = wrapped(text, self._columns(), indent=" " * len(start))
        else:
            shown = _shortened(printable(path), room)
            time = "journal" if elapsed_ms is None else _time(elapsed_ms)
            text = f"{start}{method:<6}  {shown}{' ' * (room - width_of(shown))}  {time:>8}"
        end = len(start) - 2
        color = color_of_status(int(kind)) if kind.isdecimal() else "bad"
        colored = f"{self._style('faint', text[:_NUMBER])}  {self._style(color, text[_NUMBER + 2 : end])}{text[end:]}\n"
        return self._header(room) + colored.encode("utf-8", "backslashreplace")

    def _header(self, room: int) -> bytes:
        if self._has_header:
            return b""
        self._has_header = True
        text = f"{'LINE':>{_NUMBER}}  {'STATUS':<{_STATUS}}  {'METHOD':<6}  {'PATH':<{room}}  {'TIME':>8}"
        return f"{self._style('strong', text)}\n".encode()


def _shortened(path: str, width: int) -> str:
    """Return *path*, without its middle if it is longer than *width* columns."""
    if width_of(path) <= width:
        return path
    head, tail = path[: width // 2], path[len(path) - width // 2 :]
    while width_of(head) + width_of(tail) >= width:
        head, tail = head[:-1], tail[1:]
    return f"{head}…{tail}"


def _time(elapsed_ms: int) -> str:
    return f"{elapsed_ms} ms" if elapsed_ms < 10_000 else f"{elapsed_ms / 1000:.1f} s"
