"""Make the same twenty calls with xapi, curl, HTTPie and gh, and print the outcomes as a table.

Run `python -m tests.benchmarks.side_by_side`. Programs that are not installed are skipped. The servers are on loopback.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import Server, Step, drip, hang, request, send

TOKEN = "secret-token"
TIMEOUT = 20.0
NUMBERS = b'{"price": 1.10, "id": 12345678901234567890, "b": 1, "a": 1e400}'

Arguments = dict[str, Sequence[str]]


def ok(body: bytes = b"{}", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a response after which the server closes the connection."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Call:
    """One call: the script of the server, and the arguments for each program."""

    name: str
    scripts: Sequence[Sequence[Step]]
    arguments: Arguments
    stdin: bytes = b""
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call of one program."""

    code: int | None
    out: bytes
    seconds: float
    requests: int
    leaked: bool

    def __str__(self) -> str:
        code = "never ended" if self.code is None else f"exit {self.code}"
        text = f"{code}, {len(self.out)} B, {self.requests} req, {self.seconds:.1f} s"
        return f"{text}, LEAK" if self.leaked else text


def responding(*responses: bytes) -> list[list[Step]]:
    """Return one script per response, which reads a request and sends the response."""
    return [[request(), send(response)] for response in responses]


def same(*arguments: str, **own: Sequence[str]) -> Arguments:
    """Return *arguments* for every program, except for those that have their *own*."""
    return {name: own.get(name, arguments) for name in ("xapi", "curl", "http", "gh")}


def calls(directory: Path, evil: str) -> list[Call]:
    """Return the twenty calls; *evil* is the address of another origin."""
    upload = str(directory / "upload.txt")
    saved = str(directory / "saved")
    away = b"Location: " + evil.encode() + b"/"
    truncated_gzip = gzip.compress(os.urandom(2000))[:-600]
    return [
        Call("GET, JSON with numbers, in a pipe", responding(ok(NUMBERS)), same("/")),
        Call("the same with FORCE_COLOR=1", responding(ok(NUMBERS)), same("/"), environ={"FORCE_COLOR": "1"}),
        Call(
            "POST JSON fields",
            responding(ok()),
            same("a=1", "n:=1.10", curl=("--json", '{"a":"1","n":1.10}'), gh=("-f", "a=1", "-F", "n=1.10")),
        ),
        Call(
            "POST a form",
            responding(ok()),
            same("--form", "a=b c", curl=("--data-urlencode", "a=b c"), gh=("-f", "a=b c")),
        ),
        Call(
            "query with a space and é",
            responding(ok()),
            same("q==é x", curl=("-G", "--data-urlencode", "q=é x"), gh=("-X", "GET", "-f", "q=é x")),
        ),
        Call("header", responding(ok()), same("X-A:b", curl=("-H", "X-A: b"), gh=("-H", "X-A: b"))),
        Call(
            "upload a file",
            responding(ok()),
            same(f"f@{upload}", http=("--form", f"f@{upload}"), curl=("-F", f"f=@{upload}"), gh=("--input", upload)),
        ),
        Call(
            "body from stdin",
            responding(ok()),
            same("-d", "@-", curl=("--data-binary", "@-"), http=(), gh=("--input", "-")),
            b"\0\xff\r\n" * 1000,
        ),
        Call("download to a file", responding(ok(b"x" * 5000)), same("-o", saved, http=("-d", "-o", saved), gh=())),
        Call("404", responding(ok(b'{"e":1}', status=b"404 Not Found")), same()),
        Call("500", responding(ok(b'{"e":1}', status=b"500 Oops")), same()),
        Call("302, same origin", responding(ok(b"", b"Location: /there", status=b"302 Found"), ok()), same()),
        Call(
            "307 of a POST to another origin",
            responding(ok(b"", away, status=b"307 Temporary Redirect")),
            same(
                "a=1",
                curl=("--json", f'{{"a":"{TOKEN}"}}'),
                gh=("-f", f"a={TOKEN}"),
                http=(f"a={TOKEN}",),
                xapi=(f"a={TOKEN}",),
            ),
        ),
        Call(
            "302 to another origin, custom header",
            responding(ok(b"", away, status=b"302 Found")),
            same(f"X-Api-Key:{TOKEN}", curl=("-H", f"X-Api-Key: {TOKEN}"), gh=("-H", f"X-Api-Key: {TOKEN}")),
        ),
        Call(
            "truncated body (length)", [[request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")]], same()
        ),
        Call(
            "truncated gzip (no length, no chunks)",
            [[request(), send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + truncated_gzip)]],
            same(curl=("--compressed",)),
        ),
        Call(
            "unresponsive server, 2 s limit",
            [[request(), hang()]],
            same("--timeout", "2", curl=("--max-time", "2"), http=("--timeout", "2"), gh=()),
        ),
        Call(
            "slow-drip headers, 2 s limit",
            [[request(), drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, 0.5)]],
            same("--timeout", "2", curl=("--max-time", "2"), http=("--timeout", "2"), gh=()),
        ),
        Call("connection lost after a POST", [[request()]], same("a=1", curl=("--json", "{}"), gh=("-f", "a=1"))),
        Call(
            "503, then 200, with one retry",
            responding(ok(b"", b"Retry-After: 1", status=b"503 Busy"), ok()),
            same("--retry", "1", curl=("--retry", "1"), http=(), gh=()),
        ),
    ]


