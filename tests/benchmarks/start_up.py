"""Measure the time of complete commands of xapi and of other programs, and of the imports of xapi: `make bench`.

Every row is a process from start to exit. The rows run in alternation, so that other load on the machine affects all of
them; compare ratios within one run. A program that is not installed is reported.
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
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.programs import (
    CURL,
    GH,
    HTTPIE,
    PYTHON,
    XAPI,
    Program,
    alternate,
    logged_in,
    not_measured,
    output,
    peers,
)
from tests.support.keyring_session import KeyringSession
from xapi_cli.sandbox import MASTER

SCRIPT = "minimal script with typer and httpx"

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
        alternate(table, rounds)
        _print_machine(rounds)
        _print_table(table)
        for name in ("xapi request (file)", "xapi token show (file)", "xapi --help"):
            _print_imports(next(row for row in table if row.name == name))


def _rows(stack: ExitStack, base_url: str, home: Path, environ: dict[str, str]) -> list[Program]:
    url = f"{base_url}/x-api/me"
    login = environ | {"XAPI_BASE_URL": base_url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password}
    file = logged_in(home / "file", login, "file")
    token = output([XAPI, "token", "show"], file)
    supplied = environ | {"XAPI_TOKEN": token, "XAPI_BASE_URL": base_url, "XAPI_CONFIG_DIR": str(home / "none")}
    rows = [
        Program("python -c pass (Python alone)", [PYTHON, "-c", "pass"], environ),
        Program(
            "minimal script with http.client",
            [PYTHON, "-c", _HTTP_CLIENT, base_url[7:], "/x-api/me", token],
            environ,
        ),
        Program(SCRIPT, [PYTHON, "-c", _TYPER_AND_HTTPX, url, token], environ),
        Program("xapi --version", [XAPI, "--version"], environ),
        Program("xapi --help", [XAPI, "--help"], environ),
        Program("xapi token show (file)", [XAPI, "token", "show"], file),
        Program("xapi request (file)", [XAPI, "request", "/x-api/me"], file),
        Program("xapi request (XAPI_TOKEN)", [XAPI, "request", "/x-api/me"], supplied),
    ]
    if shutil.which("gnome-keyring-daemon") and shutil.which("dbus-daemon"):
        session = stack.enter_context(KeyringSession())
        keyring = logged_in(home / "keyring", login | session.environ, "keyring")
        rows += [
            Program("xapi token show (keyring)", [XAPI, "token", "show"], keyring),
            Program("xapi request (keyring)", [XAPI, "request", "/x-api/me"], keyring),
        ]
    else:
        not_measured("xapi with a keyring", "gnome-keyring or dbus is not installed")
    rows += peers([HTTPIE, GH, CURL], url, token, environ)
    return rows


@contextmanager
def _sandbox(environ: Mapping[str, str]) -> Iterator[str]:
    """Run the sandbox in another process; yield its base URL."""
    with subprocess.Popen(
        [XAPI, "sandbox"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("export XAPI_BASE_URL="))
            yield line.strip().partition("=")[2].strip("'")
        finally:
            process.terminate()


def _print_machine(rounds: int) -> None:
    version = output([PYTHON, "-c", "import platform; print(platform.python_version())"], os.environ)
    print(f"{platform.system()}, {os.cpu_count()} cores, Python {version}, {rounds} rounds; milliseconds, medians\n")


def _print_table(rows: Sequence[Program]) -> None:
    medians = {row.name: row.median for row in rows}
    print("| command | wall | minimum | CPU | relative to HTTPie | relative to typer and httpx |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        figures = [medians[row.name], row.minimum, statistics.median(row.cpu)]
        ratios = [f"{medians[row.name] / medians[peer]:.2f}" if peer in medians else "–" for peer in (HTTPIE, SCRIPT)]
        print(f"| {row.name} | {' | '.join(f'{1000 * each:.0f}' for each in figures)} | {' | '.join(ratios)} |")


def _print_imports(row: Program) -> None:
    """Print the import time of each package, the best of five runs."""
    runs = [_import_times(row) for _ in range(5)]
    times = {name: min(run.get(name, 0.0) for run in runs) for name in runs[0]}
    shares = sorted(times.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {milliseconds:.0f}" for name, milliseconds in shares if milliseconds >= 1)
    print(f"\nImports of `{row.name}`, in milliseconds; measuring slows them down: {text}")


def _import_times(row: Program) -> dict[str, float]:
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
