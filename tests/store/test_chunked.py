"""One text in items, whose writer may be killed at any step."""

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from xapi_cli.store import chunked
from xapi_cli.store.chunked import CHUNK_SIZE, HEAD, ItemRejected, NotStored


class Killed(BaseException):
    """The process was killed."""


class FakeItems:
    """Items of a service that accepts *limit* characters; the process is killed at the change number *lives*."""

    def __init__(self, limit: int, stored: dict[str, str] | None = None) -> None:
        self.limit, self.lives = limit, -1
        self.stored = {} if stored is None else stored

    def get(self, name: str) -> str | None:
        return self.stored.get(name)

    def set(self, name: str, text: str) -> None:
        if len(text) > self.limit:
            raise ItemRejected
        self._step()
        self.stored[name] = text

    def delete(self, name: str) -> None:
        self._step()
        del self.stored[name]

    def _step(self) -> None:
        if self.lives == 0:
            raise Killed
        self.lives -= 1


def text_of(length: int, letter: str) -> str:
    return f'{{"{letter}": "{letter * length}"}}'


lengths = st.sampled_from([0, 1, 900, CHUNK_SIZE - 10, CHUNK_SIZE, 1200, 1280, 1300, 2500, 4000, 9000])
step = st.tuples(st.sampled_from(["write", "write", "write", "delete"]), lengths, st.none() | st.integers(0, 24))


@example(1280, [("write", 2500, None), ("write", 2500, 4)])  # after three chunks and what follows them
@given(st.sampled_from([CHUNK_SIZE, 1280, 3000, 100_000]), st.lists(step, min_size=1, max_size=8))
def test_a_kill_at_any_step_leaves_the_old_text_or_the_new_one_and_a_deletion_leaves_nothing(
    limit: int, steps: list[tuple[str, int, int | None]]
) -> None:
    stored: dict[str, str] = {}
    text: str | None = None
    for number, (verb, length, kill) in enumerate(steps):
        new = text_of(length, "abcdefgh"[number]) if verb == "write" else None
        items = FakeItems(limit, stored)  # of another process
        items.lives = -1 if kill is None else kill
        try:
            if new is None:
                assert chunked.delete(items) == (text is not None)
            else:
                chunked.write(items, new)
        except Killed:
            event("killed")
            found = chunked.read(FakeItems(limit, stored))
            assert found in {text, new} if new else {text, None}
            text = found
        else:
            text = new
            assert chunked.read(items) == text
    chunked.delete(FakeItems(limit, stored))
    assert stored == {}


@given(lengths, lengths)
def test_a_text_that_grows_or_shrinks_leaves_no_unused_items(first: int, second: int) -> None:
    items = FakeItems(1280)
    for length in (first, second, first, second):
        text = text_of(length, "x")
        chunked.write(items, text)
        assert chunked.read(items) == text
        assert len(items.stored) == (1 if items.stored[HEAD] == text else 1 + -(-len(text) // CHUNK_SIZE))


def test_a_text_is_split_only_if_the_service_rejects_it() -> None:
    for limit, count in ((100_000, 1), (1280, 6)):
        items = FakeItems(limit)
        chunked.write(items, text_of(4500, "x"))
        assert len(items.stored) == count


def test_a_chunk_that_is_missing_or_changed_makes_the_text_unreadable() -> None:
    items = FakeItems(1280)
    chunked.write(items, text_of(4000, "x"))
    name = next(name for name in items.stored if name.endswith(".1"))
    before = items.stored.pop(name)
    assert chunked.read(items) is None
    items.stored[name] = before.replace("x", "y")
    assert chunked.read(items) is None
    assert chunked.delete(items)
    assert items.stored == {}


def test_a_service_that_does_not_do_what_it_accepts_is_detected() -> None:
    class Null(FakeItems):
        def set(self, name: str, text: str) -> None:
            pass

    class Keeping(FakeItems):
        def delete(self, name: str) -> None:
            pass

    for length in (5, 5000):
        with pytest.raises(NotStored, match="accepts records but does not store them"):
            chunked.write(Null(1280), text_of(length, "x"))
    with pytest.raises(NotStored, match="accepts deletions but does not delete the record"):
        chunked.delete(Keeping(1280, {HEAD: "{}"}))


def test_copies_of_the_text_that_other_programs_have_made_are_deleted_too() -> None:
    class Copies(FakeItems):
        copies = 3

        def delete(self, name: str) -> None:
            self.copies -= 1
            if not self.copies:
                super().delete(name)

    items = Copies(1280, {HEAD: "{}"})
    assert chunked.delete(items)
    assert items.stored == {}