def command(program: str, url: str, arguments: Sequence[str], path: str) -> list[str]:
    """Return the command line of *program* that calls *url* with the token, as a script would call it."""
    bearer = f"Authorization: Bearer {TOKEN}"
    match program:
        case "curl":
            return [path, "-sS", "-L", "--fail-with-body", "-H", bearer, *arguments, url]
        case "http":
            options = [each for each in arguments if each.startswith(("-", "/")) or each.isdigit()]
            items = [each for each in arguments if each not in options]
            stdin = ["--ignore-stdin"] if arguments else []
            return [path, *stdin, "--check-status", "--follow", "-b", *options, url, bearer.replace(": ", ":"), *items]
        case "gh":
            return [path, "api", url, "-H", bearer, *arguments]
        case _:
            return [path, "request", "/", *arguments]


def outcome(program: str, path: str, call: Call, directory: Path) -> Outcome:
    """Make *call* with *program*; return the outcome in the program and at the servers."""
    with ExitStack() as stack:
        evil = stack.enter_context(Server(*responding(ok(b"evil")) * 3))
        prepared = next(each for each in calls(directory, evil.url) if each.name == call.name)
        server = stack.enter_context(Server(*prepared.scripts))
        arguments = [each for each in prepared.arguments[program] if each != "/"]
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "XAPI_BASE_URL": server.url,
            "XAPI_TOKEN": TOKEN,
            "GH_TOKEN": TOKEN,
            "GH_NO_UPDATE_NOTIFIER": "1",
            "NO_PROXY": "*",
            **call.environ,
        }
        start = time.monotonic()
        try:
            completed = subprocess.run(
                command(program, server.url + "/", arguments, path),
                input=call.stdin,
                env=environ,
                capture_output=True,
                check=False,
                timeout=TIMEOUT,
            )
            code, out = completed.returncode, completed.stdout
        except subprocess.TimeoutExpired as expired:
            code, out = None, expired.stdout or b""
        seconds = time.monotonic() - start
        seen = [data for data in server.received if data]
        leaked = any(TOKEN.encode() in data for data in evil.received)
        return Outcome(code, out, seconds, len(seen), leaked)


def main() -> int:
    """Print the table; return 1 if xapi disclosed a secret."""
    own = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
    programs: dict[str, str] = {"xapi": own}
    for name in ("curl", "http", "gh"):
        if found := shutil.which(name):
            programs[name] = found
    print("| call | " + " | ".join(programs) + " |\n|" + " --- |" * (len(programs) + 1))
    leaks = 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "upload.txt").write_text("hello\n")
        for call in calls(directory, "http://127.0.0.1:1"):
            row = {name: outcome(name, path, call, directory) for name, path in programs.items()}
            leaks += row["xapi"].leaked
            print(f"| {call.name} | " + " | ".join(str(each) for each in row.values()) + " |", flush=True)
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
