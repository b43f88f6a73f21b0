"""What a log of a CI system shows: annotations on GitHub Actions, and messages on separate lines."""

import subprocess
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.support.program import Xapi
from tests.support.servers import Server, free_port, request, send

GITHUB = {"GITHUB_ACTIONS": "true"}
BUSY = response("503 Busy", b'{"error": "busy"}', "Content-Type: application/json")
ERROR = "xapi: error: GET {}/a responded with 503 Busy; try again later\n"


def test_a_github_runner_gets_an_annotation_for_an_error(xapi: Xapi) -> None:
    with Server([request(), send(BUSY)]) as server:
        outcome = xapi("request", "/a", env=bearing(server) | GITHUB)

    error = ERROR.format(server.url)
    annotation = error.replace("xapi: error: ", "::error title=xapi::")
    assert (outcome.code, outcome.out, outcome.err) == (5, '{"error": "busy"}', error + annotation)


def test_a_warning_is_a_warning_and_a_note_is_none(xapi: Xapi) -> None:
    env = {"XAPI_TOKEN": "abc", "XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_USERNAME": "me@example.com"}
    outcome = xapi("logout", env=env | GITHUB)

    shown = [line for line in outcome.err.splitlines() if line.startswith("::")]
    (warning,) = (line for line in outcome.err.splitlines() if line.startswith("xapi: warning: "))
    assert shown == [warning.replace("xapi: warning: ", "::warning title=xapi::")]
    assert "xapi: nothing was stored for me@example.com" in outcome.err


def test_an_annotation_is_escaped_as_the_runner_requires_and_contains_no_secret(xapi: Xapi) -> None:
    with Server([request(), send(response("503 Busy", f"no {TOKEN}".encode()))]) as server:
        outcome = xapi("request", "/a%20b", "--error-body", "none", env=bearing(server) | GITHUB)

    error, annotation = outcome.err.splitlines()
    assert "/a%20b" in error
    assert annotation == error.replace("xapi: error: ", "::error title=xapi::").replace("%", "%25")
    assert TOKEN not in outcome.err


@pytest.mark.parametrize("body", [b"busy", b"busy\n", b""])
def test_an_error_in_the_same_log_as_the_body_begins_a_line(xapi: Xapi, tmp_path: Path, body: bytes) -> None:
    log = tmp_path / "job.log"
    with Server([request(), send(response("503 Busy", body))]) as server, log.open("wb") as file:
        process = xapi.start("request", "/a", stdout=file, stderr=subprocess.STDOUT, env=bearing(server))
        assert process.wait() == 5

    first = "busy\n" if body else ""
    assert log.read_text() == first + ERROR.format(server.url)
