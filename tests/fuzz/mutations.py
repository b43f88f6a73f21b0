"""A hypothesis strategy that damages examples."""

from collections.abc import Sequence

from hypothesis import strategies as st

_NASTY = [
    b"", b"\0", b"\r\n", b"\n", b"\r", b"\x1b[2J", b"\x9b", b"\x7f", b"\xff", b"\xc3", b"\xe2\x80\xae", b"\xef\xbb\xbf",
    b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b":", b",", b"=", b"#", b"%", b"-1", b"1e999", b"NaN", b"null", b"true",
    b"9" * 30, b"\\ud800", b"\\u0000", b"chunked", b"gzip", b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 7\r\n",
    b"[" * 2000, b"A" * 3000,
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, examples: Sequence[bytes], more: int = 5) -> bytes:
    """Draw one of *examples* after one to *more* changes: bytes removed, duplicated, swapped or replaced."""
    data = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(1, more))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        change = draw(_changes(data[start:end], [example[start : start + 40] for example in examples]))
        data = data[:start] + change + data[end:]
    return data


def _changes(lost: bytes, elsewhere: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return a replacement for *lost*; *elsewhere* is the same part of other examples."""
    return st.one_of(
        st.just(b""), st.just(lost * 2), st.sampled_from(_NASTY), st.binary(max_size=8), st.sampled_from(elsewhere)
    )
