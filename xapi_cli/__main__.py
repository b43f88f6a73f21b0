"""Start `xapi`, also as `python -m xapi_cli`; the latter has the current directory on Python's module search path."""

import gc
import signal
from typing import NoReturn

_COLLECT_AFTER = 50_000  # objects; those loaded at startup stay alive, and collecting them repeatedly costs 8 ms


def main() -> NoReturn:
    """Run `xapi`; while it is loading, Ctrl-C terminates it without a Python traceback."""
    gc.set_threshold(_COLLECT_AFTER)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from xapi_cli.system import process_hardening

    process_hardening.apply()
    from xapi_cli.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
