"""Measure the CPU time of `xapi request --jq` with a body of 25 MB, compared with jq: `make bench-filter`."""

import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.program import PROGRAM, clean_environ
from tests.servers import Server, serve

FILTERS = (".", ".[].name", "length")
RUNS = 3
_RECORDS = 330_000  # 25 MB


def _body() -> bytes:
    records = [
        {"id": number, "name": f"Näme {number}", "tags": ["a", "b"], "o": {"x": 1.1}} for number in range(_RECORDS)
    ]
    return json.dumps(records, ensure_ascii=False).encode()


def _cpu_seconds(command: str, environ: dict[str, str]) -> float:
    """Return the CPU time of the shell *command*, of user and system, with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["sh", "-c", command], env=environ, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    body = _body()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with tempfile.TemporaryDirectory() as home, Server([serve(head.encode() + body)]) as server:
        (Path(home) / "body.json").write_bytes(body)
        environ = {**clean_environ(Path(home)), "XAPI_BASE_URL": server.url, "XAPI_TOKEN": "x", "XAPI_CONFIG_DIR": home}
        print(
            f"CPU seconds (user and system) for {len(body) / 1e6:.0f} MB, median of {RUNS} runs, {os.cpu_count()} cores"
        )
        print(f"{'filter':<12}{'jq':>8}{'xapi | jq':>12}{'--jq':>8}{'--jq / jq':>12}{'--jq / pipe':>14}")
        for text in FILTERS:
            commands = (
                f"jq -rc '{text}' <{home}/body.json",
                f"'{PROGRAM}' request / | jq -rc '{text}'",
                f"'{PROGRAM}' request / --jq '{text}'",
            )
            jq, pipe, own = (statistics.median(_cpu_seconds(each, environ) for _ in range(RUNS)) for each in commands)
            print(f"{text:<12}{jq:>8.2f}{pipe:>12.2f}{own:>8.2f}{own / jq:>12.2f}{own / pipe:>14.2f}")


if __name__ == "__main__":
    main()
