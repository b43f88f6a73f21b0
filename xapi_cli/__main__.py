"""Start the program `xapi`, also as `python -m xapi_cli`, but that has the current folder on Python's path."""

import gc
import signal
from typing import NoReturn

_COLLECT_AFTER = 50_000  # objects: what is loaded at the start stays, and to look through it again and again costs 8 ms


def main() -> NoReturn:
    """Run `xapi`; as long as it is being loaded, Ctrl-C just ends it, without Python's traceback."""
    gc.set_threshold(_COLLECT_AFTER)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from xapi_cli.system import process_hardening

    process_hardening.forbid()
    from xapi_cli.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
