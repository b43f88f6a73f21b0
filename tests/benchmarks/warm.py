"""Measure calls through the agent, compared with calls without it, gh and curl: `make bench`.

The server is nginx on this machine: over plain http on loopback, and over https on paths with a round-trip time of 10,
30 and 80 ms (see `delay`). The programs run in alternation. "With pauses" is one call per round, 0.1 s after the
previous one. "Back to back" is ten consecutive calls per round, and the time per call. A ratio is the median of the
ratios in the same round. Exits with 1 if a ratio exceeds its target.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.delay import FAR, NEAR, NoNamespaceError, delayed_path, in_namespace
from tests.benchmarks.nginx import BODY, TOKEN, nginx
from tests.benchmarks.programs import (
    CURL,
    GH,
    XAPI,
    Program,
    alternate,
    logged_in,
    not_measured,
    output,
    peers,
    separate,
)
from tests.support.keyring_session import KeyringSession

PAUSE = 0.1  # seconds
CONSECUTIVE = 10
ROUND_TRIPS = {10: 0.70, 30: 0.50, 80: 0.45}  # milliseconds, and the target for a warm call relative to curl
WITH_PAUSES, BACK_TO_BACK = 0.40, 0.45  # the targets for a warm call relative to gh, on loopback
CACHED_KEYRING = 1.2  # the target for a warm call with a cached keyring, relative to the file store

COLD_REQUEST, WARM_REQUEST = "xapi request, no agent", "xapi request, agent"
WARM_FILE, WARM_KEYRING = "xapi request, agent, storage file", "xapi request, agent, keyring with cache"


class Target(NamedTuple):
    """The largest allowed ratio of the time of a program to that of its peer."""

    program: str
    peer: str
    largest: float


def main() -> int:
    """Print the tables; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--network", action="store_true", help="measure https; requires a network namespace")
    arguments = parser.parse_args()
    if arguments.network:
        return _measure_network(arguments.rounds)
    print(f"{platform.system()}, {os.cpu_count()} cores, {arguments.rounds} rounds; milliseconds", flush=True)
    on_loopback = _measure_loopback(arguments.rounds)
    again = [sys.executable, "-m", "tests.benchmarks.warm", "--network", "--rounds", str(arguments.rounds)]
    over_network = subprocess.run(in_namespace(again), check=False).returncode
    return max(on_loopback, over_network)


def _measure_loopback(rounds: int) -> int:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = stack.enter_context(nginx(home))
        programs, targets = _programs_on_loopback(stack, f"http://127.0.0.1:{port}", home)
        _check(programs)
        missed = 0
        print("\nplain http on loopback")
        for title, factor, options in (
            ("with pauses", WITH_PAUSES, {"pause": PAUSE}),
            ("back to back", BACK_TO_BACK, {"calls": CONSECUTIVE}),
        ):
            alternate(programs, rounds, **options)
            allowed = [Target(name, GH, factor) for name in targets]
            allowed += [Target(WARM_KEYRING, WARM_FILE, CACHED_KEYRING)]
            missed += _print_table(title, programs, (GH, CURL), allowed)
    return min(missed, 1)


def _programs_on_loopback(stack: ExitStack, base_url: str, home: Path) -> tuple[list[Program], list[str]]:
    """Return the programs, and the names of those that have a target."""
    url, environ = f"{base_url}/x-api/me", _environ(home)
    login = environ | {"XAPI_BASE_URL": base_url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "p"}
    request, show = [XAPI, "request", "/x-api/me"], [XAPI, "token", "show"]
    file = logged_in(home / "file", login, "file")
    cold = file | {"XAPI_AGENT": "off"}
    programs = [*peers([GH, CURL], url, TOKEN, environ)]
    programs += [Program(COLD_REQUEST, request, cold), Program("xapi token show, no agent", show, cold)]
    warm: list[Program] = []
    if stack.enter_context(agent(file)):
        warm += [Program(WARM_FILE, request, file), Program("xapi token show, agent, storage file", show, file)]
        warm += _with_agent_storage(stack, home, login)
        programs += [*warm, *_with_keyring(stack, home, login)]
    return programs, [each.name for each in warm]


def _with_agent_storage(stack: ExitStack, home: Path, login: Mapping[str, str]) -> Iterator[Program]:
    """Yield a request whose token is in the memory of the agent."""
    directory = home / "memory"
    stack.enter_context(agent(separate(directory, login, "agent")))
    try:
        environ = logged_in(directory, login, "agent")
    except subprocess.CalledProcessError:
        not_measured("storage agent", "the login failed")
    else:
        yield Program("xapi request, agent, storage agent", [XAPI, "request", "/x-api/me"], environ)


