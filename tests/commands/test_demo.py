"""`xapi demo` tells the whole story, and only what it has seen happen."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.program import Xapi
from xapi_cli.sandbox import MASTER

pytestmark = pytest.mark.slow  # .ci/run has the demo, too

HEADINGS = ["1. Log in", "2. The token is stored", "3. Call the API", "4. The server forgets", "5. The same call again"]


def everything_under(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def test_the_demo_tells_the_whole_story(xapi: Xapi) -> None:
    told = xapi("demo")

    assert (told.code, told.err) == (0, "")
    assert [heading for heading in HEADINGS if heading in told.out] == HEADINGS
    assert told.out.count("$ xapi ") == 4
    assert told.out.count('"email":"master@example.com"') == 2
    assert "1 token killed" in told.out


def test_the_demo_shows_no_secret(xapi: Xapi) -> None:
    told = xapi("demo").out

    assert MASTER.password not in told
    assert max(len(word) for word in re.findall(r"[A-Za-z0-9_-]+", told)) < 40  # tokens have 900 characters


def test_the_demo_leaves_nothing_behind_and_reads_nothing(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("this is no TOML")
    before = everything_under(xapi.home)
    unusable = dict.fromkeys(("XAPI_PROFILE", "XAPI_TIMEOUT", "XAPI_STORAGE", "XAPI_TOKEN", "CI"), "unusable")
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")

    told = xapi("demo", env=unusable | proxies | {"GITHUB_ACTIONS": "true", "PYTHON_KEYRING_BACKEND": "un.usable"})
    assert (told.code, told.err) == (0, "")
    assert everything_under(xapi.home) == before


def test_the_demo_fits_a_narrow_terminal(xapi: Xapi) -> None:
    with xapi.on_terminal("demo", columns=60) as terminal:
        assert terminal.wait() == 0

    told = terminal.seen.decode().splitlines()
    assert [line for line in told if len(line) > 60 and not line.startswith("   ")] == []


def test_the_demo_takes_seconds(xapi: Xapi) -> None:
    start = time.monotonic()
    assert xapi("demo").code == 0
    assert time.monotonic() - start < 15  # about 2 s when nothing else runs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_behind(xapi: Xapi, number: signal.Signals) -> None:
    process = xapi.start("demo")
    assert process.stdout
    process.stdout.readline()
    assert any(path.name.startswith("xapi-demo-") for path in xapi.temporary.iterdir())
    os.killpg(process.pid, number)

    assert process.wait(10) == 128 + number
    assert list(xapi.temporary.iterdir()) == []


def test_a_demo_whose_program_fails_says_so_and_fails(xapi: Xapi) -> None:
    stand_in = xapi.home / "stand-in" / "sitecustomize.py"
    stand_in.parent.mkdir()
    stand_in.write_text("import os, sys; '-m' in sys.orig_argv and os._exit(3)")  # every child of the demo ends at once

    told = xapi("demo", env={"PYTHONPATH": str(stand_in.parent)})
    assert told.code == 1
    assert told.err.startswith("xapi: error: the demo failed: it does not hold that `xapi login` ends with 0")
    assert HEADINGS[1] not in told.out
