"""`xapi batch --merge`: merges outputs in input order, and names lines that are missing or duplicated."""

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.batch.server import MEASURED, Api, Reply, paths
from tests.program import PROGRAM, Outcome, Xapi


def output(*numbers: int, more: str = "") -> str:
    return "".join(f'{{"id": null, "line": {number}, "status": 200, "text": "{more}"}}\n' for number in numbers)


def written(directory: Path, *texts: str) -> list[str]:
    names = [str(directory / f"{number}.jsonl") for number in range(1, len(texts) + 1)]
    for name, text in zip(names, texts, strict=True):
        Path(name).write_text(text)
    return names


def merged(outcome: Outcome) -> list[int]:
    return [json.loads(line)["line"] for line in outcome.out.splitlines()]


# complete outputs


def test_the_outputs_of_shards_become_that_of_the_whole_batch(xapi: Xapi, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text("\n" + paths(40) + "\n" + paths(20, 40))
    with Api(lambda received: Reply(status=404 if received.path == "/n/7" else 200)) as api:
        whole = xapi("batch", "--ordered", str(source), env=api.settings)
        outputs = [xapi("batch", "--shard", f"{number}/3", str(source), env=api.settings).out for number in (1, 2, 3)]
    names = written(tmp_path, *outputs)
    outcome = xapi("batch", "--merge", "--input", str(source), *names)

    assert (outcome.code, outcome.err) == (0, "xapi: merged 60 lines from 3 files\n")
    assert _without_time(outcome.out) == _without_time(whole.out)


def _without_time(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in line.items() if key not in {"elapsed_ms", "headers"}} for line in lines]


def test_lines_in_any_order_are_sorted_and_stay_as_they_are(xapi: Xapi, tmp_path: Path) -> None:
    numbers = [*range(1, 2001)]
    random.Random(7).shuffle(numbers)
    lines = [output(number, more="ä\\u2028 1.10") for number in numbers]
    outcome = xapi("batch", "--merge", *written(tmp_path, "".join(lines[:900]), "".join(lines[900:])))

    assert outcome.code == 0, outcome.err
    assert outcome.out == "".join(output(number, more="ä\\u2028 1.10") for number in range(1, 2001))


@pytest.mark.parametrize(
    "identifier", ['{"line": 9, "a": ["line", {"line": 8}]}', '"line\\": 7,"', "[]", "1e400", '""', '"\\\\"']
)
def test_the_number_is_that_of_the_line_whatever_its_id_is(xapi: Xapi, tmp_path: Path, identifier: str) -> None:
    lines = [f'{{"id": {identifier}, "line": {number}, "status": 200, "json": {{"line": 5}}}}\n' for number in (2, 1)]
    outcome = xapi("batch", "--merge", *written(tmp_path, "".join(lines)))

    assert (outcome.code, outcome.out) == (0, lines[1] + lines[0])


def test_outputs_that_jq_has_changed_are_accepted(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, '{"status":200,"line":2}\r\n\n{"line":1}\n', '{"json":{"line":1},"line":3,"id":4}\n')
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (0, [1, 2, 3]), outcome


def test_pipes_and_stdin_can_be_merged(xapi: Xapi, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(output(4, 1)))
    writer.start()
    (name,) = written(tmp_path, output(2))
    outcome = xapi("batch", "--merge", str(pipe), "-", name, input=output(5, 3))
    writer.join(10)

    assert (outcome.code, merged(outcome)) == (0, [1, 2, 3, 4, 5]), outcome


def test_long_lines_are_merged_unchanged(xapi: Xapi, tmp_path: Path) -> None:
    lines = {number: output(number, more=str(number) * 200_000) for number in range(1, 9)}
    identifier = f'{{"id": "{"x" * 200_000}", "line": 9, "status": 200}}\n'
    names = written(
        tmp_path, lines[1] + lines[4] + lines[6] + identifier, lines[8] + lines[2] + lines[3], lines[5] + lines[7]
    )
    outcome = xapi("batch", "--merge", *names)

    assert outcome.code == 0, outcome.err
    assert outcome.out == "".join(lines.values()) + identifier


