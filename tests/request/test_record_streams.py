"""Which responses are streams of records."""

import pytest

from xapi_cli.request.jq.event_stream import is_record_stream


@pytest.mark.parametrize(
    "text", ["text/event-stream", "Text/Event-Stream ; charset=utf-8", "application/x-ndjson", "application/jsonl"]
)
def test_the_media_type_is_recognized(text: str) -> None:
    assert is_record_stream(text)
    assert not is_record_stream(f"x-{text}")


@pytest.mark.parametrize("text", ["", "application/json", "text/plain"])
def test_another_type_is_no_stream(text: str) -> None:
    assert not is_record_stream(text)
