"""`xapi request --jq`: libjq, and the limits of its process."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing
from tests.commands.jq_processes import (
    ENDLESS,
    children,
    wait_for_busy_children,
    wait_until_ended,
    without_library,
)
from tests.commands.page_server import PageServer, numbered, page
from tests.support.program import PYTHON, Xapi, how_to_add
from xapi_cli.errors import UsageError
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.request.jq import engine
from xapi_cli.request.jq.child import MAX_DOCUMENT


def test_a_filter_that_needs_too_much_memory_is_an_error(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        text = '.[0], (reduce range(40) as $_ ("x"; . + .))'
        outcome = xapi("request", "/", "--jq", text, env=bearing(server), timeout=60)

    assert outcome.code == 1
    assert outcome.err.startswith("xapi: error: the --jq filter failed: ")
    assert "memory" in outcome.err


_OLD_LIBRARY = """
class compile:
    def __init__(self, text): pass
    def input_text(self, text): return ["1.1"]
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "--jq requires libjq, which is not installed"),
        ("raise OSError('first\\nsecond')\n", "libjq cannot be used: first second"),
        ("import os; os._exit(9)\n", "libjq cannot be used: its process ended with exit code 9"),
        *(
            pytest.param(code, f"libjq cannot be used: {reason}", marks=pytest.mark.slow)
            for code, reason in (
                ("raise ImportError('wrong architecture')\n", "wrong architecture"),
                ("def compile(text): return text\n", "'str' object has no attribute 'input_text'"),
                (_OLD_LIBRARY, "the package jq is older than 1.6"),
            )
        ),
    ],
)
def test_without_a_usable_library_the_error_says_how_to_install_it(
    xapi: Xapi, tmp_path: Path, sandbox: Sandbox, code: str | None, reason: str
) -> None:
    (tmp_path / "jq").mkdir()
    (tmp_path / "jq" / "README").write_text("a directory without code")
    env = {**bearing(sandbox), "PYTHONPATH": str(tmp_path)}
    if code is None:
        env |= without_library(tmp_path)
    else:
        (tmp_path / "jq" / "__init__.py").write_text(code)
    outcome = xapi("request", "/x-api/me", "--jq", ".", env=env)
    batch = xapi("batch", "--jq", ".", input="/x-api/me\n", env=env)

    error = f"xapi: error: {reason}; {how_to_add('jq')}, or omit --jq and append `| jq`\n"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", error)
    assert (batch.code, batch.out, batch.err) == (2, "", error)


def test_a_module_in_the_current_directory_is_not_the_library(xapi: Xapi, sandbox: Sandbox) -> None:
    (xapi.home / "jq.py").write_text("raise ImportError('hostile')\n")
    process = xapi.start("request", "/x-api/me", "--jq", "empty", env=bearing(sandbox))

    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 0


def test_a_filter_that_is_not_compiled_in_time_exits_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "_TIME_LIMIT", 1.7)
    monkeypatch.setattr(engine, "_library_directory", lambda option: str(tmp_path))
    code = "import os, time; open(__file__ + '.pid', 'w').write(str(os.getpid())); time.sleep(99)"
    (tmp_path / "jq.py").write_text(code)
    with pytest.raises(UsageError, match="the --jq filter was not compiled within"):
        engine.compile_filter(".", os.environ, encode="tostring", memory=2**30)

    wait_until_ended(int((tmp_path / "jq.py.pid").read_text()))


def test_all_pages_share_one_process(xapi: Xapi) -> None:
    processes = []
    pages = numbered(3)

    def respond(target: str) -> bytes:
        processes.append(children(process.pid))
        return pages(target)

    with PageServer(respond) as server:
        process = xapi.start("request", "/items", "--paginate", "--jq", ".id", env=bearing(server))
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err) == (0, b"1\n2\n3\n4\n5\n6\n", b"")
    assert len(processes) == 3
    assert len(processes[0]) == 1
    assert processes[0] == processes[1] == processes[2]


def test_a_document_that_is_too_large_for_libjq_exits_with_11(xapi: Xapi) -> None:
    body = b"1\n[" + b" " * MAX_DOCUMENT + b"]"
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".", env=bearing(server), timeout=60)

    assert (outcome.code, outcome.out) == (11, "1\n")
    assert "the body contains a document larger than 64 MiB, the limit of --jq with libjq; omit --jq" in outcome.err


def test_the_environment_of_the_filter_has_no_secret(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**bearing(sandbox), "XAPI_PASSWORD": "canary-password", "MINE": "yes", "NO_PROXY": "*"}
    env |= {"ALL_PROXY": "http://user:canary@127.0.0.1:9"}
    outcome = xapi("request", "/x-api/me", "--jq", "$ENV", env=env)

    found = json.loads(outcome.out)
    assert (outcome.code, found["MINE"]) == (0, "yes")
    assert not {"XAPI_TOKEN", "XAPI_PASSWORD", "ALL_PROXY"} & found.keys()
    assert "canary" not in outcome.out
    assert TOKEN not in outcome.out


# The program, but its cleanup after a signal may take two seconds, not 0.4: the machine may be busy.
_ENDS_SLOWLY = """
from xapi_cli.__main__ import main
from xapi_cli.system import signals

signals._CLEANUP_TIMEOUT = 2
main()
"""


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_an_endless_filter_at_once(xapi: Xapi, number: int, code: int) -> None:
    served = threading.Event()

    def respond(target: str) -> bytes:
        served.set()
        return page([1])

    with PageServer(respond) as server:
        env = bearing(server)
        argv = (str(PYTHON), "-Pc", _ENDS_SLOWLY)
        process = xapi.start("request", "/", "--jq", f'., ("x" | {ENDLESS})', env=env, argv=argv)
        assert served.wait(20)
        children = wait_for_busy_children(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=10)

    assert (process.returncode, err) == (code, b"")
    assert out in (b"", b"[1]\n")
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_max_time_ends_an_endless_filter(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", ENDLESS, "--max-time", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (12, "")


def test_a_closed_stdout_ends_an_endless_output(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start("request", "/", "--jq", "range(1e12)", env=bearing(server))
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
