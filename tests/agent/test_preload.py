"""What is rehearsed before a command arrives."""

import subprocess

from tests.program import PYTHON

_REHEARSE = """
import gc, os, socket
from xapi_cli.agent import preload
for _ in range(20):
    preload.rehearse()
    for each in gc.get_objects():
        if type(each) is socket.socket and each.fileno() >= 0:
            os.fstat(each.fileno())  # raises OSError if it is closed
"""


def test_a_rehearsal_leaves_no_socket_that_would_close_a_descriptor_of_the_command() -> None:
    subprocess.run([PYTHON, "-Pc", _REHEARSE], timeout=60, check=True)
