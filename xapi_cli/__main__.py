"""Run `python -m xapi_cli`: the program `xapi`, but with the current folder on Python's path; prefer `xapi`."""

from xapi_cli.cli import main

if __name__ == "__main__":
    main()
