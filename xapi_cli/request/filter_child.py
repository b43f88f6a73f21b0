"""A program of its own: applies the jq filter in its argument to the JSON documents on stdin, with libjq.

Like `jq -rc`, it prints one result per line, strings without quotes. Its exit codes are those of jq. It imports nothing
of xapi, so that it starts faster.
"""

import os
import sys

COMPILE_ERROR, ERROR = 3, 5


def main(text: str) -> int:
    """Apply the filter *text*, or only compile it if stdin is empty; return the exit code."""
    import jq

    try:
        jq.compile(text)
        # Python objects would lose the notation of numbers, which `tostring` preserves. It does not change a string.
        program = jq.compile(f"({text}\n) | tostring")
    except ValueError as error:
        sys.stderr.write(str(error))
        return COMPILE_ERROR
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


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)  # without freeing the documents, which takes long
