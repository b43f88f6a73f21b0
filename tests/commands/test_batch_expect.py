"""`xapi batch --expect`: a success that does not satisfy a filter has its own error, besides its response."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batch.server import Api, ReceivedRequest, Reply, batch, out_lines, paths
from tests.commands.jq_processes import ENDLESS
from tests.support.program import Xapi

HINT = "; check whether the API has changed"
TEXT = (("Content-Type", "text/plain"),)


def numbered(received: ReceivedRequest) -> Reply:
    return Reply(b'{"n": %s}' % received.path.rpartition("/")[2].encode())


def always(body: bytes, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Callable[..., Reply]:
    return lambda received: Reply(body, status, headers=headers) if headers else Reply(body, status)


def test_the_line_has_the_response_and_the_error(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, lines, err = batch(xapi, api, "--ordered", "--expect", ".n != 1", "--expect", ".n < 2", input=paths(3))

    assert code == 6
    assert "xapi: error: 2 of 3 lines failed" in err
    assert ": 2 × expectation; see their lines on stdout" in err
    assert [line["json"] for line in lines] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [line.get("error") for line in lines] == [
        None,
        {
            "kind": "expectation",
            "message": f"the response does not meet --expect '.n != 1': the filter yields false{HINT}",
        },
        {
            "kind": "expectation",
            "message": f"the response does not meet --expect '.n < 2': the filter yields false{HINT}",
        },
    ]
    assert list(lines[1]) == ["id", "line", "status", "headers", "json", "error", "elapsed_ms"]


@pytest.mark.parametrize(
    ("body", "text", "reason"),
    [
        (b'{"n": 1}', ".m", "the filter yields null"),
        (b'{"n": 1}', "empty", "the filter yields nothing"),
        (b'{"n": 1}', "false, null", "the filter yields false and null"),
        (b'{"n": 1}', ".n.x", "the --expect filter failed: Cannot index number with"),
        (b"{", ".", "the body is not JSON"),
        (b"", ".", "the filter yields nothing"),
        (b'{"n": "' + b"x" * 200_000 + b'"}', ".n | length == 1", "the filter yields false"),
        (b"x" * 200_000, ".", "the body is not JSON"),
    ],
)
def test_the_reason_is_that_of_xapi_request(xapi: Xapi, body: bytes, text: str, reason: str) -> None:
    with Api(always(body)) as api:
        code, (line,), _ = batch(xapi, api, "--expect", text, input=paths(1))

    assert code == 6
    assert line["error"]["message"].startswith(f"the response does not meet --expect '{text}': {reason}")
    assert line["status"] == 200
    assert {"json", "text"} & line.keys()


@pytest.mark.parametrize(("body", "size"), [(b'{"n": 1}', 1), (b'{"n": [' + b"1, " * 100_000 + b"1]}", 100_001)])
def test_a_response_that_meets_the_filters_is_unchanged(xapi: Xapi, body: bytes, size: int) -> None:
    with Api(always(body)) as api:
        plain = batch(xapi, api, input=paths(1))
        checked = batch(xapi, api, "--expect", ".n", "--expect", f"[.n | .[]? // .] | length == {size}", input=paths(1))

    assert (plain[0], checked[0]) == (0, 0)
    for line in (plain[1][0], checked[1][0]):
        del line["elapsed_ms"], line["headers"]
    assert checked[1] == plain[1]


def test_only_a_success_is_checked(xapi: Xapi) -> None:
    replies = [Reply(b"{}", 404), Reply(b"{}", 500), Reply(b"{}", 304), Reply(b"{}", 300)]
    with Api(lambda received: replies[int(received.path.rpartition("/")[2])]) as api:
        code, lines, _ = batch(xapi, api, "--expect", "false", "--jq", "7", input=paths(4))

    assert code == 5
    assert [line for line in lines if "error" in line] == []


def test_the_filter_of_jq_does_not_change_what_is_checked(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, lines, _ = batch(xapi, api, "--ordered", "--jq", ".n + 10", "--expect", ".n < 2", input=paths(3))

    assert code == 6
    assert [(line["json"], "error" in line) for line in lines] == [(10, False), (11, False), (12, True)]


def test_a_filter_of_jq_that_fails_comes_first(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, (line,), _ = batch(xapi, api, "--jq", "error", "--expect", "false", input=paths(1))

    assert (code, line["error"]["kind"]) == (1, "filter")


def test_an_endless_filter_is_ended(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, (line,), _ = batch(xapi, api, "--timeout", "2", "--expect", ENDLESS, input=paths(1))

    message = "the --expect filter did not finish within 2 s; raise --timeout"
    assert (code, line["error"]) == (1, {"kind": "filter", "message": message})


def test_fail_fast_stops_after_an_unexpected_response(xapi: Xapi) -> None:
    with Api(numbered) as api:
        code, lines, _ = batch(xapi, api, "-j", "1", "--fail-fast", "--expect", ".n < 1", input=paths(9))

    assert (code, len(lines)) == (6, 2)


def test_a_journal_stores_the_result_and_is_bound_to_the_filters(xapi: Xapi, tmp_path: Path) -> None:
    journal = ("--ordered", "--journal", str(tmp_path / "j"))
    with Api(numbered) as api:
        first = batch(xapi, api, *journal, "--expect", ".n < 1", input=paths(2))
        again = batch(xapi, api, *journal, "--expect", ".n < 1", input=paths(2))
        others = [
            batch(xapi, api, *journal, *options, input=paths(2))
            for options in ((), ("--expect", ".n"), ("--jq", ".n < 1"), ("--expect", ".n < 1", "--expect", ".n"))
        ]
        assert len(api.requests) == 2

    assert (first[0], again[0]) == (6, 6)
    assert again[1] == first[1]
    assert {(code, len(lines)) for code, lines, _ in others} == {(2, 0)}
    assert "belongs to a batch with other filters; use its --jq and --expect" in others[0][2]


def test_a_filter_added_to_a_journal_without_filters_must_be_omitted(xapi: Xapi, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "j"))
    with Api(numbered) as api:
        batch(xapi, api, *journal, input=paths(2))
        _, _, error = batch(xapi, api, *journal, "--jq", ".n", input=paths(2))

    assert "belongs to a batch without --jq and --expect; omit them, or pass another --journal" in error


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--expect", ".["), "the --expect filter is not valid"),
        (("--jq", ".", "--expect", ".", "--expect", ".["), "the --expect filter is not valid"),
        (("--jq", ".[", "--expect", ".["), "the --jq filter is not valid"),
        (("--expect", "-e"), "--expect takes a filter, not an option of jq such as -e"),
        (("--merge", "--expect", "."), "--merge and --expect cannot be combined; omit --expect"),
    ],
)
def test_a_filter_that_cannot_be_used_is_reported_before_anything_is_sent(
    xapi: Xapi, args: tuple[str, ...], message: str
) -> None:
    with Api(numbered) as api:
        outcome = xapi("batch", *args, input=paths(1), env=api.settings)

        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"xapi: error: {message}")
        assert api.requests == []


def test_the_lines_can_be_merged(xapi: Xapi, tmp_path: Path) -> None:
    with Api(numbered) as api:
        (tmp_path / "out").write_text(xapi("batch", "--expect", ".n < 1", input=paths(2), env=api.settings).out)

    merged = xapi("batch", "--merge", str(tmp_path / "out"))

    assert (merged.code, len(out_lines(merged.out))) == (0, 2)


def test_a_terminal_shows_the_error(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(1))
    with (
        Api(numbered) as api,
        xapi.on_terminal(
            "batch", "--expect", ".n > 5", str(tmp_path / "in"), env=api.settings, columns=200
        ) as terminal,
    ):
        assert terminal.wait() == 6

    assert "    1  expectation  GET     /n/0  the response does not meet --expect '.n > 5'" in terminal.text
