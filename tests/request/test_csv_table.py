"""`--csv`: JSON as a table."""

from collections.abc import Sequence

import pytest

from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.errors import ExpectationFailed
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.request.csv_table import CsvTable, TableFilter


def table(*bodies: str, fields: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Return the table of the *bodies* of pages, and the warnings."""
    out: list[bytes] = []
    warnings: list[str] = []
    found = TableFilter(fields, warnings.append)
    for body in bodies:
        found.apply([body.encode()[at : at + 5] for at in range(0, len(body.encode()), 5)], out.append)
    found.finish(out.append)
    return b"".join(out).decode(), warnings


@pytest.mark.parametrize(
    ("body", "fields", "lines"),
    [
        ('[{"a": 1.10, "o": {"p": "x,y", "q": [1, "é"]}}, {"b": null, "a": true}]', "",
         ["a,o.p,o.q,b", '1.10,"x,y","[1, ""é""]",', "true,,,"]),
        ('{"id": 1, "owner": {"email": "e"}}', "owner.email id", ["owner.email,id", "e,1"]),
        ('[{"a.b": 1}, {"a": {"b": 2}}]', "a.b", ["a.b", "1", "2"]),
        ('[{"a": "line\\nbreak", "b": "q\\"q"}]', "", ["a,b", '"line', 'break","q""q"']),
        ('[{"id": 1, "o": {}}]', "", ["id,o", "1,{}"]),
        ("[]", "id", ["id"]),
        ("[]", "", []),
    ],
)  # fmt: skip
def test_rows_and_columns(body: str, fields: str, lines: list[str]) -> None:
    assert table(body, fields=fields.split()) == ("".join(f"{line}\n" for line in lines), [])


def test_the_columns_are_those_of_the_first_rows_and_a_later_field_is_left_out_with_one_warning() -> None:
    rows = "[" + ",".join(['{"a": 1}'] * 1000 + ['{"a": 2, "late": 3}', '{"later": 4}']) + "]"

    text, warnings = table(rows)

    assert text.splitlines() == ["a", *["1"] * 1000, "2", '""']
    assert warnings == ["the field late first appears in row 1,001, and is left out; use --fields"]


def test_the_columns_are_those_of_the_first_10_mib() -> None:
    warnings: list[str] = []
    found = CsvTable((), warnings.append)
    found.write_with = lambda data: None
    found.add([*[{"a": "x" * 2**20}] * 10, {"late": 1}])

    assert warnings == ["the field late first appears in row 11, and is left out; use --fields"]


@pytest.mark.parametrize("body", ["[1]", '"text"', "[{]", '[{"a": 1}', "<html>"])
def test_anything_else_is_not_a_table(body: str) -> None:
    with pytest.raises(ExpectationFailed, match=r"not a JSON object or an array|line 1 of the response is not valid"):
        table(body)


def test_a_request_as_a_table(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/projects", "--csv", "--fields", "name", "-o", "-", env=sandbox.settings)
    missing = xapi("request", "/x-api/projects", "--csv", "--fields", "id, Name", "-o", "file", env=sandbox.settings)

    assert (outcome.code, outcome.out) == (0, "name\nWinter Cup\nSpring Open\nAutumn League\n")
    assert (missing.code, missing.err) == (
        6,
        "xapi: error: no row has the field Name; check the names in --fields\n",
    )
    assert not (xapi.home / "file").exists()


def test_a_page_in_place_of_json_is_named_with_its_title(xapi: Xapi) -> None:
    page = b"<html><title>Sign in</title></html>"
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
    with Server([request(), send(reply)]) as server:
        outcome = xapi("request", "/", "--csv", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert outcome == Outcome(
        6,
        "",
        "xapi: error: the response is text/html, not JSON (Sign in); check the base URL and the path\n",
    )
