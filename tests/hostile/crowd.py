"""Run programs at the same time and tell of each its exit code, the seconds it took and the memory that it needed.

It is a process of its own, because the peak that the kernel tells of a child
includes that of whoever forked it, and a test run is large.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any


def run(jobs: list[dict[str, Any]], limit: float) -> list[dict[str, Any]]:
    """Run *jobs* to their ends, *limit* seconds at most; who is not done by then has no code."""
    started = time.monotonic()
    waiting = {_start(job): number for number, job in enumerate(jobs)}
    ended: dict[int, dict[str, Any]] = {}
    while waiting and time.monotonic() - started < limit:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - started
            ended[waiting.pop(pid)] = {"code": code, "seconds": seconds, "mebibytes": usage.ru_maxrss / 1024}
        else:
            time.sleep(0.01)
    return [ended.get(number, {"code": None, "seconds": limit, "mebibytes": 0}) for number in range(len(jobs))]


def _start(job: dict[str, Any]) -> int:
    with open(job["out"], "wb") as out, open(job["err"], "wb") as err, open(job["stdin"], "rb") as stdin:
        process = subprocess.Popen(job["argv"], env=job["env"], cwd=job["cwd"], stdin=stdin, stdout=out, stderr=err)
    process.returncode = 0  # it is waited for here, not there
    return process.pid


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump(run(asked["jobs"], asked["limit"]), sys.stdout)
