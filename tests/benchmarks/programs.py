"""Commands whose time is measured, and the rounds in which they alternate."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

XAPI = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
PYTHON = str(Path(XAPI).with_name("python"))
WARM_UP = 2  # rounds that fill caches and are not counted

HTTPIE = "http GET (HTTPie)"
GH = "gh api"
CURL = "curl"


@dataclass
class Program:
    """A command, and the seconds of wall time and of CPU time per call in each round."""

    name: str
    command: list[str]
    environ: Mapping[str, str]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the wall time per call, in seconds."""
        return statistics.median(self.wall)

    @property
    def minimum(self) -> float:
        """The least wall time per call, in seconds: other processes can only slow a call down."""
        return min(self.wall)

    def ratio(self, peer: "Program") -> float:
        """Return the median of the ratios to *peer* in the same round."""
        return statistics.median(own / other for own, other in zip(self.wall, peer.wall, strict=True))

    def output(self) -> str:
        """Run the command once, and return its stdout without white space at the ends.

        Raises CalledProcessError if the command fails.
        """
        return output(self.command, self.environ)

    def run(self, calls: int = 1, pause: float = 0.0) -> None:
        """Run the command *calls* times, each after *pause* seconds, and add the times per call.

        Raises SystemExit if a call fails.
        """
        wall = cpu = 0.0
        for _ in range(calls):
            time.sleep(pause)
            start = time.perf_counter()
            # Not subprocess, which adds about a millisecond to the time of each call.
            pid = os.posix_spawn(self.command[0], self.command, self.environ, file_actions=_NULL_STREAMS)
            _, status, usage = os.wait4(pid, 0)
            wall += time.perf_counter() - start
            cpu += usage.ru_utime + usage.ru_stime
            if status:
                raise SystemExit(f"{self.name} failed: exit status {os.waitstatus_to_exitcode(status)}")
        self.wall.append(wall / calls)
        self.cpu.append(cpu / calls)


_NULL_STREAMS = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
]


def alternate(programs: Sequence[Program], rounds: int, *, calls: int = 1, pause: float = 0.0) -> None:
    """Measure *programs* in alternation, so that other load on the machine affects all of them.

    In each round, each program makes *calls* consecutive calls, each after *pause* seconds.
    Each round begins with another program. Earlier measurements are discarded.
    """
    for number in range(rounds + WARM_UP):
        if number == WARM_UP:
            for program in programs:
                program.wall.clear()
                program.cpu.clear()
        first = number % len(programs)
        for program in [*programs[first:], *programs[:first]]:
            program.run(calls, pause)


def peers(names: Sequence[str], url: str, token: str, environ: Mapping[str, str]) -> Iterator[Program]:
    """Yield the programs *names*, each of which requests *url* with *token*; report those that are not installed."""
    bearer = f"Authorization: Bearer {token}"
    gh = {
        "GH_TOKEN": "x",  # required, but replaced by the header
        "GH_CONFIG_DIR": f"{environ['HOME']}/gh",
        "GH_NO_UPDATE_NOTIFIER": "1",
    }
    commands: dict[str, tuple[str, list[str], dict[str, str]]] = {
        HTTPIE: ("http", ["GET", url, bearer.replace(": ", ":", 1)], {}),
        GH: ("gh", ["api", url, "-H", bearer], gh),
        CURL: ("curl", ["-s", "-H", bearer, url], {}),
    }
    for name in names:
        program, arguments, more = commands[name]
        if path := shutil.which(program, path=environ["PATH"]):
            yield Program(name, [path, *arguments], {**environ, **more})
        else:
            not_measured(name, f"{program} is not installed")


def not_measured(what: str, why: str) -> None:
    """Report that *what* has no row."""
    print(f"not measured: {what}, because {why}", flush=True)


def output(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run *command*, and return its stdout without white space at the ends.

    Raises CalledProcessError if the command fails.
    """
    ended = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True, text=True
    )
    return ended.stdout.strip()


def separate(directory: Path, login: Mapping[str, str], storage: str) -> dict[str, str]:
    """Return the environment *login* with *storage* and with its own directories."""
    directories = {"XAPI_CONFIG_DIR": str(directory / "config"), "XAPI_STATE_DIR": str(directory / "state")}
    return {**login, **directories, "XAPI_STORAGE": storage}


def logged_in(directory: Path, login: Mapping[str, str], storage: str) -> dict[str, str]:
    """Log in with *storage*; return the environment for further commands, which has no password."""
    environ = separate(directory, login, storage)
    output([XAPI, "login"], environ)
    return {name: value for name, value in environ.items() if name not in {"XAPI_PASSWORD", "XAPI_BASE_URL"}}
