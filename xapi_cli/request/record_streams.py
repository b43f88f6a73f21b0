"""Media types of streams of JSON documents, whose records are complete one by one."""

EVENT_STREAM = "text/event-stream"
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


def media_type(content_type: str) -> str:
    """Return *content_type*, the value of the header, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_record_stream(content_type: str) -> bool:
    """Return whether a body of *content_type* is a stream: of events, or with one document per line."""
    return media_type(content_type) in (EVENT_STREAM, *_LINES)
