"""`xapi demo` shows the main workflow and checks each step."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER

HEADINGS = [
    "1. Log in",
    "2. Print the token",
    "3. Send a request",
    "4. The server invalidates",
    "5. Send the same request",
]


def everything_under(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


@pytest.mark.slow
def test_the_demo_shows_the_whole_workflow(xapi: Xapi) -> None:
    result = xapi("demo")

    assert (result.code, result.err) == (0, "")
    assert [heading for heading in HEADINGS if heading in result.out] == HEADINGS
    assert result.out.count("$ xapi ") == 4
    assert result.out.count('"email":"master@example.com"') == 2
    assert "1 token invalidated" in result.out
    assert result.out.endswith("run: xapi login\n")
    assert MASTER.password not in result.out
    assert max(len(word) for word in re.findall(r"[A-Za-z0-9_-]+", result.out)) < 40  # tokens have 900 characters


def test_the_demo_leaves_no_files_and_reads_no_settings(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("this is not TOML")
    before = everything_under(xapi.home)
    unusable = dict.fromkeys(("XAPI_PROFILE", "XAPI_TIMEOUT", "XAPI_STORAGE", "XAPI_TOKEN", "CI"), "unusable")
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")

    result = xapi("demo", env=unusable | proxies | {"GITHUB_ACTIONS": "true", "PYTHON_KEYRING_BACKEND": "un.usable"})
    assert (result.code, result.err) == (0, "")
    assert everything_under(xapi.home) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_files(xapi: Xapi, number: signal.Signals) -> None:
    process = xapi.start("demo")
    assert process.stdout
    process.stdout.readline()
    assert any(path.name.startswith("xapi-demo-") for path in xapi.temporary.iterdir())
    os.killpg(process.pid, number)

    assert process.wait() == 128 + number
    assert list(xapi.temporary.iterdir()) == []


@pytest.mark.slow
def test_the_demo_fails_if_a_command_fails(xapi: Xapi) -> None:
    substitute = xapi.home / "substitute" / "sitecustomize.py"
    substitute.parent.mkdir()
    substitute.write_text(
        "import os, sys; '-m' in sys.orig_argv and os._exit(3)"
    )  # every child process of the demo exits immediately

    result = xapi("demo", env={"PYTHONPATH": str(substitute.parent)})
    assert result.code == 1
    assert result.err.startswith("xapi: error: the demo failed: `xapi login` ended with exit code 3")
    assert HEADINGS[1] not in result.out
