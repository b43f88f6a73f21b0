"""Where the body goes: a pipe untouched and at once, a terminal readable and harmless, a file whole or not at all."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, answer, bearing
from tests.program import PROGRAM, Outcome, Xapi
from tests.servers import OK, Server, Step, close, hang, request, reset, send, wait_for
from tests.skips import IMPOSSIBLE
from xapi_cli.sandbox import Sandbox

JSON = b'{"b":1.10,"a":[1e400,"\\u00e9",null]}'
INDENTED = '{\n  "b": 1.10,\n  "a": [\n    1e400,\n    "\\u00e9",\n    null\n  ]\n}\n'


def _screen(seen: bytes) -> str:
    return seen.decode().replace("\r\n", "\n")


# a pipe


@pytest.mark.parametrize(
    "body",
    [
        JSON,
        JSON + b"\n",
        b"",
        b"\0\xff\xfe",
        b"caf\xe9",
        b"\xef\xbb\xbf{}",
        b"\x1b[31m\r\n\x9b",
        b"utf-16".join([b"\0"] * 9),
    ],
)
@pytest.mark.parametrize("charset", ["application/json", "text/plain; charset=utf-7", "image/png"])
def test_a_pipe_gets_the_bytes_that_came_whatever_they_claim_to_be(xapi: Xapi, body: bytes, charset: str) -> None:
    colours = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "COLUMNS": "20", "PY_COLORS": "1", "TERM": "xterm"}
    with Server([request(), send(answer("200 OK", body, f"Content-Type: {charset}"))]) as server:
        outcome = xapi("request", "/", env=bearing(server) | colours)

    assert (outcome.code, outcome.body, outcome.err) == (0, body, "")


@pytest.mark.parametrize("language", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_the_locale_changes_no_byte(xapi: Xapi, language: str) -> None:
    body = "é漢😀".encode()
    env = {"LANG": language, "LC_ALL": language, "PYTHONIOENCODING": "ascii"}
    with Server([request(), send(answer("200 OK", body, "X-A: é"))]) as server:
        outcome = xapi("request", "/", "-i", env=bearing(server) | env)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.body == b"HTTP/1.1 200 OK\r\nX-A: \xc3\xa9\r\nContent-Length: 9\r\n\r\n" + body


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "packed"),
    [("gzip", gzip.compress(JSON)), ("deflate", zlib.compress(JSON)), ("deflate", _deflate(JSON)), ("identity", JSON)],
    ids=["gzip", "deflate", "raw deflate", "identity"],  # compressed bytes differ with the second they are made in
)
def test_a_content_coding_is_undone(xapi: Xapi, coding: str, packed: bytes) -> None:
    with Server([request(), send(answer("200 OK", packed, f"Content-Encoding: {coding}"))]) as server:
        assert xapi("request", "/", env=bearing(server)).body == JSON


def test_lines_appear_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    steps = [request(), send(head + b'8\r\n{"id":1}\r\n1\r\n\n\r\n'), wait_for(seen), send(b"2\r\n[]\r\n0\r\n\r\n")]
    with Server(steps) as server:
        process = xapi.start("request", "/", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b'{"id":1}\n'
        seen.set()
        assert process.communicate(timeout=30) == (b"[]", b"")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_lines_reach_a_filter_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
    with Server([request(), send(head + b'{"id":1}\n'), wait_for(seen), send(b'{"id":2}\n')]) as server:
        command = '"$1" request / | jq --unbuffered .id'
        process = xapi.start("-c", command, "sh", str(PROGRAM), env=bearing(server), argv=("sh",))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate(timeout=30) == (b"2\n", b"")


def test_compressed_lines_appear_as_they_arrive(xapi: Xapi) -> None:
    seen, packer = threading.Event(), zlib.compressobj(wbits=31)
    first = packer.compress(b'{"id":1}\n') + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(b"[]") + packer.flush()
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(first + rest)}\r\n\r\n".encode()
    with Server([request(), send(head + first), wait_for(seen), send(rest)]) as server:
        process = xapi.start("request", "/", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b'{"id":1}\n'
        seen.set()
        assert process.communicate(timeout=30) == (b"[]", b"")


def _chunked(data: bytes, *, whole: bool) -> bytes:
    chunk = b"%x\r\n%s\r\n" % (len(data), data)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + (b"0\r\n\r\n" if whole else b"")


CUT_OFF = {
    "by length": (answer("200 OK", b"begin", "Content-Length: 100"), b"begin"),
    "by chunks": (_chunked(b"begin", whole=False), b"begin"),
    "gzip by length": (answer("200 OK", gzip.compress(b"begin")[:-8], "Content-Encoding: gzip"), b"begin"),
    "gzip to the end of the connection": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"begin")[:-1],
        b"begin",
    ),
    "deflate": (answer("200 OK", zlib.compress(b"begin")[:-2], "Content-Encoding: deflate"), b"begin"),
    "two codings": (answer("200 OK", gzip.compress(gzip.compress(b"x")), "Content-Encoding: gzip, gzip"), b""),
    "an unknown coding": (answer("200 OK", b"x", "Content-Encoding: br"), b""),
}


@pytest.mark.parametrize("how", CUT_OFF)
def test_a_body_that_is_not_whole_is_exit_11_after_what_arrived(xapi: Xapi, tmp_path: Path, how: str) -> None:
    sent, arrived = CUT_OFF[how]
    (tmp_path / "out").write_bytes(b"old")
    with Server([request(), send(sent), close()]) as server:
        outcome = xapi("request", "/", env=bearing(server), cwd=tmp_path)
        filed = xapi("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.body) == (11, arrived)
    assert outcome.err.startswith("xapi: error: ")
    assert outcome.err.count("\n") == 1
    assert filed == Outcome(11, "", outcome.err)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == {"out": b"old"}


# a file


def test_a_file_is_replaced_when_the_body_is_whole(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    body = os.urandom(3_000_000)
    with Server([request(), send(answer("200 OK", body))]) as server:
        outcome = xapi("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0)
    assert (tmp_path / "out").read_bytes() == body


def test_a_minus_is_stdout(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        assert xapi("request", "/", "-o", "-", env=bearing(server)) == Outcome(0, "ok")
    assert not (xapi.home / "-").exists()


def test_dev_stdout_is_written_to_and_not_replaced(xapi: Xapi, tmp_path: Path) -> None:
    with Server([request(), send(OK)]) as server, (tmp_path / "out").open("wb") as out:
        process = xapi.start("request", "/", "-o", "/dev/stdout", stdout=out, env=bearing(server))
        assert process.wait(30) == 0
        assert (tmp_path / "out").stat().st_ino == os.fstat(out.fileno()).st_ino

    assert (tmp_path / "out").read_bytes() == b"ok"


@pytest.mark.parametrize(
    ("words", "status", "kept"),
    [
        ([], "200 OK", b"body"),
        ([], "304 Not Modified", b"old"),
        ([], "404 No", b"old"),
        ([], "500 No", b"old"),
        ([], "302 Found", b"body"),
        ([], "401 No", b"old"),
        (["--no-check-status"], "404 No", b"body"),
        (["--no-check-status"], "500 No", b"body"),
        (["--no-check-status"], "302 Found", b"body"),
        (["--no-check-status"], "304 Not Modified", b"old"),
        (["--no-check-status"], "401 No", b"old"),
        (["--error-body", "none"], "404 No", b"old"),
    ],
)
def test_which_answers_a_file_takes(xapi: Xapi, tmp_path: Path, words: list[str], status: str, kept: bytes) -> None:
    (tmp_path / "out").write_bytes(b"old")
    body = b"" if status.startswith("304") else b"body"
    with Server([request(), send(answer(status, body))]) as server:
        outcome = xapi("request", "/", "-o", "out", *words, env=bearing(server), cwd=tmp_path)

    assert (tmp_path / "out").read_bytes() == kept
    assert outcome.body == (b"" if kept == b"body" or "none" in words else body)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out"]


def test_head_leaves_the_file_alone(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    assert xapi("request", "HEAD", "/x-api/me", "-o", "out", env=bearing(sandbox), cwd=tmp_path) == Outcome(0)
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.parametrize("flag", ["-o", "--meta"])
@pytest.mark.parametrize("name", ["missing/out", "folder", ""])
def test_a_file_that_cannot_be_written_is_exit_14_before_anything_is_sent(
    xapi: Xapi, tmp_path: Path, flag: str, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", "/", flag, name, env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out, server.received) == (14, "", [])
    assert outcome.err.startswith(f"xapi: error: {name or 'a file without a name'} cannot be written: ")


@dataclass
class SmallDisk:
    """A folder with room for a mebibyte, for whatever is started by *argv*."""

    folder: Path
    argv: tuple[str, ...]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of a mebibyte, or, where nobody may mount one, a limit of the size of files."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False).returncode == 0
    limited = ("sh", "-c", 'ulimit -f 2048; exec "$@"', "sh", str(PROGRAM))
    yield SmallDisk(folder, (str(PROGRAM),) if mounted else limited)
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


_FULL = re.compile("No space left on device|File too large")


def test_a_disk_that_gets_full_is_exit_14_and_the_old_file_stays(xapi: Xapi, small_disk: SmallDisk) -> None:
    (small_disk.folder / "out").write_bytes(b"old")
    with Server([request(), send(answer("200 OK", b"x" * 3_000_000))]) as server:
        words = ["request", "/", "-o", str(small_disk.folder / "out")]
        process = xapi.start(*words, env=bearing(server), argv=small_disk.argv)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (14, b"")
    assert _FULL.sub("full", err.decode()) == (
        f"xapi: error: {small_disk.folder}/out cannot be written: full; give another file\n"
    )
    assert {path.name: path.read_bytes() for path in small_disk.folder.iterdir()} == {"out": b"old"}


def test_a_body_that_finds_no_room_for_its_copy_is_exit_14(xapi: Xapi, small_disk: SmallDisk) -> None:
    with Server([request(), send(OK)]) as server:
        env = bearing(server) | {"TMPDIR": str(small_disk.folder)}
        process = xapi.start("request", "/", "-d", "@-", stdin=subprocess.PIPE, env=env, argv=small_disk.argv)
        _, err = process.communicate(b"x" * 8_000_000, timeout=20)

    assert (process.returncode, server.received) == (14, [])
    assert _FULL.sub("full", err.decode()) == (
        "xapi: error: the request body cannot be kept in a temporary file: full; set TMPDIR to a folder with room\n"
    )


@pytest.mark.parametrize(("end", "code"), [("reset", 11), ("SIGINT", 130), ("SIGKILL", -9)])
def test_a_download_that_ends_early_leaves_nothing(xapi: Xapi, tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "out").write_bytes(b"old")
    more: Step = reset() if end == "reset" else hang()
    with Server([request(), send(answer("200 OK", b"x" * 1_000_000, "Content-Length: 5000000")), more]) as server:
        process = xapi.start("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)
        if end != "reset":
            _wait_for_part(process.pid, tmp_path)
            process.send_signal(signal.Signals[end])
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (code, b"")
    assert err.count(b"\n") == (1 if end == "reset" else 0)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == {"out": b"old"}


def _wait_for_part(pid: int, folder: Path) -> None:
    """Wait until the process has written something to a nameless file in *folder*."""
    if os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can see the open files of xapi")
    end = time.monotonic() + 10
    while not any(_is_part(held, folder) for held in Path(f"/proc/{pid}/fd").iterdir()):
        assert time.monotonic() < end
        time.sleep(0.01)


def _is_part(held: Path, folder: Path) -> bool:
    try:
        return os.readlink(held).startswith(f"{folder}/#") and held.stat().st_size > 0
    except FileNotFoundError:  # closed meanwhile
        return False


# a terminal


def test_a_terminal_gets_json_indented_and_coloured(xapi: Xapi) -> None:
    with (
        Server([request(), send(answer("200 OK", JSON, "Content-Type: text/plain"))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0
        coloured = _screen(terminal.seen)

    assert coloured == (
        '{\n  \x1b[34m"b"\x1b[0m: \x1b[36m1.10\x1b[0m,\n  \x1b[34m"a"\x1b[0m: [\n    \x1b[36m1e400\x1b[0m,\n'
        '    \x1b[32m"\\u00e9"\x1b[0m,\n    \x1b[35mnull\x1b[0m\n  ]\n}\n'
    )


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_no_escape_at_all(xapi: Xapi, env: dict[str, str]) -> None:
    with (
        Server([request(), send(answer("200 OK", JSON))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server) | env) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal.seen) == INDENTED


NASTY = "".join(map(chr, [*range(9), 0xB, 0xC, *range(0xE, 0x20), *range(0x7F, 0xA0), 0x200B, 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF, 0x2028, 0xE0001]))[1:]  # fmt: skip  # noqa: E501 - a list of code points


@pytest.mark.parametrize("kind", ["text", "json string", "json name", "header", "reason", "error reason", "location"])
def test_a_terminal_gets_no_character_that_it_would_obey(xapi: Xapi, kind: str) -> None:
    in_line = NASTY.replace("\0", "")
    sent = {
        "text": answer("200 OK", f"a{NASTY}b".encode()),
        "json string": answer("200 OK", json.dumps([f"a{NASTY}b"], ensure_ascii=False).encode()),
        "json name": answer("200 OK", json.dumps({f"a{NASTY}b": 1}, ensure_ascii=False).encode()),
        "header": answer("200 OK", b"", f"X-A: a{in_line}b"),
        "reason": answer(f"200 a{in_line}b"),
        "error reason": answer(f"404 a{in_line}b"),
        "location": answer("302 Found", b"", f"Location: /a{in_line}b"),
    }[kind]
    with Server([request(), send(sent), close()]) as server:
        words = ["request", "/", "-i", "-v", "--no-follow"]
        with xapi.on_terminal(*words, env=bearing(server) | {"NO_COLOR": "1"}) as terminal:
            terminal.wait()

    seen = _screen(terminal.seen)
    assert seen.replace("\n", "").isprintable()
    assert "[/x]" not in seen


@pytest.mark.parametrize("text", ["[/x] [link=https://x]y[/link] :smile: [bold]", "x" * 300])
def test_a_terminal_gets_text_as_it_is_without_markup_or_wrapping(xapi: Xapi, text: str) -> None:
    with (
        Server([request(), send(answer("200 OK", text.encode()))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server), columns=40) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal.seen) == text + "\n"


def test_a_terminal_gets_no_binary_but_its_size(xapi: Xapi) -> None:
    body = b"\x89PNG\r\n\x1a\n\0" + b"x" * 5000
    with (
        Server([request(), send(answer("200 OK", body, "Content-Type: text/plain"))]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal.seen) == "xapi: binary body, 4.9 KiB, not shown; use -o FILE, or a pipe\n"


def test_a_terminal_gets_text_in_a_declared_charset_and_a_pipe_its_bytes(xapi: Xapi) -> None:
    sent = answer("200 OK", b"caf\xe9s \x9b", "Content-Type: text/plain; charset=ISO-8859-1")
    with Server([request(), send(sent)]) as server:
        env = bearing(server)
        with xapi.on_terminal("request", "/", env=env) as terminal:
            assert terminal.wait() == 0
        assert xapi("request", "/", env=env).body == b"caf\xe9s \x9b"

    assert _screen(terminal.seen) == "cafés \\x9b\n"


def test_a_terminal_sees_text_as_it_arrives(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with (
        Server([request(), send(head + b"first line\n"), wait_for(seen), send(b"second\n")]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        terminal.expect("first line\r\n")
        seen.set()
        assert terminal.wait() == 0

    assert _screen(terminal.seen) == "first line\nsecond\n"


def test_an_error_body_on_a_terminals_stderr_is_readable_and_harmless(xapi: Xapi) -> None:
    with Server([request(), send(answer("400 No", b'{"a":"\x9b"}'.replace(b"\x9b", b"\xc2\x9b")))]) as server:
        words = ["request", "/", "--error-body", "stderr"]
        with xapi.on_terminal(*words, stdout=subprocess.PIPE, env=bearing(server)) as terminal:
            assert terminal.wait() == 4
            assert terminal.process.stdout
            assert terminal.process.stdout.read() == b""

    assert _screen(terminal.seen) == f'{{\n  "a": "\\u009b"\n}}\nxapi: error: GET {server.url}/ answered 400 No\n'


def test_a_download_shows_its_progress_on_a_terminal_and_nowhere_else(xapi: Xapi, tmp_path: Path) -> None:
    body, seen = b"x" * 2_000_000, threading.Event()
    steps = [request(), send(answer("200 OK", body[:1_000_000], "Content-Length: 2000000")), wait_for(seen)]
    with (
        Server([*steps, send(body[1_000_000:])]) as server,
        xapi.on_terminal("request", "/", "-o", str(tmp_path / "out"), env=bearing(server)) as terminal,
    ):
        terminal.expect("1.0/2.0 MB")
        seen.set()
        assert terminal.wait() == 0

    assert (tmp_path / "out").read_bytes() == body


def test_verbose_and_curl_show_no_token_on_a_terminal(xapi: Xapi) -> None:
    with (
        Server([request(), send(OK)]) as server,
        xapi.on_terminal("request", "/", "-v", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0

    assert TOKEN.encode() not in terminal.seen
    assert b"> Authorization: Bearer ***" in terminal.seen
