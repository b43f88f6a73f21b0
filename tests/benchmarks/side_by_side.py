"""Make the same twenty calls with xapi, curl, HTTPie and gh, and print what each made of them, as a table.

Run `python -m tests.benchmarks.side_by_side`; programs that are not there are left out. The servers are on loopback.
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

from tests.servers import Server, Step, drip, hang, request, send

TOKEN = "secret-token"
TIMEOUT = 20.0
NUMBERS = b'{"price": 1.10, "id": 12345678901234567890, "b": 1, "a": 1e400}'

Words = dict[str, Sequence[str]]


def ok(body: bytes = b"{}", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return an answer that ends the connection."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Call:
    """One call: what the server does, the words for each program, and what is worth telling of the outcome."""

    name: str
    scripts: Sequence[Sequence[Step]]
    words: Words
    stdin: bytes = b""
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What one program made of a call."""

    code: int | None
    out: bytes
    seconds: float
    requests: int
    leaked: bool

    def __str__(self) -> str:
        code = "never ended" if self.code is None else f"exit {self.code}"
        told = f"{code}, {len(self.out)} B, {self.requests} req, {self.seconds:.1f} s"
        return f"{told}, LEAK" if self.leaked else told


def answering(*answers: bytes) -> list[list[Step]]:
    """Return scripts that read a request each and give one of *answers*."""
    return [[request(), send(answer)] for answer in answers]


def same(*words: str, **own: Sequence[str]) -> Words:
    """Return *words* for every program, except for those that have their *own*."""
    return {name: own.get(name, words) for name in ("xapi", "curl", "http", "gh")}


def calls(folder: Path, evil: str) -> list[Call]:
    """Return the twenty calls; *evil* is the address of another origin."""
    upload = str(folder / "upload.txt")
    saved = str(folder / "saved")
    away = b"Location: " + evil.encode() + b"/"
    cut_gzip = gzip.compress(os.urandom(2000))[:-600]
    return [
        Call("GET, JSON, numbers kept in a pipe", answering(ok(NUMBERS)), same("/")),
        Call("the same with FORCE_COLOR", answering(ok(NUMBERS)), same("/"), environ={"FORCE_COLOR": "1"}),
        Call(
            "POST JSON fields",
            answering(ok()),
            same("a=1", "n:=1.10", curl=("--json", '{"a":"1","n":1.10}'), gh=("-f", "a=1", "-F", "n=1.10")),
        ),
        Call(
            "POST a form",
            answering(ok()),
            same("--form", "a=b c", curl=("--data-urlencode", "a=b c"), gh=("-f", "a=b c")),
        ),
        Call(
            "query with blank and é",
            answering(ok()),
            same("q==é x", curl=("-G", "--data-urlencode", "q=é x"), gh=("-X", "GET", "-f", "q=é x")),
        ),
        Call("a header", answering(ok()), same("X-A:b", curl=("-H", "X-A: b"), gh=("-H", "X-A: b"))),
        Call(
            "upload a file",
            answering(ok()),
            same(f"f@{upload}", http=("--form", f"f@{upload}"), curl=("-F", f"f=@{upload}"), gh=("--input", upload)),
        ),
        Call(
            "body from stdin",
            answering(ok()),
            same("-d", "@-", curl=("--data-binary", "@-"), http=(), gh=("--input", "-")),
            b"\0\xff\r\n" * 1000,
        ),
        Call("download to a file", answering(ok(b"x" * 5000)), same("-o", saved, http=("-d", "-o", saved), gh=())),
        Call("404", answering(ok(b'{"e":1}', status=b"404 Not Found")), same()),
        Call("500", answering(ok(b'{"e":1}', status=b"500 Oops")), same()),
        Call("302, same origin", answering(ok(b"", b"Location: /there", status=b"302 Found"), ok()), same()),
        Call(
            "307 of a POST, another origin",
            answering(ok(b"", away, status=b"307 Temporary Redirect")),
            same(
                "a=1",
                curl=("--json", f'{{"a":"{TOKEN}"}}'),
                gh=("-f", f"a={TOKEN}"),
                http=(f"a={TOKEN}",),
                xapi=(f"a={TOKEN}",),
            ),
        ),
        Call(
            "302 with a header of one's own, another origin",
            answering(ok(b"", away, status=b"302 Found")),
            same(f"X-Api-Key:{TOKEN}", curl=("-H", f"X-Api-Key: {TOKEN}"), gh=("-H", f"X-Api-Key: {TOKEN}")),
        ),
        Call(
            "body cut off (length)", [[request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")]], same()
        ),
        Call(
            "gzip cut off, no length",
            [[request(), send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + cut_gzip)]],
            same(curl=("--compressed",)),
        ),
        Call(
            "silent server, timeout 2 s",
            [[request(), hang()]],
            same("--timeout", "2", curl=("--max-time", "2"), http=("--timeout", "2"), gh=()),
        ),
        Call(
            "head that drips, timeout 2 s",
            [[request(), drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, 0.5)]],
            same("--timeout", "2", curl=("--max-time", "2"), http=("--timeout", "2"), gh=()),
        ),
        Call("POST, connection lost after it", [[request()]], same("a=1", curl=("--json", "{}"), gh=("-f", "a=1"))),
        Call(
            "503, then 200, one retry",
            answering(ok(b"", b"Retry-After: 1", status=b"503 Busy"), ok()),
            same("--retry", "1", curl=("--retry", "1"), http=(), gh=()),
        ),
    ]


