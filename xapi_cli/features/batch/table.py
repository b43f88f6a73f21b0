"""Show a batch on a terminal: a table with one row for each call, instead of its JSON."""

from xapi_cli.errors import NetworkError
from xapi_cli.system.render import printable
from xapi_cli.system.style import Style, color_of_status, wrapped

_NUMBER, _STATUS = 5, len(NetworkError.kind)  # widths of the first columns
_INDENT = _NUMBER + 2 + _STATUS + 2


def header(style: Style) -> bytes:
    """Return the first row."""
    return f"{style('strong', _columns('LINE', 'STATUS', 'TIME', 'METHOD', 'PATH'))}\n".encode()


def row(
    number: int, kind: str, elapsed_ms: int | None, method: str, path: str, message: str, columns: int, style: Style
) -> bytes:
    """Return the row of the call in line *number*, with a *message* if it has failed, for a terminal of *columns*.

    *kind* is its status or the kind of its error, *elapsed_ms* None for a result of a journal.
    """
    time = "journal" if elapsed_ms is None else f"{elapsed_ms} ms"
    text = _columns(str(number), kind, time, method, f"{printable(path)}  {printable(message)}".rstrip())
    text = wrapped(text, columns, indent=" " * _INDENT)
    color = color_of_status(int(kind)) if kind.isdecimal() else "bad"
    start, status, rest = text[:_NUMBER], text[_NUMBER + 2 : _INDENT - 2], text[_INDENT - 2 :]
    return f"{style('faint', start)}  {style(color, status)}{rest}\n".encode("utf-8", "backslashreplace")


def _columns(number: str, status: str, time: str, method: str, rest: str) -> str:
    return f"{number:>{_NUMBER}}  {status:<{_STATUS}}  {time:>8}  {method:<6}  {rest}"
