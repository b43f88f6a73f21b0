"""`xapi request --meta`: facts about a request as JSON."""

import gzip
import json
from pathlib import Path
from typing import Any

from tests.commands.api import ME, bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli.features.sandbox import Sandbox


def _meta(path: Path) -> dict[str, Any]:
    (line,) = path.read_text().splitlines()
    facts: dict[str, Any] = json.loads(line)
    assert facts.pop("elapsed_ms") >= 0
    return facts


def test_meta_describes_the_response(xapi: Xapi, tmp_path: Path) -> None:
    packed = gzip.compress(b"hello " * 1000)
    sent = response("200 OK", packed, "Content-Encoding: gzip", "X-Two: 1", "x-two: é")
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0, "hello " * 1000)
    assert _meta(tmp_path / "meta") == {
        "status": 200,
        "headers": {"content-encoding": "gzip", "x-two": "1, é", "content-length": str(len(packed))},
        "http_version": "HTTP/1.1",
        "attempts": 1,
        "login": None,
        "bytes": 6000,
    }


def test_meta_on_stderr_is_one_line_of_json(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--meta", "-", env=bearing(sandbox))

    assert (outcome.code, outcome.out) == (0, ME)
    facts = json.loads(outcome.err)
    assert list(facts) == ["status", "headers", "http_version", "elapsed_ms", "attempts", "login", "bytes"]
    assert (facts["status"], facts["bytes"]) == (200, len(ME))


def test_meta_without_a_response_has_no_status(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request()], [request()]) as server:
        assert xapi("request", "/", "--meta", "/dev/full", env=bearing(server)).code == 11
        outcome = xapi("request", "/", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert outcome.code == 11
    assert _meta(tmp_path / "meta") == {
        "status": None, "headers": {}, "http_version": None, "attempts": 1, "login": None, "bytes": 0,
    }  # fmt: skip


def test_meta_reports_logins_replays_and_errors(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    def result(*args: str) -> tuple[Any, ...]:
        xapi("request", *args, "--meta", "meta", env=sandbox.settings, cwd=tmp_path)
        facts = _meta(tmp_path / "meta")
        return tuple(facts[name] for name in ("status", "attempts", "login", "bytes"))

    assert result("/x-api/me") == (200, 1, "missing", len(ME))
    assert result("/x-api/me") == (200, 1, None, len(ME))
    sandbox.revoke_tokens()
    assert result("/x-api/me", "-o", "out") == (200, 2, "rejected", len(ME))
    status, attempts, login, size = result("/x-api/nothing")
    assert (status, attempts, login) == (404, 1, None)
    assert size > 0
    assert result("/x-api/nothing", "--error-body", "none") == (404, 1, None, size)
    assert result("HEAD", "/x-api/me", "-o", "out") == (200, 1, None, 0)
    assert (tmp_path / "out").read_text() == ME
    (path,) = (xapi.state / "tokens").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires_at": "2020-01-01T00:00:00Z"}))
    assert result("/x-api/me") == (200, 1, "expired", len(ME))


def test_meta_counts_retries(xapi: Xapi, tmp_path: Path) -> None:
    busy = response("503 Busy", b"busy", "Retry-After: 0")
    with Server([request(), send(busy), request(), send(busy), request(), send(OK)]) as server:
        outcome = xapi("request", "/", "--retry", "3", "--meta", "meta", env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out) == (0, "ok")
    assert [line.partition(";")[2] for line in outcome.err.splitlines()] == [
        " retrying in 0.0 s (1 of 3)",
        " retrying in 0.0 s (2 of 3)",
    ]
    assert _meta(tmp_path / "meta")["attempts"] == 3
