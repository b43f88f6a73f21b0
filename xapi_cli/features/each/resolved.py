"""The requests for rows: resolved one by one, or all of them first."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.features.batch import lines
from xapi_cli.features.each.rows import Row, Rows
from xapi_cli.request.json_values import dumps, loads

if TYPE_CHECKING:
    from xapi_cli.features.batch.lines import Members
    from xapi_cli.features.each.template import Template
    from xapi_cli.http.send import Call

_IN_MEMORY = 10 * 2**20  # bytes of the resolved requests


class Resolved(NamedTuple):
    """The request for *row* as *text*, a line of `batch`, and as a *call*; or the *error* why it has none."""

    row: Row
    text: str = ""
    call: "Call | None" = None
    error: InvalidLine | None = None

    @property
    def where(self) -> str:
        """The row, for messages."""
        return f"row {self.row.number:,} (line {self.row.line:,})"


def resolved(rows: Rows, template: "Template", make_call: "Callable[[Members], Call]") -> Iterator[Resolved]:
    """Yield the request for each row; raises UsageError for an invalid input, or a CSV header without a field."""
    is_checked = False
    for row in rows:
        if not is_checked and rows.header is not None:
            template.check_header(rows.header)
        is_checked = True
        yield _resolved(row, template, make_call)
    if not is_checked and rows.header is not None:
        template.check_header(rows.header)


def all_first(
    requests: Iterator[Resolved],
    make_call: "Callable[[Members], Call]",
    report: Callable[[Resolved, InvalidLine], None],
) -> Iterator[Resolved]:
    """Return all *requests*, from a temporary file; raises UsageError, after *report*, if one has an error."""
    from tempfile import SpooledTemporaryFile

    invalid = 0
    file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - deleted with the iterator
    for each in requests:
        if each.error is not None:
            invalid += 1
            report(each, each.error)
        else:
            file.write(
                dumps([*map(str, each.row[:2]), each.row.value, each.text]).encode("utf-8", "surrogatepass") + b"\n"
            )

    if invalid:
        rows = "1 row" if invalid == 1 else f"{invalid:,} rows"
        raise UsageError(f"{rows} cannot be sent, so nothing was sent", hint="correct the input")

    def stored() -> Iterator[Resolved]:
        with file:
            file.seek(0)
            for line in file:
                number, at, value, text = loads(line.decode("utf-8", "surrogatepass"))
                row = Row(int(number), int(at), value)
                yield Resolved(row, text, make_call(lines.members(text.encode())))

    return stored()


def _resolved(row: Row, template: "Template", make_call: "Callable[[Members], Call]") -> Resolved:
    try:
        line: dict[str, Any] = template.line(row)
        text = dumps(line)
        return Resolved(row, text, make_call(lines.members(text.encode())))
    except UnicodeEncodeError:
        return Resolved(row, error=InvalidLine("the row has an unpaired surrogate"))
    except InvalidLine as error:
        return Resolved(row, error=error)
    except UsageError as error:
        return Resolved(row, error=InvalidLine(error.message, hint=error.hint))
