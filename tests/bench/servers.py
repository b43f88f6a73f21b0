"""The servers of the measurements: nginx with one worker, and one that waits 20 ms before it responds."""

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = "t" * 900
BODY = '{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}'
WAIT = 0.02  # seconds

_CONFIGURATION = """
worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  server {{
    listen 127.0.0.1:{port}; default_type application/json;
    location = /x-api/token {{ return 200 '{{"access_token":"{token}","token_type":"bearer"}}'; }}
    location / {{
      if ($http_authorization = "") {{ return 401 "{{}}"; }}
      return 200 '{body}';
    }}
  }}
}}
"""


@contextmanager
def nginx(directory: Path) -> Iterator[str]:
    """Run nginx with files in *directory*; yield its URL."""
    port = _free_port()
    configuration = directory / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(directory=directory, port=port, token=TOKEN, body=BODY))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with _running([program, "-p", str(directory), "-c", str(configuration)], port) as url:
        yield url


@contextmanager
def slow() -> Iterator[str]:
    """Run the server that waits; yield its URL."""
    port = _free_port()
    with _running([sys.executable, "-m", "tests.bench.servers", str(port)], port) as url:
        yield url


@contextmanager
def _running(command: list[str], port: int) -> Iterator[str]:
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(500):
                with socket.socket() as sock:
                    if sock.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            else:
                raise SystemExit(f"{command[0]} did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def _respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    response = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(WAIT)
            writer.write(response.encode())
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve(port: int) -> None:
    async with await asyncio.start_server(_respond, "127.0.0.1", port, backlog=512) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
