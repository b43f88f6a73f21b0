"""Input lines are understood strictly, and their JSON goes through untouched."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch import entries
from xapi_cli.batch.lines import Line

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.booleans())
def test_id_and_json_go_through_as_they_are_written(name: Any, body: Any, ascii_only: bool) -> None:
    text, sent = (json.dumps(each, ensure_ascii=ascii_only) for each in (name, body))
    try:
        line = f'{{ "json" :{sent}, "path":"/x","id": {text} }}\n'.encode()
    except UnicodeEncodeError:
        return
    entry = entries.read(Line(1, line, b""), "https://api.test")

    assert entry.flaw is None
    assert entry.id == text
    assert entry.call is not None
    assert entry.call.body is not None
    assert b"".join(entry.call.body) == sent.encode()


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ upath/01.e-+nulltrue', max_size=60).map(str.encode))
def test_whatever_a_line_holds_it_is_a_call_or_has_a_flaw(data: bytes) -> None:
    entry = entries.read(Line(1, data, b""), "https://api.test")

    assert (entry.call is None) != (entry.flaw is None)
    json.loads(entry.id)
