"""What a worker does before a command arrives."""

import subprocess
from pathlib import Path

from tests.support.program import PYTHON, Xapi
from xapi_cli.sandbox import MASTER, Sandbox

_WARM_UP = """
import gc, os, socket, sys
from xapi_cli.agent import preload
for _ in range(20):
    preload.warm_up(sys.argv[1])
    for each in gc.get_objects():
        if type(each) is socket.socket and each.fileno() >= 0:
            os.fstat(each.fileno())  # raises OSError if it is closed
"""
# Prints the exit codes of the warm-up requests, and then those of two commands, and the modules that these import.
_RUN = """
import os, sys
from xapi_cli.agent import preload
from xapi_cli.cli import main
from xapi_cli.runtime import Runtime

def run(command, runtime):
    codes.append(real(command, runtime))
    return codes[-1]

codes, real, main.run = [], main.run, run
preload.load(sys.argv[1])
print("warm-up:", set(codes), flush=True)
main.run = real
loaded = set(sys.modules)
commands = ["token", "show"], ["request", "/x-api/me"]
codes = [main.run(command, lambda: Runtime(dict(os.environ))) for command in commands]
print(codes, sorted(set(sys.modules) - loaded))
"""


def test_a_warm_up_request_leaves_no_socket_that_would_close_a_descriptor_of_the_command(tmp_path: Path) -> None:
    subprocess.run([PYTHON, "-Pc", _WARM_UP, tmp_path], timeout=60, check=True)


def test_warm_up_requests_succeed_and_then_a_command_with_a_config_file_and_a_stored_token_imports_nothing(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    password = {"XAPI_PASSWORD": MASTER.password}
    login = xapi("login", "--base-url", sandbox.base_url, "--username", MASTER.email, "--storage", "file", env=password)
    assert login.code == 0, login

    ended = subprocess.run(
        [PYTHON, "-Pc", _RUN, tmp_path],
        env=xapi.environment(), timeout=60, check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert ended.stdout.startswith("warm-up: {0}\n")
    assert ended.stdout.endswith("[0, 0] []\n")
