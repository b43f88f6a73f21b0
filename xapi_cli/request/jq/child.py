"""A separate program: applies a jq filter to JSON documents, with libjq.

Its arguments are the directory of the module jq, the filter, the function of jq that makes a result a line:
`tostring`, which leaves strings as they are, or `tojson`, and filters that are conditions. It imports nothing of xapi,
and only what it needs, so that it starts faster.

It reads bodies: text with any number of documents, in blocks. A block is its length (4 bytes, the most significant
first) and that many bytes; an empty block ends the body. LINES, before the first block, says that each line is a
document; TRUNCATED, before the empty block, that the rest of the body is missing, so that its last document is filtered
only if it is certainly complete. Both are in place of a length. It writes frames: a kind (1 byte), a length, and that
many bytes. The first frame is END when the filters are compiled, or says which one is not, and why. For each body,
there are RESULTS, any number of complete lines, as soon as documents have arrived; UNMET if it does not satisfy a
condition, with the number of the first one and the reason; and then either END or a failure. A failure ends only its
body: the next one is filtered as if nothing had happened.
"""

import io
import os
import re
import sys

TYPE_CHECKING = False  # the module typing takes a fifth of the time to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO, Any

RESULTS, UNMET, END = b"+", b"-", b"."
FAILED, INVALID, TOO_LARGE = b"!", b"?", b">"  # the filter failed; the body is not JSON; a document is too large
NOT_COMPILED, NO_LIBRARY = b"c", b"l"
LENGTH = 4  # bytes
LINES, TRUNCATED = b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"  # no block is so long
BLOCK = 1024 * 1024  # bytes, at most
MAX_DOCUMENT = 64 * 1024 * 1024  # bytes parsed in one piece
TUNABLES = "glibc.malloc.mxfast=0"  # libjq then frees documents in a fraction of the time
_ENDED_EARLY = "it ended early, possibly because of halt, which is not supported"
_NO_PROGRAM = "Top-level program not given"  # the filter is empty, a comment, or only defines functions
_INCOMPLETE = b"!"  # libjq then takes no number or word before it for complete
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# What libjq reads as a number and JSON does not have, where it is probably not in a string. Two literals are found in a
# fraction of the time that one pattern for both takes.
_NAN, _INFINITY = (re.compile(rb'%b(?<![^\[,:\s+\-]%b)(?![\w"])' % (word, word)) for word in (b"NaN", b"Infinity"))
_STRING_OR_CONSTANT = rb'(?s)"(?:[^"\\]++|\\.)*+"|NaN|Infinity'  # compiled only if it is needed
_DIRECTIVES = re.compile(
    r'(?:\s|#[^\n]*(?:\n|\Z)|(?:module|import|include)\b(?:"(?:[^"\\]|\\.)*"|#[^\n]*\n|[^";#])*;)*', re.DOTALL
)
# A document yields 0, the lines of its results, which are strings, or an object with an error, and null. Python objects
# would lose the notation of numbers. Without null, the filter has ended early: halt is not an error of libjq. There is
# no further input, because each document is filtered separately.
_BEFORE = """def input: error("No more inputs"); def inputs: empty; \
def halt_error($code): error(if type == "string" then . else tojson end); \
def halt_error: halt_error(5); def halt: error("halt is not supported"); 0, (try (("""
_AFTER = """
) | %s) catch {error: (if type == "string" then . else tojson end)}), null"""


class _TooLarge(Exception):
    """A document is too large."""


class _Condition:
    """Whether a body meets *program*: it must yield something for its documents, and neither false nor null."""

    def __init__(self, program: "Any") -> None:
        self._program = program
        self._found: set[str] = set()
        self._error: str | None = None

    def test(self, data: bytes) -> None:
        """Apply the program to the documents in *data*; raises ValueError if they are not JSON."""
        is_complete = True
        for result in _results(self._program, data):
            if result.__class__ is str:
                self._found.add(result if result in ("false", "null") else "")
            elif result.__class__ is dict:
                self._error = self._error or str(result["error"])
            is_complete = result is None
        if not is_complete:
            self._error = self._error or _ENDED_EARLY

    def failure(self) -> str | None:
        """Return why the body does not satisfy the condition, None if it does."""
        if self._error is not None:
            return f"the --expect filter failed: {self._error}"
        failed = [each for each in ("false", "null") if each in self._found]
        if failed or not self._found:
            return f"the filter yields {' and '.join(failed) or 'nothing'}"
        return None


