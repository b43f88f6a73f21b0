"""`request -o FILE --continue`: the part and its record, of whom they are, and what the user has there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.downloads import (
    BODY,
    HALF,
    Files,
    assert_complete,
    download,
    edit_record,
    part_of,
    record_of,
    start_half,
)
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, hang, request, send


def _flip(out: Path) -> None:
    data = bytearray(part_of(out).read_bytes())
    data[1000] ^= 1
    part_of(out).write_bytes(data)


def _replace_with_record(out: Path) -> None:
    part_of(out).unlink()
    record_of(out).write_text("{}")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": _flip,
    "a truncated part": lambda out: os.truncate(part_of(out), HALF - 1),
    "a negative length": lambda out: edit_record(out, length=-1),
    "more than the total": lambda out: edit_record(out, total=1),
    "another type": lambda out: edit_record(out, length=True),
    "another request": lambda out: edit_record(out, key="x"),
    "a header injection": lambda out: edit_record(out, validator='"v1"\r\nX: y'),
    "no part": lambda out: part_of(out).unlink(),
}

FOREIGN: dict[str, Callable[[Path], object]] = {
    "no record": lambda out: record_of(out).unlink(),
    "a truncated record": lambda out: os.truncate(record_of(out), 30),
    "an empty record": lambda out: os.truncate(record_of(out), 0),
    "a record in another encoding": lambda out: record_of(out).write_bytes(b"\xff\xfe"),
    "a deeply nested record": lambda out: record_of(out).write_text("[" * 60_000),
    "a record that is a list": lambda out: record_of(out).write_text("[]"),
    "another object": lambda out: record_of(out).write_text('{"key": "value"}'),
    "only a record": _replace_with_record,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_part_is_downloaded_again(xapi: Xapi, out: Path, damage: str) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        DAMAGE[damage](out)
        assert download(xapi, files, out).code == 0

    assert files.ranges == [None]
    assert_complete(out)


@pytest.mark.parametrize("change", FOREIGN)
def test_files_of_the_user_are_neither_changed_nor_removed(xapi: Xapi, out: Path, change: str) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        FOREIGN[change](out)
        before = {}
        for path in out.parent.iterdir():
            path.chmod(0o644)
            before[path] = (path.read_bytes(), path.stat().st_mode)
        outcome = download(xapi, files, out)

    assert files.requests == []
    assert outcome.code == 2
    name = part_of(out) if change == "no record" else record_of(out)
    assert outcome.err == f"xapi: error: {name} was not created by xapi; move it, or choose another file\n"
    assert {path: (path.read_bytes(), path.stat().st_mode) for path in out.parent.iterdir()} == before


SOURCES: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "another token": ({"XAPI_TOKEN": "another"}, (), "Bearer another"),
    "an account": ({"XAPI_TOKEN": "", "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p"}, (), "Bearer new"),
    "another Accept": ({}, ("Accept:text/csv",), f"Bearer {TOKEN}"),
    "Authorization": ({}, ("Authorization:Basic eDp5",), "Basic eDp5"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_part_of_another_account_or_representation_is_not_continued(xapi: Xapi, out: Path, source: str) -> None:
    env, args, authorization = SOURCES[source]
    with Files() as files:
        start_half(xapi, files, out)
        files.authorization = authorization
        files.body = BODY[::-1]  # with the same ETag
        assert xapi("request", "/data", "-o", str(out), "--continue", *args, env=files.settings | env).code == 0

    assert files.ranges == [None]
    assert_complete(out, BODY[::-1])


def test_the_part_of_another_token_in_a_file_is_not_continued(xapi: Xapi, out: Path, tmp_path: Path) -> None:
    with Files(HALF, HALF) as files:
        env = {"XAPI_BASE_URL": files.url, "XAPI_TOKEN_FILE": str(tmp_path / "token")}
        (tmp_path / "token").touch(0o600)
        for token, codes in (("one", (11,)), ("two", (11, 0))):
            (tmp_path / "token").write_text(token)
            files.authorization = f"Bearer {token}"
            for code in codes:
                assert xapi("request", "/data", "-o", str(out), "--continue", env=env).code == code

    assert files.ranges == [None, None, f"bytes={HALF}-"]
    assert_complete(out)


def test_the_same_headers_continue_the_part(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        files.cuts = [HALF]
        assert download(xapi, files, out, "Accept:text/csv").code == 11
        assert download(xapi, files, out, "accept:text/csv").code == 0

    assert files.ranges == [None, f"bytes={HALF}-"]
    assert_complete(out)


def test_the_part_of_another_url_is_not_continued(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        assert xapi("request", "/other", "-o", str(out), "--continue", env=files.settings).code == 0

    assert files.ranges == [None]
    assert_complete(out)


@pytest.mark.parametrize("status", ["204 No Content", "202 Accepted", "203 Transformed", "205 Reset Content"])
def test_another_success_than_a_file_leaves_the_part(xapi: Xapi, out: Path, status: str) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        port = files.server_address[1]
    with Server([request(), send(response(status))], port=port) as server:
        outcome = download(xapi, server, out)

    assert outcome.code == 11
    assert outcome.err == (
        f"xapi: error: the server sent neither the rest of the file nor all of it: {status[:3]}; "
        f"run the same command again to resume (1.4 of 2.9 MiB kept in {out}.part)\n"
    )
    assert part_of(out).read_bytes() == BODY[:HALF]
    assert not out.exists()


def test_stdout_by_name_is_not_a_file_that_can_be_continued(xapi: Xapi, tmp_path: Path) -> None:
    with Server([hang()]) as server, (tmp_path / "out").open("wb") as file:
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1"):
            file.write(b"header\n")
            file.flush()
            process = xapi.start("request", "/", "-o", name, "--continue", env=bearing(server), stdout=file)
            _, err = process.communicate(timeout=30)
            assert process.returncode == 2
            assert err.decode() == (
                f"xapi: error: {name} is not a regular file, which could be continued; "
                "omit --continue, or choose another file\n"
            )
        assert server.received == []

    assert (tmp_path / "out").read_text() == "header\n" * 4


@pytest.mark.parametrize(
    "name, message",
    [
        ("n" * 230, "{} cannot be written: File name too long"),
        ("n" * 249, "{} cannot be written: File name too long"),  # too long only with .part.json
        ("new/", "{} cannot be written: Is a directory"),
        ("missing/x", "{} cannot be written: No such file or directory"),
        ("d", "{}.part cannot be written: Is a directory"),
    ],
)
def test_what_cannot_be_written_is_reported_before_the_request(xapi: Xapi, out: Path, name: str, message: str) -> None:
    (out.parent / "d.part").mkdir()
    given = f"{out.parent}/{name}"
    with Server([hang()]) as server:
        outcome = xapi("request", "/", "-o", given, "--continue", env=bearing(server))
        assert server.received == []

    assert outcome == Outcome(14, "", f"xapi: error: {message.format(given)}; choose another file\n")
    assert os.listdir(out.parent) == ["d.part"]


@pytest.mark.parametrize("name", ["out.part", "out.part.json"])
def test_no_symbolic_link_is_followed_to_the_part(xapi: Xapi, out: Path, tmp_path_factory: Any, name: str) -> None:
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("precious")
    (out.parent / name).symlink_to(victim)
    with Files() as files:
        outcome = download(xapi, files, out)

    assert victim.read_text() == "precious"
    assert outcome.code == (14 if name == "out.part" else 2)
    assert os.listdir(out.parent) == [name]


def test_a_part_with_another_name_is_not_written(xapi: Xapi, out: Path) -> None:
    (out.parent / "other").write_text("precious")
    (out.parent / "other").chmod(0o644)
    os.link(out.parent / "other", part_of(out))
    with Files() as files:
        assert download(xapi, files, out).code == 14

    assert (out.parent / "other").read_text() == "precious"
    assert (out.parent / "other").stat().st_mode & 0o777 == 0o644


def test_a_symbolic_link_to_the_file_is_preserved(xapi: Xapi, out: Path) -> None:
    (out.parent / "real").mkdir()
    out.symlink_to("real/data")
    with Files(HALF) as files:
        assert download(xapi, files, out).code == 11
        assert (out.parent / "real" / "data.part").exists()
        assert download(xapi, files, out).code == 0

    assert out.is_symlink()
    assert (out.parent / "real" / "data").read_bytes() == BODY


def test_a_full_disk_is_reported(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        process = xapi.start(
            'ulimit -f 1000 && exec "$0" "$@"',
            "xapi",
            "request",
            "/data",
            "-o",
            str(out),
            "--continue",
            argv=("sh", "-c"),
            env=files.settings,
        )
        _, err = process.communicate(timeout=30)

    assert process.returncode == 14, err
    assert b"kept in" in err
