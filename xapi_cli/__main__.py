"""Start `xapi`, also as `python -m xapi_cli`; the latter has the current directory on Python's module search path."""

import os
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than handing the command over to an agent
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn

    from xapi_cli.runtime import Runtime
else:
    import _signal  # `signal` takes 3 ms


def main() -> "NoReturn":
    """Run `xapi`, in the warm agent if there is one; while it is loading, Ctrl-C ends it without a Python traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    if __name__ != "__main__":  # `python -m xapi_cli` imports modules of the current directory; a worker does not
        from xapi_cli.system import agent_socket

        if (connection := agent_socket.connection_for_call(os.environ, sys.argv[1:])) is not None:
            from xapi_cli.agent import call  # while a worker accepts the connection

            call.run(connection)
    from xapi_cli.system import own_process

    own_process.delay_garbage_collection()  # before more modules are loaded
    from xapi_cli.system import standard_streams

    standard_streams.reserve()  # before a library opens a file
    own_process.protect()
    try:
        from xapi_cli.cli.main import main as run

        run(_start_agent)
    except BaseException as error:  # run() handles all others; this one is raised by an import, or by the handling
        if own_process.is_out_of_memory(error):
            own_process.end_out_of_memory()
        if own_process.is_out_of_descriptors(error):
            own_process.end_out_of_descriptors()
        raise


def _start_agent(runtime: "Runtime") -> None:
    """Start an agent for later commands after that of *runtime*, if the settings ask for one."""
    settings = vars(runtime).get("settings")  # only if the command needed them
    if settings is not None and settings.agent == "auto":
        from xapi_cli.agent import automatic_start

        automatic_start.start(runtime)


if __name__ == "__main__":
    main()
