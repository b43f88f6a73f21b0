"""Start the program `xapi`, also as `python -m xapi_cli`, but that has the current folder on Python's path."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run `xapi`; as long as it is being loaded, Ctrl-C just ends it, without Python's traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from xapi_cli import cli

    cli.main()


if __name__ == "__main__":
    main()
