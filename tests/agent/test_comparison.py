"""A call through the agent has the effects of the same call without it: one test per call in `calls`."""

import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NamedTuple

import pytest

from tests.agent.api_server import PASSWORD, USERNAME, ApiServer
from tests.agent.calls import CALLS, Call
from tests.agent.conftest import PATIENT
from tests.agent.running import RunningAgent, running_agent
from tests.support.fork_server import ForkServer
from tests.support.program import Xapi

pytestmark = pytest.mark.slow  # makes each call twice


# What differs between two runs of the same call, and its replacement.
_VARYING = (
    (r"127\.0\.0\.1:\d{4,}", "SERVER"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+00:00)?", "TIME"),
    (r"\b1[789]\d{8}(\.\d+)?\b", "TIME"),
    (r"\b(in )?\d+(\.\d+)? ?(ms|s|seconds?|minutes?)\b", "DURATION"),
    (r'("(?:\w+_)?(?:ms|seconds)": )[\d.]+', r"\1DURATION"),
    (r'(not used: XAPI_AGENT|running, process)[^"\n]*', "AGENT"),  # `xapi doctor`
    (r"\([\d,]+/s\)", "RATE"),
    (r"\b([0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{64})\b", "RANDOM"),  # boundaries, generations, salted digests
    (r'"mark": \d+', "MARK"),  # of a rejected password
    (r'"at": [\d.]+|"(written|emptied)": "[^"]*"', "MOMENT"),  # by the time since boot
    (r'"sum": "[0-9a-f]{8}"', "SUM"),  # of a line of a journal
    (r"no response from SERVER before --max-time expired|the command did not finish within DURATION", "LATE"),
    ("LATE; raise --max-time to wait longer", "LATE; raise --max-time"),  # a process that did not run at its deadline
)


class Result(NamedTuple):
    """The effects of a call."""

    code: int
    out: str
    err: str
    files: list[tuple[str, str, str]]  # the name, the mode and the content of each file below HOME
    requests: list[str]


@pytest.fixture(scope="module")
def shared_agent() -> Iterator[RunningAgent]:
    """One agent for all calls, which must not affect each other."""
    with running_agent() as agent:
        yield agent


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_through_the_agent_equals_one_without(
    call: Call, shared_agent: RunningAgent, tmp_path: Path, forks: ForkServer
) -> None:
    without = _result(call, Xapi(tmp_path / "cold", forks), {"XAPI_AGENT": "off"}, argv=())
    before = shared_agent.served()
    through = _result(call, Xapi(tmp_path / "warm", forks), shared_agent.environ, argv=PATIENT)

    assert through == without
    assert shared_agent.served() - before == (0 if call.cold else 1), shared_agent.status()


def _result(call: Call, xapi: Xapi, environ: dict[str, str], argv: tuple[str, ...]) -> Result:
    """Make *call*, and return its effects without what always varies."""
    directory = xapi.home / "directory"
    directory.mkdir()
    with ApiServer() as server:
        if call.logged_in:
            login = xapi("login", "--base-url", server.url, "-u", USERNAME, env={"XAPI_PASSWORD": PASSWORD})
            assert login.code == 0, login
            server.requests.clear()
        if call.invalid:
            server.invalidate_tokens()
        for name, text in call.files.items():
            (directory / name).write_text(text)
        process = xapi.start(
            *(word.replace("SERVER", server.url) for word in call.args),
            stdin=DEVNULL if call.stdin is None else PIPE,
            env=environ | {name: value and value.replace("SERVER", server.url) for name, value in call.env.items()},
            cwd=directory,
            argv=argv,
        )
        out, err = process.communicate(call.stdin, 60)
        xapi.end()
        requests = [_stable(request, xapi) for request in server.requests]
    return Result(
        process.returncode,
        _stable(out, xapi),
        _stable(err, xapi),
        _files(xapi),
        sorted(requests) if call.concurrent else requests,
    )


def _files(xapi: Xapi) -> list[tuple[str, str, str]]:
    return sorted(  # by their stable names: those of two accounts are equal then
        (
            _stable(str(path.relative_to(xapi.home)).encode(), xapi),
            oct(path.stat().st_mode),
            _stable(path.read_bytes(), xapi) if path.is_file() else "",
        )
        for path in xapi.home.rglob("*")
    )


def _stable(data: bytes, xapi: Xapi) -> str:
    text = data.decode("utf-8", "surrogateescape").replace(str(xapi.home), "HOME")
    for pattern, stable in _VARYING:
        text = re.sub(pattern, stable, text)
    return text
