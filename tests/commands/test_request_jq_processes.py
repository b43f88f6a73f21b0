"""`xapi request --jq`: the engines, libjq and the program jq, and the limits of their processes."""

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing
from tests.commands.jq_engines import (
    ENDLESS,
    busy_children,
    program,
    wait_for_end_of,
    wait_until_ended,
    without_library,
    without_signals_of_pipes,
)
from tests.commands.page_server import PageServer, page
from tests.program import REAL, Xapi
from xapi_cli.errors import UsageError
from xapi_cli.request import filter_engine
from xapi_cli.request.filter_child import MAX_BODY
from xapi_cli.sandbox import Sandbox


@pytest.mark.parametrize("output", ["", "1\\n", "1\\036", "\\036"])
def test_a_program_that_ends_without_an_error_before_the_last_result_is_an_error(
    xapi: Xapi, tmp_path: Path, output: str
) -> None:
    env = program(tmp_path, f"printf '{output}'")
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", ".", env={**bearing(server), **env})

    assert (outcome.code, outcome.out) == (1, output.encode().decode("unicode_escape"))
    assert "the filter of --jq failed: it ended early" in outcome.err


def test_a_filter_that_needs_too_much_memory_is_an_error(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: page([1])) as server:
        text = '.[0], (reduce range(40) as $_ ("x"; . + .))'
        outcome = xapi("request", "/", "--jq", text, env={**bearing(server), **engine}, timeout=60)

    assert outcome.code == 1
    assert outcome.err.startswith("xapi: error: the filter of --jq failed: ")
    assert "memory" in outcome.err


def test_a_program_that_is_gone_after_the_request_exits_with_1(xapi: Xapi, tmp_path: Path) -> None:
    def respond(target: str) -> bytes:
        (tmp_path / "program" / "jq").unlink()
        return page([1])

    env = program(tmp_path, "exit 0")
    with PageServer(respond) as server:
        outcome = xapi("request", "POST", "/", "--jq", ".", env={**bearing(server), **env})

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == ("xapi: error: jq cannot be run: No such file or directory; check the installation of jq\n")


@pytest.mark.parametrize("script", ["exec cat /dev/zero >&2", "echo broken >&2; exit 9"])
def test_a_program_that_is_not_jq_exits_with_2(xapi: Xapi, tmp_path: Path, sandbox: Sandbox, script: str) -> None:
    outcome = xapi("request", "/x-api/me", "--jq", ".", env={**bearing(sandbox), **program(tmp_path, script)})

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("xapi: error: jq cannot be run: ")
    assert outcome.err.count("\n") == 1


def test_a_filter_that_is_not_compiled_in_time_exits_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(filter_engine, "_TIME_LIMIT", 0.5)
    monkeypatch.setattr(filter_engine, "_library_directory", lambda: None)
    env = program(tmp_path, 'echo $$ >"$0.pid"; sleep 1000; :')
    with pytest.raises(UsageError, match="the filter was not compiled within"):
        filter_engine.FilterEngine(".", env, warn=print)

    group = int((tmp_path / "program" / "jq.pid").read_text())
    wait_for_end_of(group)


def test_max_time_ends_the_child_processes_of_the_program(xapi: Xapi, tmp_path: Path) -> None:
    env = program(tmp_path, 'echo $$ >"$0.pid"; /usr/bin/jq "$@"; exit $?')
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start(
            "request", "/", "--jq", f"1, ({ENDLESS})", "--max-time", "3", env={**bearing(server), **env}
        )
        assert process.wait(30) == 12
    group = int((tmp_path / "program" / "jq.pid").read_text())
    wait_for_end_of(group)


_OLD_LIBRARY = """
class compile:
    def __init__(self, text): pass
    def input_text(self, text): return ["1.1"]
"""


