"""Measure the time of complete commands of xapi and of other programs, and of the imports of xapi: `make bench`.

Every row is a process from start to exit. The rows run in alternation, so that other load on the machine affects all of
them; compare ratios within one run. A program that is not installed is skipped with a message.
"""

import argparse
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.keyring_session import KeyringSession
from xapi_cli.sandbox import MASTER

XAPI = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
PYTHON = str(Path(XAPI).with_name("python"))
PEER = "http GET"
SCRIPT = "typer+httpx script"
WARM_UP = 2  # rounds that fill caches and are not counted

_HTTP_CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1])
connection.request("GET", sys.argv[2], headers={"Authorization": "Bearer " + sys.argv[3]})
sys.stdout.write(connection.getresponse().read().decode())
"""
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
    """A command, and the seconds of wall time and of CPU time of each of its runs."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Run the command once; raises CalledProcessError if it fails."""
        before, start = os.times(), time.perf_counter()
        # No timeout: with one, subprocess polls the process, at intervals of up to 50 ms.
        subprocess.run(self.command, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        self.wall.append(time.perf_counter() - start)
        after = os.times()
        self.cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)


def main() -> None:
    """Run all rows, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        base_url = stack.enter_context(_sandbox(environ))
        table = _rows(stack, base_url, home, environ)
        for number in range(rounds + WARM_UP):
            if number == WARM_UP:
                for row in table:
                    row.wall.clear()
                    row.cpu.clear()
            for row in table:
                row.run()
        _print_machine(rounds)
        _print_table(table)
        for name in ("xapi request (file)", "xapi token show (file)", "xapi --help"):
            _print_imports(next(row for row in table if row.name == name))


def _rows(stack: ExitStack, base_url: str, home: Path, environ: dict[str, str]) -> list[Row]:
    url = f"{base_url}/x-api/me"
    login = environ | {"XAPI_BASE_URL": base_url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password}
    file = _logged_in(home / "file", login, "file")
    token = _output([XAPI, "token", "show"], file)
    supplied = environ | {"XAPI_TOKEN": token, "XAPI_BASE_URL": base_url, "XAPI_CONFIG_DIR": str(home / "none")}
    rows = [
        Row("python -c pass", [PYTHON, "-c", "pass"], environ),
        Row("http.client script", [PYTHON, "-c", _HTTP_CLIENT, base_url[7:], "/x-api/me", token], environ),
        Row(SCRIPT, [PYTHON, "-c", _TYPER_AND_HTTPX, url, token], environ),
        Row("xapi --version", [XAPI, "--version"], environ),
        Row("xapi --help", [XAPI, "--help"], environ),
        Row("xapi token show (file)", [XAPI, "token", "show"], file),
        Row("xapi request (file)", [XAPI, "request", "/x-api/me"], file),
        Row("xapi request (XAPI_TOKEN)", [XAPI, "request", "/x-api/me"], supplied),
    ]
    if shutil.which("gnome-keyring-daemon") and shutil.which("dbus-daemon"):
        session = stack.enter_context(KeyringSession())
        keyring = _logged_in(home / "keyring", login | session.environ, "keyring")
        rows += [
            Row("xapi token show (keyring)", [XAPI, "token", "show"], keyring),
            Row("xapi request (keyring)", [XAPI, "request", "/x-api/me"], keyring),
        ]
    else:
        print("skipped: the rows with a keyring, because gnome-keyring or dbus is not installed")
    bearer = f"Authorization: Bearer {token}"
    peers: dict[str, tuple[str, list[str], dict[str, str]]] = {
        "http": (PEER, ["GET", url, bearer.replace(": ", ":", 1)], {}),
        "gh": ("gh api", ["api", url, "-H", bearer], {"GH_TOKEN": "x", "GH_NO_UPDATE_NOTIFIER": "1"}),
        "curl": ("curl", ["-s", "-H", bearer, url], {}),
    }
    for program, (name, arguments, more) in peers.items():
        if path := shutil.which(program):
            rows.append(Row(name, [path, *arguments], environ | more))
        else:
            print(f"skipped: {name}, because {program} is not installed")
    return rows


@contextmanager
def _sandbox(environ: Mapping[str, str]) -> Iterator[str]:
    """Run the sandbox in another process; yield its base URL."""
    with subprocess.Popen(
        [XAPI, "sandbox"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("XAPI_BASE_URL="))
            yield line.strip().partition("=")[2].strip("'")
        finally:
            process.terminate()


def _logged_in(directory: Path, login: Mapping[str, str], storage: str) -> dict[str, str]:
    """Log in with *storage*; return the environment for further commands, which has no password."""
    environ = {
        **login,
        "XAPI_CONFIG_DIR": str(directory / "config"),
        "XAPI_STATE_DIR": str(directory / "state"),
        "XAPI_STORAGE": storage,
    }
    _output([XAPI, "login"], environ)
    return {name: value for name, value in environ.items() if name not in ("XAPI_PASSWORD", "XAPI_BASE_URL")}


def _output(command: Sequence[str], environ: Mapping[str, str]) -> str:
    completed = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True, text=True
    )
    return completed.stdout.strip()


def _print_machine(rounds: int) -> None:
    version = _output([PYTHON, "-c", "import platform; print(platform.python_version())"], os.environ)
    print(f"{platform.system()}, {os.cpu_count()} cores, Python {version}, {rounds} rounds; milliseconds, medians\n")


def _print_table(rows: Sequence[Row]) -> None:
    medians = {row.name: statistics.median(row.wall) for row in rows}
    print("| command | wall | minimum | CPU | relative to `http GET` | relative to the typer+httpx script |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        figures = [medians[row.name], min(row.wall), statistics.median(row.cpu)]
        ratios = [f"{medians[row.name] / medians[peer]:.2f}" if peer in medians else "–" for peer in (PEER, SCRIPT)]
        print(f"| {row.name} | {' | '.join(f'{1000 * each:.0f}' for each in figures)} | {' | '.join(ratios)} |")


def _print_imports(row: Row) -> None:
    """Print the import time of each package, the best of five runs."""
    runs = [_import_times(row) for _ in range(5)]
    times = {name: min(run.get(name, 0.0) for run in runs) for name in runs[0]}
    shares = sorted(times.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {milliseconds:.0f}" for name, milliseconds in shares if milliseconds >= 1)
    print(f"\nImports of `{row.name}`, in milliseconds; measuring slows them down: {text}")


def _import_times(row: Row) -> dict[str, float]:
    completed = subprocess.run(
        row.command,
        env={**row.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
        text=True,
    )
    times: dict[str, float] = defaultdict(float)
    for own, name in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", completed.stderr, re.MULTILINE):
        package = name.partition(".")[0]
        times["Python's own" if package in sys.stdlib_module_names else package] += int(own) / 1000
    return times


if __name__ == "__main__":
    main()
