"""Measure the speed of `xapi batch` and of its alternatives, and print a table: `make bench-batch`.

The server is nginx on loopback with one worker, which checks that the request has a token. The token has 900 bytes.
The programs run in alternation, and the best of three runs counts, because other processes can only slow a run down.
The second table is for a server that waits 20 ms before each response.
"""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.nginx import TOKEN, nginx

LINES = 20_000
LOOPED = 4_000  # calls in a loop, which is slower
CURLS = 800  # curl processes that xargs starts, one per call
RUNS = 3
WAIT = 0.02  # seconds

_LOOP = """
import sys, httpx
with httpx.Client(base_url=sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]}) as client:
    for number in range(int(sys.argv[3])):
        client.get(f"/x-api/items/{number}").raise_for_status()
"""
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n" + b'{"ok":true}'


class _Slow:
    """A server that responds 20 ms after each request, on any number of connections, in one thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._due: deque[tuple[float, socket.socket]] = deque()  # in order, because the delay is constant
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            timeout = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type]  # a socket
            while self._due and self._due[0][0] <= time.monotonic():
                self._due.popleft()[1].sendall(_RESPONSE)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ)

    def _receive(self, sock: socket.socket) -> None:
        if sock.recv(65_536):  # large enough for a request
            self._due.append((time.monotonic() + WAIT, sock))
        else:
            self._selector.unregister(sock)
            sock.close()


@contextmanager
def _terminal() -> Iterator[int]:
    """Yield a pseudoterminal whose output is read and discarded."""
    keyboard, screen = os.openpty()

    def read() -> None:
        while os.read(keyboard, 65_536) != b"\0":  # which no program prints
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield screen
    finally:
        os.write(screen, b"\0")
        reader.join()
        os.close(screen)
        os.close(keyboard)


class _Contest:
    """The programs to compare, with the server at *url* and files in *directory*."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory
        program = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
        self._batch = [program, "batch"]
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(directory), "XAPI_TOKEN": TOKEN, "XAPI_BASE_URL": url}
        self._header = directory / "header"  # not in argv, as for xapi
        self._header.write_text(f"Authorization: Bearer {TOKEN}\n")

    def batch(self, jobs: int, *options: str, lines: int = LINES, stderr: int = subprocess.DEVNULL) -> float:
        """Return the calls per second of `xapi batch`."""
        source, out = self._directory / "in", self._directory / "out"
        source.write_text("".join(f'{{"id":{n},"path":"/x-api/items/{n}"}}\n' for n in range(lines)))
        with out.open("wb") as file:
            seconds = self._timed([*self._batch, "-j", str(jobs), *options, str(source)], stdout=file, stderr=stderr)
        with out.open("rb") as file:
            succeeded = sum(b'"status": 200' in line for line in file)
        if succeeded != lines:
            raise SystemExit(f"{succeeded} of {lines} lines succeeded")
        return lines / seconds

    def bar(self, jobs: int) -> float:
        """Return the calls per second of `xapi batch` on a terminal, which shows the progress."""
        with _terminal() as screen:
            return self.batch(jobs, stderr=screen)

    def journal(self, jobs: int) -> float:
        """Return the calls per second of `xapi batch --ordered --journal`."""
        journal = self._directory / "journal"
        journal.unlink(missing_ok=True)
        return self.batch(jobs, "--ordered", "--journal", str(journal))

    def log(self, jobs: int) -> float:
        """Return the calls per second of `xapi batch --log`."""
        log = self._directory / "log"
        log.unlink(missing_ok=True)
        return self.batch(jobs, "--log", str(log))

    def xargs(self) -> float:
        """Return the calls per second of one curl process per call, eight concurrently."""
        urls = "".join(f"{self._url}/x-api/items/{n}\n" for n in range(CURLS))
        curl = ["curl", "-s", "-o", "/dev/null", "-H", f"@{self._header}"]
        return CURLS / self._timed(["xargs", "-P", "8", "-n", "1", *curl], text=urls)

    def httpx(self) -> float:
        """Return the calls per second of a loop over one httpx.Client."""
        return LOOPED / self._timed([sys.executable, "-c", _LOOP, self._url, TOKEN, str(LOOPED)])

    def curl(self) -> float:
        """Return the calls per second of one curl process that reads a list of URLs."""
        listed = self._directory / "list"
        listed.write_text("".join(f'url = "{self._url}/x-api/items/{n}"\noutput = /dev/null\n' for n in range(LINES)))
        command = ["curl", "-s", "--parallel", "--parallel-max", "32", "-H", f"@{self._header}", "-K", str(listed)]
        return LINES / self._timed(command)

    def _timed(
        self,
        command: Sequence[str],
        *,
        text: str = "",
        stdout: object = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
    ) -> float:
        start = time.monotonic()
        subprocess.run(
            command,
            input=text.encode(),
            stdout=stdout,
            stderr=stderr,
            env=self._environ,
            check=True,  # type: ignore[call-overload]  # a file
        )
        return time.monotonic() - start


def main() -> int:
    """Print the tables; return 1 if `xapi batch` is slower than required."""
    good = True
    with tempfile.TemporaryDirectory() as name, nginx(Path(name)) as port:
        contest = _Contest(f"http://127.0.0.1:{port}", Path(name))
        rows: dict[str, Callable[[], float]] = {
            "xargs -P 8 curl": contest.xargs,
            "curl --parallel --parallel-max 32": contest.curl,
            "httpx.Client in a loop": contest.httpx,
            "xapi batch -j 32": lambda: contest.batch(32),
            "xapi batch -j 32 on a terminal": lambda: contest.bar(32),
            "xapi batch -j 32 --ordered --journal": lambda: contest.journal(32),
            "xapi batch -j 32 --log": lambda: contest.log(32),
        }
        best = dict.fromkeys(rows, 0.0)
        for _ in range(RUNS):
            for program, measure in rows.items():
                best[program] = max(best[program], measure())
        xargs, curl = best["xargs -P 8 curl"], best["curl --parallel --parallel-max 32"]
        print(f"{LINES:,} calls to nginx on loopback, a token of {len(TOKEN)} bytes, best of {RUNS}\n")
        print("| program | calls/s | × xargs curl | × curl --parallel |\n| --- | --- | --- | --- |")
        for program, rate in best.items():
            print(f"| `{program}` | {rate:,.0f} | {rate / xargs:.1f} | {rate / curl:.2f} |")
        good = best["xapi batch -j 32"] >= 10 * xargs
    wait = f"{WAIT * 1000:.0f} ms"
    print(f"\na server that waits {wait}\n\n| jobs | calls/s | relative to jobs / {wait} |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        slow = _Contest(_Slow().url, Path(name))
        for jobs in (16, 64):
            rate = max(slow.batch(jobs, lines=round(jobs / WAIT * 12)) for _ in range(RUNS))
            share = rate * WAIT / jobs
            good = good and share >= 0.9
            print(f"| {jobs} | {rate:,.0f} | {share:.2f} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
