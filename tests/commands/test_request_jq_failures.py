"""`xapi request --jq`: filters that fail, responses that are not filtered, and invalid options."""

from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.commands.page_server import PageServer, numbered, page
from tests.support.combinations import combined
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, serve
from xapi_cli.features.sandbox import Sandbox


@pytest.mark.parametrize("option", ["-r", "-c", "-rc", "--raw-output", "--arg"])
def test_an_option_of_jq_in_place_of_the_filter_is_a_usage_error(xapi: Xapi, option: str) -> None:
    error = (
        f"xapi: error: --jq takes a filter, not an option of jq such as {option}; "
        f"omit {option}: each result is one line, and strings are printed without quotes\n"
    )
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", option, ".id", env=bearing(server))
        batch = xapi("batch", "--jq", option, input="/items\n", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err, batch.code, batch.err) == (2, "", error, 2, error)
    assert not server.targets


def test_a_filter_that_reads_more_input_than_there_is_says_so(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", "input", env=bearing(server))

    assert outcome.code == 1
    assert "the --jq filter failed: no more input" in outcome.err.lower()


@pytest.mark.parametrize("text", [".[", "unknown_function", "{a:"])
def test_a_filter_that_does_not_compile_exits_with_2_before_anything_is_sent(xapi: Xapi, text: str) -> None:
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
    assert outcome.err.startswith("xapi: error: the --jq filter is not valid: ")
    assert outcome.err.count("\n") == 1


def test_a_filter_with_many_errors_is_one_error_at_once(xapi: Xapi) -> None:
    """A pipe does not hold them: libjq repeats the filter in each."""
    text = ", ".join(f"{{name: .name, id: .id, created: (.created | to_date({number}))}}" for number in range(60))
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", f".items | [{text}]", env=bearing(server))

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
    assert outcome.err.startswith("xapi: error: the --jq filter is not valid: ")
    assert "to_date/1 is not defined" in outcome.err


def test_a_filter_that_fails_exits_with_1_after_the_results_before(xapi: Xapi) -> None:
    with PageServer(lambda target: page(b'{"a": 1}\n[2]\n{"a": 3}')) as server:
        outcome = xapi("request", "/", "--jq", ".a", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n")
    assert outcome.err.startswith("xapi: error: the --jq filter failed: Cannot index array with string ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "body, out", [(b'{"a": 1} <html>', "1\n"), (b"<html>", ""), (b"[1,", ""), (b'{"a": 1}\n{"a"', "1\n")]
)
def test_a_body_that_is_not_json_is_named_as_the_cause(xapi: Xapi, body: bytes, out: str) -> None:
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".a", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, out)
    assert outcome.err.startswith("xapi: error: --jq cannot parse the body as JSON: ")
    assert outcome.err.endswith("; omit --jq to see it\n")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("constant", "body"),
    combined(
        ["NaN", "-NaN", "+NaN", "Infinity", "-Infinity"],
        ['{"a": 1}\n{"a": %s}', '{"a": 1} [%s]', '{"a": 1}\n%s', '{"a": 1}\n%s 2'],
    ),
)
def test_nan_and_infinity_are_not_json(xapi: Xapi, body: str, constant: str) -> None:
    with PageServer(lambda target: page((body % constant).encode())) as server:
        outcome = xapi("request", "/", "--jq", ".a", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n")
    assert outcome.err.startswith("xapi: error: --jq cannot parse the body as JSON: Invalid ")
    assert outcome.err.endswith("; omit --jq to see it\n")


def test_words_within_strings_are_no_constants(xapi: Xapi) -> None:
    values = ["NaN", "a NaN", "Infinity, Infinity] NaN}", "\\", 'say "NaN", 1', "Infinitys"]
    with PageServer(lambda target: page(values)) as server:
        outcome = xapi("request", "/", "--jq", ".[]", env=bearing(server))

    assert outcome == Outcome(0, "".join(f"{value}\n" for value in values))


@pytest.mark.parametrize(
    "text, reason",
    [
        (".a | halt_error", "lost"),
        (".a | halt_error(0)", "lost"),
        ("{a} | halt_error", '{"a":"lost"}'),
        ("., halt", "halt is not supported"),
        ('error("")', "no reason given"),
        ('error("first\\nsecond")', "first second"),
        ('error("parse error: a at line 1, column 2")', "parse error: a at line 1, column 2"),
    ],
)
def test_a_filter_that_halts_fails_and_does_not_change_the_file(xapi: Xapi, out: Path, text: str, reason: str) -> None:
    out.write_text("old")
    with PageServer(lambda target: page(b'{"a": "lost"} {"a": 2}')) as server:
        outcome = xapi("request", "/", "--jq", text, "-o", str(out), env=bearing(server))

    assert outcome.code == 1
    assert outcome.err == f"xapi: error: the --jq filter failed: {reason}; correct the filter\n"
    assert out.read_text() == "old"


@pytest.fixture
def stopping_module(xapi: Xapi, tmp_path: Path) -> str:
    """The directive that imports functions which end a filter early; `stop_too` needs no directive."""
    functions = 'def {0}: halt;\ndef {0}_silently: "lost" | halt_error(0);\n'
    (tmp_path / "m.jq").write_text(functions.format("stop"))
    (xapi.home / ".jq").write_text(functions.format("stop_too"))
    return f'import "m" as m {{search: "{tmp_path}"}};'


@pytest.mark.parametrize("function", ["m::stop", "m::stop_silently", "stop_too", "stop_too_silently"])
def test_a_module_that_halts_is_an_error_and_does_not_change_the_file(
    xapi: Xapi, out: Path, stopping_module: str, function: str
) -> None:
    out.write_text("old")
    text = f"{stopping_module} if .n == 2 then .n, {function}, 3 else .n end"
    with PageServer(lambda target: page(b'{"n": 1}{"n": 2} {"n": 3}')) as server:
        env = bearing(server)
        printed = xapi("request", "/", "--jq", text, env=env)
        saved = xapi("request", "/", "--jq", text, "-o", str(out), env=env)

    reason = "it ended early, possibly because of halt, which is not supported"
    error = f"xapi: error: the --jq filter failed: {reason}; correct the filter\n"
    assert (printed.code, printed.out, printed.err) == (1, "1\n2\n", error)
    assert (saved.code, saved.out, saved.err, out.read_text()) == (1, "", error, "old")


@pytest.mark.parametrize("text", ["[limit(3000; repeat(.)) | debug] | error", "if .n == 1 then error else . end"])
def test_an_error_before_other_documents_or_after_many_messages_is_not_lost(xapi: Xapi, out: Path, text: str) -> None:
    with PageServer(lambda target: page(b'{"n": 1} {"n": 2}')) as server:
        outcome = xapi("request", "/", "--jq", text, "-o", str(out), env=bearing(server))

    assert outcome.code == 1
    assert outcome.err.startswith("xapi: error: the --jq filter failed: ")
    assert outcome.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("options, out", [([], ""), (["--error-body", "stdout"], '{"no": 1}')])
def test_an_error_body_is_not_filtered(xapi: Xapi, options: list[str], out: str) -> None:
    with Server([serve(response("404 No", b'{"no": 1}'))]) as server:
        outcome = xapi("request", "/", "--jq", ".no", *options, env=bearing(server))

    assert (outcome.code, outcome.out) == (4, out)
    assert outcome.err.startswith("xapi: error: " if out else '{"no": 1}\nxapi: error: ')


def test_with_no_check_status_an_error_body_is_filtered(xapi: Xapi) -> None:
    with Server([serve(response("404 No", b'{"no": 1}'))]) as server:
        outcome = xapi("request", "/", "--jq", ".no", "--no-check-status", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n", "")


@pytest.mark.parametrize(
    "status, options, code",
    [
        ("302 Found", ["--no-follow"], 3),
        ("302 Found", ["--no-follow", "--no-check-status"], 0),
        ("300 Multiple Choices", [], 3),
        ("401 No", ["--no-check-status", "--no-login"], 10),
    ],
)
def test_the_body_of_a_redirect_or_a_401_is_not_filtered(
    xapi: Xapi, out: Path, status: str, options: list[str], code: int
) -> None:
    out.write_text("old")
    location = ["Location: /x-api/me"] if status.startswith("302") else []
    with PageServer(lambda target: response(status, b"<html>", *location)) as server:
        env = bearing(server)
        printed = xapi("request", "/", "--jq", ".", *options, env=env)
        saved = xapi("request", "/", "--jq", ".", "-o", str(out), *options, env=env)

    for outcome in (printed, saved):
        assert (outcome.code, outcome.out) == (code, "")
        assert outcome.err.startswith("<html>\n")
        assert "filter" not in outcome.err
    assert out.read_text() == "old"


@pytest.mark.parametrize(
    ("body", "out", "media_type"),
    combined(
        [
            (b"[1, 2]", "[1,2]\n"),
            (b'{"a": 1}\n{"a": 2', '{"a":1}\n'),
            (b"1 23", "1\n"),  # which may be the start of 234
            (b"[1]\nnull", "[1]\n"),
            (b'["a", "b', ""),
            (b'"a"', "a\n"),
        ],
        ["application/json", "application/x-ndjson"],
    ),
)
def test_of_a_truncated_body_the_complete_documents_are_filtered(
    xapi: Xapi, media_type: str, body: bytes, out: str
) -> None:
    headers = f"Content-Type: {media_type}", "Content-Length: 99", "Connection: close"
    with PageServer(lambda target: response("200 OK", body, *headers)) as server:
        outcome = xapi("request", "/", "--jq", ".", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, out)
    assert f"was truncated after {len(body)} bytes" in outcome.err
    assert outcome.err.endswith("; send the request again if it can be repeated\n")


@pytest.mark.parametrize(
    "text, hint",
    [
        (".[].id", "`.id`"),
        (".[] | .id", "`.id`"),
        (".[]", "a filter for an item"),
        (".items[].id", "a filter for an item"),
    ],
)
def test_a_filter_for_the_page_instead_of_an_item_says_so(xapi: Xapi, text: str, hint: str) -> None:
    items = b'[{"id": 1}]' if "items" in text else b"[1, 2]"
    with PageServer(lambda target: page(items)) as server:
        outcome = xapi("request", "/", "--paginate", "--jq", text, env=bearing(server))
        single = xapi("request", "/", "--jq", f"[.][0] | .x | {text}", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "")
    reason = "because with --paginate the filter is applied to each item, not to the page"
    assert outcome.err.endswith(f"; write {hint}, {reason}\n")
    assert outcome.err.startswith("xapi: error: the --jq filter failed: Cannot i")
    assert single.err.endswith("; correct the filter\n")


def test_a_filter_that_fails_on_a_page_names_its_url(xapi: Xapi) -> None:
    with PageServer(numbered(3)) as server:
        text = 'if .id == 3 then error("three") else .id end'
        outcome = xapi("request", "/items", "--paginate", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n2\n")
    assert (
        f"the --jq filter failed: three; correct the filter; to continue, request '{server.url}/items?page=2'"
        in outcome.err
    )


@pytest.mark.parametrize("options", [["--continue", "-o", "x"], ["--paginate", "--slurp"]])
def test_invalid_combinations_exit_with_2(xapi: Xapi, sandbox: Sandbox, options: list[str]) -> None:
    outcome = xapi("request", "/x-api/me", "--jq", ".", *options, env=bearing(sandbox))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("xapi: error: --jq cannot be combined with --")


@pytest.mark.parametrize("body", [b"hello wo", b'{"a": 1} x'])
def test_a_truncated_body_that_is_not_json_is_truncated(xapi: Xapi, body: bytes) -> None:
    with PageServer(lambda target: response("200 OK", body, "Content-Length: 99", "Connection: close")) as server:
        outcome = xapi("request", "/", "--jq", ".", env=bearing(server))

    assert (outcome.code, "was truncated" in outcome.err) == (11, True)
