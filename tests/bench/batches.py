"""Calls per second of many calls: `xapi batch`, `curl --parallel`, and a curl for each call."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.calls import XAPI
from tests.bench.servers import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable


def measure(base_url: str, *, lines: int, jobs: int, runs: int) -> None:
    """Print the table for *lines* calls with *jobs* at the same time, the best of *runs*."""
    with tempfile.TemporaryDirectory() as name:
        many = _Many(base_url, Path(name), lines)
        rows: dict[str, Callable[[], float]] = {
            "xargs -P8 curl": many.xargs,
            f"curl --parallel --parallel-max {jobs}": lambda: many.curl(jobs),
            f"xapi batch -j {jobs}": lambda: many.batch(jobs),
        }
        best = dict.fromkeys(rows, 0.0)
        for _ in range(runs):
            for program, call in rows.items():
                best[program] = max(best[program], call())
    xargs, curl, _ = best.values()
    print("| program | calls/s | × xargs curl | × curl --parallel |\n| --- | --- | --- | --- |")
    for program, rate in best.items():
        print(f"| `{program}` | {rate:,.0f} | {rate / xargs:.1f} | {rate / curl:.2f} |")


class _Many:
    def __init__(self, base_url: str, directory: Path, lines: int) -> None:
        self._url, self._directory, self._lines = base_url, directory, lines
        self._header = directory / "header"
        self._header.write_text(f"Authorization: Bearer {TOKEN}\n")
        self._environ = {"HOME": str(directory), "PATH": _PATH, "XAPI_BASE_URL": base_url, "XAPI_TOKEN": TOKEN}

    def batch(self, jobs: int) -> float:
        text = "".join(f'{{"path": "/x-api/items/{number}"}}\n' for number in range(self._lines))
        return self._rate([XAPI, "batch", "-j", str(jobs), "--quiet"], text, self._lines)

    def xargs(self) -> float:
        count = min(self._lines, 400)
        text = "".join(f"{self._url}/x-api/items/{number}\n" for number in range(count))
        return self._rate(["xargs", "-P8", "-n1", "curl", "-s", "-H", f"@{self._header}"], text, count)

    def curl(self, jobs: int) -> float:
        listed = self._directory / "list"
        listed.write_text(
            "".join(f'url = "{self._url}/x-api/items/{n}"\noutput = /dev/null\n' for n in range(self._lines))
        )
        parallel = ["--parallel", "--parallel-max", str(jobs)]
        return self._rate(["curl", "-s", *parallel, "-H", f"@{self._header}", "-K", str(listed)], "", self._lines)

    def _rate(self, command: list[str], text: str, count: int) -> float:
        start = time.perf_counter()
        null = subprocess.DEVNULL
        subprocess.run(command, input=text.encode(), stdout=null, stderr=null, env=self._environ, check=True)
        return count / (time.perf_counter() - start)


_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
assert shutil.which("curl", path=_PATH), "curl is not installed"
