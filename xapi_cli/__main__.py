"""Start `xapi`, also as `python -m xapi_cli`; the latter has the current directory on Python's module search path."""

TYPE_CHECKING = False  # importing `typing` takes time
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal  # `signal` takes 3 ms


def main() -> "NoReturn":
    """Run `xapi`; while it is loading, Ctrl-C ends it without a Python traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from xapi_cli.system import own_process

    own_process.delay_garbage_collection()  # before more modules are loaded
    from xapi_cli.system import standard_streams

    standard_streams.reserve()  # before a library opens a file
    own_process.protect()
    try:
        from xapi_cli.cli.main import main as run

        run()
    except BaseException as error:  # run() handles all others; this one is raised by an import, or by the handling
        if own_process.is_out_of_memory(error):
            own_process.end_out_of_memory()
        if own_process.is_out_of_descriptors(error):
            own_process.end_out_of_descriptors()
        raise


if __name__ == "__main__":
    main()