def _with_keyring(stack: ExitStack, home: Path, login: Mapping[str, str]) -> Iterator[Program]:
    """Yield requests whose token is in a keyring: without the agent, with it, and with its cache."""
    if not (shutil.which("gnome-keyring-daemon") and shutil.which("dbus-daemon")):
        not_measured("xapi with a keyring", "gnome-keyring or dbus is not installed")
        return
    request = [XAPI, "request", "/x-api/me"]
    # XDG_RUNTIME_DIR is also the directory of the agent's socket, so each agent has its own session.
    session = stack.enter_context(KeyringSession())
    environ = logged_in(home / "keyring", {**login, **session.environ}, "keyring")
    yield Program("xapi request, no agent, keyring", request, environ | {"XAPI_AGENT": "off"})
    if stack.enter_context(agent(environ)):
        yield Program("xapi request, agent, keyring", request, environ)
        yield Program(WARM_KEYRING, request, environ | {"XAPI_KEYRING_CACHE": "1"})


def _measure_network(rounds: int) -> int:
    """Print the tables for https; the process must have its own network namespace."""
    missed = 0
    for milliseconds, target in ROUND_TRIPS.items():
        try:
            with ExitStack() as stack:
                stack.enter_context(delayed_path(milliseconds / 1000))
                programs = _programs_over_network(stack, Path(stack.enter_context(tempfile.TemporaryDirectory())))
                _check(programs)
                alternate(programs, rounds)
                title = f"https, round-trip time {milliseconds} ms"
                missed += _print_table(title, programs, (CURL, GH), [Target(WARM_REQUEST, CURL, target)])
        except NoNamespaceError as error:
            not_measured(
                "https over a delayed path", f"a network namespace with a TUN device is not available: {error}"
            )
            return 0
    return min(missed, 1)


def _programs_over_network(stack: ExitStack, home: Path) -> list[Program]:
    import trustme

    authority, certificate, ca_bundle = trustme.CA(), home / "server.pem", home / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_bundle))
    authority.issue_cert(FAR).private_key_and_cert_chain_pem.write_to_path(str(certificate))
    port = stack.enter_context(nginx(home, NEAR, certificate))
    base_url, environ = f"https://{FAR}:{port}", _environ(home) | {"SSL_CERT_FILE": str(ca_bundle)}
    login = environ | {"XAPI_BASE_URL": base_url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "p"}
    file, request = logged_in(home / "file", login, "file"), [XAPI, "request", "/x-api/me"]
    programs = [*peers([GH, CURL], f"{base_url}/x-api/me", TOKEN, environ)]
    programs.append(Program(COLD_REQUEST, request, file | {"XAPI_AGENT": "off"}))
    if stack.enter_context(agent(file)):
        programs.append(Program(WARM_REQUEST, request, file))
    return programs


@contextmanager
def agent(environ: Mapping[str, str]) -> Iterator[bool]:
    """Run the agent of *environ*; yield whether it started, and at the end report the calls that it did not serve."""
    started = subprocess.run(
        [XAPI, "agent", "start"], env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    if started.returncode:
        not_measured("calls through the agent", started.stderr.strip())
        yield False
        return
    try:
        yield True
        _print_cold_calls(json.loads(output([XAPI, "agent", "status", "--json"], environ)))
    finally:
        subprocess.run([XAPI, "agent", "stop"], env=environ, capture_output=True, check=False)


def _print_cold_calls(status: Mapping[str, object]) -> None:
    print(f"agent: {json.dumps(status)}", flush=True)


def _environ(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}


def _check(programs: Sequence[Program]) -> None:
    """Raise SystemExit unless each program prints the response of the server, or the token."""
    for program in programs:
        if program.output() not in {BODY, TOKEN}:
            raise SystemExit(f"{program.name} printed something else: {program.output()}")


def _print_table(title: str, programs: Sequence[Program], peer_names: Sequence[str], targets: Sequence[Target]) -> int:
    """Print the times of *programs*, and their ratios to their peers; return the number of missed targets."""
    by_name = {program.name: program for program in programs}
    compared = [by_name[name] for name in peer_names if name in by_name]
    heads = [f"of {peer.name}" for peer in compared]
    print(f"\n| {title} | median | minimum | {' | '.join(heads)} |\n| --- | --- | --- |{' --- |' * len(compared)}")
    for program in programs:
        figures = [f"{1000 * program.median:.1f}", f"{1000 * program.minimum:.1f}"]
        figures += [f"{program.ratio(peer):.2f}" for peer in compared]
        print(f"| {program.name} | {' | '.join(figures)} |")
    missed = 0
    for target in targets:
        if target.program in by_name and target.peer in by_name:
            ratio = by_name[target.program].ratio(by_name[target.peer])
            missed += ratio > target.largest
            verdict = "MISSED" if ratio > target.largest else "met"
            print(f"{verdict}: {target.program} takes {ratio:.2f} of {target.peer}, target {target.largest:.2f}")
    sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main())
