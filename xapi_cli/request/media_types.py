"""What the Content-Type of a body says: whether it is a stream of records, and its charset.

A filter, pages and a table need UTF-8; bytes that are not valid are refused, never replaced.
"""

import re
from codecs import getincrementaldecoder, lookup
from collections.abc import Iterable, Iterator

from xapi_cli.errors import FilterError

EVENT_STREAM = "text/event-stream"
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]+)""", re.ASCII | re.IGNORECASE)
_CHARSETS = re.compile(  # Python also has codecs that are not charsets: idna, rot13
    r"utf-8|us-ascii|iso-8859-\d+|latin-?[19]|windows-(125\d|874)|koi8-[ru]|macintosh|shift[_-]jis|euc-(jp|kr)"
    r"|gb2312|gbk|gb18030|big5|utf-(16|32)([lb]e)?"
)


def media_type(content_type: str) -> str:
    """Return *content_type*, the value of the header, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_record_stream(content_type: str) -> bool:
    """Return whether a body of *content_type* is a stream: of events, or with one document per line."""
    return media_type(content_type) in (EVENT_STREAM, *_LINES)


def codec_of(content_type: str) -> str | None:
    """Return the codec for the charset that *content_type* names, or None if it is not one of the known charsets."""
    found = _CHARSET.search(content_type)
    name = found[1].lower() if found else ""
    try:
        return lookup(name).name if _CHARSETS.fullmatch(name) else None
    except LookupError:
        return None


def decoded_text(chunks: Iterable[bytes], content_type: str) -> Iterator[str]:
    """Yield the text of *chunks* without a byte order mark, by the charset of *content_type*; raises UnicodeError."""
    codec = codec_of(content_type) or "utf-8"
    decoder = getincrementaldecoder("utf-8-sig" if codec == "utf-8" else codec)()
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def utf8(chunks: Iterable[bytes], content_type: str, *, reader: str) -> Iterator[bytes]:
    """Yield the body in *chunks* in UTF-8 and without a byte order mark, decoded by the charset of *content_type*.

    Raises FilterError, which names the *reader* of the body, at bytes that are not valid in that charset.
    """
    try:
        for text in decoded_text(chunks, content_type):
            if text:
                yield text.encode()
    except UnicodeError:
        codec = codec_of(content_type)
        declared = "" if codec is None else ", which its Content-Type declares"
        what = f"{reader} cannot read the body: it is not valid {(codec or 'utf-8').upper()}{declared}"
        raise FilterError(what, hint="use -o FILE to see it") from None
