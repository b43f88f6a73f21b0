"""The loop on the page about scripts that runs a command again keeps its exit code, and waits only between attempts."""

import subprocess

import pytest

from tests.commands.api import bearing, response
from tests.support.pages import TEXTS, blocks_of
from tests.support.program import Xapi
from tests.support.servers import OK, Server, request, send

SLEEP = 'sleep() { echo "slept $1"; }\n'
TRUNCATED = response("200 OK", b"{", "Content-Length: 10")


@pytest.mark.parametrize(
    ("replies", "code", "waits"),
    [
        pytest.param([OK], 0, 0, marks=pytest.mark.slow),
        ([TRUNCATED, OK], 0, 1),
        ([TRUNCATED] * 3, 11, 2),
        pytest.param([response("404 Not Found")], 4, 0, marks=pytest.mark.slow),
        ([TRUNCATED, response("404 Not Found")], 4, 1),
    ],
)
def test_the_loop_stops_with_the_code_of_the_last_attempt(
    xapi: Xapi, replies: list[bytes], code: int, waits: int
) -> None:
    (loop,) = [block.text for block in blocks_of(TEXTS["docs/scripting.md"]) if "sleep 60" in block.text]
    with Server(*([request(), send(reply)] for reply in replies)) as server:
        ran = subprocess.run(
            ["sh", "-euc", SLEEP + loop],
            cwd=xapi.home,
            env=xapi.environment(bearing(server)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert (ran.returncode, ran.stdout, len(server.received)) == (code, "slept 60\n" * waits, len(replies)), ran