def command(program: str, url: str, words: Sequence[str], path: str) -> list[str]:
    """Return the words that make *program* call *url*, with the token, as a script would write it."""
    bearer = f"Authorization: Bearer {TOKEN}"
    match program:
        case "curl":
            return [path, "-sS", "-L", "--fail-with-body", "-H", bearer, *words, url]
        case "http":
            options = [word for word in words if word.startswith(("-", "/")) or word.isdigit()]
            items = [word for word in words if word not in options]
            stdin = ["--ignore-stdin"] if words else []
            return [path, *stdin, "--check-status", "--follow", "-b", *options, url, bearer.replace(": ", ":"), *items]
        case "gh":
            return [path, "api", url, "-H", bearer, *words]
        case _:
            return [path, "request", "/", *words]


def outcome(program: str, path: str, call: Call, folder: Path) -> Outcome:
    """Make *call* with *program* and look at what came of it, here and at the servers."""
    with ExitStack() as stack:
        evil = stack.enter_context(Server(*answering(ok(b"evil")) * 3))
        prepared = next(each for each in calls(folder, evil.url) if each.name == call.name)
        server = stack.enter_context(Server(*prepared.scripts))
        words = [word for word in prepared.words[program] if word != "/"]
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XAPI_BASE_URL": server.url,
            "XAPI_TOKEN": TOKEN,
            "GH_TOKEN": TOKEN,
            "GH_NO_UPDATE_NOTIFIER": "1",
            "NO_PROXY": "*",
            **call.environ,
        }
        start = time.monotonic()
        try:
            ended = subprocess.run(
                command(program, server.url + "/", words, path),
                input=call.stdin,
                env=environ,
                capture_output=True,
                check=False,
                timeout=TIMEOUT,
            )
            code, out = ended.returncode, ended.stdout
        except subprocess.TimeoutExpired as expired:
            code, out = None, expired.stdout or b""
        seconds = time.monotonic() - start
        seen = [data for data in server.received if data]
        leaked = any(TOKEN.encode() in data for data in evil.received)
        return Outcome(code, out, seconds, len(seen), leaked)


def main() -> int:
    """Print the table; exit 1 where xapi let a secret out."""
    own = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
    programs: dict[str, str] = {"xapi": own}
    for name in ("curl", "http", "gh"):
        if path := shutil.which(name):
            programs[name] = path
    print("| call | " + " | ".join(programs) + " |\n|" + " --- |" * (len(programs) + 1))
    leaks = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "upload.txt").write_text("hello\n")
        for call in calls(folder, "http://127.0.0.1:1"):
            row = {each: outcome(each, where, call, folder) for each, where in programs.items()}
            leaks += row["xapi"].leaked
            print(f"| {call.name} | " + " | ".join(str(each) for each in row.values()) + " |", flush=True)
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