@pytest.mark.parametrize(
    "code", [None, "raise ImportError('wrong architecture')\n", "def compile(text): return text\n", _OLD_LIBRARY]
)
def test_a_library_that_cannot_be_used_is_replaced_by_the_program(xapi: Xapi, tmp_path: Path, code: str | None) -> None:
    (tmp_path / "jq").mkdir()
    (tmp_path / "jq" / "README").write_text("a directory without code")
    if code is not None:
        (tmp_path / "jq" / "__init__.py").write_text(code)
    with PageServer(lambda target: page([1])) as server:
        env = {**bearing(server), "PYTHONPATH": str(tmp_path)}
        outcome = xapi("request", "/", "--jq", ".[]", env=env)

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n", "")


def test_a_document_that_is_too_large_for_libjq_exits_with_11(xapi: Xapi) -> None:
    body = b"1\n[" + b" " * MAX_BODY + b"]"
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".", env=bearing(server), timeout=60)

    assert (outcome.code, outcome.out) == (11, "1\n")
    assert "the body contains a document larger than 64 MiB, the limit of --jq with libjq; omit --jq" in outcome.err


def test_without_an_engine_the_error_names_both(xapi: Xapi, tmp_path: Path, sandbox: Sandbox) -> None:
    env = {**bearing(sandbox), **without_library(tmp_path), "PATH": str(tmp_path)}
    outcome = xapi("request", "/x-api/me", "--jq", ".", env=env)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "xapi: error: --jq requires libjq or the program jq; run `pip install 'xapi-cli[jq]'`, or install jq\n"
    )


def test_the_program_is_not_searched_for_in_the_current_directory(xapi: Xapi, tmp_path: Path, sandbox: Sandbox) -> None:
    (xapi.home / "jq").write_text("#!/bin/sh\necho hostile\n")
    (xapi.home / "jq").chmod(0o755)
    env = {**bearing(sandbox), **without_library(tmp_path), "PATH": "."}
    outcome = xapi("request", "/x-api/me", "--jq", ".", env=env)

    assert (outcome.code, outcome.out) == (2, "")


def test_the_environment_of_the_filter_has_no_secret(xapi: Xapi, engine: Mapping[str, str], sandbox: Sandbox) -> None:
    env = {**bearing(sandbox), **engine, "XAPI_PASSWORD": "canary-password", "MINE": "yes", "NO_PROXY": "*"}
    env |= {"ALL_PROXY": "http://user:canary@127.0.0.1:9"}
    outcome = xapi("request", "/x-api/me", "--jq", "$ENV", env=env)

    found = json.loads(outcome.out)
    assert (outcome.code, found["MINE"]) == (0, "yes")
    assert not {"XAPI_TOKEN", "XAPI_PASSWORD", "ALL_PROXY"} & found.keys()
    assert "canary" not in outcome.out
    assert TOKEN not in outcome.out


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_endless_filter_at_once(xapi: Xapi, engine: Mapping[str, str], number: int, code: int) -> None:
    served = threading.Event()

    def respond(target: str) -> bytes:
        served.set()
        return page([1])

    with PageServer(respond) as server:
        env = {**bearing(server), **engine}
        process = xapi.start("request", "/", "--jq", f'., ("x" | {ENDLESS})', env=env, argv=REAL)
        assert served.wait(20)
        while not (children := busy_children(process.pid)):
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=10)

    assert (process.returncode, err) == (code, b"")
    assert out in (b"", b"[1]\n")
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize("has_signals", [True, False])
def test_a_filter_ends_when_xapi_is_killed(
    xapi: Xapi, engine: Mapping[str, str], tmp_path: Path, has_signals: bool
) -> None:
    env = engine if has_signals else without_signals_of_pipes(tmp_path)
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start("request", "/", "--jq", ENDLESS, env={**bearing(server), **env}, argv=REAL)
        while not (children := busy_children(process.pid)):
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=10)

    for child in children:
        wait_until_ended(child)


def test_max_time_ends_an_endless_filter(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", ENDLESS, "--max-time", "3", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out) == (12, "")


def test_a_closed_stdout_ends_an_endless_output(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start("request", "/", "--jq", "range(1e12)", env={**bearing(server), **engine})
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