def test_more_outputs_than_can_be_open_are_merged(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, *(output(number, number + 300) for number in range(1, 301)))
    command = ("sh", "-c", 'ulimit -n 100 && exec "$0" "$@"', str(PROGRAM), "batch", "--merge", *names)
    with subprocess.Popen(command, env=xapi.environment(), stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, output(*range(1, 601)))


@pytest.mark.parametrize("more", ["", "x" * 100_000])
def test_a_byte_order_mark_at_the_start_of_an_output_is_ignored(xapi: Xapi, tmp_path: Path, more: str) -> None:
    names = written(tmp_path, f"\ufeff{output(1, 3, more=more)}", f"\ufeff{output(4, 2, more=more)}")
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, outcome.err) == (0, "xapi: merged 4 lines from 2 files\n")
    assert outcome.out == output(1, 2, 3, 4, more=more)


def test_an_empty_output_is_that_of_a_shard_without_lines(xapi: Xapi, tmp_path: Path) -> None:
    outcome = xapi("batch", "--merge", *written(tmp_path, "", output(1), ""))

    assert (outcome.code, merged(outcome), outcome.err) == (0, [1], "xapi: merged 1 line from 3 files\n")


# incomplete outputs


def test_missing_and_duplicate_lines_are_named_and_the_rest_is_printed(xapi: Xapi, tmp_path: Path) -> None:
    outcome = xapi("batch", "--merge", *written(tmp_path, output(1, 5, 6, 12), output(2, 5, 6, 6, 8)))

    assert (outcome.code, merged(outcome)) == (1, [1, 2, 5, 6, 8, 12])
    assert outcome.err == (
        "xapi: error: merged 6 lines from 2 files: 6 lines are missing (3-4, 7, 9-11), 2 lines are duplicated (5-6); "
        "check that each shard ran exactly once and completed. "
        "Without --input, blank input lines count as missing\n"
    )


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
    cut = output(3, more="x" * size).rstrip("\n")[: -1 if size < 60_000 else None]
    names = written(tmp_path, output(*order) + cut, output(4))
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, merged(outcome)) == (1, [1, 2, 4])
    assert f"1 line is missing (3), the last line of {names[0]} is truncated; check" in outcome.err


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
        '"json": ' + "[{}, " * 300_000 + "1" + "]" * 300_000,
        '"text": "\x7f\\u2028\ufffd"',
    ],
    ids=["long", "nested", "digits", "long and nested", "characters"],
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


# invalid usage


@pytest.mark.parametrize(
    "text",
    [
        "requests\n",
        '{"path": "/"}\n',
        '{"line": "1"}\n',
        '{"line": 0}\n',
        '[{"line": 1}]\n',
        '{"a": {"line": 1}}\n',
        "\x00\n",
    ],
)
def test_a_file_that_is_not_an_output_is_a_usage_error_before_anything_is_printed(
    xapi: Xapi, tmp_path: Path, text: str
) -> None:
    names = written(tmp_path, output(1), output(2) + text)
    outcome = xapi("batch", "--merge", *names)

    assert (outcome.code, outcome.out) == (2, "")
    assert f"xapi: error: line 2 of {names[1]} is not a line of `xapi batch` output; " in outcome.err


