import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from xapi_cli.store.keyring.chunked import HEAD, SIZE, ChunkedItem, Forgotten, Refused


class Killed(BaseException):
    """The process has gone."""


class FakeItems:
    """Items of a backend that takes *limit* characters; kill(n) ends the process at the nth change from now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: dict[str, str] = {}
        self.calls: list[str] = []
        self._lives = -1

    def kill(self, after: int) -> None:
        self._lives = after

    def get(self, name: str) -> str | None:
        self.calls.append("get")
        return self.kept.get(name)

    def set(self, name: str, text: str) -> None:
        self.calls.append("set")
        if len(text) > self.limit:
            raise Refused
        self._step()
        self.kept[name] = text

    def delete(self, name: str) -> None:
        self.calls.append("delete")
        self._step()
        del self.kept[name]

    def _step(self) -> None:
        if self._lives == 0:
            self._lives = -1
            raise Killed
        self._lives -= 1


def text_of(length: int, letter: str) -> str:
    return f'{{"{letter}": "{letter * length}"}}'


def assert_tidy(items: FakeItems, text: str | None) -> None:
    """No piece is there that does not belong to *text*."""
    if text is None:
        assert items.kept == {}
    elif len(text) <= items.limit and HEAD in items.kept and items.kept[HEAD] == text:
        assert set(items.kept) == {HEAD}
    else:
        generation = re.search(r'"generation": "([ab])"', items.kept[HEAD])
        assert generation
        count = -(-len(text) // SIZE)
        assert set(items.kept) == {HEAD, *(f"#{generation[1]}.{number}" for number in range(count))}


lengths = st.sampled_from([0, 1, 900, SIZE - 10, SIZE, 1200, 1280, 1300, 2500, 4000, 9000])
step = st.tuples(st.sampled_from(["write", "write", "write", "delete"]), lengths, st.none() | st.integers(0, 24))


@given(st.sampled_from([SIZE, 1280, 3000, 100_000]), st.lists(step, min_size=1, max_size=8))
def test_a_kill_at_any_step_leaves_the_old_text_or_the_new_and_the_next_write_no_litter(
    limit: int, steps: list[tuple[str, int, int | None]]
) -> None:
    items = FakeItems(limit)
    pieces = ChunkedItem(items)
    text: str | None = None
    for number, (verb, length, kill) in enumerate(steps):
        new = text_of(length, "abcdefgh"[number]) if verb == "write" else None
        items.kill(-1 if kill is None else kill)
        try:
            if new is None:
                assert pieces.delete() or text is None
            else:
                pieces.write(new)
        except Killed:
            event("killed")
            pieces = ChunkedItem(items)  # another process
            found = pieces.read()
            assert found in (text, new)
            text = found
        else:
            items.kill(-1)
            text = new
            assert ChunkedItem(items).read() == text
            assert_tidy(items, text)
    items.kill(-1)
    ChunkedItem(items).write(text_of(5, "z"))
    assert items.kept == {HEAD: text_of(5, "z")}


@given(lengths, lengths)
def test_growing_and_shrinking_leave_nothing_behind(first: int, second: int) -> None:
    items = FakeItems(1280)
    for length in (first, second, first, second):
        ChunkedItem(items).write(text_of(length, "x"))
        assert ChunkedItem(items).read() == text_of(length, "x")
        assert_tidy(items, text_of(length, "x"))
    assert ChunkedItem(items).delete()
    assert items.kept == {}
    assert not ChunkedItem(items).delete()


def test_a_short_text_on_a_backend_that_was_read_costs_one_set_and_one_get() -> None:
    items = FakeItems(1280)
    pieces = ChunkedItem(items)
    assert pieces.read() is None
    items.calls.clear()
    pieces.write(text_of(100, "x"))
    assert items.calls == ["set", "get"]
    pieces.write(text_of(100, "y"))
    assert items.calls == ["set", "get"] * 2


def test_a_short_text_on_a_backend_that_was_not_looked_at_costs_one_more_get() -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(text_of(100, "x"))
    assert items.calls == ["get", "set", "get"]


@pytest.mark.parametrize("harm", ["missing", "changed", "swapped", "surplus"])
def test_pieces_that_are_not_whole_are_no_text(harm: str) -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(text_of(3500, "x"))
    if harm == "missing":
        del items.kept["#a.2"]
    elif harm == "changed":
        items.kept["#a.1"] = "y" + items.kept["#a.1"][1:]
    elif harm == "swapped":
        items.kept["#a.0"], items.kept["#a.3"] = items.kept["#a.3"], items.kept["#a.0"]
    else:
        items.kept["#a.3"] += "x"
    assert ChunkedItem(items).read() is None
    ChunkedItem(items).write("{}")
    assert items.kept == {HEAD: "{}"}


@pytest.mark.parametrize(
    "head",
    [
        '{"pieces"',
        '{"pieces": 10000000000, "generation": "a", "sha256": ""}',
        '{"pieces": -1, "generation": "a", "sha256": ""}',
        '{"pieces": true, "generation": "a", "sha256": ""}',
        '{"pieces": 1, "generation": "c", "sha256": ""}',
        '{"pieces": 1, "generation": ["a"], "sha256": ""}',
        '{"pieces": 1}',
        '{"pieces": ' + "[" * 100_000,
        "~",
        "",
    ],
)
def test_a_head_that_makes_no_sense_is_no_text(head: str) -> None:
    items = FakeItems(100_000)
    items.kept = {HEAD: head, "#a.0": "old", "#b.0": "older"}
    assert ChunkedItem(items).read() is None
    ChunkedItem(items).delete()
    assert items.kept == {}


def test_a_backend_that_keeps_nothing_is_found_out() -> None:
    class Forgetful(FakeItems):
        def set(self, name: str, text: str) -> None:
            pass

    for length in (10, 5000):
        with pytest.raises(Forgotten):
            ChunkedItem(Forgetful(100_000)).write(text_of(length, "x"))


def test_a_backend_that_cuts_long_texts_gets_pieces() -> None:
    class Cutting(FakeItems):
        def set(self, name: str, text: str) -> None:
            super().set(name, text[:1500])

    items = Cutting(100_000)
    ChunkedItem(items).write(text_of(5000, "x"))
    assert ChunkedItem(items).read() == text_of(5000, "x")


def test_a_refused_piece_leaves_the_old_text_readable() -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(text_of(3000, "x"))
    items.limit = 10
    with pytest.raises(Refused):
        ChunkedItem(items).write(text_of(4000, "y"))
    assert ChunkedItem(items).read() == text_of(3000, "x")
