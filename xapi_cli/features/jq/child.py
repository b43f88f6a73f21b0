"""A separate program: applies a jq filter to JSON documents, with libjq, which ignores signals while it works.

Its arguments are the filter, and the function of jq that makes a result a line (`tostring`, which leaves strings as
they are, or `tojson`). It imports nothing of xapi, and only what it needs, so that it starts faster.

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
_WRITTEN_AT_ONCE = 64 * 1024  # characters
# In a library, halt_error would end the filter as if it had succeeded.
_BEFORE = """def halt_error($code): error(if type == "string" then . else tojson end); \
def halt_error: halt_error(5); ("""


def main(text: str, encode: str) -> None:
    """Apply the filter *text* to the blocks on stdin."""
    with open(0, "rb", closefd=False) as source, open(1, "wb", closefd=False) as out:
        try:
            import jq

            jq.compile(text)  # alone first: errors are about what the user wrote
            program = jq.compile(f"{_BEFORE}{text}\n) | {encode}")
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
            except ValueError as error:
                _write(out, FAILED, str(error))
            else:
                _write(out, DONE)


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


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # without freeing the documents, which takes long
