"""The server of the measurements: nginx with one worker, which checks that a request has a token."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = "t" * 900
BODY = '{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}'

_CONFIGURATION = """
worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  server {{
    listen {address}; default_type application/json; ssl_protocols TLSv1.3; {tls}
    location = /x-api/token {{ return 200 '{{"access_token":"{token}","token_type":"bearer"}}'; }}
    location / {{
      if ($http_authorization = "") {{ return 401 "{{}}"; }}
      return 200 '{body}';
    }}
  }}
}}
"""


@contextmanager
def nginx(directory: Path, host: str = "127.0.0.1", certificate: Path | None = None) -> Iterator[int]:
    """Run nginx with files in *directory*; yield its port on *host*.

    With *certificate*, a PEM file that also contains its key, the server speaks https.
    """
    port = _free_port(host)
    configuration = directory / "nginx.conf"
    tls = (
        f"ssl_protocols TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key {certificate};"
        if certificate
        else ""
    )
    address = f"{host}:{port}{' ssl' if certificate else ''}"
    configuration.write_text(
        _CONFIGURATION.format(directory=directory, address=address, tls=tls, token=TOKEN, body=BODY)
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with subprocess.Popen(
        [program, "-p", str(directory), "-c", str(configuration)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(host, port)
            yield port
        finally:
            process.terminate()


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _wait_for(host: str, port: int) -> None:
    for _ in range(200):
        with socket.socket() as sock:
            if sock.connect_ex((host, port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("nginx did not start")
