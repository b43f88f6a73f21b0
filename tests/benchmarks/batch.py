"""Measure how fast `xapi batch` is, beside what people do without it, and print a table: `make bench-batch`.

The server is nginx on loopback, one worker, which checks that there is a token; the token has 900
bytes. All that is compared runs in turn, and each gets its best of three runs, because other work
on the machine only ever slows down. The second table is a server that waits 20 ms before it answers.
"""

import os
import selectors
import shutil
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

LINES = 20_000
LOOPED = 4_000  # calls in a loop, which is slower
CURLS = 800  # runs of curl by xargs; a process each, so fewer are enough
TOKEN = "t" * 900
RUNS = 3
WAIT = 0.02

_NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port}; default_type application/json;
    location / {{
      if ($http_authorization = "") {{ return 401 "{{}}"; }}
      return 200 '{{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}}';
    }}
  }}
}}
"""
_LOOP = """
import sys, httpx
with httpx.Client(base_url=sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]}) as client:
    for number in range(int(sys.argv[3])):
        client.get(f"/x-api/items/{number}").raise_for_status()
"""
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n" + b'{"ok":true}'


@contextmanager
def _nginx(folder: Path) -> Iterator[str]:
    """Run nginx in *folder*; yield its URL."""
    port = _free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(_NGINX.format(folder=folder, port=port))
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    with subprocess.Popen([nginx, "-p", str(folder), "-c", str(configuration)], stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


class _Slow:
    """Answers each request 20 ms after it came, whatever the number of connections; one thread, to cost little."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._due: deque[tuple[float, socket.socket]] = deque()  # all wait as long, so it is in order
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            patience = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(patience):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type]  # a socket
            while self._due and self._due[0][0] <= time.monotonic():
                self._due.popleft()[1].sendall(_ANSWER)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ)

    def _receive(self, sock: socket.socket) -> None:
        if sock.recv(65_536):  # a request fits
            self._due.append((time.monotonic() + WAIT, sock))
        else:
            self._selector.unregister(sock)
            sock.close()


class _Contest:
    """What is compared, over the server at *url*, with files in *folder*."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        program = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
        self._batch = [program, "batch"]
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "XAPI_TOKEN": TOKEN, "XAPI_BASE_URL": url}
        self._header = folder / "header"  # not in argv, as xapi does not put it there either
        self._header.write_text(f"Authorization: Bearer {TOKEN}\n")

    def batch(self, jobs: int, *words: str, lines: int = LINES) -> float:
        """Return the calls a second of `xapi batch`."""
        source, out = self._folder / "in", self._folder / "out"
        source.write_text("".join(f'{{"id":{n},"path":"/x-api/items/{n}"}}\n' for n in range(lines)))
        with out.open("wb") as file:
            seconds = self._timed([*self._batch, "-j", str(jobs), *words, str(source)], stdout=file)
        with out.open("rb") as file:
            answered = sum(b'"status": 200' in line for line in file)
        if answered != lines:
            raise SystemExit(f"{answered} of {lines} lines were answered")
        return lines / seconds

    def journal(self, jobs: int) -> float:
        """Return the calls a second of `xapi batch --ordered --journal`."""
        journal = self._folder / "journal"
        journal.unlink(missing_ok=True)
        return self.batch(jobs, "--ordered", "--journal", str(journal))

    def xargs(self) -> float:
        """Return the calls a second of a curl process each, eight at once."""
        urls = "".join(f"{self._url}/x-api/items/{n}\n" for n in range(CURLS))
        curl = ["curl", "-s", "-o", "/dev/null", "-H", f"@{self._header}"]
        return CURLS / self._timed(["xargs", "-P", "8", "-n", "1", *curl], text=urls)

    def httpx(self) -> float:
        """Return the calls a second of a program that uses one httpx.Client, one call after another."""
        return LOOPED / self._timed([sys.executable, "-c", _LOOP, self._url, TOKEN, str(LOOPED)])

    def curl(self) -> float:
        """Return the calls a second of one curl process with a list."""
        listed = self._folder / "list"
        listed.write_text("".join(f'url = "{self._url}/x-api/items/{n}"\noutput = /dev/null\n' for n in range(LINES)))
        words = ["curl", "-s", "--parallel", "--parallel-max", "32", "-H", f"@{self._header}", "-K", str(listed)]
        return LINES / self._timed(words)

    def _timed(self, words: Sequence[str], *, text: str = "", stdout: object = subprocess.DEVNULL) -> float:
        start = time.monotonic()
        subprocess.run(
            words,
            input=text.encode(),
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            check=True,  # type: ignore[call-overload]  # a file
        )
        return time.monotonic() - start


def main() -> int:
    """Print the tables; exit 1 where `xapi batch` is slower than it is to be."""
    good = True
    with tempfile.TemporaryDirectory() as name, _nginx(Path(name)) as url:
        contest = _Contest(url, Path(name))
        rows: dict[str, Callable[[], float]] = {
            "xargs -P 8 curl": contest.xargs,
            "curl --parallel --parallel-max 32": contest.curl,
            "httpx.Client in a loop": contest.httpx,
            "xapi batch -j 32": lambda: contest.batch(32),
            "xapi batch -j 32 --ordered --journal": lambda: contest.journal(32),
        }
        best = dict.fromkeys(rows, 0.0)
        for _ in range(RUNS):
            for what, measure in rows.items():
                best[what] = max(best[what], measure())
        xargs, curl = best["xargs -P 8 curl"], best["curl --parallel --parallel-max 32"]
        print(f"{LINES:,} calls of nginx on loopback, a token of {len(TOKEN)} bytes, best of {RUNS}\n")
        print("| program | calls/s | × xargs curl | × curl --parallel |\n| --- | --- | --- | --- |")
        for what, rate in best.items():
            print(f"| `{what}` | {rate:,.0f} | {rate / xargs:.1f} | {rate / curl:.2f} |")
        good = best["xapi batch -j 32"] >= 10 * xargs
    wait = f"{WAIT * 1000:.0f} ms"
    print(f"\na server that waits {wait}\n\n| jobs | calls/s | of jobs / {wait} |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        slow = _Contest(_Slow().url, Path(name))
        for jobs in (16, 64):
            rate = max(slow.batch(jobs, lines=round(jobs / WAIT * 12)) for _ in range(RUNS))
            share = rate * WAIT / jobs
            good = good and share >= 0.9
            print(f"| {jobs} | {rate:,.0f} | {share:.2f} |", flush=True)
    return 0 if good else 1


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("nginx did not start")


if __name__ == "__main__":
    sys.exit(main())
