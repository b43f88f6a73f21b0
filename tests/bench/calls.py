"""The time of one call: a process from start to exit, or the round trip through a process that is running."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.servers import TOKEN

XAPI = str(Path(sys.executable).with_name("xapi"))
HTTPIE, GH, CURL, SCRIPT = "http GET (HTTPie)", "gh api", "curl", "script with typer and httpx"
_WARM_UP = 2  # rounds that fill caches and are not counted

_TYPER_AND_HTTPX = """
import httpx, typer
app = typer.Typer()
@app.command()
def get(url: str, token: str) -> None:
    typer.echo(httpx.get(url, headers={"Authorization": f"Bearer {token}"}).text)
app()
"""


@dataclass
class Row:
    """What is measured, and its seconds in each round."""

    name: str
    run: Callable[[], object]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median time of a call."""
        return statistics.median(self.seconds)

    def ratio(self, peer: "Row") -> float:
        """Return the median of the ratios to *peer* in the same round."""
        return statistics.median(own / other for own, other in zip(self.seconds, peer.seconds, strict=True))


def alternate(rows: Sequence[Row], rounds: int) -> None:
    """Measure *rows* in alternation, so that other load affects all of them; each round begins with another row."""
    for number in range(rounds + _WARM_UP):
        first = number % len(rows)
        for row in (*rows[first:], *rows[:first]):
            start = time.perf_counter()
            row.run()
            if number >= _WARM_UP:
                row.seconds.append(time.perf_counter() - start)


def measure(rounds: int, base_url: str, home: Path, path: str) -> None:
    """Print the table of calls; *path* is searched for the other programs."""
    with ExitStack() as stack:
        rows = list(_rows(stack, base_url, home, path))
        alternate(rows, rounds)
    peers = [row for row in rows if row.name in {HTTPIE, GH, SCRIPT}]
    print(f"| call | ms | {' | '.join(f'× {peer.name}' for peer in peers)} |")
    print(f"| --- | --- |{' --- |' * len(peers)}")
    for row in rows:
        print(f"| {row.name} | {1000 * row.median:.1f} | {' | '.join(f'{row.ratio(peer):.2f}' for peer in peers)} |")


def _rows(stack: ExitStack, base_url: str, home: Path, path: str) -> Iterator[Row]:
    url = f"{base_url}/x-api/me"
    bearer = f"Authorization: Bearer {TOKEN}"
    environ = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "XAPI_STORAGE": "file", "GH_TOKEN": "replaced"}
    login = environ | {"XAPI_BASE_URL": base_url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "any"}
    run([XAPI, "login"], login)

    commands = {
        "python -c pass": ([sys.executable, "-c", "pass"], environ),
        SCRIPT: ([sys.executable, "-c", _TYPER_AND_HTTPX, url, TOKEN], environ),
        "xapi --version": ([XAPI, "--version"], environ),
        "xapi token show": ([XAPI, "token", "show"], environ),
        "xapi request": ([XAPI, "request", "/x-api/me"], environ),
        "xapi login": ([XAPI, "login"], login),
        HTTPIE: (["http", "GET", url, bearer.replace(": ", ":")], environ),
        GH: (["gh", "api", url, "-H", bearer], environ),
        CURL: (["curl", "-s", "-H", bearer, url], environ),
    }
    for name, (command, env) in commands.items():
        if shutil.which(command[0], path=path):
            yield Row(name, _process(command, env))
        else:
            print(f"not measured: {name} ({command[0]} is not installed)")
    batch = stack.enter_context(
        subprocess.Popen([XAPI, "batch", "-j1", "--quiet"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    )
    stack.callback(batch.terminate)
    yield Row("a line through coproc xapi batch -j1", _through(batch))
    socket = home / "proxy"
    proxy = stack.enter_context(
        subprocess.Popen([XAPI, "proxy", "--quiet", "--socket", str(socket)], env=environ, stdout=subprocess.PIPE)
    )
    stack.callback(proxy.terminate)
    assert proxy.stdout
    proxy.stdout.readline()  # it listens
    curl = ["curl", "-s", "--unix-socket", str(socket), "http://localhost/x-api/me"]
    yield Row("curl through xapi proxy", _process(curl, environ))


def run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run *command*, and return its stdout. Raises CalledProcessError if it fails."""
    return subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True
    ).stdout


_NULL_STREAMS = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
]


def _process(command: Sequence[str], environ: Mapping[str, str]) -> Callable[[], None]:
    program = shutil.which(command[0], path=environ["PATH"])
    assert program
    run(command, environ)  # it works

    def call() -> None:  # not through subprocess, which adds about a millisecond
        pid = os.posix_spawn(program, list(command), environ, file_actions=_NULL_STREAMS)
        if status := os.waitpid(pid, 0)[1]:
            raise SystemExit(f"{command[0]} failed: exit code {os.waitstatus_to_exitcode(status)}")

    return call


def _through(batch: subprocess.Popen[bytes]) -> Callable[[], None]:
    def call() -> None:
        assert batch.stdin
        assert batch.stdout
        batch.stdin.write(b'{"path": "/x-api/me"}\n')
        batch.stdin.flush()
        assert json.loads(batch.stdout.readline())["status"] == 200

    return call
