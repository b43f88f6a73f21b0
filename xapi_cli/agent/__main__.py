"""The process of an agent in the background, which `xapi agent start` starts."""

import sys

from xapi_cli.agent.daemon import run_in_background

if __name__ == "__main__":
    run_in_background(sys.argv[1:])
