"""Measure `xapi proxy` beside nginx with `proxy_pass`, and the API itself, and print a table: `make bench-proxy`.

The API is nginx on loopback with one worker; so is the other proxy, which keeps its connections open. One process sends
all requests. The programs take turns, and the best of three runs counts, because other processes can only slow it down.
"""

import os
import selectors
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.nginx import TOKEN, nginx

RUNS = 3
MANY, FEW = 20_000, 3_000  # requests of 32 clients, and of one
CLIENTS = 32

_CONFIGURATION = """
worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  upstream api {{ server 127.0.0.1:{api}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer {token}";
    }}
  }}
}}
"""


def load(port: int, key: str, clients: int, count: int) -> None:
    """Send *count* requests over *clients* connections, each when the response before has arrived; print the result."""
    text = f"GET /x-api/me HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nAccept: */*\r\n\r\n"
    message, selector = text.encode(), selectors.DefaultSelector()
    times: list[float] = []
    for _ in range(clients):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, [0.0])
    started = time.perf_counter()
    for selected in list(selector.get_map().values()):
        selected.data[0] = time.perf_counter()
        selected.fileobj.send(message)  # type: ignore[union-attr]  # a socket
    while len(times) < count:
        for selected, _ in selector.select():
            connection = selected.fileobj  # type: ignore[assignment]  # a socket
            received = connection.recv(65_536)
            if not received.startswith(b"HTTP/1.1 200") or not received.endswith(b"}"):
                raise SystemExit(f"unexpected response: {received[:200]!r}")
            now = time.perf_counter()
            times.append(now - selected.data[0])
            selected.data[0] = now
            connection.send(message)
    print(len(times) / (time.perf_counter() - started), statistics.median(times) * 1000)


def measure(port: int, key: str, clients: int, count: int) -> tuple[float, float]:
    """Return the requests per second, and the median milliseconds of one."""
    command = [sys.executable, "-m", "tests.benchmarks.proxy", str(port), key, str(clients), str(count)]
    rate, median = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(rate), float(median)


@contextmanager
def nginx_proxy(directory: Path, api: int) -> Iterator[int]:
    """Run nginx as a proxy for the port *api*; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    configuration = directory / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(directory=directory, api=api, port=port, token=TOKEN))
    with subprocess.Popen(
        ["/usr/sbin/nginx", "-p", str(directory), "-c", str(configuration)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.02)
            yield port
        finally:
            process.terminate()


@contextmanager
def xapi_proxy(home: Path, api: int) -> Iterator[Mapping[str, str]]:
    """Run `xapi proxy` for the port *api*; yield its settings."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "XAPI_TOKEN": TOKEN}
    environ["XAPI_BASE_URL"] = f"http://127.0.0.1:{api}"
    command = [os.environ.get("XAPI_TESTS_PROGRAM", "xapi"), "proxy", "--port", "0"]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        try:
            lines = [shlex.split(process.stdout.readline())[1] for _ in range(2)]
            yield dict(line.split("=", 1) for line in lines)
        finally:
            process.terminate()


def main() -> None:
    """Print the table."""
    with ExitStack() as stack:
        directories = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        api = stack.enter_context(nginx(directories[0]))
        other = stack.enter_context(nginx_proxy(directories[1], api))
        settings = stack.enter_context(xapi_proxy(directories[2], api))
        own = int(settings["XAPI_BASE_URL"].rpartition(":")[2])
        programs = {"API itself": (api, TOKEN), "nginx": (other, "none"), "xapi proxy": (own, settings["XAPI_TOKEN"])}
        rates, medians = dict.fromkeys(programs, 0.0), dict.fromkeys(programs, float("inf"))
        for _ in range(RUNS):
            for name, (port, key) in programs.items():
                rates[name] = max(rates[name], measure(port, key, CLIENTS, MANY)[0])
                medians[name] = min(medians[name], measure(port, key, 1, FEW)[1])
    print(f"{'':12} {'requests/s, 32 clients':>24} {'of nginx':>9} {'median, 1 client':>18} {'added':>9}")
    for name in programs:
        added = medians[name] - medians["API itself"]
        ratio = rates[name] / rates["nginx"]
        print(f"{name:12} {rates[name]:24,.0f} {ratio:9.2f} {medians[name]:15.3f} ms {added:6.3f} ms")


if __name__ == "__main__":
    if sys.argv[1:]:
        load(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
