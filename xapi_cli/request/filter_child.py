"""A program of its own: applies a jq filter to the JSON documents on stdin, with libjq.

Its arguments are the directory of the module jq, the filter as the user wrote it, for error messages, the filter to
apply, and the last line that it prints. With a fifth argument, it first checks the library and the filter that the
user wrote, and prints a newline when both filters are compiled, before it reads stdin. Its exit codes are those of jq.
It imports nothing of xapi, and only what it needs, so that it starts faster.

The results of the filter to apply are, for each document, the number 0, strings, and null. It prints the strings, one
per line. If the last line is empty, each line is a document instead, whose only result is a string that it prints
immediately.
"""

import os
import re
import sys

TYPE_CHECKING = False  # the module typing takes a fifth of the time to start
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import IO, Any

COMPILE_ERROR, NO_LIBRARY, ERROR, TOO_LARGE = 3, 4, 5, 6
ENDED_EARLY = "it ended early, possibly because of halt, which is not supported"
MAX_BODY = 64 * 1024 * 1024  # bytes parsed in one piece
TUNABLES = "glibc.malloc.mxfast=0"  # libjq then frees documents in a fraction of the time
_BLOCK = 1024 * 1024  # bytes
_MAX_REASON = 4096  # characters, which a pipe holds: libjq repeats the filter in each of its errors
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class _Failure(Exception):
    """The filter cannot be applied to all documents."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Text:
    """Bytes that the module jq takes as text: it calls `encode`, so the bytes need not be decoded before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self, encoding: str) -> bytes:
        """Return the bytes."""
        return self._data


def main(directory: str, text: str, full: str, end: str, ready: str = "") -> int:
    """Apply the filter *full*; return the exit code."""
    if os.environ.get("GLIBC_TUNABLES") == TUNABLES:
        del os.environ["GLIBC_TUNABLES"]  # it is not for the filter
    sys.path.append(directory)
    try:
        import jq

        if ready:
            if not _keeps_numbers(jq):
                return _failed("the package jq is older than 1.6", NO_LIBRARY)
            jq.compile(text)
        program = jq.compile(full)
        if ready:
            os.write(1, b"\n")
        if end:
            _filter_documents(program, end)
        else:
            _filter_lines(program)
    except ImportError as error:
        return _failed(error, NO_LIBRARY)
    except _Failure as error:
        return _failed(error, error.code)
    except ValueError as error:
        return _failed(error, COMPILE_ERROR)
    except MemoryError:
        return _failed("not enough memory", ERROR)
    return 0


def _keeps_numbers(jq: "ModuleType") -> bool:
    """Return whether *jq* is the library, in a version that preserves the notation of numbers."""
    try:
        return str(next(iter(jq.compile("tostring").input_text("1.10")))) == "1.10"
    except AttributeError:
        return False


def _filter_documents(program: "Any", end: str) -> None:
    """Print the results for the documents on stdin, and then *end*; raises _Failure."""
    with open(1, "wb", buffering=_BLOCK, closefd=False) as out:
        for data in parts(iter(lambda: os.read(0, _BLOCK), b"")):
            _write_results(program, data, out)
            out.flush()
        out.write(end.encode() + b"\n")


def parts(blocks: "Iterator[bytes]") -> "Iterator[bytes]":
    """Yield the text in *blocks* in parts of complete documents; raises _Failure if a part is too large.

    As long as the documents end at the ends of lines, the lines that have arrived are a part. The rest is one part, and
    so is text with a first line of more than 1 MiB: it is usually the only one, and not worth a check.
    """
    pending: list[bytes] = []
    size, by_line, has_lines = 0, True, False
    for block in blocks:
        end = block.rfind(b"\n") + 1 if by_line else 0
        pending.append(block[:end] if end else block)
        size += len(pending[-1])
        if size > MAX_BODY:
            raise _Failure("", TOO_LARGE)
        by_line = by_line and (has_lines or size <= _BLOCK)
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


def _write_results(program: "Any", data: bytes, out: "IO[bytes]") -> None:
    is_complete = True
    try:
        for result in _results(program, data):
            if result.__class__ is str:
                out.write(result.encode("utf-8", "replace") + b"\n")
                continue
            if result is not None and not is_complete:
                break
            is_complete = result is None
    except ValueError as error:
        out.flush()
        raise _Failure(str(error).replace("\n", " "), ERROR) from None  # one line: only the last one counts
    if not is_complete:  # halt in a module is not an error of libjq
        out.flush()
        raise _Failure(ENDED_EARLY, ERROR)


def _results(program: "Any", data: bytes) -> "Iterator[Any]":
    try:
        return iter(program.input_text(_Text(data)))
    except TypeError:  # a future version may require str
        return iter(program.input_text(str(data, "utf-8", "replace")))


def _filter_lines(program: "Any") -> None:
    """Print one line for each line of stdin, immediately."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        try:
            result = next(_results(program, line))
        except (ValueError, StopIteration) as error:
            import json

            result = json.dumps({"error": str(error) or ENDED_EARLY})
        out.write(result.encode("utf-8", "replace") + b"\n")
        out.flush()


def _failed(reason: object, code: int) -> int:
    sys.stderr.write(str(reason)[:_MAX_REASON])
    return code


if __name__ == "__main__":
    exit_code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(exit_code)  # without freeing the documents, which takes long
