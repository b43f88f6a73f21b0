"""Shards: each line is in exactly one of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.batch.source_files import Shard, parse_shard
from xapi_cli.errors import UsageError


@given(st.integers(1, 500), st.integers(1, 10**9))
def test_each_line_is_in_exactly_one_shard(total: int, line: int) -> None:
    assert sum(Shard(number, total).contains(line) for number in range(1, total + 1)) == 1


def test_the_sizes_of_shards_differ_by_at_most_one_line() -> None:
    sizes = [sum(Shard(number, 7).contains(line) for line in range(1, 101)) for number in range(1, 8)]

    assert (sum(sizes), max(sizes) - min(sizes)) == (100, 1)


def test_a_shard_is_parsed_and_printed() -> None:
    assert parse_shard("2/8") == Shard(2, 8)
    assert str(parse_shard("1/1")) == "1/1"
    assert parse_shard("003/008") == Shard(3, 8)


@pytest.mark.parametrize(
    "text", ["", "2", "0/8", "9/8", "1/0", "-1/8", "1/8/2", "a/b", "1/12345678", "²/8", "1 / 8", "\x1b"]
)
def test_another_text_is_a_usage_error_without_control_characters(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid shard; write I/N, such as 2/8") as caught:
        parse_shard(text)
    assert str(caught.value).isprintable()
