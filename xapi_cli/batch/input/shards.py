"""The part of an input that one of several processes sends."""

import re
from typing import NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_MAX_DIGITS = 7


class Shard(NamedTuple):
    """Shard *number* of *total*; the first is number 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def contains(self, line: int) -> bool:
        """Return whether the line with number *line* is in the shard; each line is in exactly one of the shards."""
        return (line - 1) % self.total == self.number - 1


def parse(text: str) -> Shard:
    """Return the shard that *text*, as in `2/8`, names; raise UsageError if it is not valid."""
    match = re.fullmatch(rf"(\d{{1,{_MAX_DIGITS}}})/(\d{{1,{_MAX_DIGITS}}})", text, re.ASCII)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.number <= shard.total:
        raise UsageError(
            f"--shard: {printable(text)!r} is not a valid shard",
            hint="write I/N, such as 2/8, with I from 1 to N",
        )
    return shard
