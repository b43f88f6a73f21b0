"""`xapi request --jq`, with both engines: libjq, and the program jq."""

import json
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.jq_engines import (
    ENDLESS,
    busy_children,
    wait_until_ended,
    without_library,
    without_signals_of_pipes,
)
from tests.commands.page_server import PageServer, numbered, page
from tests.program import REAL, Xapi
from tests.servers import Server, request, send, serve, wait_for
from xapi_cli.errors import UsageError
from xapi_cli.request import filter_engine
from xapi_cli.request.filter_child import MAX_BODY
from xapi_cli.sandbox import Sandbox

NUMBERS = '[1.10, 123456789012345678901234567890, 1.0, {"price": 2.50}]'


@pytest.fixture(params=["library", "program"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The environment that selects an engine; without the library, xapi uses the program."""
    return without_library(tmp_path) if request.param == "program" else {}


@pytest.mark.parametrize(
    "text, body, out",
    [
        (".", '{"a" : [1, "é"]}', '{"a":[1,"é"]}\n'),
        (".a, .b", '{"a": "x\\ny \\"z\\"", "b": null}', 'x\ny "z"\nnull\n'),
        (".[] | select(.n > 1) | .n", '[{"n": 1}, {"n": 2}, {"n": 3}]', "2\n3\n"),
        (".a # a comment", '{"a": true}', "true\n"),
        ("-1", "[]", "-1\n"),
        ("empty", "[]", ""),
        (".n", '{"n": 1} {"n": 2}\n{"n": 3}', "1\n2\n3\n"),
        ("keys", '{"b": 1, "a": 1}', '["a","b"]\n'),
    ],
)
def test_the_results_are_printed_one_per_line(
    xapi: Xapi, engine: Mapping[str, str], text: str, body: str, out: str
) -> None:
    with PageServer(lambda target: page(body.encode())) as server:
        outcome = xapi("request", "/", "--jq", text, env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, out, "")


@pytest.mark.parametrize(
    "text, out",
    [
        (".", '[1.10,123456789012345678901234567890,1.0,{"price":2.50}]\n'),
        (".[]", '1.10\n123456789012345678901234567890\n1.0\n{"price":2.50}\n'),
        (".[3].price", "2.50\n"),
        ("[.[1]]", "[123456789012345678901234567890]\n"),
    ],
)
def test_numbers_stay_as_sent_or_a_warning_says_that_they_do_not(
    xapi: Xapi, engine: Mapping[str, str], text: str, out: str
) -> None:
    with PageServer(lambda target: page(NUMBERS.encode())) as server:
        outcome = xapi("request", "/", "--jq", text, env={**bearing(server), **engine})

    assert outcome.code == 0
    if engine and outcome.err:  # the program, before version 1.7
        assert "changes numbers such as 1.10" in outcome.err
        assert "pip install 'xapi-cli[jq]'" in outcome.err
    else:
        assert (outcome.out, outcome.err) == (out, "")


@pytest.mark.parametrize("body", ["1.10", "[1.10]", "-2.0", "0.12345678901234567", " 12345678901234567\n", "[2.50\n]"])
def test_a_number_that_an_old_program_changes_is_warned_of_wherever_it_is(
    xapi: Xapi, engine: Mapping[str, str], body: str
) -> None:
    with PageServer(lambda target: page(body.encode())) as server:
        outcome = xapi("request", "/", "--jq", "tojson", env={**bearing(server), **engine})

    assert outcome.code == 0
    if outcome.out != body.replace("\n", "").strip() + "\n":
        assert "changes numbers such as 1.10" in outcome.err


@pytest.mark.parametrize("option", ["-r", "-c", "-rc", "--raw-output", "--arg"])
def test_an_option_of_jq_in_place_of_the_filter_is_a_usage_error(
    xapi: Xapi, engine: Mapping[str, str], option: str
) -> None:
    error = (
        f"xapi: error: --jq takes a filter, not an option of jq such as {option}; "
        f"omit {option}: each result is one line, and strings are printed without quotes\n"
    )
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", option, ".id", env={**bearing(server), **engine})
        batch = xapi("batch", "--jq", option, input="/items\n", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err, batch.code, batch.err) == (2, "", error, 2, error)
    assert not server.targets


def test_a_filter_may_be_a_negated_expression(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: page([1, 2])) as server:
        outcome = xapi("request", "/", "--jq", "-length", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out) == (0, "-2\n")


def test_a_filter_that_reads_more_input_than_there_is_says_so(xapi: Xapi, tmp_path: Path) -> None:
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", "input", env={**bearing(server), **without_library(tmp_path)})

    assert outcome.code == 1
    assert "the filter of --jq failed: no more input" in outcome.err.lower()


_TEXT_WITH_NUMBERS = (
    '{"at": "2026-12-22T20:43:16.500Z", "ip": "10.0.0.10", "by": "xapi/0.1.0",'
    ' "q": "\\"1.10\\" \\\\", "\\"": [12345678901234567]}'
)


def test_numbers_within_strings_are_not_warned_of(xapi: Xapi, engine: Mapping[str, str]) -> None:
    body = _TEXT_WITH_NUMBERS.replace("12345678901234567", "1.5").encode()
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", '.["\\""][0]', env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, "1.5\n", "")


@pytest.mark.parametrize(("number", "count"), [("1.10", 1), ("1.5", 0), ("12345678901234567", 1), ('"1.10"', 0)])
def test_numbers_are_found_wherever_a_chunk_begins(number: str, count: int) -> None:
    body = _TEXT_WITH_NUMBERS.replace("12345678901234567", number).encode()
    for first in range(len(body)):
        for second in range(first, min(first + 5, len(body))):
            warnings: list[str] = []
            check = filter_engine.NumberCheck("1.6", warnings.append)
            for chunk in (body[:first], body[first:second], body[second:]):
                check.add(chunk)
            assert bool(warnings) == bool(count), (first, second)


@pytest.mark.parametrize("text", [".[", "unknown_function", "{a:"])
def test_a_filter_that_does_not_compile_exits_with_2_before_anything_is_sent(
    xapi: Xapi, engine: Mapping[str, str], text: str
) -> None:
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", text, env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
    assert outcome.err.startswith("xapi: error: the filter of --jq cannot be compiled: ")
    assert outcome.err.count("\n") == 1


def test_a_filter_with_many_errors_is_one_error_at_once(xapi: Xapi, engine: Mapping[str, str]) -> None:
    """A pipe does not hold them: libjq repeats the filter in each."""
    text = ", ".join(f"{{name: .name, id: .id, created: (.created | to_date({number}))}}" for number in range(60))
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/items", "--jq", f".items | [{text}]", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
    assert outcome.err.startswith("xapi: error: the filter of --jq cannot be compiled: ")
    assert "to_date/1 is not defined" in outcome.err


@pytest.mark.parametrize("body", [b'{"a": 1}\n[2]\n{"a": 3}', b'{"a": 1} <html>'])
def test_a_filter_that_fails_exits_with_1_after_the_results_before(
    xapi: Xapi, engine: Mapping[str, str], body: bytes
) -> None:
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".a", env={**bearing(server), **engine})

    assert outcome.code == 1
    assert outcome.out == "1\n"
    assert outcome.err.startswith("xapi: error: the filter of --jq failed: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "text, reason",
    [
        (".a | halt_error", "lost"),
        (".a | halt_error(0)", "lost"),
        ("{a} | halt_error", '{"a":"lost"}'),
        ("., halt", "halt is not supported"),
        ('error("")', "no reason given"),
    ],
)
def test_a_filter_that_halts_fails_and_does_not_change_the_file(
    xapi: Xapi, engine: Mapping[str, str], out: Path, text: str, reason: str
) -> None:
    out.write_text("old")
    with PageServer(lambda target: page(b'{"a": "lost"} {"a": 2}')) as server:
        outcome = xapi("request", "/", "--jq", text, "-o", str(out), env={**bearing(server), **engine})

    assert outcome.code == 1
    assert outcome.err == f"xapi: error: the filter of --jq failed: {reason}; check the filter\n"
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
    xapi: Xapi, engine: Mapping[str, str], out: Path, stopping_module: str, function: str
) -> None:
    out.write_text("old")
    text = f"{stopping_module} if .n == 2 then .n, {function}, 3 else .n end"
    with PageServer(lambda target: page(b'{"n": 1}{"n": 2} {"n": 3}')) as server:
        env = {**bearing(server), **engine}
        printed = xapi("request", "/", "--jq", text, env=env)
        saved = xapi("request", "/", "--jq", text, "-o", str(out), env=env)

    reason = "it ended early, possibly because of halt, which is not supported"
    error = f"xapi: error: the filter of --jq failed: {reason}; check the filter\n"
    assert (printed.code, printed.out, printed.err) == (1, "1\n2\n", error)
    assert (saved.code, saved.out, saved.err, out.read_text()) == (1, "", error, "old")


@pytest.mark.parametrize("output", ["", "1\\n", "1\\036", "\\036"])
def test_a_program_that_ends_without_an_error_before_the_last_result_is_an_error(
    xapi: Xapi, tmp_path: Path, output: str
) -> None:
    env = _program(tmp_path, f"printf '{output}'")
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", ".", env={**bearing(server), **env})

    assert (outcome.code, outcome.out) == (1, output.encode().decode("unicode_escape"))
    assert "the filter of --jq failed: it ended early" in outcome.err


@pytest.mark.parametrize("text", ["\\u001e", "\\u001ex\\n\\u001e"])
def test_a_result_may_contain_the_character_before_the_end(xapi: Xapi, engine: Mapping[str, str], text: str) -> None:
    with PageServer(lambda target: page(f'["{text}"]'.encode())) as server:
        outcome = xapi("request", "/", "--jq", ".[]", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, json.loads(f'"{text}"') + "\n", "")


def test_a_filter_that_needs_too_much_memory_is_an_error(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: page([1])) as server:
        text = '.[0], (reduce range(40) as $_ ("x"; . + .))'
        outcome = xapi("request", "/", "--jq", text, env={**bearing(server), **engine}, timeout=60)

    assert outcome.code == 1
    assert outcome.err.startswith("xapi: error: the filter of --jq failed: ")
    assert "memory" in outcome.err


@pytest.mark.parametrize("text", ["[limit(3000; repeat(.)) | debug] | error", "if .n == 1 then error else . end"])
def test_an_error_before_other_documents_or_after_many_messages_is_not_lost(
    xapi: Xapi, engine: Mapping[str, str], out: Path, text: str
) -> None:
    with PageServer(lambda target: page(b'{"n": 1} {"n": 2}')) as server:
        outcome = xapi("request", "/", "--jq", text, "-o", str(out), env={**bearing(server), **engine})

    assert outcome.code == 1
    assert outcome.err.startswith("xapi: error: the filter of --jq failed: ")
    assert outcome.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("text", ["", "# a comment", "def f: 1;", 'import "m" as m {search: "MODULES"}; m::f'])
def test_filters_without_an_expression_and_with_modules_are_accepted(
    xapi: Xapi, engine: Mapping[str, str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "m.jq").write_text("def f: .;\n")
    text = text.replace("MODULES", str(tmp_path))
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", text, env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, "[1]\n", "")


def _program(directory: Path, script: str) -> dict[str, str]:
    """Make *script* the program jq; return the environment in which xapi uses it."""
    places = directory / "program"
    places.mkdir()
    (places / "jq").write_text(f"#!/bin/sh\n{script}\n")
    (places / "jq").chmod(0o755)
    return {**without_library(directory), "PATH": f"{places}:/usr/bin:/bin"}


def _wait_for_end_of(group: int) -> None:
    """Wait until no process of *group* is left; the watchdog of the test ends the wait."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            threading.Event().wait(0.01)


def test_a_program_that_is_gone_after_the_request_exits_with_1(xapi: Xapi, tmp_path: Path) -> None:
    def respond(target: str) -> bytes:
        (tmp_path / "program" / "jq").unlink()
        return page([1])

    env = _program(tmp_path, "exit 0")
    with PageServer(respond) as server:
        outcome = xapi("request", "POST", "/", "--jq", ".", env={**bearing(server), **env})

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == ("xapi: error: jq cannot be run: No such file or directory; check the installation of jq\n")


@pytest.mark.parametrize("script", ["exec cat /dev/zero >&2", "echo broken >&2; exit 9"])
def test_a_program_that_is_not_jq_exits_with_2(xapi: Xapi, tmp_path: Path, sandbox: Sandbox, script: str) -> None:
    outcome = xapi("request", "/x-api/me", "--jq", ".", env={**bearing(sandbox), **_program(tmp_path, script)})

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("xapi: error: jq cannot be run: ")
    assert outcome.err.count("\n") == 1


def test_a_filter_that_is_not_compiled_in_time_exits_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(filter_engine, "_TIME_LIMIT", 0.5)
    monkeypatch.setattr(filter_engine, "_library_directory", lambda: None)
    env = _program(tmp_path, 'echo $$ >"$0.pid"; sleep 1000; :')
    with pytest.raises(UsageError, match="the filter was not compiled within"):
        filter_engine.FilterEngine(".", env, warn=print)

    group = int((tmp_path / "program" / "jq.pid").read_text())
    _wait_for_end_of(group)


def test_max_time_ends_the_child_processes_of_the_program(xapi: Xapi, tmp_path: Path) -> None:
    env = _program(tmp_path, 'echo $$ >"$0.pid"; /usr/bin/jq "$@"; exit $?')
    with PageServer(lambda target: page([1])) as server:
        process = xapi.start(
            "request", "/", "--jq", f"1, ({ENDLESS})", "--max-time", "3", env={**bearing(server), **env}
        )
        assert process.wait(30) == 12
    group = int((tmp_path / "program" / "jq.pid").read_text())
    _wait_for_end_of(group)


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


def test_the_output_file_is_complete_or_unchanged(xapi: Xapi, engine: Mapping[str, str], out: Path) -> None:
    out.write_text("old")
    with PageServer(lambda target: page(b'{"a": "x"} [2]')) as server:
        env = {**bearing(server), **engine}
        failed = xapi("request", "/", "--jq", ".a", "-o", str(out), env=env)
        assert (failed.code, failed.out, out.read_text()) == (1, "", "old")
        outcome = xapi("request", "/", "--jq", ".a?", "-o", str(out), env=env)

    assert (outcome.code, outcome.out, out.read_text()) == (0, "", "x\n")


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


@pytest.mark.parametrize("reply", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_without_a_body_there_are_no_results(xapi: Xapi, engine: Mapping[str, str], reply: bytes) -> None:
    with Server([serve(reply)]) as server:
        outcome = xapi("request", "/", "--jq", ".", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_truncated_body_is_a_network_error(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(lambda target: response("200 OK", b"[1, 2]", "Content-Length: 99", "Connection: close")) as server:
        outcome = xapi("request", "/", "--jq", ".[]", env={**bearing(server), **engine})

    assert outcome.code == 11
    assert "was truncated after 6 bytes" in outcome.err


def test_the_filter_is_applied_to_each_item_of_all_pages(xapi: Xapi, engine: Mapping[str, str]) -> None:
    with PageServer(numbered(3)) as server:
        outcome = xapi("request", "/items", "--paginate", "--jq", ".id", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n2\n3\n4\n5\n6\n", "")


@pytest.mark.parametrize(
    "text, hint",
    [
        (".[].id", "; write `.id`"),
        (".[] | .id", "; write `.id`"),
        (".[]", ""),
        (".items[].id", ""),
    ],
)
def test_a_filter_for_the_page_instead_of_an_item_says_so(
    xapi: Xapi, engine: Mapping[str, str], text: str, hint: str
) -> None:
    items = b'[{"id": 1}]' if "items" in text else b"[1, 2]"
    with PageServer(lambda target: page(items)) as server:
        outcome = xapi("request", "/", "--paginate", "--jq", text, env={**bearing(server), **engine})
        single = xapi("request", "/", "--jq", f"[.][0] | .x | {text}", env={**bearing(server), **engine})

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith(f"; with --paginate, the filter is applied to each item, not to the page{hint}\n")
    assert outcome.err.startswith("xapi: error: the filter of --jq failed: Cannot i")
    assert single.err.endswith("; check the filter\n")


def test_meta_counts_the_bytes_of_the_items_not_those_of_the_results(xapi: Xapi, tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    with PageServer(numbered(2)) as server:
        plain = xapi("request", "/items", "--paginate", env=bearing(server))
        outcome = xapi("request", "/items", "--paginate", "--jq", ".id", "--meta", str(meta), env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "1\n2\n3\n4\n")
    assert json.loads(meta.read_text())["bytes"] == len(plain.out)


def test_the_results_of_a_page_are_printed_before_the_next_page_is_requested(
    xapi: Xapi, engine: Mapping[str, str]
) -> None:
    printed = threading.Event()
    pages = numbered(2)

    def respond(target: str) -> bytes:
        assert target == "/items" or printed.wait(20), "the second page was requested before the first was read"
        return pages(target)

    with PageServer(respond) as server:
        process = xapi.start("request", "/items", "--paginate", "--jq", ".id", env={**bearing(server), **engine})
        assert process.stdout is not None
        first = process.stdout.readline() + process.stdout.readline()
        printed.set()
        rest, err = process.communicate(timeout=30)

    assert (process.returncode, first + rest, err) == (0, b"1\n2\n3\n4\n", b"")


def test_a_filter_that_fails_on_a_page_names_its_url(xapi: Xapi) -> None:
    with PageServer(numbered(3)) as server:
        text = 'if .id == 3 then error("three") else .id end'
        outcome = xapi("request", "/items", "--paginate", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n2\n")
    assert (
        f"the filter of --jq failed: three; check the filter; to continue, request '{server.url}/items?page=2'"
        in outcome.err
    )


@pytest.mark.parametrize("options", [["--continue", "-o", "x"], ["--paginate", "--slurp"]])
def test_invalid_combinations_exit_with_2(xapi: Xapi, sandbox: Sandbox, options: list[str]) -> None:
    outcome = xapi("request", "/x-api/me", "--jq", ".", *options, env=bearing(sandbox))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("xapi: error: --jq cannot be combined with --")


def test_control_characters_of_results_are_shown_on_a_terminal(xapi: Xapi) -> None:
    with (
        PageServer(lambda target: page(b'["a\\u001b[31mb", "\xc3\xa9"]')) as server,
        xapi.on_terminal("request", "/", "--jq", ".[]", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0

    assert terminal.text == "a\\x1b[31mb\r\né\r\n"


def test_a_large_document_is_filtered_completely(xapi: Xapi, engine: Mapping[str, str]) -> None:
    body = json.dumps([{"id": number, "name": f"é {number}"} for number in range(100_000)], ensure_ascii=False).encode()
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".[].id", env={**bearing(server), **engine}, timeout=60)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.split() == [str(number) for number in range(100_000)]


def test_results_of_lines_are_printed_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with Server([request(), send(head + b'{"id":1}\n{"id":'), wait_for(seen), send(b"2}")]) as server:
        process = xapi.start("request", "/", "--jq", ".id", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate(timeout=30) == (b"2\n", b"")


def test_many_lines_are_more_than_one_document_may_be(xapi: Xapi) -> None:
    line = b'{"n": 1, "s": "' + b"x" * 2**20 + b'"}\n'
    with PageServer(lambda target: page(b'{"n": 0}\n' + line * 70)) as server:
        outcome = xapi("request", "/", "--jq", ".n", env=bearing(server), timeout=60)

    assert (outcome.code, outcome.out, outcome.err) == (0, "0\n" + "1\n" * 70, "")


def test_curl_omits_the_filter(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--jq", ".", "--curl", env=bearing(sandbox))

    assert outcome.code == 0
    assert outcome.err == "xapi: omitted, because curl does not support it: --jq\n"
