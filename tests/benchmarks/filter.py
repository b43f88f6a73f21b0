"""Measure `xapi request --jq` with a body of 25 MB, compared with the program jq: `make bench-filter`."""

import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.program import PROGRAM, clean_environ
from tests.support.servers import Server, serve

FILTERS = (".", ".[].name", "length")
RUNS = 5
_RECORDS = 330_000  # 25 MB


def _body() -> bytes:
    records = [
        {"id": number, "name": f"Näme {number}", "tags": ["a", "b"], "o": {"x": 1.1}} for number in range(_RECORDS)
    ]
    return json.dumps(records, ensure_ascii=False).encode()


class Times(NamedTuple):
    """Seconds of CPU time, of user and system with all processes, and of wall time."""

    cpu: float
    wall: float


def _times(command: str, environ: dict[str, str]) -> Times:
    """Return the times of the shell *command*."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["sh", "-c", command], env=environ, stdout=subprocess.DEVNULL, check=True)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    return Times(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, end - start)


def _minima(commands: tuple[str, ...], environ: dict[str, str]) -> list[Times]:
    """Run *commands* in turn; return the smallest times of each, because other programs only add to them."""
    rounds = [[_times(command, environ) for command in commands] for _ in range(RUNS)]
    return [Times(*map(min, zip(*times, strict=True))) for times in zip(*rounds, strict=True)]


def main() -> None:
    body = _body()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with tempfile.TemporaryDirectory() as home, Server([serve(head.encode() + body)]) as server:
        (Path(home) / "body.json").write_bytes(body)
        environ = {**clean_environ(Path(home)), "XAPI_BASE_URL": server.url, "XAPI_TOKEN": "x", "XAPI_CONFIG_DIR": home}
        print(f"seconds for {len(body) / 1e6:.0f} MB, minimum of {RUNS} runs, {os.cpu_count()} cores")
        print(f"{'filter':<12}{'':6}{'jq':>6}{'xapi | jq':>12}{'--jq':>8}{'--jq / jq':>12}{'--jq / pipe':>14}")
        for text in FILTERS:
            commands = (
                f"jq -rc '{text}' <{home}/body.json",
                f"'{PROGRAM}' request / | jq -rc '{text}'",
                f"'{PROGRAM}' request / --jq '{text}'",
            )
            for kind, times in zip(Times._fields, zip(*_minima(commands, environ), strict=True), strict=True):
                jq, pipe, own = times
                print(f"{text:<12}{kind:<6}{jq:>6.2f}{pipe:>12.2f}{own:>8.2f}{own / jq:>12.2f}{own / pipe:>14.2f}")


if __name__ == "__main__":
    main()