@pytest.mark.parametrize(
    "args, message",
    [
        (("--merge",), "--merge requires at least one FILE; name the outputs to merge"),
        (("--merge", "--shard", "1/2", "a"), "--merge and --shard cannot be combined; omit --shard"),
        (("--merge", "-j", "3", "a"), "--merge and --jobs cannot be combined; omit --jobs"),
        (("--merge", "--no-pause", "a"), "--merge and --no-pause cannot be combined; omit --no-pause"),
        (("--merge", "-", "-"), "- is given twice"),
        (("--merge", "--input", "-", "-"), "- is given twice"),
        (("--merge", "missing"), "missing cannot be read: No such file or directory"),
        (("--merge", "."), ". cannot be read: Is a directory"),
        (("--input", "a"), "--input requires --merge"),
        (
            ("a", "b"),
            "only one FILE is allowed without --merge; use --merge to merge outputs, or cat to concatenate inputs",
        ),
    ],
)
def test_invalid_usage_is_named(xapi: Xapi, args: tuple[str, ...], message: str) -> None:
    outcome = xapi("batch", *args)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_stdout_must_not_be_one_of_the_files(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, output(1), output(2))
    with open(names[1], "ab") as file:
        process = xapi.start("batch", "--merge", *names, stdout=file)
        assert process.wait(30) == 2

    assert Path(names[1]).read_text() == output(2)


def test_a_terminal_receives_no_control_characters(xapi: Xapi, tmp_path: Path) -> None:
    names = written(tmp_path, '{"id": "\u202e\x9b", "line": 1}\n')
    with xapi.on_terminal("batch", "--merge", *names) as terminal:
        assert terminal.wait() == 0

    assert '{"id": "\\u202e\\u009b", "line": 1}' in terminal.text


def test_an_unsorted_output_that_cannot_be_stored_is_an_error(xapi: Xapi, tmp_path: Path) -> None:
    (name,) = written(tmp_path, output(*range(1000, 0, -1)))
    command = ("sh", "-c", 'ulimit -f 1 && exec "$0" "$@"', str(PROGRAM), "batch", "--merge", name)
    with subprocess.Popen(
        command,
        env=xapi.environment({"PYTHONDONTWRITEBYTECODE": "1"}),  # the limit would truncate these files, too
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (14, ""), err
    assert "the lines cannot be sorted in a temporary file: File too large; set TMPDIR to a directory" in err


# size


@pytest.mark.slow
@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_memory_does_not_depend_on_the_number_of_lines(xapi: Xapi, tmp_path: Path, is_sorted: bool) -> None:
    few, many = (_peak(xapi, tmp_path, count, is_sorted=is_sorted) for count in (200_000, 1_000_000))

    assert many < few + 20, (few, many)
    assert many < 150


@pytest.mark.slow
def test_the_memory_does_not_depend_on_the_number_of_files_with_long_lines(xapi: Xapi, tmp_path: Path) -> None:
    line = f'{{"id": {{}}, "line": %d, "status": 200, "text": "{"x" * 4_000_000}"}}\n'
    names = written(tmp_path, *(line % number for number in range(1, 17)))
    few, many = (_measured(xapi, tmp_path, names[:count]) for count in (1, 16))

    assert many < few + 20, (few, many)


def _peak(xapi: Xapi, directory: Path, count: int, *, is_sorted: bool) -> float:
    """Merge *count* lines from two files; return the peak of the memory in MiB."""
    names = written(directory, "", "")
    for number, name in enumerate(names, 1):
        numbers = range(number, count + 1, 2) if is_sorted else range(count - number + 1, 0, -2)
        with open(name, "w") as file:
            file.writelines(
                f'{{"id": null, "line": {line}, "status": 200, "text": "{"x" * 150}"}}\n' for line in numbers
            )
    peak = _measured(xapi, directory, names)
    with (directory / "out").open() as file:
        assert all(f'"line": {number},' in line for number, line in enumerate(file, 1))
    return peak


def _measured(xapi: Xapi, directory: Path, names: list[str]) -> float:
    """Merge *names* into the file `out`; return the peak of the memory in MiB."""
    out = directory / "out"
    with out.open("wb") as file:
        command = (sys.executable, "-c", MEASURED, str(directory / "peak"), str(PROGRAM), "batch", "--merge", *names)
        assert subprocess.run(command, env=xapi.environment(), stdout=file, timeout=100, check=False).returncode == 0
    return int((directory / "peak").read_text()) / 1024
