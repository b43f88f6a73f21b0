"""`xapi batch --merge`: names lines that are missing, duplicated or damaged."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.commands.batch_outputs import merged, output, written
from tests.support.program import Xapi


@pytest.mark.states(
    "If lines are missing or duplicated, or are not in the input, or if a file has a damaged line or a "
    "truncated last line, xapi exits with code 1."
)
def test_missing_and_duplicate_lines_are_named_and_the_rest_is_printed(xapi: Xapi, tmp_path: Path) -> None:
    outcome = xapi("batch", "--merge", *written(tmp_path, output(1, 5, 6, 12), output(2, 5, 6, 6, 8)))

    assert (outcome.code, merged(outcome)) == (1, [1, 2, 5, 6, 8, 12])
    assert outcome.err == (
        "xapi: error: merged 6 lines from 2 files: 6 lines are missing (3-4, 7, 9-11), 2 lines are duplicated (5-6); "
        "check that each shard ran exactly once and completed. "
        "Without --input, blank input lines count as missing\n"
    )


@pytest.mark.states("If lines are missing, the merge exits with code 1 and names them.")
def test_with_the_input_blank_lines_are_not_missing_but_lines_at_the_end_are(xapi: Xapi, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text('{"path": "/"}\n\n  \r\nnot json\n{"path": "/"}\n{"path": "/"}')
    names = written(tmp_path, output(1), output(4, 9))
    outcome = xapi("batch", "--merge", "--input", str(source), *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 4, 9])
    assert "2 lines are missing (5-6), 1 line is not in the input (9); check" in outcome.err
    assert "blank input lines" not in outcome.err
    piped = xapi("batch", "--merge", "--input", "-", *names, input=source.read_text())
    assert piped == outcome


def test_a_line_that_is_skipped_by_a_later_one_is_missing(xapi: Xapi, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text("\n\n\nx\n\nx\nx\nx\n")  # lines 4, 6, 7, 8
    outcome = xapi("batch", "--merge", "--input", str(source), *written(tmp_path, output(2, 5, 7)))

    assert outcome.code == 1
    assert "3 lines are missing (4, 6, 8), 2 lines are not in the input (2, 5); check" in outcome.err


def test_the_list_of_missing_lines_is_short(xapi: Xapi, tmp_path: Path) -> None:
    outcome = xapi("batch", "--merge", *written(tmp_path, output(*range(2, 4001, 2), 10**14)))

    assert outcome.code == 1
    assert "(1, 3, 5, 7, 9, 11, 13, 15, and 99,999,999,997,991 more)" in outcome.err
    assert "99,999,999,997,999 lines are missing" in outcome.err


@pytest.mark.parametrize("size", [5, 70_000, 65_536 - 53])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_truncated_last_line_is_missing_and_its_file_is_named(
    xapi: Xapi, tmp_path: Path, size: int, order: tuple[int, int]
) -> None:
    cut = output(3, more="x" * size).rstrip("\n")[:-1]
    names = written(tmp_path, output(*order) + cut, output(4))
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 2, 4])
    assert f"1 line is missing (3), the last line of {names[0]} is truncated; check" in outcome.err


@pytest.mark.parametrize("size", [5, 65_536 - 54, 65_536 - 53, 70_000, 1_100_000])
@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_complete_last_line_needs_no_newline(xapi: Xapi, tmp_path: Path, size: int, is_pipe: bool) -> None:
    last = output(3, more="x" * size)
    first, second = written(tmp_path, output(1) + last.rstrip("\n"), output(2, 4))
    piped = Path(first).read_text() if is_pipe else None
    outcome = xapi("batch", "--merge", "-" if is_pipe else first, second, input=piped)

    assert (outcome.code, merged(outcome)) == (0, [1, 2, 3, 4]), outcome.err
    assert last in outcome.out


def test_a_complete_copy_of_a_truncated_line_is_printed(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, output(1) + output(2)[:-4], output(2))
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 2])
    assert "missing" not in outcome.err


@pytest.mark.parametrize(
    "damaged",
    [
        '{"id": null, "line": 2, "status": 200',
        '{"id": null, "line": 2, "status": 200, "text": "\0\0\0"}',
        '{"id": null, "line": 2, "status": 200}\0\0',
        '\0\0\0{"id": null, "line": 2, "status": 200}',
        '{"id": null, "line": 2, "status": 200}{"id": null, "line": 2, "status": 200}',
        '{"id": null, "line": 2, "sta{"id": null, "line": 2, "status": 200}',
        '{"id": null, "line": 2, "line": 3}',
        '{"id": null, "line": 2, "\\u006cine": 3}',
        '{"id": [}, "line": 2}',
        '{"id": {}, "line": 2, "text": "' + "x" * 70_000 + '"',
        '{"id": null, "line": 2, "text": "' + "x" * 70_000,
        '{"id": null, "line": 2, "text": "' + "x" * 1_200_000,
        '{"id": null, "line": 2, "text": "' + "x" * 1_200_000 + '\0"}',
        '{"id": null, "line": 2, "text": "' + "x" * 1_200_000 + '"}{"id": null, "line": 2}',
        '{"id": null, "line": 2, "text": "' + "x" * 1_200_000 + '", "line": 2}',
    ],
    ids=range(15),
)
@pytest.mark.parametrize("order", [(1, 4), (4, 1)])
def test_a_damaged_line_is_missing_and_named(xapi: Xapi, tmp_path: Path, damaged: str, order: tuple[int, int]) -> None:
    first, second = (output(number) for number in order)
    names = written(tmp_path, first + damaged + "\n" + second, output(3))
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 3, 4]), outcome.err
    assert f"1 line is missing (2), line 2 of {names[0]} is damaged; check" in outcome.err


def test_damaged_lines_are_counted(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, output(1) + '{"id": null, "line": 2\n' * 3, output(2) + '{"id"')
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 2])
    assert (
        f"line 2 and 2 more of {names[0]} are damaged, the last line of {names[1]} is truncated; check" in outcome.err
    )


@pytest.mark.parametrize(
    "more",
    [
        '"id": {"a": 1}, "text": "' + 'x\\" {[' * 400_000 + '"',
        '"json": ' + "[" * 5000 + "]" * 5000,
        '"json": ' + "1" * 5000,
        '"text": "\x7f\\u2028\ufffd"',
        pytest.param('"json": ' + "[{}, " * 300_000 + "1" + "]" * 300_000, marks=pytest.mark.slow),
    ],
    ids=["long", "nested", "digits", "characters", "long and nested"],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_an_unusual_line_is_not_damaged(xapi: Xapi, tmp_path: Path, more: str, is_last: bool) -> None:
    line = f'{{"line": 2, {more}}}\n' if is_last else f'{{{more}, "line": 2}}\n'
    outcome = xapi("batch", "--merge", *written(tmp_path, output(1) + line))

    assert (outcome.code, outcome.err) == (0, "xapi: merged 2 lines from 1 file\n")
    assert outcome.out == output(1) + line


def test_an_output_to_which_a_batch_still_writes_is_merged_up_to_its_size_at_the_start(
    xapi: Xapi, tmp_path: Path
) -> None:
    growing, pipe = tmp_path / "growing", tmp_path / "pipe"
    growing.write_text(output(1, 3))
    os.mkfifo(pipe)
    process = xapi.start("batch", "--merge", str(growing), str(pipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with pipe.open("w") as writer:  # after the process has checked the first file
        with growing.open("a") as file:
            file.write(output(5, 4))
        writer.write(output(2))
    out, err = process.communicate(timeout=30)

    assert (process.returncode, [json.loads(line)["line"] for line in out.splitlines()]) == (0, [1, 2, 3]), err