class _Text:
    """Bytes that the module jq takes as text: it calls `encode`, so the bytes need not be decoded before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self, encoding: str) -> bytes:
        return self._data


def main(directory: str, text: str, encode: str, *conditions: str) -> None:
    """Apply the filter *text* and the *conditions* to the bodies on stdin."""
    if os.environ.get("GLIBC_TUNABLES") == TUNABLES:
        del os.environ["GLIBC_TUNABLES"]  # it is not for the filter
    sys.path.append(directory)
    with io.BufferedReader(io.FileIO(0, closefd=False), BLOCK) as source, open(1, "wb", BLOCK, closefd=False) as out:
        try:
            compile_filter = _library()
        except Exception as error:  # noqa: BLE001 - it is code of another project
            _write(out, NO_LIBRARY, str(error))
            return
        programs: list[Any] = []
        for each in (text, *conditions):
            try:
                programs.append(_compiled(compile_filter, each, "tojson" if programs else encode))
            except ValueError as error:
                _write(out, NOT_COMPILED, f"{len(programs)} {error}")
                return
        _write(out, END)
        out.flush()
        while source.peek(1):
            body = _Body(source, out)
            _write(out, *_filtered(programs, body, out))
            for _ in body.blocks:  # after a failure
                pass
            out.flush()


def _library() -> "Callable[[str], Any]":
    """Return the function that compiles a filter; raises an exception if libjq is missing or changes numbers."""
    import jq

    if str(next(iter(jq.compile("tostring").input_text("1.10")))) != "1.10":
        raise ImportError("the package jq is older than 1.6")
    found: Callable[[str], Any] = jq.compile
    return found


def _compiled(compile_filter: "Callable[[str], Any]", text: str, encode: str) -> "Any":
    """Return the program for the filter *text*, which is compiled alone before: errors are about what the user wrote.

    It is placed after its directives, which must be the first.
    """
    try:
        compile_filter(text)
    except ValueError as error:
        if _NO_PROGRAM not in str(error):
            raise
        text += "\n."
        compile_filter(text)
    found = _DIRECTIVES.match(text)
    start = found.end() if found else 0
    return compile_filter(f"{text[:start]}{_BEFORE}{text[start:]}{_AFTER % encode}")


class _Body:
    """The body that is next in *source*; *out* is flushed before each of its blocks, which may take long to arrive."""

    is_truncated = False  # known at its end

    def __init__(self, source: "IO[bytes]", out: "IO[bytes]") -> None:
        self._source, self._out = source, out
        self._length = source.read(LENGTH)  # of the next block
        self.has_lines = self._length == LINES
        if self.has_lines:
            self._length = source.read(LENGTH)
        self.blocks = self._read()

    def parts(self) -> "Iterator[bytes]":
        """Yield the text in parts of complete documents; raises _TooLarge if a part is too large."""
        return lines(self.blocks) if self.has_lines else parts(self.blocks)

    def _read(self) -> "Iterator[bytes]":
        while size := int.from_bytes(self._length, "big"):
            self.is_truncated = self._length == TRUNCATED
            yield _INCOMPLETE if self.is_truncated else self._source.read(size)
            self._out.flush()
            self._length = self._source.read(LENGTH)


def lines(blocks: "Iterator[bytes]") -> "Iterator[bytes]":
    """Yield the text in *blocks* in parts of lines, each as soon as it has arrived; raises _TooLarge.

    A line that is not complete as a document is a separate part: the next lines must not complete it.
    """
    pending: list[bytes] = []
    size = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        pending.append(block[:end] if end else block)
        size += len(pending[-1])
        if size > MAX_DOCUMENT:
            raise _TooLarge
        if end:
            yield from _valid_start(b"".join(pending))
            pending = [block[end:]]
            size = len(pending[0])
    yield b"".join(pending)


def _valid_start(data: bytes) -> "Iterator[bytes]":
    """Yield the lines *data*; the first one that is not complete is the last part."""
    at = 0
    for line in data.split(b"\n"):
        if not _is_complete(line):
            yield data[:at]
            yield line
            return
        at += len(line) + 1
    yield data


def parts(blocks: "Iterator[bytes]") -> "Iterator[bytes]":
    """Yield the text in *blocks* in parts of complete documents; raises _TooLarge if a part is too large.

    As long as the documents end at the ends of lines, the lines that have arrived are a part. The rest is one part, and
    so is text with a first line of more than 1 MiB: it is usually the only one, and not worth a check.
    """
    pending: list[bytes] = []
    size, by_line, has_lines = 0, True, False
    for block in blocks:
        end = block.rfind(b"\n") + 1 if by_line else 0
        pending.append(block[:end] if end else block)
        size += len(pending[-1])
        if size > MAX_DOCUMENT:
            raise _TooLarge
        by_line = by_line and (has_lines or size <= BLOCK)
        if not end:
            continue
        data = b"".join(pending)
        by_line = has_lines = by_line and _is_complete(data)
        if by_line:
            yield data
        pending = [block[end:]] if by_line else [data, block[end:]]
        size = sum(map(len, pending))
    yield b"".join(pending)


def _is_complete(data: bytes) -> bool:
    """Return whether no string, array or object is open at the end of *data*, which need not be valid."""
    structure = _STRING.sub(b"", data)
    counts = (structure.count(character) for character in (b"{", b"}", b"[", b"]"))
    return b'"' not in structure and next(counts) == next(counts) and next(counts) == next(counts)


def without_constants(data: bytes) -> bytes:
    """Return *data* with NaN and Infinity, which libjq accepts, replaced by what is not valid JSON for libjq either."""
    if not (_NAN.search(data) or _INFINITY.search(data)):  # usually; it takes 2 % of the time to parse *data*
        return data
    return re.sub(
        _STRING_OR_CONSTANT, lambda found: found[0] if found[0].startswith(b'"') else b"!" * len(found[0]), data
    )


def _filtered(programs: "list[Any]", body: _Body, out: "IO[bytes]") -> tuple[bytes, str]:
    """Write the results for *body*; return the kind and the text of the last frame."""
    program, *others = programs
    conditions = [_Condition(each) for each in others]
    try:
        for data in map(without_constants, body.parts()):
            for condition in conditions:
                condition.test(data)
            error = _write_results(program, data, out)
            if error is not None:
                return FAILED, error
    except _TooLarge:
        return TOO_LARGE, ""
    except ValueError as error:
        return (END, "") if body.is_truncated else (INVALID, str(error))
    except MemoryError:
        return FAILED, "not enough memory"
    for number, condition in enumerate(conditions):
        if (reason := condition.failure()) is not None:
            _write(out, UNMET, f"{number} {reason}")
            break
    return END, ""


def _write_results(program: "Any", data: bytes, out: "IO[bytes]") -> str | None:
    """Write the results for the documents in *data*; return the error of the filter; raises ValueError."""
    lines: list[str] = []
    size, is_complete = 0, True
    try:
        for result in _results(program, data):
            if result.__class__ is str:
                lines.append(result)
                size += len(result) + 1
                if size > BLOCK:
                    _write_lines(out, lines)
                    size = 0
            elif result is None:
                is_complete = True
            elif result.__class__ is dict:
                return str(result["error"])
            elif is_complete:
                is_complete = False
            else:
                break
    finally:
        _write_lines(out, lines)
    return None if is_complete else _ENDED_EARLY


def _results(program: "Any", data: bytes) -> "Iterator[Any]":
    try:
        return iter(program.input_text(_Text(data)))
    except TypeError:  # a future version may require str
        return iter(program.input_text(str(data, "utf-8", "replace")))


def _write_lines(out: "IO[bytes]", lines: list[str]) -> None:
    """Write a frame with *lines*, if there are any, and remove them."""
    if lines:
        lines.append("")
        _write(out, RESULTS, "\n".join(lines))
        lines.clear()


def _write(out: "IO[bytes]", kind: bytes, text: str = "") -> None:
    data = text.encode("utf-8", "replace")
    out.write(b"%b%b%b" % (kind, len(data).to_bytes(LENGTH, "big"), data))


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # without freeing the documents, which takes long
