"""Outputs of `xapi batch` that tests merge."""

import json
from pathlib import Path

from tests.support.program import Outcome


def output(*numbers: int, more: str = "") -> str:
    """Return an output with the lines of the given numbers, each with *more* as its text."""
    return "".join(f'{{"id": null, "line": {number}, "status": 200, "text": "{more}"}}\n' for number in numbers)


def written(directory: Path, *texts: str) -> list[str]:
    """Write each of *texts* to a file in *directory* and return the names of the files."""
    names = [str(directory / f"{number}.jsonl") for number in range(1, len(texts) + 1)]
    for name, text in zip(names, texts, strict=True):
        Path(name).write_text(text)
    return names


def merged(outcome: Outcome) -> list[int]:
    """Return the numbers of the lines in the merged output."""
    return [json.loads(line)["line"] for line in outcome.out.splitlines()]
