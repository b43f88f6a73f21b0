"""The measurements measure what they claim to."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.delay import in_namespace, reflected
from tests.benchmarks.programs import WARM_UP, Program, alternate
from tests.support.skips import IMPOSSIBLE

# Connect over a path with a round-trip time of 50 ms, and send one byte that is returned.
_OVER_A_DELAYED_PATH = """
import socket, sys, threading, time
from tests.benchmarks.delay import FAR, NEAR, NoNamespaceError, delayed_path
def serve(listener):
    connection, _ = listener.accept()
    connection.sendall(connection.recv(1))
try:
    with delayed_path(0.05), socket.create_server((NEAR, 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        start = time.monotonic()
        with socket.create_connection((FAR, listener.getsockname()[1]), 20) as connection:
            connected = time.monotonic()
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
        print(connected - start, time.monotonic() - connected)
except NoNamespaceError as error:
    sys.exit(f"impossible: {error}")
"""


def test_programs_alternate_and_each_round_begins_with_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    programs = [Program(name, ["/bin/sh", "-c", f"echo {name} >>{log}"], {}) for name in "ab"]

    alternate(programs, 2, calls=2)

    rounds = ["aabb" if number % 2 == 0 else "bbaa" for number in range(2 + WARM_UP)]
    assert log.read_text().replace("\n", "") == "".join(rounds)
    assert [(len(program.wall), len(program.cpu)) for program in programs] == [(2, 2), (2, 2)]


def test_a_ratio_compares_times_of_the_same_round() -> None:
    own, peer = (Program(name, [], {}) for name in "ab")
    own.wall, peer.wall = [1.0, 20.0, 3.0], [2.0, 40.0, 3.0]

    assert own.ratio(peer) == 0.5


def test_a_program_that_fails_ends_the_measurement() -> None:
    with pytest.raises(SystemExit, match="a failed: exit status 3"):
        Program("a", ["/bin/sh", "-c", "exit 3"], {}).run()


def test_a_reflected_packet_has_its_addresses_exchanged() -> None:
    packet = bytes(range(40))

    assert reflected(packet) == bytes([*range(12), *range(16, 20), *range(12, 16), *range(20, 40)])
    assert reflected(reflected(packet)) == packet


def test_a_delayed_path_delays_the_handshake_and_the_data() -> None:
    ended = subprocess.run(
        in_namespace([sys.executable, "-c", _OVER_A_DELAYED_PATH]),
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if "impossible: " in ended.stderr or ended.stderr.startswith("unshare: "):
        pytest.skip(f"{IMPOSSIBLE}{ended.stderr.strip()}")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert [float(seconds) >= 0.05 for seconds in ended.stdout.split()] == [True, True]
