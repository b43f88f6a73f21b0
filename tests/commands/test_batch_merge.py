"""`xapi batch --merge`: merges outputs in input order."""

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
from tests.commands.batch_outputs import merged, output, written
from tests.support.program import PROGRAM, Xapi

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


# invalid usage


@pytest.mark.states(
    "If a line does not even begin like one of an output, nothing is printed, and xapi exits with code 2."
)
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
        env=xapi.environment({"PYTHONDONTWRITEBYTECODE": "1"}),  # the limit would truncate these files as well
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
