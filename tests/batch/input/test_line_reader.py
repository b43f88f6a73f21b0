"""Lines are returned unchanged, however the input arrives."""

import hashlib
import io
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch.input.line_reader import MAX_LINE, InputDigest, Line, LineReader


class _Pieces(io.RawIOBase):
    """Return one of *chunks* at each read."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._pieces = iter(chunks)

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")


def all_lines(source: Any) -> tuple[list[Line], LineReader]:
    bell = threading.Event()
    lines = LineReader(source, bell.set, digests=True)
    lines.start()
    found = []
    while not lines.has_ended:
        line = lines.next_line()
        if line is not None:
            found.append(line)
        elif not lines.has_ended:
            assert bell.wait(30)
            bell.clear()
    return found, lines


def described(digest: InputDigest | None) -> tuple[int, str]:
    assert digest is not None
    return digest.lines(), digest.text()


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b" ", b"{}\n", b"x\ny", b"\r"]), max_size=12))
def test_lines_are_numbered_and_blank_lines_skipped(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    raw = [line + b"\n" for line in text.split(b"\n")]
    raw[-1] = raw[-1][:-1]
    found, lines = all_lines(_Pieces(chunks))

    assert [(line.number, line.data) for line in found] == [(n, line) for n, line in enumerate(raw, 1) if line.strip()]
    for line in found:
        assert line.digest == hashlib.blake2b(b"".join(raw[: line.number]), digest_size=16).digest()
    assert described(lines.digest) == (lines.number, hashlib.blake2b(text, digest_size=16).hexdigest())
    assert lines.position == len(text)


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"{}\n", b"x\ny"]), min_size=1, max_size=12))
def test_the_digest_of_an_input_does_not_depend_on_its_division(chunks: list[bytes]) -> None:
    whole, parts = InputDigest(), InputDigest()
    assert whole.add(b"".join(chunks)) == [parts.add(chunk) for chunk in chunks][-1]

    _, lines = all_lines(_Pieces(chunks))
    assert described(whole) == described(parts) == described(lines.digest)


def test_a_line_that_is_too_long_is_reported_without_its_data() -> None:
    text = b"1\n" + b"x" * (MAX_LINE * 2) + b"\n3\n"
    chunks = [text[start : start + 65_536] for start in range(0, len(text), 65_536)]
    found, lines = all_lines(_Pieces(chunks))

    assert [(line.number, line.data) for line in found] == [(1, b"1\n"), (2, None), (3, b"3\n")]
    assert described(lines.digest) == (3, hashlib.blake2b(text, digest_size=16).hexdigest())
    assert lines.position == len(text)


def test_the_end_of_a_batch_closes_its_input_without_a_traceback() -> None:
    """Pytest reports an exception in a thread as a warning, which is an error."""
    source, blocks = io.BytesIO(b"x" * 1_000_000), threading.Semaphore(0)
    lines = LineReader(source, blocks.release)
    lines.start()
    for _ in range(4):  # the thread reads ahead so many
        assert blocks.acquire(timeout=30)
    source.close()
    reader = next(thread for thread in threading.enumerate() if thread.name == "input")
    while reader.is_alive():
        lines.next_line()
