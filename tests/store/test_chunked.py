import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from xapi_cli.store.chunked import CHUNK_SIZE, HEAD, ChunkedItem, ItemRejected, NotStored


class Killed(BaseException):
    """The process was killed."""


class FakeItems:
    """Items of a backend that accepts *limit* characters; kill(n) kills the process at the nth change from now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.stored: dict[str, str] = {}
        self.calls: list[str] = []
        self._lives = -1

    def kill(self, after: int) -> None:
        self._lives = after

    def get(self, name: str) -> str | None:
        self.calls.append("get")
        return self.stored.get(name)

    def set(self, name: str, text: str) -> None:
        self.calls.append("set")
        if len(text) > self.limit:
            raise ItemRejected
        self._step()
        self.stored[name] = text

    def delete(self, name: str) -> None:
        self.calls.append("delete")
        self._step()
        del self.stored[name]

    def _step(self) -> None:
        if self._lives == 0:
            self._lives = -1
            raise Killed
        self._lives -= 1


def read_text(length: int, letter: str) -> str:
    return f'{{"{letter}": "{letter * length}"}}'


def assert_tidy(items: FakeItems, text: str | None) -> None:
    """Check that only chunks of *text* exist."""
    if text is None:
        assert items.stored == {}
    elif len(text) <= items.limit and HEAD in items.stored and items.stored[HEAD] == text:
        assert set(items.stored) == {HEAD}
    else:
        generation = re.search(r'"generation": "([ab])"', items.stored[HEAD])
        assert generation
        count = -(-len(text) // CHUNK_SIZE)
        assert set(items.stored) == {HEAD, *(f"#{generation[1]}.{number}" for number in range(count))}


lengths = st.sampled_from([0, 1, 900, CHUNK_SIZE - 10, CHUNK_SIZE, 1200, 1280, 1300, 2500, 4000, 9000])
step = st.tuples(st.sampled_from(["write", "write", "write", "delete"]), lengths, st.none() | st.integers(0, 24))


@given(st.sampled_from([CHUNK_SIZE, 1280, 3000, 100_000]), st.lists(step, min_size=1, max_size=8))
def test_a_kill_at_any_step_leaves_the_old_text_or_the_new_one_and_the_next_write_removes_the_rest(
    limit: int, steps: list[tuple[str, int, int | None]]
) -> None:
    items = FakeItems(limit)
    pieces = ChunkedItem(items)
    text: str | None = None
    for number, (verb, length, kill) in enumerate(steps):
        new = read_text(length, "abcdefgh"[number]) if verb == "write" else None
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
    ChunkedItem(items).write(read_text(5, "z"))
    assert items.stored == {HEAD: read_text(5, "z")}


@given(lengths, lengths)
def test_a_text_that_grows_or_shrinks_leaves_no_unused_items(first: int, second: int) -> None:
    items = FakeItems(1280)
    for length in (first, second, first, second):
        ChunkedItem(items).write(read_text(length, "x"))
        assert ChunkedItem(items).read() == read_text(length, "x")
        assert_tidy(items, read_text(length, "x"))
    assert ChunkedItem(items).delete()
    assert items.stored == {}
    assert not ChunkedItem(items).delete()


def test_a_short_text_on_a_backend_that_was_read_takes_one_set_and_one_get() -> None:
    items = FakeItems(1280)
    pieces = ChunkedItem(items)
    assert pieces.read() is None
    items.calls.clear()
    pieces.write(read_text(100, "x"))
    assert items.calls == ["set", "get"]
    pieces.write(read_text(100, "y"))
    assert items.calls == ["set", "get"] * 2


def test_a_short_text_takes_one_more_get_if_the_head_was_not_read() -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(read_text(100, "x"))
    assert items.calls == ["get", "set", "get"]


@pytest.mark.parametrize("harm", ["missing", "changed", "swapped", "surplus"])
def test_incomplete_chunks_are_not_a_text(harm: str) -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(read_text(3500, "x"))
    if harm == "missing":
        del items.stored["#a.2"]
    elif harm == "changed":
        items.stored["#a.1"] = "y" + items.stored["#a.1"][1:]
    elif harm == "swapped":
        items.stored["#a.0"], items.stored["#a.3"] = items.stored["#a.3"], items.stored["#a.0"]
    else:
        items.stored["#a.3"] += "x"
    assert ChunkedItem(items).read() is None
    ChunkedItem(items).write("{}")
    assert items.stored == {HEAD: "{}"}


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
def test_an_invalid_head_is_treated_as_no_text(head: str) -> None:
    items = FakeItems(100_000)
    items.stored = {HEAD: head, "#a.0": "old", "#b.0": "older"}
    assert ChunkedItem(items).read() is None
    ChunkedItem(items).delete()
    assert items.stored == {}


def test_a_backend_that_stores_nothing_is_detected() -> None:
    class NotPersistent(FakeItems):
        def set(self, name: str, text: str) -> None:
            pass

    for length in (10, 5000):
        with pytest.raises(NotStored):
            ChunkedItem(NotPersistent(100_000)).write(read_text(length, "x"))


@pytest.mark.parametrize("length", [10, 5000])
def test_a_backend_that_begins_to_drop_what_is_written_keeps_the_old_text(length: int) -> None:
    class Dropping(FakeItems):
        drops = False

        def set(self, name: str, text: str) -> None:
            if not self.drops:
                super().set(name, text)

    items = Dropping(1280)
    ChunkedItem(items).write(read_text(3000, "x"))
    ChunkedItem(items).write(read_text(length, "y"))
    items.drops = True
    for size in (10, 5000):
        with pytest.raises(NotStored):
            ChunkedItem(items, plain=True).write(read_text(size, "z"))

    assert ChunkedItem(items).read() == read_text(length, "y")
    items.drops = False
    ChunkedItem(items).write(read_text(20, "z"))
    assert_tidy(items, read_text(20, "z"))


def test_a_duplicate_that_hides_the_new_text_is_deleted() -> None:
    class Duplicating(FakeItems):
        def __init__(self) -> None:
            super().__init__(1280)
            self.hiding = [read_text(10, "d")]

        def get(self, name: str) -> str | None:
            return self.hiding[-1] if self.hiding and name == HEAD else super().get(name)

        def delete(self, name: str) -> None:
            if self.hiding and name == HEAD:
                self.hiding.pop()
            else:
                super().delete(name)

    items = Duplicating()
    ChunkedItem(items, plain=True).write(read_text(10, "x"))

    assert items.stored == {HEAD: read_text(10, "x")}
    assert not items.hiding


def test_a_backend_that_truncates_long_texts_gets_chunks() -> None:
    class Truncating(FakeItems):
        def set(self, name: str, text: str) -> None:
            super().set(name, text[:1500])

    items = Truncating(100_000)
    ChunkedItem(items).write(read_text(5000, "x"))
    assert ChunkedItem(items).read() == read_text(5000, "x")


def test_a_rejected_chunk_leaves_the_old_text_readable() -> None:
    items = FakeItems(1280)
    ChunkedItem(items).write(read_text(3000, "x"))
    items.limit = 10
    with pytest.raises(ItemRejected):
        ChunkedItem(items).write(read_text(4000, "y"))
    assert ChunkedItem(items).read() == read_text(3000, "x")


def test_a_backend_that_keeps_what_it_deletes_gets_no_more_calls_than_a_waiting_user_accepts() -> None:
    class Keeping(FakeItems):
        def delete(self, name: str) -> None:
            self.calls.append("delete")

    items = Keeping(1280)
    items.stored[HEAD] = read_text(10, "x")
    with pytest.raises(NotStored, match="accepts deletions"):
        ChunkedItem(items).delete()
    assert len(items.calls) < 250  # a call takes up to 30 ms
