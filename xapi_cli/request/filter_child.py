"""A program of its own: applies a jq filter to the JSON documents on stdin, with libjq.

Its arguments are the directory of the module jq, the filter as the user wrote it, for error messages, and the filter to
apply, whose results are strings. It prints one result per line. If stdin is empty, it only compiles the filter. Its
exit codes are those of jq. With a fourth argument, each line is a document, and its first result is printed at once. It
imports nothing of xapi, so that it starts faster.
"""

import os
import sys
from typing import Any

COMPILE_ERROR, ERROR, NO_LIBRARY = 3, 5, 4


def main(directory: str, text: str, full: str, lines: str = "") -> int:
    """Apply the filter *full*, or only compile *text* and it if stdin is empty; return the exit code."""
    sys.path.append(directory)
    try:
        import jq
    except ImportError as error:
        sys.stderr.write(str(error))
        return NO_LIBRARY
    try:
        jq.compile(text)
        program = jq.compile(full)
    except ValueError as error:
        sys.stderr.write(str(error))
        return COMPILE_ERROR
    return _answer_lines(program) if lines else _filter_documents(program)


def _filter_documents(program: Any) -> int:
    data = sys.stdin.buffer.read()
    write = sys.stdout.buffer.write
    try:
        if data.strip():
            for result in program.input_text(str(data, "utf-8", "replace")):
                write(result.encode("utf-8", "replace") + b"\n")
    except ValueError as error:
        sys.stderr.write(str(error))
        return ERROR
    finally:
        sys.stdout.buffer.flush()
    return 0


def _answer_lines(program: Any) -> int:
    for line in sys.stdin.buffer:
        try:
            answer = program.input_text(str(line, "utf-8", "replace")).first()
        except (ValueError, StopIteration) as error:
            import json

            answer = json.dumps({"error": str(error) or "the filter ended without a result"})
        sys.stdout.buffer.write(answer.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # without freeing the documents, which takes long
