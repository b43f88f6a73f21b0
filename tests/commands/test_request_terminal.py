"""What `xapi request` prints on a terminal."""

import gzip
import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Xapi
from tests.support.servers import OK, Server, head, request, send, wait_for
from xapi_cli.features.sandbox import Sandbox

JSON = b'{"b":1.10,"a":[1e400,"\\u00e9",null]}'


def _screen(text: str) -> str:
    return text.replace("\r\n", "\n")


def test_json_is_indented_and_colored_on_a_terminal(xapi: Xapi) -> None:
    with (
        Server([request(), send(response("200 OK", JSON, "Content-Type: text/plain"))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0
        colored = _screen(terminal.seen.decode())

    assert colored == (
        '{\n  \x1b[1;34m"b"\x1b[0m: \x1b[36m1.10\x1b[0m,\n  \x1b[1;34m"a"\x1b[0m: [\n    \x1b[36m1e400\x1b[0m,\n'
        '    \x1b[32m"é"\x1b[0m,\n    \x1b[35mnull\x1b[0m\n  ]\n}\n'
    )


NASTY = "".join(map(chr, [*range(9), 0xB, 0xC, *range(0xE, 0x20), *range(0x7F, 0xA0), 0x200B, 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF, 0x2028, 0xE0001]))[1:]  # fmt: skip  # noqa: E501 - a list of code points


@pytest.mark.parametrize("kind", ["text", "json", "csv", "error"])
def test_control_characters_are_neutralized_on_a_terminal(xapi: Xapi, kind: str) -> None:
    in_line = NASTY.replace("\0", "")
    sent = {
        "text": response(f"200 a{in_line}b", f"a{NASTY}b".encode(), f"X-A: a{in_line}b"),
        "json": response("200 OK", json.dumps({f"a{NASTY}b": f"a{NASTY}b"}, ensure_ascii=False).encode()),
        "csv": response("200 OK", json.dumps({"a": f"a{NASTY}b"}).encode()),
        "error": response(f"302 a{in_line}b", b"", f"Location: /a{in_line}b"),
    }[kind]
    with Server([request(), send(sent)]) as server:
        args = ["request", "/", "-i", "-v", "--no-follow", *(["--csv"] if kind == "csv" else [])]
        with xapi.on_terminal(*args, env=bearing(server) | {"NO_COLOR": "1"}) as terminal:
            terminal.wait()

    assert _screen(terminal.seen.decode()).replace("\n", "").isprintable()


@pytest.mark.parametrize("text", ["[/x] [link=https://x]y[/link] :smile: [bold]", "x" * 300])
def test_text_is_neither_interpreted_nor_wrapped_on_a_terminal(xapi: Xapi, text: str) -> None:
    with (
        Server([request(), send(response("200 OK", text.encode()))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server), columns=40) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal.text) == text + "\n"


@pytest.mark.parametrize("is_packed, shown", [(False, "4.9 KiB, "), (True, "")])
def test_a_binary_body_is_reported_with_its_size_on_a_terminal(xapi: Xapi, is_packed: bool, shown: str) -> None:
    body, kind = b"\x89PNG\r\n\x1a\n\0" + b"x" * 5000, ["Content-Type: text/plain"]
    if is_packed:
        body, kind = gzip.compress(body), [*kind, "Content-Encoding: gzip"]
    with (
        Server([request(), send(response("200 OK", body, *kind))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal.text) == f"xapi: binary body, {shown}not shown; use -o FILE, or a pipe\n"


def test_text_appears_on_a_terminal_as_it_arrives(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with (
        Server([request(), send(head + b"first line\n"), wait_for(seen), send(b"second\n")]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        terminal.expect("first line\r\n")
        seen.set()
        assert terminal.wait() == 0

    assert _screen(terminal.text) == "first line\nsecond\n"


def test_an_error_body_on_a_stderr_terminal_is_readable_and_neutralized(xapi: Xapi) -> None:
    with Server([request(), send(response("400 No", b'{"a":"\x9b"}'.replace(b"\x9b", b"\xc2\x9b")))]) as server:
        args = ["request", "/", "--error-body", "stderr"]
        with xapi.on_terminal(*args, stdout=subprocess.PIPE, env=bearing(server)) as terminal:
            assert terminal.wait() == 4
            assert terminal.process.stdout
            assert terminal.process.stdout.read() == b""

    assert _screen(terminal.text) == f'{{\n  "a": "\\u009b"\n}}\nxapi: error: GET {server.url}/ responded with 400 No\n'


BODY = b"x" * 2_000_000
HALF = response("200 OK", BODY[:1_000_000], "Content-Length: 2000000")


def test_a_download_shows_its_progress_and_then_one_line(xapi: Xapi, tmp_path: Path) -> None:
    seen, out = threading.Event(), tmp_path / "out"
    with (
        Server([request(), send(HALF), wait_for(seen), send(BODY[1_000_000:])]) as server,
        xapi.on_terminal("request", "/", "-o", str(out), env=bearing(server), columns=300) as terminal,
    ):
        terminal.expect("50% received 976.6 KiB of 1.9 MiB, ")
        seen.set()
        assert terminal.wait() == 0

    assert out.read_bytes() == BODY
    *_, last = _screen(terminal.text).split("\x1b[K")
    assert re.fullmatch(rf"xapi: wrote {out}: 1\.9 MiB in \d+\.\d s\n", last)


def test_an_upload_shows_its_progress(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 50_000_000)  # more than the buffers of a connection
    seen = threading.Event()
    with (
        Server([head(), wait_for(seen), request(), send(OK)]) as server,
        xapi.on_terminal("request", "/", "-d", f"@{tmp_path / 'in'}", env=bearing(server), columns=60) as terminal,
    ):
        terminal.expect(" of 47.7 MiB, ")
        seen.set()
        assert terminal.wait() == 0

    assert _screen(terminal.text).endswith("\r\x1b[Kok\n")


def test_a_wait_shows_the_elapsed_time_until_the_response_starts(xapi: Xapi) -> None:
    seen = threading.Event()
    with (
        Server([request(), wait_for(seen), send(OK)]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        terminal.expect("waiting for 127.0.0.1, ")
        seen.set()
        assert terminal.wait() == 0

    assert re.search(r"waiting for 127\.0\.0\.1, [1-9]\d* s\x1b", terminal.seen.decode())
    assert _screen(terminal.text).endswith("\r\x1b[Kok\n")


@pytest.mark.parametrize(("args", "what"), [(("-d", "@-"), "the body"), (("a=@-",), "the value")])
def test_reading_from_the_terminal_is_noted(xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...], what: str) -> None:
    xapi("login", env=sandbox.settings)
    note = f"xapi: reading {what} from the terminal; press Ctrl-D to end the input"

    with xapi.on_terminal("request", "/x-api/echo", *args, columns=120) as terminal:
        terminal.expect(note)
        terminal.type("[7]\n\x04")
        assert terminal.wait() == 0
    with xapi.on_terminal("request", "/x-api/echo", *args, "--quiet", columns=120) as quiet:
        quiet.type("[7]\n\x04")
        assert quiet.wait() == 0

    assert "[7]" in terminal.text
    assert "reading" not in quiet.text
    assert "reading" not in xapi("request", "/x-api/echo", *args, input=b"[7]").err
