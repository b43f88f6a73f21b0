"""Prints the tables. Compare ratios within a run: other load changes the times, but affects all rows."""

import argparse
import os
import platform
import tempfile
from pathlib import Path

from tests.bench import batches, calls
from tests.bench.servers import WAIT, nginx, slow

parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=…", description=__doc__)
parser.add_argument("--rounds", type=int, default=21)
parser.add_argument("--runs", type=int, default=3)
arguments = parser.parse_args()

print(f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}, {arguments.rounds} rounds\n")
with tempfile.TemporaryDirectory() as directory, nginx(Path(directory)) as url:
    calls.measure(arguments.rounds, url, Path(directory), os.environ["PATH"])
    print("\nmany calls, on loopback")
    batches.measure(url, lines=8000, jobs=32, runs=arguments.runs)
print(f"\nmany calls to a server that waits {1000 * WAIT:.0f} ms")
with slow() as url:
    batches.measure(url, lines=8000, jobs=16, runs=arguments.runs)
