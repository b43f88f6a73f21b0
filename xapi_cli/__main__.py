"""Start `xapi`, also as `python -m xapi_cli`; the latter has the current directory on Python's module search path."""

import gc
import os

TYPE_CHECKING = False  # importing `typing` takes time
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal  # `signal` takes 3 ms


_COLLECT_AFTER = 50_000  # new objects instead of 700, because a command ends soon


def main() -> "NoReturn":
    """Run `xapi`; while it is loading, Ctrl-C ends it without a Python traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from xapi_cli.system import standard_streams

        standard_streams.reserve()  # before a library opens a file
        from xapi_cli.app import main as run

        run()
    except (MemoryError, OSError, SystemError) as error:  # of an import, or of the report of a failure
        if os.environ.get("XAPI_DEBUG") == "1":
            raise
        os.write(2, b"xapi: error: xapi cannot run (%b); check the limits with `ulimit -a`\n" % str(error).encode())
        os._exit(1)


if __name__ == "__main__":
    main()
