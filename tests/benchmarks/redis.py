"""Measure the time that storage `redis` adds to a call, compared with storage `file`: `make bench-redis`.

The server is on loopback. Each row is a process from start to exit, and the rows run in alternation.
"""

import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.programs import XAPI, Program, alternate, logged_in
from tests.support.redis_server import RedisServer, free_port
from xapi_cli.sandbox import Sandbox

_CALLS = (("token", "show"), ("request", "/x-api/me"))


def main() -> None:
    """Run all rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sandbox, server = stack.enter_context(Sandbox()), stack.enter_context(RedisServer(port=free_port()))
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **sandbox.settings}
        stores = {
            "file": logged_in(home / "file", environ, "file"),
            "redis, Unix socket": logged_in(home / "unix", environ | {"XAPI_REDIS_URL": server.url}, "redis"),
            "redis, TCP on loopback": logged_in(
                home / "tcp", environ | {"XAPI_REDIS_URL": f"redis://127.0.0.1:{server.port}"}, "redis"
            ),
        }
        rows = {
            (call, name): Program(f"xapi {' '.join(call)} ({name})", [XAPI, *call], store)
            for call in _CALLS
            for name, store in stores.items()
        }
        alternate(list(rows.values()), rounds)
    print(f"{rounds} rounds; milliseconds; paired: the median of the differences to `file` in the same round\n")
    print("| command | median | minimum | CPU | added to the minimum | paired | paired CPU |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (call, _), row in rows.items():
        base = rows[call, "file"]
        absolute = (row.median, row.minimum, statistics.median(row.cpu))
        added = (row.minimum - base.minimum, _added(row.wall, base.wall), _added(row.cpu, base.cpu))
        print(f"| {row.name} | {' | '.join(f'{1000 * each:.1f}' for each in (*absolute, *added))} |")


def _added(own: list[float], base: list[float]) -> float:
    """Return the median of the differences of the same round."""
    return statistics.median(one - other for one, other in zip(own, base, strict=True))


if __name__ == "__main__":
    main()
