"""A separate program: applies a jq filter to JSON documents, with libjq, which ignores signals while it works.

Its arguments are the directory of the module jq, the filter, the function of jq that makes a result a line (`tostring`,
which leaves strings as they are, or `tojson`), and the end of a pipe that ends with the parent. It imports nothing of
xapi, and only what it needs, so that it starts faster.

It reads blocks: a length (4 bytes, the most significant first), and that many bytes with any number of documents. It
writes frames: a kind (1 byte), a length, and that many bytes. The first frame is DONE when the filter is compiled, or
says why it is not. For each block, there are RESULTS, any number of complete lines, and then DONE or FAILED.
"""

import os
import sys

TYPE_CHECKING = False  # the module typing takes a fifth of the time to start
if TYPE_CHECKING:
    from typing import IO, Any

RESULTS, DONE, FAILED, NOT_COMPILED, NO_LIBRARY = b"+", b".", b"!", b"c", b"l"
LENGTH = 4  # bytes
MEMORY = 2 * 1024**3  # bytes of the process; documents take about 20 times their size
_WRITTEN_AT_ONCE = 64 * 1024  # characters
_NO_PROGRAM = "Top-level program not given"  # the filter is empty, or a comment
# Each document is filtered separately, so there is no further input; halt would end the program without an error.
_BEFORE = """def input: error("No more inputs"); def inputs: empty; \
def halt_error($code): error(if type == "string" then . else tojson end); \
def halt_error: halt_error(5); def halt: error("halt is not supported"); ("""


def main(directory: str, text: str, encode: str, parent: str) -> None:
    """Apply the filter *text* to the blocks on stdin."""
    _limit_memory()
    _end_with(int(parent))
    sys.path.append(directory)
    with open(0, "rb", closefd=False) as source, open(1, "wb", closefd=False) as out:
        try:
            import jq

            program = _compiled(jq, text, encode)
        except ValueError as error:
            _write(out, NOT_COMPILED, str(error))
            return
        except Exception as error:  # noqa: BLE001 - it is code of another project
            _write(out, NO_LIBRARY, f"{type(error).__name__}: {error}")
            return
        _write(out, DONE)
        while length := int.from_bytes(source.read(LENGTH), "big"):
            try:
                _filter(program, source.read(length).decode(), out)
            except (ValueError, MemoryError) as error:
                _write(out, FAILED, "not enough memory" if isinstance(error, MemoryError) else str(error))
            else:
                _write(out, DONE)


def _compiled(jq: "Any", text: str, encode: str) -> "Any":
    """Return the program for the filter *text*, which is compiled alone first: errors are about what the user wrote."""
    try:
        jq.compile(text)
    except ValueError as error:
        if _NO_PROGRAM not in str(error):
            raise
        text += "\n."
    return jq.compile(f"{_BEFORE}{text}\n) | {encode}")


def _filter(program: "Any", text: str, out: "IO[bytes]") -> None:
    lines: list[str] = []
    size = 0
    try:
        for result in program.input_text(text):
            lines.append(result)
            size += len(result)
            if size > _WRITTEN_AT_ONCE:
                _write(out, RESULTS, "\n".join([*lines, ""]))
                lines, size = [], 0
    finally:
        if lines:
            _write(out, RESULTS, "\n".join([*lines, ""]))


def _write(out: "IO[bytes]", kind: bytes, text: str = "") -> None:
    data = text.encode("utf-8", "replace")
    out.write(b"%b%b%b" % (kind, len(data).to_bytes(LENGTH, "big"), data))
    out.flush()


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _end_with(parent: int) -> None:
    """Let the kernel end this process when the other end of the pipe *parent* is closed, even while libjq works."""
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(parent, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        try:
            if not os.read(parent, 1):
                os._exit(1)  # it was closed before
        except BlockingIOError:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # without freeing the documents, which takes long
